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

/* GPUs have the same UUID in all processes, while CUDA_VISIBLE_DEVICES may number them differently
 * in each, or hide them. cei_cuda_gpu_of() finds the GPU of a UUID; CEOV_NOBODY: this process does
 * not see it. cuda may be NULL. */
#define CEI_CUDA_UUID_BYTES 16u
void     cei_cuda_uuid_of(const struct cei_cuda *cuda, uint32_t gpu, uint8_t *ret_uuid);
uint32_t cei_cuda_gpu_of(const struct cei_cuda *cuda, const uint8_t *uuid);

#endif /* CEI_CUDA_DRIVER_H */
