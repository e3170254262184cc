/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The functions of base/cuda_driver.h in a build without CUDA: there is never a driver. */

#include "base/cuda_driver.h"

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
