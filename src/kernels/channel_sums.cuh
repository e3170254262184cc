/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_SUMS_CUH
#define CEI_CHANNEL_SUMS_CUH

/* The warps that make sums: adders, and STORE, which gives the sums to the target and to peers. */

#include "kernels/channel_moves.cuh"

namespace cei_channel {

constexpr uint32_t TEAMS = 2;           /* of adders; a team adds up a chunk */
constexpr uint32_t TEAM_THREADS = CEI_CHANNEL_ADDERS * 32 / TEAMS;
constexpr uint32_t VECTORS = 8;         /* that an adder has in flight at most, of all ranks */
constexpr uint32_t SUM_LAG = 2;         /* rows of sums as LAG */

/* --- adders ---------------------------------------------------------------------------------- */

struct sums {                           /* a block's chunks of the own sum: its rows */
	const struct cei_channel_run &run;
	const struct block           &block;
	uint32_t                      n_rows;
};

static __device__ __forceinline__ const struct cei_channel_part &own_part(const struct sums &sums)
{
	return sums.run.parts[sums.run.place.own];
}

static __device__ __forceinline__ uint64_t row_at(const struct sums &sums, uint32_t row)
{
	return chunk_at(own_part(sums).from, sums.run.n_lanes, row, sums.block.lane);
}

static __device__ __forceinline__ uint32_t row_bytes(const struct sums &sums, uint32_t row)
{
	return (uint32_t)min(own_part(sums).from - row_at(sums, row),
			     (uint64_t)CEI_CHANNEL_CHUNK);
}

static __device__ __forceinline__ char *sum_slot(const struct block &block, uint32_t row)
{
	return block.slots + (CEI_CHANNEL_PUSH_SLOTS + CEI_CHANNEL_COPY_SLOTS +
			      row % CEI_CHANNEL_SUM_SLOTS) * CEI_CHANNEL_CHUNK;
}

/* Where the addends of a chunk lie. */
template <uint32_t RANKS>
struct addends {
	const char *from[RANKS];        /* [rank] */
	uint32_t    n_bytes;
};

/* Returns where the addends of a rank for a row lie. */
static __device__ __forceinline__ const char *addends_at(const struct sums &sums, uint32_t rank,
							 uint32_t row)
{
	return rank == sums.run.place.own ? own_part(sums).source + row_at(sums, row)
		: slot_here(sums.block, 0, rank, row);
}

template <uint32_t RANKS>
static __device__ __forceinline__ struct addends<RANKS> addends_of(const struct sums &sums,
								   uint32_t row)
{
	struct addends<RANKS> addends;

	addends.n_bytes = row_bytes(sums, row);
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (rank < sums.run.place.n_ranks)
			addends.from[rank] = addends_at(sums, rank, row);
	return addends;
}

/* Loads the thread's next N vectors from each rank, the first at `at`, which are aligned. */
template <uint32_t RANKS, uint32_t N>
static __device__ __forceinline__ void load_addends(const struct sums &sums,
						    const struct addends<RANKS> &addends,
						    uint32_t at, uint4 (&raw)[RANKS][N])
{
	constexpr uint32_t step = TEAM_THREADS * sizeof(uint4);
	uint32_t rank, e;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++) {
		if (rank >= sums.run.place.n_ranks)
			continue;
#pragma unroll
		for (e = 0; e < N; e++)
			if (at + e * step < addends.n_bytes)
				raw[rank][e] = cei_load((const uint4 *)(addends.from[rank] + at +
									e * step));
	}
}

