/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The compiled kernels of tools and tests as read-only data. The assembler finds
 * work_kernels.fatbin on its include path (-Wa,-I). */

	.section .rodata, "a"
	.balign 64
	.globl cei_work_fatbin
	.hidden cei_work_fatbin
	.type cei_work_fatbin, %object
cei_work_fatbin:
	.incbin "work_kernels.fatbin"
	.size cei_work_fatbin, . - cei_work_fatbin

	.section .note.GNU-stack, "", %progbits
