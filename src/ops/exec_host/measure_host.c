/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The measuring functions of the host's executor, whose jobs have ended when they return. */

#include "ops/exec_host/execute_host.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ops/compute/dtype.h"

/* Hashes an index, so that consecutive indices give unrelated numbers (splitmix64's finaliser). */
static uint64_t hash_of(uint64_t index)
{
	uint64_t word = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
	return word ^ word >> 31;
}

/* Returns a number in (-1, 1) that depends only on the index. */
static float number_of(uint64_t index)
{
	return (float)((int)(hash_of(index) & 0xffff) - 0x8000) / 65536.0f;
}

int cei_host_take(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
		  uint64_t n, void **ret_memory)
{
	const uint64_t n_bytes = cei_dtype_bytes(dtype);
	char *memory = NULL;
	float number;
	uint64_t i;

	(void)stream;
	if (n)
		memory = calloc(n, n_bytes);
	if (n && !memory)
		return cei_raise(&executor->context->report, CEOV_ERR_NO_MEMORY, 0,
				 "host executor: rank %u: no memory for %" PRIu64 " numbers",
				 executor->rank, n);
	for (i = 0; i < n; i++) {
		number = number_of(i);
		cei_dtype_narrow(dtype, memory + i * n_bytes, &number, 1);
	}
	*ret_memory = memory;
	return 0;
}

void cei_host_give(struct cei_executor *executor, void *memory)
{
	(void)executor;
	free(memory);
}

int cei_host_time_begin(struct cei_executor *executor, void *stream)
{
	struct cei_host_executor *host = executor->private;

	(void)stream;
	host->begin_ns = cei_now_ns();
	return 0;
}

int cei_host_time_end(struct cei_executor *executor, void *stream, uint64_t timeout_ns,
		      uint64_t *ret_ns)
{
	const struct cei_host_executor *host = executor->private;

	(void)stream;
	(void)timeout_ns;
	*ret_ns = cei_now_ns() - host->begin_ns;
	return 0;
}
