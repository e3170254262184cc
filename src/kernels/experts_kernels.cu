/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The kernels of dispatch and combine. experts.h says what each does.
 *
 * PLACING A copy's row in its block is the number of copies for earlier experts of the rank's
 * group, plus the number of earlier copies for the same expert. The thread block of an expert
 * counts both in one pass over all copies, and hands out rows in a second one. It needs no memory
 * that thread blocks share, at the price of reading all copies' experts twice for each expert, from
 * L2. One placing serves the runs of all groups.
 *
 * SEGMENTS `arrived` says how many rows each segment has. Every block adds up those of the group
 * that lie before its own segment, in the order of experts and in the order of the block that they
 * travel in.
 */

#include <ceoverlap/device.cuh>

#include "kernels/experts.h"
#include "kernels/marks.cuh"
#include "kernels/pattern.cuh"
#include "kernels/vectors.cuh"

#define WARP_LANES 32u
#define N_WARPS    (CEI_EXPERTS_THREADS / WARP_LANES)
#define ALL_LANES  0xffffffffu
#define FLIGHT     4u                   /* vectors of a row that a lane has in flight */

static __device__ __forceinline__ uint32_t lane_index()
{
	return threadIdx.x % WARP_LANES;
}

static __device__ __forceinline__ uint32_t warp_index()
{
	return threadIdx.x / WARP_LANES;
}

/* The number of the warp among those of all blocks, and how many there are. */
static __device__ __forceinline__ uint64_t grid_warp()
{
	return (uint64_t)blockIdx.x * N_WARPS + warp_index();
}

static __device__ __forceinline__ uint64_t grid_warps()
{
	return (uint64_t)gridDim.x * N_WARPS;
}

static __device__ __forceinline__ uint64_t warp_sum(uint64_t value)
{
	for (uint32_t step = WARP_LANES / 2; step; step /= 2)
		value += __shfl_xor_sync(ALL_LANES, value, step);
	return value;
}

/* Whether an earlier kernel on the stream has failed, or another block of this one. */
static __device__ __forceinline__ bool has_failed(const uint32_t *failed)
{
	return *(const volatile uint32_t *)failed != 0;
}

/* --- where things lie ---------------------------------------------------------- */

static __device__ __forceinline__ char *block_of(const struct cei_experts_work &work, char *blocks,
						 uint32_t rank)
{
	return blocks + rank * (work.n_header_rows + work.capacity) * work.row_bytes;
}

/* The block that has come from a rank. */
static __device__ __forceinline__ char *arriving(const struct cei_experts_work &work,
						 uint32_t source)
{
	return block_of(work, source == work.own ? work.leaving : work.arriving, source);
}

static __device__ __forceinline__ uint4 *row_at(const struct cei_experts_work &work, char *block,
						uint64_t row)
{
	return (uint4 *)(block + (work.n_header_rows + row) * work.row_bytes);
}

/* How many slots the blocks of one group have. */
static __device__ __forceinline__ uint32_t n_group_slots(const struct cei_experts_work &work)
{
	return work.n_ranks * (uint32_t)work.capacity;
}

/* A slot's number among those of the run's group. At least n_group_slots(): there is none, or it is
 * another group's; -1 and slots of earlier groups wrap around to numbers above all slots. */
static __device__ __forceinline__ uint32_t slot_here(const struct cei_experts_work &work,
						     int32_t slot)
{
	return (uint32_t)slot - work.group * n_group_slots(work);
}

/* n: a slot's number in the run's group. */
static __device__ __forceinline__ uint4 *leaving_slot(const struct cei_experts_work &work,
						      uint32_t n)
{
	const uint32_t capacity = (uint32_t)work.capacity;

	return row_at(work, block_of(work, work.leaving, n / capacity), n % capacity);
}

static __device__ __forceinline__ const uint4 *arriving_slot(const struct cei_experts_work &work,
							     uint32_t n)
{
	const uint32_t capacity = (uint32_t)work.capacity;

	return row_at(work, arriving(work, n / capacity), n % capacity);
}

/* The experts of a rank in each group. */
static __device__ __forceinline__ uint32_t n_each(const struct cei_experts_work &work)
{
	return work.n_local / work.n_groups;
}

static __device__ __forceinline__ uint64_t n_copies(const struct cei_experts_work &work)
{
	return work.n_tokens * work.top_k;
}

static __device__ __forceinline__ uint64_t row_vectors(const struct cei_experts_work &work)
{
	return work.row_bytes / sizeof(uint4);
}

