/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CUDA_DRIVER_H
#define CEI_CUDA_DRIVER_H

/*
 * The CUDA driver, opened at run time. This header needs no cuda.h: files that do not include
 * cuda.h can ask whether there is a driver, and pass the pointer on. The table of driver functions
 * is in base/cuda_table.h, for cuda*.c, *_cuda.c and kernels/ alone.
 */

#include <stdint.h>

#include "base/report.h"

struct cei_cuda;

/* Loads libcuda and initialises it. CEOV_NONE (without an error line): there is no driver or no
 * GPU, or the library was built without CUDA; *ret_why says which, in words. CEOV_ERR_VERSION,
 * raised: the driver is too old or lacks a function. */
int  cei_cuda_open(struct cei_report *report, struct cei_cuda **ret_cuda,
		   const char **ret_why);
void cei_cuda_close(struct cei_cuda *cuda);

uint32_t cei_cuda_n_gpus(const struct cei_cuda *cuda);

#endif /* CEI_CUDA_DRIVER_H */
