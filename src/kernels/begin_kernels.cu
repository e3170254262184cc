/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The kernels that begin a captured run, hold a stream, and raise counters from it. begin.h says
 * what they do, and what is true behind cei_op_begin. */

#include <ceoverlap/device.cuh>

#include "kernels/begin.h"
#include "kernels/marks.cuh"

/* Called by one thread for each peer: tells the peer how many runs this rank has finished, and
 * waits until the peer has finished as many, so that both begin the same run. Earlier runs of this
 * rank have ended, because the stream is in order; the counter is raised by a release, so the peer
 * sees that they have. Returns false if this run or an earlier one has failed. */
static __device__ bool meet_peer(const struct cei_op_begin &begin, uint32_t peer,
				 uint64_t n_finished)
{
	int result;

	if (begin.peer_done[peer])
		ceov_device_raise(begin.peer_done[peer], n_finished);
	if (n_finished >= CEOV_VALUE_LIMIT)
		return false;
	result = cei_mark_await(begin.done, peer, n_finished, begin.timeout_ns, NULL);
	if (result == CEOV_DEVICE_REACHED)
		return true;
	/* epoch is NULL here, because thread 0 writes the poison for all threads */
	cei_mark_fail({ begin.status, NULL, NULL }, result);
	return false;
}

extern "C" __global__ void __launch_bounds__(CEI_BEGIN_THREADS)
cei_op_begin(const __grid_constant__ struct cei_op_begin begin)
{
	/* The word was written by earlier kernels on the stream, or by the host. */
	const uint64_t n_finished = *begin.epoch;
	const uint32_t peer = threadIdx.x;
	bool is_good = true;

	for (uint32_t i = threadIdx.x; i < begin.n_gates; i += CEI_BEGIN_THREADS)
		begin.gates[i] = 0;
	if (peer < begin.n_ranks && peer != begin.own)
		is_good = meet_peer(begin, peer, n_finished);
	/* A barrier: all threads have read the word before thread 0 changes it. */
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
		return;                 /* an earlier run has failed */
	for (uint32_t i = 0; i < await.n && result == CEOV_DEVICE_REACHED; i++)
		result = cei_mark_await(await.signal, await.index + i, await.value + number,
					await.timeout_ns, await.failed);
	if (result != CEOV_DEVICE_REACHED)
		cei_mark_fail({ await.status, await.failed, await.epoch }, result);
}

extern "C" __global__ void __launch_bounds__(1)
cei_op_raise(const __grid_constant__ struct cei_op_raise raise)
{
	if (!raise.epoch && *(const volatile uint32_t *)raise.failed)
		return;
	for (uint32_t i = 0; i < raise.n; i++)
		ceov_device_arrive(raise.signal, raise.index + i, 1, raise.value);
}