/* Copies a row with the lanes of a warp. */
static __device__ __forceinline__ void copy_row(uint4 *to, const uint4 *from, uint64_t n)
{
	uint4 raw[FLIGHT];

	for (uint64_t first = lane_index(); first < n; first += FLIGHT * WARP_LANES) {
#pragma unroll
		for (uint32_t i = 0; i < FLIGHT; i++)
			if (first + i * WARP_LANES < n)
				raw[i] = from[first + i * WARP_LANES];
#pragma unroll
		for (uint32_t i = 0; i < FLIGHT; i++)
			if (first + i * WARP_LANES < n)
				to[first + i * WARP_LANES] = raw[i];
	}
}

/* --- dispatch: places ---------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_check(const __grid_constant__ struct cei_experts_check check)
{
	bool is_good = true;

	for (uint64_t i = thread_index(); i < check.n; i += n_threads())
		is_good = is_good && check.numbers[i] >= -1 && check.numbers[i] < check.limit;
	if (!is_good)
		cei_mark_fail({ check.status, check.failed, NULL }, (int)check.fault);
}

/* What each warp of a block has counted in its part of the copies. */
struct place_counts {
	uint64_t other[N_WARPS];        /* for the rank's experts of earlier groups */
	uint64_t lower[N_WARPS];        /* for experts of the same rank and group before this one */
	uint64_t equal[N_WARPS];        /* for this expert */
};

/* Where a block's copies begin, and where those of this warp do. */
struct place_begin {
	uint64_t room;                  /* rows of the block that copies may have */
	uint64_t before;                /* copies for the group's earlier experts */
	uint64_t n;                     /* copies for this expert */
	uint64_t n_earlier;             /* of these, in the parts of earlier warps */
};

/* The first copy of a warp's part; that of the last warp ends where a further one's would begin. */
static __device__ __forceinline__ uint64_t part_begin(const struct cei_experts_work &work,
						      uint32_t warp)
{
	return n_copies(work) * warp / N_WARPS;
}

/* Counts the warp's part. */
static __device__ __forceinline__ void count_part(const struct cei_experts_work &work,
						  int32_t expert, struct place_counts &counts)
{
	const int32_t first = expert - expert % (int32_t)work.n_local;
	const int32_t first_here = expert - expert % (int32_t)n_each(work);
	const uint64_t end = part_begin(work, warp_index() + 1);
	uint64_t other = 0, lower = 0, equal = 0;

#pragma unroll 4
	for (uint64_t i = part_begin(work, warp_index()) + lane_index(); i < end; i += WARP_LANES) {
		other += work.experts[i] >= first && work.experts[i] < first_here;
		lower += work.experts[i] >= first_here && work.experts[i] < expert;
		equal += work.experts[i] == expert;
	}
	other = warp_sum(other);
	lower = warp_sum(lower);
	equal = warp_sum(equal);
	if (lane_index())
		return;
	counts.other[warp_index()] = other;
	counts.lower[warp_index()] = lower;
	counts.equal[warp_index()] = equal;
}

static __device__ __forceinline__ struct place_begin
add_parts(const struct cei_experts_work &work, const struct place_counts &counts)
{
	struct place_begin begin = { 0, 0, 0, 0 };
	uint64_t other = 0, left;

	for (uint32_t warp = 0; warp < N_WARPS; warp++) {
		other += counts.other[warp];
		begin.before += counts.lower[warp];
		begin.n_earlier += warp < warp_index() ? counts.equal[warp] : 0;
		begin.n += counts.equal[warp];
	}
	left = other < work.total_capacity ? work.total_capacity - other : 0;
	begin.room = left < work.capacity ? left : work.capacity;
	return begin;
}

/* Gives the copies of the warp's part that are for the expert the next rows, in their order. Copies
 * without an expert get -1 in the block of expert 0. */
static __device__ __forceinline__ void place_part(const struct cei_experts_work &work,
						  int32_t expert, const struct place_begin &begin)
{
	const uint32_t target = (uint32_t)expert / work.n_local;
	const uint32_t group = (uint32_t)expert % work.n_local / n_each(work);
	const uint64_t first = (group * work.n_ranks + target) * work.capacity;
	const uint64_t end = part_begin(work, warp_index() + 1);
	const uint32_t lanes_before = (1u << lane_index()) - 1;
	uint64_t row = begin.before + begin.n_earlier;

	for (uint64_t i = part_begin(work, warp_index()); i < end; i += WARP_LANES) {
		const uint64_t copy = i + lane_index();
		const bool is_here = copy < end;
		const int32_t wanted = is_here ? work.experts[copy] : 0;
		const bool is_mine = is_here && wanted == expert;
		const uint32_t mine = __ballot_sync(ALL_LANES, is_mine);
		const uint64_t at = row + __popc(mine & lanes_before);

		if (is_mine)
			work.slots[copy] = at < begin.room ? (int32_t)(first + at) : -1;
		else if (is_here && wanted < 0 && !expert)
			work.slots[copy] = -1;
		row += __popc(mine);
	}
}

