/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The first kernel of a run that counts itself: begin.h has its contract and says why
 * halves of scratch memory are safe behind it. */

#include <ceoverlap/device.cuh>

#include "kernels/begin.h"

/* Keeps the first failure: what fails after it fails because of it. */
static __device__ void begin_fail(uint32_t *status_word, int result)
{
	volatile uint32_t *status = status_word;

	if (*status == CEOV_DEVICE_REACHED)
		*status = (uint32_t)result;
	__threadfence_system();
}

/* One thread for each peer. The runs before this one are over, in the order of the
 * stream: the release says so to the peer. False: failed, now or in a run before. */
static __device__ bool meet_peer(const struct cei_op_begin &begin, uint32_t peer,
				 uint64_t n_finished, uint64_t last_use)
{
	int result;

	if (begin.peer_done[peer])
		ceov_device_raise(begin.peer_done[peer], n_finished);
	if (n_finished >= CEOV_VALUE_LIMIT)
		return false;
	result = ceov_device_await(begin.done, peer, last_use, begin.timeout_ns);
	if (result == CEOV_DEVICE_REACHED)
		return true;
	begin_fail(begin.status, result);
	return false;
}

extern "C" __global__ void __launch_bounds__(CEI_BEGIN_THREADS)
cei_op_begin(const __grid_constant__ struct cei_op_begin begin)
{
	/* Written by kernels before this one on the stream, or by the host. */
	const uint64_t n_finished = *begin.epoch;
	const uint64_t last_use = begin.last_use[begin.half];
	const uint32_t peer = threadIdx.x;
	bool is_good = true;

	for (uint32_t i = threadIdx.x; i < begin.n_gates; i += CEI_BEGIN_THREADS)
		begin.gates[i] = 0;
	if (peer < begin.n_ranks && peer != begin.own)
		is_good = meet_peer(begin, peer, n_finished, last_use);
	/* All have read both words before thread 0 changes them. */
	is_good = __syncthreads_and(is_good);
	if (threadIdx.x)
		return;
	begin.last_use[begin.half] = n_finished + 1;
	*begin.epoch = is_good ? n_finished + 1 : CEOV_VALUE_LIMIT;
}

extern "C" __global__ void __launch_bounds__(1)
cei_op_await(const __grid_constant__ struct cei_op_await await)
{
	const uint64_t number = await.epoch ? *await.epoch : 0;
	int result = CEOV_DEVICE_REACHED;

	if (number >= CEOV_VALUE_LIMIT)
		return;                 /* a run before this one has failed */
	for (uint32_t i = 0; i < await.n && result == CEOV_DEVICE_REACHED; i++)
		result = ceov_device_await(await.signal, await.index + i,
					   await.value + number, await.timeout_ns);
	if (result == CEOV_DEVICE_REACHED)
		return;
	if (await.epoch)
		*await.epoch = CEOV_VALUE_LIMIT;
	begin_fail(await.status, result);
}
