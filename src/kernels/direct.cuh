/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DIRECT_CUH
#define CEI_DIRECT_CUH

/* What the direct kernels share: how a run of those of direct.h begins and ends, and, also for
 * those of direct_ll.h, counters, the last block of a run, and how a sum is finished. */

#include <ceoverlap/device.cuh>

#include "kernels/direct.h"
#include "kernels/marks.cuh"
#include "kernels/vectors.cuh"

#define DIRECT_POLLS 256u               /* looks at a counter before the clock and the abort word
						 * are read, too */

/* What the blocks of a run find out before it begins. */
struct direct_turn {
	uint64_t number;                /* of the run, or poison */
	uint32_t half;
	bool     is_good;               /* false: the run or one before it has failed; the same in
					 * all threads of the block */
};

/* Returns the rank that is k ranks behind this one; k is below n_ranks. Ranks serve different peers
 * at the same time. */
static __device__ __forceinline__ uint32_t behind(const struct cei_direct &direct, uint32_t k)
{
	const uint32_t rank = direct.own + k;

	return rank < direct.n_ranks ? rank : rank - direct.n_ranks;
}

/* DIRECT: struct cei_direct, or cei_direct_ll */
template <class DIRECT>
static __device__ __forceinline__ bool is_peer(const DIRECT &direct, uint32_t rank)
{
	return rank < direct.n_ranks && rank != direct.own;
}

static __device__ __forceinline__ char *half_of(const struct cei_direct &direct,
						const struct direct_turn &turn, uint32_t rank)
{
	return direct.peers[rank].scratch + turn.half * direct.half_bytes;
}

static __device__ __forceinline__ const uint4 *vectors_at(const void *base, uint64_t at)
{
	return (const uint4 *)((const char *)base + at);
}

static __device__ __forceinline__ uint4 *vectors_to(void *base, uint64_t at)
{
	return (uint4 *)((char *)base + at);
}

/* --- counters ------------------------------------------------------------ */

static __device__ __forceinline__ bool is_reached(uint64_t seen, uint64_t value)
{
	return seen >= value && seen < CEOV_VALUE_LIMIT;
}

/* Awaits a counter that had the value `seen` before. Called by one thread. Where it is reached
 * soon, the abort word is not read: another access would cost a run of few bytes a part of its
 * time. Nobody but a peer's run of this number raises the counter to its value, and then its bytes
 * are there; whether something was aborted meanwhile the host finds. */
static __device__ __forceinline__ bool
await_counter(const struct cei_direct &direct, const struct ceov_device_signal &signal,
	      uint32_t index, uint64_t value, uint64_t seen)
{
	uint32_t i;
	int result;

#pragma unroll 1
	for (i = 0; i < DIRECT_POLLS && seen < value; i++)
		seen = ceov_device_load(signal.counters + index);
	if (is_reached(seen, value))
		return true;
	result = cei_mark_await(signal, index, value, direct.timeout_ns, direct.failed);
	if (result != CEOV_DEVICE_REACHED)
		cei_mark_fail({ direct.status, direct.failed, direct.epoch }, result);
	return result == CEOV_DEVICE_REACHED;
}

/* Orders all stores of the block, which a barrier has put before this, ahead of the counters that
 * this thread stores next. One fence does so for several counters, each of which would otherwise
 * wait for the one before it to arrive. */
static __device__ __forceinline__ void release_stores()
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ void store_counter(uint64_t *counter, uint64_t value)
{
	asm volatile("st.relaxed.sys.u64 [%0], %1;" :: "l"(counter), "l"(value) : "memory");
}

/* Finds the run's number and half. In a captured run it waits until peers have ended the last run
 * that used the half; one thread waits for each peer. As a rule they have, and all four words are
 * loaded at the same time. Other runs need no such wait while all runs before them were good.
 * Behind one that has failed a peer may still read the half, so nothing is stored there. */
static __device__ __forceinline__ struct direct_turn begin_turn(const struct cei_direct &direct)
{
	struct direct_turn turn = { direct.value, direct.half, true };
	uint64_t first, other, least, done = 0;
	bool is_good = true;

	if (!direct.epoch) {
		is_good = !*(const volatile uint32_t *)direct.failed;
		turn.is_good = __syncthreads_and(is_good);
		return turn;
	}
	/* The words change only when all blocks of a run have ended; poison may come any time. */
	turn.number = *(const volatile uint64_t *)direct.epoch + 1;
	first = ((const volatile uint64_t *)direct.last_use)[0];
	other = ((const volatile uint64_t *)direct.last_use)[1];
	if (is_peer(direct, threadIdx.x))
		done = ceov_device_load(direct.done.counters + threadIdx.x);
	turn.half = first <= other ? 0 : 1;
	least = first <= other ? first : other;
	if (turn.number > CEOV_VALUE_LIMIT)
		is_good = false;
	else if (is_peer(direct, threadIdx.x))
		is_good = await_counter(direct, direct.done, threadIdx.x, least, done);
	turn.is_good = __syncthreads_and(is_good);
	return turn;
}

/* Counts the blocks of a run that have come to their end; called by one thread of each, behind a
 * barrier. Returns whether this one is the last. The count acquires the poison that another block
 * may have stored before. */
static __device__ __forceinline__ bool is_last_block(uint32_t *n_ended)
{
	const uint32_t last = gridDim.x - 1;
	uint32_t n_before;

	asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(n_before) : "l"(n_ended), "r"(last) : "memory");
	return n_before == last;
}

/* Ends a captured run: the last block that comes here advances the run's number, unless it was
 * poisoned. A block that is alone does not count, since that would cost a run of few bytes a part
 * of its time. */
static __device__ __forceinline__ void end_turn(const struct cei_direct &direct,
						const struct direct_turn &turn)
{
	__syncthreads();
	if (!direct.epoch || threadIdx.x)
		return;
	if (gridDim.x > 1 && !is_last_block(direct.n_ended))
		return;
	if (*(const volatile uint64_t *)direct.epoch >= CEOV_VALUE_LIMIT)
		return;
	direct.last_use[turn.half] = turn.number;
	*direct.epoch = turn.number;
}

/* --- sums ---------------------------------------------------------------- */

/* Multiplies the elements of a sum by the scale, and rounds them to the type. */
template <class T>
static __device__ __forceinline__ uint4 finish_sum(float scale, float *sum)
{
#pragma unroll
	for (uint32_t e = 0; e < T::n_elements; e++)
		sum[e] *= scale;
	return T::narrow(sum);
}

#endif /* CEI_DIRECT_CUH */
