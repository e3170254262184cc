/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The compiled kernels as read-only data. The assembler finds the file kernels.fatbin on its
 * include path (-Wa,-I). */

	.section .rodata, "a"
	.balign 64
	.globl cei_kernels_fatbin
	.hidden cei_kernels_fatbin
	.type cei_kernels_fatbin, %object
cei_kernels_fatbin:
	.incbin "kernels.fatbin"
	.size cei_kernels_fatbin, . - cei_kernels_fatbin

	.section .note.GNU-stack, "", %progbits