/* Writes how many rows an expert gets into the header of its rank's block, and behind the last
 * expert of the run's group how many the block has. */
static __device__ __forceinline__ void say_places(const struct cei_experts_work &work,
						  uint32_t expert, const struct place_begin &begin)
{
	const uint32_t target = expert / work.n_local, i = expert % work.n_local;
	const uint64_t left = begin.before < begin.room ? begin.room - begin.before : 0;
	const uint64_t n = begin.n < left ? begin.n : left;

	((uint32_t *)block_of(work, work.leaving, target))[i] = (uint32_t)n;
	if (work.sent)
		work.sent[expert] = (uint32_t)n;
	if (i == (work.group + 1) * n_each(work) - 1)
		work.n_rows[target] = work.n_header_rows + begin.room - left + n;
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_place(const __grid_constant__ struct cei_experts_work work)
{
	__shared__ struct place_counts counts;
	const uint32_t n_experts = work.n_local * work.n_ranks;
	struct place_begin begin;

	if (has_failed(work.failed)) {
		for (uint64_t i = thread_index(); i < work.n_ranks; i += n_threads())
			work.n_rows[i] = CEI_EXPERTS_REFUSED;
		return;
	}
	for (uint32_t expert = blockIdx.x; expert < n_experts; expert += gridDim.x) {
		count_part(work, (int32_t)expert, counts);
		__syncthreads();
		begin = add_parts(work, counts);
		place_part(work, (int32_t)expert, begin);
		if (!threadIdx.x)
			say_places(work, expert, begin);
		__syncthreads();        /* the next expert overwrites counts */
	}
}

/* Returns the number of rows of a target's block, as far as this warp's share of the copies tells:
 * slots are taken from the first on, so it is one more than the row of the last one. */
static __device__ __forceinline__ uint64_t last_row(const struct cei_experts_work &work,
						    uint32_t target)
{
	const int64_t first = (int64_t)((work.group * work.n_ranks + target) * work.capacity);
	uint64_t n = 0, other;

	for (uint64_t i = threadIdx.x; i < n_copies(work); i += CEI_EXPERTS_THREADS) {
		const int64_t row = work.slots[i] - first;

		if (row >= 0 && row < (int64_t)work.capacity && (uint64_t)row >= n)
			n = (uint64_t)row + 1;
	}
	for (uint32_t step = WARP_LANES / 2; step; step /= 2) {
		other = __shfl_xor_sync(ALL_LANES, n, step);
		n = other > n ? other : n;
	}
	return n;
}

/* Returns the number of rows of a target's block that `sent` says; each warp adds up all of it. */
static __device__ __forceinline__ uint64_t sent_rows(const struct cei_experts_work &work,
						     uint32_t target)
{
	const uint32_t *sent = work.sent + (uint64_t)target * work.n_local +
		work.group * n_each(work);
	uint64_t n = 0;

	for (uint32_t i = lane_index(); i < n_each(work); i += WARP_LANES)
		n += sent[i];
	return warp_sum(n);
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_place_again(const __grid_constant__ struct cei_experts_work work)
{
	__shared__ uint64_t rows[N_WARPS];
	const bool is_refused = has_failed(work.failed);

	for (uint32_t target = blockIdx.x; target < work.n_ranks; target += gridDim.x) {
		const uint64_t n_mine = work.sent ? sent_rows(work, target)
			: last_row(work, target);

		if (!lane_index())
			rows[warp_index()] = n_mine;
		__syncthreads();
		if (!threadIdx.x) {
			uint64_t n = 0;

			for (uint32_t warp = 0; warp < N_WARPS; warp++)
				n = rows[warp] > n ? rows[warp] : n;
			*(uint32_t *)block_of(work, work.leaving, target) = CEI_EXPERTS_GIVEN;
			work.n_rows[target] = is_refused ? CEI_EXPERTS_REFUSED
				: work.n_header_rows + n;
		}
		__syncthreads();        /* the next target overwrites rows */
	}
}

/* --- dispatch: rows ------------------------------------------------------------ */

/* Copies one token to its slots in the run's group; a lane loads FLIGHT vectors, and stores them to
 * each slot. */
static __device__ __forceinline__ void pack_token(const struct cei_experts_work &work,
						  uint64_t token)
{
	const uint64_t n = row_vectors(work);
	const uint4 *from = (const uint4 *)work.tokens + token * n;
	const int32_t *slots = work.slots + token * work.top_k;
	uint4 raw[FLIGHT];

	for (uint64_t first = lane_index(); first < n; first += FLIGHT * WARP_LANES) {
#pragma unroll
		for (uint32_t i = 0; i < FLIGHT; i++)
			if (first + i * WARP_LANES < n)
				raw[i] = from[first + i * WARP_LANES];
		for (uint32_t k = 0; k < work.top_k; k++) {
			const uint32_t slot = slot_here(work, slots[k]);

			if (slot >= n_group_slots(work))
				continue;
			uint4 *to = leaving_slot(work, slot);
#pragma unroll
			for (uint32_t i = 0; i < FLIGHT; i++)
				if (first + i * WARP_LANES < n)
					to[first + i * WARP_LANES] = raw[i];
		}
	}
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_pack(const __grid_constant__ struct cei_experts_work work)
{
	if (has_failed(work.failed))
		return;
	for (uint64_t token = grid_warp(); token < work.n_tokens; token += grid_warps())
		pack_token(work, token);
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_receive(const __grid_constant__ struct cei_experts_work work)
{
	const uint64_t n = (uint64_t)work.n_local * work.n_ranks;

	if (has_failed(work.failed))
		return;
	for (uint64_t i = thread_index(); i < n; i += n_threads())
		work.arrived[i] = ((const uint32_t *)arriving(work, (uint32_t)(i / work.n_local)))
			[i % work.n_local];
}

/* --- rows between blocks and the order of experts ------------------------------ */

/* What a block has added up of `arrived`, for one expert of the run's group. Experts are numbered
 * from the group's first one on. */
struct survey {
	uint64_t of_block[CEI_EXPERTS_RANKS_MAX];       /* [source]: rows for the group's experts */
	uint64_t before[CEI_EXPERTS_RANKS_MAX];         /* [source]: rows for earlier experts */
	uint32_t here[CEI_EXPERTS_RANKS_MAX];           /* [source]: rows for the expert */
};

/* A segment, and what all segments together are. */
struct segment {
	uint64_t row;                   /* its first row in the order of experts */
	uint64_t block_row;             /* its first row in its source's block */
	uint64_t n;
	uint64_t end;                   /* the row behind the last one of its expert */
	int      fault;                 /* enum cei_experts_fault, of any segment; 0: none */
};

/* Adds up one source with the lanes of a warp; warps take sources in turn. */
static __device__ __forceinline__ void survey_sources(const struct cei_experts_work &work,
						      uint32_t expert, struct survey &survey)
{
	for (uint32_t source = warp_index(); source < work.n_ranks; source += N_WARPS) {
		const uint32_t *arrived = work.arrived + (uint64_t)source * work.n_local +
			work.group * n_each(work);
		uint64_t of_block = 0, before = 0;

		for (uint32_t i = lane_index(); i < n_each(work); i += WARP_LANES) {
			of_block += arrived[i];
			before += i < expert ? arrived[i] : 0;
		}
		of_block = warp_sum(of_block);
		before = warp_sum(before);
		if (lane_index())
			continue;
		survey.of_block[source] = of_block;
		survey.before[source] = before;
		survey.here[source] = arrived[expert];
	}
}

static __device__ __forceinline__ struct segment
find_segment(const struct cei_experts_work &work, const struct survey &survey, uint32_t source)
{
	struct segment segment = { 0, survey.before[source], survey.here[source], 0, 0 };
	uint64_t all = 0;

	for (uint32_t s = 0; s < work.n_ranks; s++) {
		segment.row += survey.before[s] + (s < source ? survey.here[s] : 0);
		segment.end += survey.before[s] + survey.here[s];
		all += survey.of_block[s];
		if (survey.of_block[s] > work.capacity)
			segment.fault = CEI_EXPERTS_FULL_BLOCK;
	}
	if (!segment.fault && all > work.n_received)
		segment.fault = CEI_EXPERTS_TOO_MANY;
	return segment;
}

/* Copies a part of a segment's rows, a warp each row. */
template <bool GOES_BACK>
static __device__ __forceinline__ void copy_part(const struct cei_experts_work &work,
						 uint32_t source, const struct segment &segment,
						 uint32_t part)
{
	char *block = GOES_BACK ? block_of(work, work.leaving, source) : arriving(work, source);
	const uint64_t n = row_vectors(work);

	for (uint64_t i = part * N_WARPS + warp_index(); i < segment.n;
	     i += (uint64_t)work.n_parts * N_WARPS) {
		uint4 *row = (uint4 *)work.rows + (segment.row + i) * n;
		uint4 *other = row_at(work, block, segment.block_row + i);

		copy_row(GOES_BACK ? other : row, GOES_BACK ? row : other, n);
	}
}

/* What one thread writes of a segment: the expert's end with the first source's, and in a combine
 * how many rows go back to a source with the first expert's. */
template <bool GOES_BACK>
static __device__ __forceinline__ void say_segment(const struct cei_experts_work &work,
						   uint32_t expert, uint32_t source,
						   const struct segment &segment, uint64_t n_rows)
{
	if (!expert && !source && segment.fault)
		cei_mark_fail({ work.status, work.failed, NULL }, segment.fault);
	if (GOES_BACK && !expert)
		work.n_rows[source] = n_rows;
	if (!GOES_BACK && !source && !segment.fault)
		work.ends[expert] = (int32_t)segment.end;
}

template <bool GOES_BACK>
static __device__ __forceinline__ void move_rows(const struct cei_experts_work &work)
{
	__shared__ struct survey survey;
	const bool has_failed_before = has_failed(work.failed);
	const uint64_t n_units = (uint64_t)n_each(work) * work.n_ranks * work.n_parts;

	for (uint64_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
		const uint32_t part = (uint32_t)(unit % work.n_parts);
		const uint32_t number = (uint32_t)(unit / work.n_parts);
		const uint32_t expert = number / work.n_ranks, source = number % work.n_ranks;
		struct segment segment;
		bool is_refused;

		survey_sources(work, expert, survey);
		__syncthreads();
		segment = find_segment(work, survey, source);
		is_refused = has_failed_before || segment.fault;
		if (!part && !threadIdx.x)
			say_segment<GOES_BACK>(work, expert, source, segment,
					       is_refused ? CEI_EXPERTS_REFUSED
					       : work.n_header_rows + survey.of_block[source]);
		if (!is_refused)
			copy_part<GOES_BACK>(work, source, segment, part);
		__syncthreads();        /* the next unit overwrites the survey */
	}
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_sort(const __grid_constant__ struct cei_experts_work work)
{
	move_rows<false>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_give_back(const __grid_constant__ struct cei_experts_work work)
{
	move_rows<true>(work);
}

/* --- combine: sums ------------------------------------------------------------- */

/* Adds up vector v of a token's rows. Products and sums are rounded one by one, as on the host:
 * an fma would make other bits. */
template <class T>
static __device__ __forceinline__ uint4 add_vectors(const struct cei_experts_work &work,
						    uint64_t token, uint64_t v)
{
	float sum[T::n_elements], wide[T::n_elements];

#pragma unroll
	for (uint32_t i = 0; i < T::n_elements; i++)
		sum[i] = 0;
	for (uint64_t copy = token * work.top_k; copy < (token + 1) * work.top_k; copy++) {
		const uint32_t slot = slot_here(work, work.slots[copy]);
		const float weight = work.weights ? work.weights[copy] : 1;

		if (slot >= n_group_slots(work))
			continue;
		T::widen(arriving_slot(work, slot)[v], wide);
#pragma unroll
		for (uint32_t i = 0; i < T::n_elements; i++)
			sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, wide[i]));
	}
	return T::narrow(sum);
}

template <class T>
static __device__ __forceinline__ void add_up(const struct cei_experts_work &work)
{
	const uint64_t n = row_vectors(work);

	if (has_failed(work.failed))
		return;
	for (uint64_t token = grid_warp(); token < work.n_tokens; token += grid_warps())
		for (uint64_t v = lane_index(); v < n; v += WARP_LANES)
			((uint4 *)work.sums)[token * n + v] = add_vectors<T>(work, token, v);
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_add_up_bf16(const __grid_constant__ struct cei_experts_work work)
{
	add_up<struct vector_pairs<struct pair_bf16>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_add_up_fp16(const __grid_constant__ struct cei_experts_work work)
{
	add_up<struct vector_pairs<struct pair_fp16>>(work);
}

extern "C" __global__ void __launch_bounds__(CEI_EXPERTS_THREADS)
cei_experts_add_up_fp32(const __grid_constant__ struct cei_experts_work work)
{
	add_up<struct vector_fp32>(work);
}
