/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * How the cuda backend raises counters in GPU memory. A stream memory operation is the fastest
 * form, but a driver need not let it write to a peer's memory. A copy of 8 bytes works wherever
 * copies do. cuda_probe.c tests which one works.
 */

#include <string.h>

#include "backend/cuda_place.h"

enum cei_cuda_flag_form cei_cuda_flag_form(struct cei_cuda_backend *own)
{
	/* relaxed: pairs with cei_cuda_flag_set(). The form is set before anybody gets addresses
	 * of the peer, and handing these over orders it. */
	return (enum cei_cuda_flag_form)atomic_load_explicit(&own->flag_form,
							     memory_order_relaxed);
}

void cei_cuda_flag_set(struct cei_cuda_backend *own, enum cei_cuda_flag_form form)
{
	/* relaxed: see cei_cuda_flag_form() */
	atomic_store_explicit(&own->flag_form, (int)form, memory_order_relaxed);
}

int cei_cuda_flag_copies(const struct cei_cuda_backend *own,
			 enum cei_cuda_flag_form form, uint64_t address)
{
	return form == CEI_CUDA_FLAG_COPY && cei_cuda_is_gpu_memory(own, address);
}

void cei_cuda_write_op(CUstreamBatchMemOpParams *op, uint64_t address, uint64_t value)
{
	memset(op, 0, sizeof(*op));
	op->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	op->writeValue.address = address;
	op->writeValue.value64 = value;
	op->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

void cei_cuda_wait_op(const struct cei_cuda_backend *own, CUstreamBatchMemOpParams *op,
		      const struct cei_await *await)
{
	memset(op, 0, sizeof(*op));
	op->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	op->waitValue.address = await->counter;
	op->waitValue.value64 = await->value;
	op->waitValue.flags = own->wait_flags;
}
