/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CUDA_DRIVER_H
#define CEI_CUDA_DRIVER_H

/*
 * The CUDA driver, opened at run time. This header needs no cuda.h: plain C files
 * only ask whether there is a driver and pass the pointer on. The table of calls
 * is in base/cuda_table.h, for cuda*.c and *_cuda.c alone.
 */

#include <stdint.h>

#include "base/report.h"

struct cei_cuda;

/* Loads libcuda and initialises it. CEOV_NONE (without an error line): no driver,
 * no GPU, or built without CUDA; *ret_why then says which, in words. An old
 * driver or a missing symbol is CEOV_ERR_VERSION and raised. */
int  cei_cuda_open(struct cei_report *report, struct cei_cuda **ret_cuda,
		   const char **ret_why);
void cei_cuda_close(struct cei_cuda *cuda);

uint32_t cei_cuda_n_gpus(const struct cei_cuda *cuda);

#endif /* CEI_CUDA_DRIVER_H */
