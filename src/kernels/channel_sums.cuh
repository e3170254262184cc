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
constexpr uint32_t SUM_LAG = 2;         /* rows of sums as LAG; less than a ring's slots */

/* --- adders ---------------------------------------------------------------------------------- */

struct sums {                           /* the own sum: the chunks of a block's lane are its rows */
	const struct cei_channel_run &run;
	const struct block           &block;
};

static __device__ __forceinline__ uint64_t row_at(const struct sums &sums, uint32_t row)
{
	return chunk_at(sums.block.shared->own.from, sums.run.n_lanes, row, sums.block.lane);
}

/* `at`: row_at() */
static __device__ __forceinline__ uint32_t row_bytes(const struct sums &sums, uint64_t at)
{
	return (uint32_t)min(sums.block.shared->own.from - at, (uint64_t)CEI_CHANNEL_CHUNK);
}

static __device__ __forceinline__ char *sum_slot(const struct block &block, uint32_t row)
{
	return block.slots + (CEI_CHANNEL_PUSH_SLOTS + CEI_CHANNEL_COPY_SLOTS +
			      row % CEI_CHANNEL_SUM_SLOTS) * CEI_CHANNEL_CHUNK;
}

/* Returns the slot of chunk i of a lane's ring, of which `before` chunks were used before. */
static __device__ __forceinline__ uint32_t slot_at(uint64_t before, uint32_t i, uint32_t n_slots)
{
	return (((uint32_t)before + i) & (n_slots - 1)) * CEI_CHANNEL_CHUNK;
}

/* Returns where the addends of a peer for a row lie behind the begin of the channel's memory. */
static __device__ __forceinline__ uint32_t addends_at(const struct cei_channel_run &run,
						      const struct shared *shared, uint32_t peer,
						      uint32_t row)
{
	return shared->addends_at[peer] +
		slot_at(shared->taken_before[0][peer], row,
			run.place.layout.n_slots[CEI_CHANNEL_MOVES]);
}

/* Where the addends of a row lie. */
template <uint32_t RANKS>
struct addends {
	const char *own;
	uint32_t    at[RANKS];          /* those of peers, from where the channel's memory begins */
};

/* Returns where those of a rank begin; of one that there is not: the own ones. */
template <uint32_t RANKS>
static __device__ __forceinline__ const char *from(const struct sums &sums,
						   const struct addends<RANKS> &addends,
						   uint32_t rank)
{
	const struct cei_channel_place &place = sums.run.place;

	return is_peer(place, rank) ? place.memory[place.own] + addends.at[rank] : addends.own;
}

template <uint32_t RANKS>
static __device__ __forceinline__ struct addends<RANKS> addends_of_row(const struct sums &sums,
								       uint32_t row)
{
	struct addends<RANKS> addends;

	addends.own = sums.block.shared->own.source + row_at(sums, row);
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		addends.at[rank] = addends_at(sums.run, sums.block.shared, rank, row);
	return addends;
}

/* Loads the thread's next N vectors from each rank, the first at `at`. Behind n_bytes it loads the
 * last one again: a load that is left out would keep what the registers held before. */
template <uint32_t RANKS, uint32_t N>
static __device__ __forceinline__ void load_addends(const struct sums &sums,
						    const struct addends<RANKS> &addends,
						    uint32_t at, uint32_t n_bytes,
						    uint4 (&raw)[RANKS][N])
{
	constexpr uint32_t step = TEAM_THREADS * sizeof(uint4);
	const uint32_t last = n_bytes - (uint32_t)sizeof(uint4);
	uint32_t rank, e;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
#pragma unroll
		for (e = 0; e < N; e++)
			raw[rank][e] = cei_load((const uint4 *)(from(sums, addends, rank) +
								min(at + e * step, last)));
}