/* Adds up a thread's vectors of a chunk, in the order of ranks, into a slot: whole ones of aligned
 * addends. A thread's vectors are TEAM_THREADS apart, and of each rank some are in flight. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_vectors(const struct sums &sums,
						   const struct addends<RANKS> &addends, char *slot)
{
	constexpr uint32_t n = VECTORS / RANKS;
	constexpr uint32_t step = TEAM_THREADS * sizeof(uint4);
	uint4 raw[RANKS][n];
	float sum[T::n_elements];
	uint32_t at, e, rank;

#pragma unroll 1
	for (at = threadIdx.x % TEAM_THREADS * (uint32_t)sizeof(uint4); at < addends.n_bytes;
	     at += n * step) {
		load_addends<RANKS, n>(sums, addends, at, raw);
#pragma unroll
		for (e = 0; e < n; e++) {
#pragma unroll
			for (rank = 0; rank < RANKS; rank++)
				if (rank < sums.run.place.n_ranks)
					cei_add_vector<T>(raw[rank][e], rank == 0, sum);
			if (at + e * step < addends.n_bytes)
				*(uint4 *)(slot + at + e * step) = finish<T>(sums.run, sum);
		}
	}
}

/* Reduces the vectors of all ranks at `at` of a row, by any reduction and from any address. Behind
 * the end of a chunk a ring's slot has bytes without meaning; the operand ends there. */
template <class T>
static __device__ __forceinline__ void reduce_vector(const struct sums &sums, uint32_t row,
						     uint32_t at, char *slot)
{
	const uint32_t n_left = row_bytes(sums, row) - at;
	float sum[T::n_elements];
	uint32_t rank;

#pragma unroll 1
	for (rank = 0; rank < sums.run.place.n_ranks; rank++)
		take_addend<T>(sums.run.reduction,
			       load_vector(addends_at(sums, rank, row) + at,
					   rank == sums.run.place.own ? n_left : sizeof(uint4)),
			       rank == 0, sum);
	*(uint4 *)(slot + at) = finish<T>(sums.run, sum);
}

/* Adds up a chunk. Vectors that add_vectors() cannot add up are reduced one by one. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_chunk(const struct sums &sums, uint32_t row)
{
	constexpr uint32_t step = TEAM_THREADS * sizeof(uint4);
	const bool is_plain = is_aligned(own_part(sums).source) &&
		(sums.run.reduction == CEOV_SUM || sums.run.reduction == CEOV_MEAN);
	struct addends<RANKS> addends = addends_of<RANKS>(sums, row);
	const uint32_t n_bytes = addends.n_bytes, n_whole = is_plain ? whole_vectors(n_bytes) : 0;
	char *slot = sum_slot(sums.block, row);
	uint32_t at = n_whole + threadIdx.x % TEAM_THREADS * (uint32_t)sizeof(uint4);

	addends.n_bytes = n_whole;
	add_vectors<T, RANKS>(sums, addends, slot);
#pragma unroll 1
	for (; at < n_bytes; at += step)
		reduce_vector<T>(sums, row, at, slot);
}

/* Waits until the addends of a row have come from all peers. */
static __device__ __forceinline__ bool await_row(const struct sums &sums, uint32_t row)
{
	const struct cei_channel_place &place = sums.run.place;
	const uint32_t peer = threadIdx.x % 32;
	bool is_good = true;

	if (is_peer(place, peer))
		is_good = await_count(sums.block, &sums.block.shared->n_come[0][peer], row + 1);
	is_good = __all_sync(0xffffffffu, is_good);
	__syncwarp();           /* a vote alone passes on nothing that lanes acquired */
	return is_good;
}

/* Run by all adders. A slot is used again when STORE has emptied it. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_all(const struct sums &sums)
{
	struct shared *shared = sums.block.shared;
	uint32_t row, slot;
	bool is_good = true;

	for (row = threadIdx.x / TEAM_THREADS; row < sums.n_rows; row += TEAMS) {
		is_good = is_good && await_row(sums, row);
		slot = row % CEI_CHANNEL_SUM_SLOTS;
		if (row >= CEI_CHANNEL_SUM_SLOTS)
			cei_bar_wait(shared->sum_empty + slot,
				     (row / CEI_CHANNEL_SUM_SLOTS - 1) % 2);
		if (is_good)
			add_chunk<T, RANKS>(sums, row);
		cei_fence_async_shared();       /* bulk stores will read the slot */
		__syncwarp();
		if (leads())
			cei_bar_arrive(shared->sum_full + slot);
	}
}

