/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The kernels of tools and tests. */

#include "tools/kernels/work.h"

#include "kernels/module.h"

extern const unsigned char cei_work_fatbin[]
	__attribute__((visibility("hidden")));          /* work_fatbin.S */

static const char *const names[] = {
	"cei_fill",
	"cei_kernel_raise",
	"cei_kernel_await",
	"cei_kernel_pingpong",
	"cei_kernel_spin",
	"cei_kernel_fill",
	"cei_kernel_verify",
	"cei_kernel_fill_rows",
	"cei_kernel_verify_rows",
	"cei_kernel_consume",
	"cei_kernel_arrive",
	"cei_kernel_produce",
	"cei_kernel_produce_rounds",
	"cei_kernel_consume_rounds",
	"cei_kernel_compare_bf16",
	"cei_kernel_reference",
	"cei_kernel_compare_near",
};

const struct cei_module_image cei_work_kernels = {
	cei_work_fatbin, names, sizeof(names) / sizeof(names[0])
};
