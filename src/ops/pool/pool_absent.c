/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Pools in a build without CUDA: no channel is between GPUs, so nothing of this is called. */

#include "ops/pool/pool.h"

int cei_pool_gpu_open(ceov_pool *pool)
{
	(void)pool;
	return CEOV_ERR_INVALID;
}

int cei_pool_gpu_is_idle(const ceov_pool *pool)
{
	(void)pool;
	return 1;
}

void cei_pool_gpu_close(ceov_pool *pool)
{
	(void)pool;
}

int cei_pool_gpu_is_capturing(const ceov_pool *pool, void *stream)
{
	(void)pool;
	(void)stream;
	return 0;
}

int cei_pool_gpu_wait(ceov_pool *pool, void *stream, uint64_t number)
{
	(void)pool;
	(void)stream;
	(void)number;
	return CEOV_ERR_INVALID;
}

int cei_pool_gpu_copy(ceov_pool *pool, const struct cei_pool_copy *copy)
{
	(void)pool;
	(void)copy;
	return CEOV_ERR_INVALID;
}

int cei_pool_gpu_kernel(ceov_pool *pool, const struct cei_pool_task *task)
{
	(void)pool;
	(void)task;
	return CEOV_ERR_INVALID;
}