template <class T>
static __device__ __forceinline__ void add_sums(const struct sums &sums)
{
	if (sums.run.place.n_ranks <= 2)
		add_all<T, 2>(sums);
	else if (sums.run.place.n_ranks <= 4)
		add_all<T, 4>(sums);
	else
		add_all<T, CEI_CHANNEL_RANKS_MAX>(sums);
}

/* --- STORE ----------------------------------------------------------------------------------- */

/* Tells TELL_SUMS that all peers have the first n rows. */
static __device__ __forceinline__ void tell_rows(const struct sums &sums, uint32_t n)
{
	const uint32_t peer = threadIdx.x % 32;

	__syncwarp();                   /* behind the leader's wait for its stores */
	if (sums.run.gathers && is_peer(sums.run.place, peer))
		publish(&sums.block.shared->n_stored[1][peer], n);
}

/* Stores a row's sums to a peer's ring. Before STORE waits for room there, it tells of what it has
 * stored: else the peer could wait for it. */
static __device__ __forceinline__ bool send_row(const struct sums &sums, uint32_t row,
						uint32_t peer)
{
	const struct block &block = sums.block;
	bool is_good = true;

	__syncwarp();                   /* the leader has noted what it saw */
	if (!has_room(block, 1, peer, row)) {
		if (leads()) {
			cei_store_commit();
			cei_store_wait();
		}
		tell_rows(sums, row);
		if (leads())
			is_good = await_room(block, 1, peer, row);
		is_good = __all_sync(0xffffffffu, is_good);
	}
	if (is_good && leads())
		cei_bulk_store(slot_there(block, 1, peer, row), sum_slot(block, row),
			       up_to_vectors(row_bytes(sums, row)));
	return is_good;
}

/* The addends of a row that has been added up are needed no more. */
static __device__ __forceinline__ void give_back(const struct sums &sums, uint32_t row)
{
	const uint32_t peer = threadIdx.x % 32;

	if (is_peer(sums.run.place, peer))
		publish(&sums.block.shared->n_done[0][peer], row + 1);
}

static __device__ __forceinline__ bool store_row(const struct sums &sums, uint32_t row)
{
	const struct cei_channel_place &place = sums.run.place;
	bool is_good = true;
	uint32_t k, peer;

	give_back(sums, row);
	for (k = 1; is_good && sums.run.gathers && k < place.n_ranks; k++) {
		peer = place.own + k;
		is_good = send_row(sums, row, peer < place.n_ranks ? peer : peer - place.n_ranks);
	}
	if (is_good)
		store_slot(own_part(sums).target + row_at(sums, row), sum_slot(sums.block, row),
			   row_bytes(sums, row));
	return is_good;
}

/* Run by a warp. When the stores of a row have begun, it waits until those of the row before have
 * been read, and gives that one's slot back. */
static __device__ __forceinline__ void store_all(const struct sums &sums)
{
	struct shared *shared = sums.block.shared;
	bool is_good = true;
	uint32_t row;

	cei_fence_async();
	for (row = 0; row < sums.n_rows; row++) {
		cei_bar_wait(shared->sum_full + row % CEI_CHANNEL_SUM_SLOTS,
			     row / CEI_CHANNEL_SUM_SLOTS % 2);
		/* Also behind a failure lanes meet in each row: one that stayed behind would miss
		 * phases of barriers. */
		is_good = still_runs(sums.block) && store_row(sums, row);
		if (leads()) {
			cei_store_commit();
			cei_store_wait_read<1>();
			if (row)
				cei_bar_arrive(shared->sum_empty +
					       (row - 1) % CEI_CHANNEL_SUM_SLOTS);
			cei_store_wait_all_but<SUM_LAG>();
		}
		if (row >= SUM_LAG && is_good)
			tell_rows(sums, row + 1 - SUM_LAG);
	}
	if (leads())
		cei_store_wait();
	if (is_good)
		tell_rows(sums, sums.n_rows);
}

} /* namespace */

#endif /* CEI_CHANNEL_SUMS_CUH */