/* Adds up a thread's vectors of a row, in the order of ranks, into a slot: n_bytes, whole
 * vectors of aligned addends. A thread's vectors are TEAM_THREADS apart, and of each rank some
 * are in flight. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_vectors(const struct sums &sums, uint32_t row,
						   uint32_t n_bytes, char *slot)
{
	constexpr uint32_t n = VECTORS / RANKS;
	constexpr uint32_t step = TEAM_THREADS * sizeof(uint4);
	const struct addends<RANKS> addends = addends_of_row<RANKS>(sums, row);
	uint4 raw[RANKS][n];
	float sum[T::n_elements];
	uint32_t at, e, rank;

#pragma unroll 1
	for (at = threadIdx.x % TEAM_THREADS * (uint32_t)sizeof(uint4); at < n_bytes;
	     at += n * step) {
		load_addends<RANKS, n>(sums, addends, at, n_bytes, raw);
#pragma unroll
		for (e = 0; e < n; e++) {
			cei_add_vector<T>(raw[0][e], true, sum);
#pragma unroll
			for (rank = 1; rank < RANKS; rank++)
				if (RANKS == 2 || rank < sums.run.place.n_ranks)
					cei_add_vector<T>(raw[rank][e], false, sum);
			if (at + e * step < n_bytes)
				*(uint4 *)(slot + at + e * step) = finish_scaled<T>(sums.run, sum);
		}
	}
}

/* Reduces the vectors of all ranks at `at` of a row, by any reduction and from any address, into a
 * slot; n_left bytes of the own addends, which begin at `own`, are left. Behind the end of a row a
 * ring's slot has bytes without meaning; the operand ends there. What it needs lies in registers,
 * so that other threads of the kernel keep nothing in memory for it. */
template <class T>
static __device__ __noinline__ uint4 reduce_vector(const struct cei_channel_run &run,
						   const struct shared *shared, const char *own,
						   uint64_t row_and_at, uint32_t n_left)
{
	const uint32_t row = (uint32_t)(row_and_at >> 32), at = (uint32_t)row_and_at;
	float sum[T::n_elements];
	uint32_t rank;
	uint4 v;

#pragma unroll 1
	for (rank = 0; rank < run.place.n_ranks; rank++) {
		if (rank == run.place.own)
			v = load_vector(own, n_left);
		else
			v = load_vector(run.place.memory[run.place.own] +
					addends_at(run, shared, rank, row) + at, sizeof(uint4));
		take_addend<T>(run.reduction, v, rank == 0, sum);
	}
	return finish<T>(run, sum);
}

/* Adds up a row. Vectors that add_vectors() cannot add up are reduced one by one. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_row(const struct sums &sums, uint32_t row)
{
	constexpr uint32_t step = TEAM_THREADS * sizeof(uint4);
	const uint64_t row_begin = row_at(sums, row);
	const uint32_t n_bytes = row_bytes(sums, row_begin);
	const char *own = sums.block.shared->own.source + row_begin;
	const uint32_t n_whole = sums.run.is_scaled && is_aligned(own) ? whole_vectors(n_bytes) : 0;
	char *slot = sum_slot(sums.block, row);
	uint32_t at = n_whole + threadIdx.x % TEAM_THREADS * (uint32_t)sizeof(uint4);

	add_vectors<T, RANKS>(sums, row, n_whole, slot);
#pragma unroll 1
	for (; at < n_bytes; at += step)
		*(uint4 *)(slot + at) = reduce_vector<T>(sums.run, sums.block.shared, own + at,
							 (uint64_t)row << 32 | at, n_bytes - at);
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

#pragma unroll 1
	for (row = threadIdx.x / TEAM_THREADS; row < shared->n_rows; row += TEAMS) {
		is_good = is_good && await_row(sums, row);
		slot = row % CEI_CHANNEL_SUM_SLOTS;
		if (row >= CEI_CHANNEL_SUM_SLOTS)
			cei_bar_wait(shared->sum_empty + slot,
				     (row / CEI_CHANNEL_SUM_SLOTS - 1) % 2);
		if (is_good)
			add_row<T, RANKS>(sums, row);
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

/* Stores a row's sums to a peer's ring. STORE has told of all rows but the last SUM_LAG, for which
 * each ring has room, so the peer never waits for what STORE would tell behind its wait. */
