/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Kernels that hold SMs, write patterns and check them, for tools and tests.
 * kernels.h has their contracts. */

#include <ceoverlap/device.cuh>

#include "kernels/kernels.h"

/* Words whose bits all change from one index to the next (splitmix64's finaliser). */
static __device__ __forceinline__ uint64_t pattern(uint64_t seed, uint64_t index)
{
	uint64_t word = (seed + index + 1) * 0x9e3779b97f4a7c15ull;

	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
	word = (word ^ word >> 27) * 0x94d049bb133111ebull;
	return word ^ word >> 31;
}

static __device__ __forceinline__ uint64_t thread_index()
{
	return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t n_threads()
{
	return (uint64_t)gridDim.x * blockDim.x;
}

static __device__ void report(uint64_t n_wrong, uint64_t first,
			      unsigned long long *ret_n_wrong,
			      unsigned long long *ret_first)
{
	if (!n_wrong)
		return;
	atomicAdd(ret_n_wrong, (unsigned long long)n_wrong);
	atomicMin(ret_first, (unsigned long long)first);
}

/* Until the host raises the word or the time is over. */
extern "C" __global__ void cei_kernel_spin(const uint32_t *stop_word, uint64_t timeout_ns,
					   uint32_t *n_started)
{
	const uint64_t start = ceov_device_now_ns();
	uint32_t stop = 0;

	if (!threadIdx.x)
		atomicAdd(n_started, 1u);
	/* One thread decides: all must leave in the same turn. */
	do {
		if (threadIdx.x)
			continue;
		__nanosleep(2000);
		asm volatile("ld.acquire.sys.u32 %0, [%1];"
			     : "=r"(stop) : "l"(stop_word) : "memory");
		if (ceov_device_now_ns() - start >= timeout_ns)
			stop = 1;
	} while (!__syncthreads_or(stop != 0));
}

extern "C" __global__ void cei_kernel_fill(uint64_t *p, uint64_t n_words, uint64_t seed)
{
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads())
		p[i] = pattern(seed, i);
}

extern "C" __global__ void cei_kernel_verify(const uint64_t *p, uint64_t n_words,
					     uint64_t seed, unsigned long long *n_wrong,
					     unsigned long long *first_wrong)
{
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads()) {
		if (p[i] == pattern(seed, i))
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, n_wrong, first_wrong);
}

extern "C" __global__ void cei_kernel_fill_rows(struct cei_kernel_rows rows)
{
	const uint64_t n_words = rows.n_rows * rows.row_words;
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads())
		rows.p[i / rows.row_words * rows.pitch_words + i % rows.row_words] =
			pattern(rows.seed, i);
}

extern "C" __global__ void cei_kernel_verify_rows(struct cei_kernel_rows rows)
{
	const uint64_t n_words = rows.n_rows * rows.row_words;
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i;

	for (i = thread_index(); i < n_words; i += n_threads()) {
		if (rows.p[i / rows.row_words * rows.pitch_words + i % rows.row_words] ==
		    pattern(rows.seed, i))
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, rows.n_wrong, rows.first_wrong);
}

/* The litmus: whoever has seen the mark must see every word behind it. */
extern "C" __global__ void cei_kernel_consume(struct cei_kernel_consume consume)
{
	__shared__ int status;
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i;

	if (!threadIdx.x) {
		status = ceov_device_await(consume.signal, consume.index, consume.value,
					   consume.timeout_ns);
		atomicMax(consume.ret_status, (uint32_t)status);
	}
	__syncthreads();
	if (status != CEOV_DEVICE_REACHED)
		return;
	for (i = thread_index(); i < consume.n_words; i += n_threads()) {
		if (consume.p[i] == pattern(consume.seed, i))
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, consume.n_wrong, consume.first_wrong);
}

/* One block stores one tile at a time. */
extern "C" __global__ void cei_kernel_produce(struct cei_kernel_produce produce)
{
	uint64_t first, end, i;
	uint32_t piece = 0;
	uint32_t first_tile = 0;        /* of the piece */
	uint32_t n_tiles = produce.n_tiles;
	uint32_t tile;

	for (tile = blockIdx.x; ; tile += gridDim.x) {
		while (tile - first_tile >= n_tiles && piece < produce.n_pieces) {
			first_tile += n_tiles;
			n_tiles = produce.n_tiles + ++piece;
		}
		if (piece == produce.n_pieces)
			return;
		first = (tile - first_tile) * produce.n_words / n_tiles;
		end = (tile - first_tile + 1) * produce.n_words / n_tiles;
		first += piece * produce.n_words;
		end += piece * produce.n_words;
		for (i = first + threadIdx.x; i < end; i += blockDim.x)
			produce.p[i] = pattern(produce.seed, i);
		__syncthreads();
		if (!threadIdx.x)
			ceov_device_arrive(produce.signal, piece, n_tiles, produce.value);
	}
}

/* All threads of a block get the one result; the barrier lets them load. */
static __device__ int await_round(const struct cei_kernel_rounds &rounds, uint32_t slot,
				  uint64_t value, int *shared_status)
{
	if (!threadIdx.x)
		*shared_status = ceov_device_await(rounds.await_signal, slot,
						   rounds.first_value + value,
						   rounds.timeout_ns);
	__syncthreads();
	return *shared_status;
}

/* The barrier ends the block's accesses, and its reads of the status. */
static __device__ void end_round(const struct cei_kernel_rounds &rounds, uint32_t slot,
				 uint64_t value)
{
	__syncthreads();
	if (!threadIdx.x)
		ceov_device_arrive(rounds.raise_signal, slot, gridDim.x,
				   rounds.first_value + value);
}

extern "C" __global__ void cei_kernel_produce_rounds(struct cei_kernel_rounds rounds)
{
	__shared__ int shared_status;
	int status = CEOV_DEVICE_REACHED;
	uint64_t *p;
	uint64_t i;
	uint32_t round, slot, turn;

	for (round = 0; round < rounds.n_rounds; round++) {
		slot = round % rounds.n_slots;
		turn = round / rounds.n_slots;
		status = await_round(rounds, slot, turn, &shared_status);
		if (status != CEOV_DEVICE_REACHED)
			break;
		p = rounds.p + slot * rounds.slot_words;
		for (i = thread_index(); i < rounds.slot_words; i += n_threads())
			p[i] = pattern(rounds.seed + round * rounds.slot_words, i);
		end_round(rounds, slot, turn + 1);
	}
	if (!threadIdx.x)
		atomicMax(rounds.ret_status, (uint32_t)status);
}

extern "C" __global__ void cei_kernel_consume_rounds(struct cei_kernel_rounds rounds)
{
	__shared__ int shared_status;
	int status = CEOV_DEVICE_REACHED;
	const uint64_t *p;
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	uint64_t i, seed;
	uint32_t round, slot, turn;

	for (round = 0; round < rounds.n_rounds; round++) {
		slot = round % rounds.n_slots;
		turn = round / rounds.n_slots;
		status = await_round(rounds, slot, turn + 1, &shared_status);
		if (status != CEOV_DEVICE_REACHED)
			break;
		p = rounds.p + slot * rounds.slot_words;
		seed = rounds.seed + round * rounds.slot_words;
		for (i = thread_index(); i < rounds.slot_words; i += n_threads()) {
			if (p[i] == pattern(seed, i))
				continue;
			first = wrong ? first : round * rounds.slot_words + i;
			wrong++;
		}
		end_round(rounds, slot, turn + 1);
	}
	report(wrong, first, rounds.n_wrong, rounds.first_wrong);
	if (!threadIdx.x)
		atomicMax(rounds.ret_status, (uint32_t)status);
}
