/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The functions of base/cuda_driver.h in a build without CUDA: there is never a driver. */

#include "base/cuda_driver.h"

#include <string.h>

int cei_cuda_open(struct cei_report *report, struct cei_cuda **ret_cuda,
		  const char **ret_why)
{
	(void)report;
	(void)ret_cuda;
	*ret_why = "built without CUDA";
	return CEOV_NONE;
}

void cei_cuda_close(struct cei_cuda *cuda)
{
	(void)cuda;
}

uint32_t cei_cuda_n_gpus(const struct cei_cuda *cuda)
{
	(void)cuda;
	return 0;
}

void cei_cuda_uuid_of(const struct cei_cuda *cuda, uint32_t gpu, uint8_t *ret_uuid)
{
	(void)cuda;
	(void)gpu;
	memset(ret_uuid, 0, CEI_CUDA_UUID_BYTES);
}

uint32_t cei_cuda_gpu_of(const struct cei_cuda *cuda, const uint8_t *uuid)
{
	(void)cuda;
	(void)uuid;
	return CEOV_NOBODY;
}
