/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Kernels that hold SMs, write patterns and check them, for tools and tests.
 * work.h has their contracts. */

#include <ceoverlap/device.cuh>

#include "kernels/pattern.cuh"
#include "tools/kernels/work.h"

static __device__ void report(uint64_t n_wrong, uint64_t first,
			      unsigned long long *ret_n_wrong,
			      unsigned long long *ret_first)
{
	if (!n_wrong)
		return;
	atomicAdd(ret_n_wrong, (unsigned long long)n_wrong);
	atomicMin(ret_first, (unsigned long long)first);
}

/* Runs until the host sets the word or timeout_ns has passed. */
extern "C" __global__ void cei_kernel_spin(const uint32_t *stop_word, uint64_t timeout_ns,
					   uint32_t *n_started)
{
	const uint64_t start = ceov_device_now_ns();
	uint64_t now;
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
		now = ceov_device_now_ns();
		if (now > start && now - start >= timeout_ns)
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

extern "C" __global__ void cei_kernel_compare_bf16(struct cei_kernel_compare_bf16 compare)
{
	const uint16_t *x = (const uint16_t *)compare.x;
	uint32_t difference = 0, largest = 0, x_bits, y_bits;
	unsigned long long n_unlike = 0;
	uint64_t i;

	for (i = thread_index(); i < compare.n; i += n_threads()) {
		x_bits = (uint32_t)x[i] << 16;
		y_bits = compare.y_is_float ? ((const uint32_t *)compare.y)[i]
			: (uint32_t)((const uint16_t *)compare.y)[i] << 16;
		n_unlike += x_bits != (y_bits & 0xffff0000u);
		difference = max(difference, 0x7fffffffu & __float_as_uint(
			__uint_as_float(x_bits) - __uint_as_float(y_bits)));
		largest = max(largest, y_bits & 0x7fffffffu);
	}
	atomicMax(compare.ret_difference, difference);
	atomicMax(compare.ret_largest, largest);
	if (n_unlike)
		atomicAdd(compare.ret_n_unlike, n_unlike);
}

static __device__ __forceinline__ float widen(uint16_t bits, uint32_t is_fp16)
{
	float value;

	if (!is_fp16)
		return __uint_as_float((uint32_t)bits << 16);
	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
	return value;
}

static __device__ __forceinline__ float number_at(const void *p, uint64_t i, uint32_t dtype)
{
	if (dtype == CEOV_FP32)
		return ((const float *)p)[i];
	return widen(((const uint16_t *)p)[i], dtype == CEOV_FP16);
}

/* The value of one element, and the sum of its products' absolute values. */
struct reference_sum {
	double value;
	double size;
};

/* Computes the dot product of k numbers of a and b; those of b are b_step apart. Products
 * of two 16-bit numbers are exact in float; eight of them are added in float, and the rest
 * in double: the error is negligible beside the allowed one. */
static __device__ struct reference_sum reference_dot(const uint16_t *a, const uint16_t *b,
						     uint64_t b_step, uint64_t k,
						     uint32_t is_fp16)
{
	struct reference_sum sum = { 0.0, 0.0 };
	union { uint4 vector; uint16_t number[8]; } x, y;
	float value, size, product;
	uint64_t i;
	int j;

	for (i = 0; i < k; i += 8) {
		x.vector = *(const uint4 *)(a + i);
		if (b_step == 1)
			y.vector = *(const uint4 *)(b + i);
		for (j = 0; b_step != 1 && j < 8; j++)
			y.number[j] = b[(i + j) * b_step];
		value = size = 0.0f;
		for (j = 0; j < 8; j++) {
			product = widen(x.number[j], is_fp16) * widen(y.number[j], is_fp16);
			value += product;
			size += fabsf(product);
		}
		sum.value += (double)value;
		sum.size += (double)size;
	}
	return sum;
}

extern "C" __global__ void cei_kernel_reference(struct cei_kernel_reference reference)
{
	const uint16_t *a = (const uint16_t *)reference.a;
	const uint16_t *b = (const uint16_t *)reference.b;
	const uint64_t b_first = reference.b_is_k_by_n ? 1 : reference.k;
	const uint64_t b_step = reference.b_is_k_by_n ? reference.n : 1;
	struct reference_sum sum;
	double slack;
	uint64_t i;

	for (i = thread_index(); i < reference.n_rows * reference.n; i += n_threads()) {
		if (b) {
			sum = reference_dot(a + i / reference.n * reference.k,
					    b + i % reference.n * b_first, b_step,
					    reference.k, reference.dtype == CEOV_FP16);
		} else {
			sum.value = (double)number_at(a, i, reference.dtype);
			sum.size = fabs(sum.value);
		}
		slack = (double)reference.rounding * fabs(sum.value) +
			(double)reference.accumulation * sum.size;
		sum.value *= (double)reference.scale;
		slack *= fabs((double)reference.scale);
		if (reference.adds) {
			sum.value += reference.sum[i];
			slack += (double)reference.slack[i];
		}
		reference.sum[i] = sum.value;
		reference.slack[i] = (float)slack;
	}
}

extern "C" __global__ void cei_kernel_compare_near(struct cei_kernel_near near)
{
	uint64_t wrong = 0;
	uint64_t first = UINT64_MAX;
	double difference, bound;
	uint64_t i;

	for (i = thread_index(); i < near.n; i += n_threads()) {
		difference = fabs((double)number_at(near.x, i, near.dtype) - near.sum[i]);
		bound = (double)near.slack[i] + (double)near.least +
			(double)near.rounding * (fabs(near.sum[i]) + (double)near.slack[i]);
		if (difference <= bound)        /* false for a NaN */
			continue;
		first = wrong ? first : i;
		wrong++;
	}
	report(wrong, first, near.n_wrong, near.first_wrong);
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

/* A litmus test: a block that has seen the mark must see every word that was written before
 * it. */
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

/* Awaits in one thread, and returns the result to all threads of the block. Behind the
 * barrier all of them may load. */
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

/* Arrives in one thread, behind a barrier: all threads have made their accesses, and have
 * read the status. */
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