static __device__ __forceinline__ bool send_row(const struct sums &sums, uint32_t row,
						uint32_t peer, uint32_t n_bytes)
{
	const struct block &block = sums.block;
	const uint32_t n_slots = block.place.layout.n_slots[CEI_CHANNEL_SUMS];

	if (!has_room(block, 1, peer, row) && !await_room(block, 1, peer, row))
		return false;
	cei_bulk_store(block.shared->sums_there[peer] +
		       slot_at(block.shared->sent_before[1][peer], row, n_slots),
		       sum_slot(block, row), up_to_vectors(n_bytes));
	return true;
}

/* Run by one thread, when a row has been added up: its addends are needed no more, and its sums
 * go to all that get them. */
static __device__ __forceinline__ bool store_row(const struct sums &sums, uint32_t row)
{
	const struct cei_channel_place &place = sums.run.place;
	const uint64_t at = row_at(sums, row);
	const uint32_t n_bytes = row_bytes(sums, at);
	char *target = sums.block.shared->own.target + at;
	uint32_t k, peer = place.own;

	publish(&sums.block.shared->n_added, row + 1);
#pragma unroll 1
	for (k = 1; sums.run.gathers && k < place.n_ranks; k++) {
		peer = peer + 1 < place.n_ranks ? peer + 1 : 0;
		if (!send_row(sums, row, peer, n_bytes))
			return false;
	}
	if (is_aligned(target))
		store_slot(target, sum_slot(sums.block, row), n_bytes);
	return true;
}

/* Run by a warp, when a row has been added up: stores its sums to a target that no bulk copy can
 * store to. Lanes meet in each row, since one that stayed behind would miss phases of barriers. */
static __device__ __forceinline__ void store_row_by_warp(const struct sums &sums, uint32_t row)
{
	const uint64_t at = row_at(sums, row);
	char *target = sums.block.shared->own.target + at;

	if (is_aligned(target))
		return;
	cei_bar_wait(sums.block.shared->sum_full + row % CEI_CHANNEL_SUM_SLOTS,
		     row / CEI_CHANNEL_SUM_SLOTS % 2);
	store_slot_by_warp(target, sum_slot(sums.block, row), row_bytes(sums, at));
}

/* Run by a warp, of which the first lane does what bulk copies can do. When the stores of a row
 * have begun, it waits until those of the row before have been read, and gives that one's slot
 * back. */
static __device__ __forceinline__ void store_all(const struct sums &sums)
{
	struct shared *shared = sums.block.shared;
	bool is_good = true;
	uint32_t row;

	cei_fence_async();
#pragma unroll 1
	for (row = 0; row < shared->n_rows; row++) {
		store_row_by_warp(sums, row);
		if (!leads())
			continue;
		cei_bar_wait(shared->sum_full + row % CEI_CHANNEL_SUM_SLOTS,
			     row / CEI_CHANNEL_SUM_SLOTS % 2);
		is_good = is_good && !has_failed(sums.block) && store_row(sums, row);
		cei_store_commit();
		cei_store_wait_read<1>();
		if (row)
			cei_bar_arrive(shared->sum_empty + (row - 1) % CEI_CHANNEL_SUM_SLOTS);
		if (!is_good || row < SUM_LAG)
			continue;
		cei_store_wait_all_but<SUM_LAG>();
		publish(&shared->n_sent, row + 1 - SUM_LAG);
	}
	if (!leads())
		return;
	cei_store_wait();
	if (is_good)
		publish(&shared->n_sent, shared->n_rows);
}

} /* namespace */

#endif /* CEI_CHANNEL_SUMS_CUH */
