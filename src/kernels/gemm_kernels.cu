/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The GEMM whose tiles await and raise marks: a persistent, warp-specialised kernel for sm_90a.
 * gemm.h describes its parameters. A cluster of two blocks works on two tiles of one column. Each
 * block loads its rows of A, and half of B for both blocks: half of the rows of an n x k B, or
 * every other box of 64 columns of a k x n B.
 *
 *   warp 0            awaits the piece, loads A and B      --full-->   consumers
 *   warps 4-7, 8-11   multiply; each group has half the    <-empty--
 *                     tile's rows, and stores its rows
 *                     of A if A is kept
 *   warps 1, 2        one for each group: load partial     --full-->   consumers
 *                     sums, store C, arrive                <-empty--
 *   warp 3            claims columns of pairs of tiles, if
 *                     clusters claim them (gemm_pairs.cuh)
 *
 * So the multiplying warps lose no time by storing, or by waiting until stored rows may be
 * announced.
 *
 * An await that fails sets `failed`. After that no thread of the block waits for marks, and tiles
 * are computed from whatever is in memory (gemm.h says how others learn of it).
 */

#include <ceoverlap/device.cuh>

#include "kernels/gemm.h"
#include "kernels/gemm_layout.cuh"
#include "kernels/gemm_pairs.cuh"
#include "kernels/gemm_sm90.cuh"
#include "kernels/gemm_sums.cuh"
#include "kernels/gemm_wgmma.cuh"
#include "kernels/marks.cuh"

namespace cei_gemm_kernels {

/* Registers per thread: 168 when the kernel starts (65536 / 384), then redistributed by role. */
#define REGISTERS_MOVE     40
#define REGISTERS_MULTIPLY 232

static __device__ __forceinline__ uint64_t awaited_value(const struct cei_gemm_marks &marks)
{
	if (!marks.epoch)
		return marks.await_value;
	return marks.await_value + *(const volatile uint64_t *)marks.epoch;
}

/* Awaits a counter. Called by one thread. After it tensor copies may load the piece. */
static __device__ void await(const struct cei_gemm_marks &marks,
			     const struct ceov_device_signal &signal, uint32_t index,
			     uint64_t value, volatile uint32_t *failed)
{
	int result;

	if (*failed)
		return;
	result = cei_mark_await(signal, index, value, marks.timeout_ns, marks.failed);
	if (result != CEOV_DEVICE_REACHED) {
		cei_mark_fail({ marks.status, marks.failed, marks.epoch }, result);
		/* Set after the poison, because a thread that finds it set goes on to arrive. */
		*failed = 1;
	}
	cei_fence_async();
}

/* --- warp 0, one thread: loads A and B -------------------------------------------------- */

/* Loads this block's half of a stage of a k x n B, every other box, into both blocks. */
template <class L>
static __device__ __forceinline__ void
load_boxes(uint8_t *b, const struct cei_gemm_map *map, struct cei_box at, uint64_t *full,
	   uint32_t block)
{
#pragma unroll
	for (uint32_t i = 0; i < L::columns / PANEL_COLUMNS; i++) {
		if (i % CEI_GEMM_CLUSTER == block)
			cei_box_load_both(b + i * BOX_BYTES, map, at, full);
		at.column += PANEL_COLUMNS;
	}
}

template <class L>
static __device__ __forceinline__ void
load_tile(const struct cei_gemm &p, const struct shared &shared,
	  const struct cei_gemm_tile &tile, uint32_t pair_turn, struct turn *turn)
{
	const uint32_t block = cei_cluster_block();
	const struct cei_gemm_map *a = &p.a[tile.a];
	const struct cei_gemm_map *b = &p.b[tile.b];
	const int32_t b_row = (int32_t)(tile.column + block * (L::columns / 2));

	for (uint32_t step = 0; step < p.n_steps; step++) {
		uint8_t *stage = shared.stage + turn->index * L::stage_bytes;
		uint64_t *full = &shared.bars->full[turn->index];
		const int32_t k = (int32_t)(step * CEI_GEMM_K_STEP);

		cei_pair_look_ahead(p, &shared.bars->pairs, pair_turn, step);
		cei_bar_wait(&shared.bars->empty[turn->index], turn->parity ^ 1);
		cei_bar_expect(full, L::stage_bytes);
		cei_box_load(stage, a, { k, (int32_t)tile.a_row }, full);
		if constexpr (L::b_is_kn)
			load_boxes<L>(stage + L::a_bytes, b, { (int32_t)tile.column, k },
				      full, block);
		else
			cei_box_load_both(stage + L::a_bytes + block * (L::b_bytes / 2), b,
					  { k, b_row }, full);
		turn_next(turn, L::stages);
	}
}

template <class L>
static __device__ void load_all(const struct cei_gemm &p,
				const struct shared &shared)
{
	const uint64_t value = awaited_value(p.marks);
	const uint32_t block = cei_cluster_block();
	uint32_t awaited = CEI_GEMM_NONE;
	struct turn turn = { 0, 0 };
	uint32_t n = 0, pair;

	while ((pair = cei_pair_next<false>(p, &shared.bars->pairs, &n)) < p.n_pairs) {
		const struct cei_gemm_tile tile = tile_at(p, pair, block);

		if (p.marks.awaited.counters && tile.await != CEI_GEMM_NONE &&
		    tile.await != awaited) {
			await(p.marks, p.marks.awaited, tile.await, value,
			      &shared.bars->failed);
			awaited = tile.await;
		}
		load_tile<L>(p, shared, tile, n - 1, &turn);
	}
	for (uint32_t i = 0; blockIdx.x == 0 && i < p.marks.n_sent; i++)
		await(p.marks, p.marks.sent, p.marks.sent_index + i, p.marks.sent_value,
		      &shared.bars->failed);
}

/* --- warps 1 and 2: load partial sums, store C ------------------------------------------ */

/* Run by one thread: loads partial sums, panel by panel, into the place of C; one source after
 * another. */
template <class L>
static __device__ void load_sums(const struct cei_gemm &p,
				 const struct shared &shared,
				 const struct cei_gemm_tile &tile, struct turn *turn)
{
	const uint32_t group = threadIdx.x / 32 - 1;
	const uint64_t value = awaited_value(p.marks);
	uint8_t *c = shared.c + group * L::panels * L::panel_bytes;

	for (uint32_t source = 0; source < p.partials.n_sources; source++) {
		const uint32_t row = source * p.partials.n_rows + tile.c_row +
			group * L::group_rows;

		if (source == p.partials.own)
			continue;
		await(p.marks, p.marks.awaited, source * p.partials.n_pieces + tile.reduce,
		      value, &shared.bars->failed);
		for (uint32_t panel = 0; panel < L::panels; panel++) {
			uint64_t *full = &shared.bars->sum_full[group][panel];

			cei_bar_wait(&shared.bars->sum_empty[group][panel],
				     turn->parity ^ 1);
			cei_bar_expect(full, L::panel_bytes);
			cei_box_load(c + panel * L::panel_bytes, &p.partials.map,
				     { (int32_t)(tile.column + panel * PANEL_COLUMNS),
				       (int32_t)row }, full);
		}
		turn->parity ^= 1;
	}
}

/* Stores n_rows rows of C. Called by a whole warp; each lane stores 16 bytes at a time. A tensor
 * copy could store only whole boxes. */
template <class L>
static __device__ void store_rows(const struct cei_gemm &p, const uint8_t *c,
				  const struct cei_gemm_tile &tile, uint32_t n_rows)
{
	const uint32_t group = threadIdx.x / 32 - 1;
	const uint32_t n_columns = p.c_columns[tile.c];
	uint16_t *base = (uint16_t *)p.c_base[tile.c];

	for (uint32_t i = threadIdx.x % 32; i < n_rows * (L::columns / 8); i += 32) {
		const uint32_t row = i / (L::columns / 8);
		const uint32_t part = i % (L::columns / 8);
		const uint32_t column = tile.column + part * 8;
		const uint64_t c_row = tile.c_row + group * L::group_rows + row;
		const uint4 *from = (const uint4 *)(c + part / 8 * L::panel_bytes +
						    row * 128 + (part % 8 ^ row % 8) * 16);

		if (column < n_columns)
			*(uint4 *)(base + c_row * n_columns + column) = *from;
	}
	cei_fence_async_shared();       /* the partial sums of the next tile will be loaded into
					 * this place */
}

template <class L>
static __device__ void store_tile(const struct cei_gemm &p, const uint8_t *c,
				  const struct cei_gemm_tile &tile)
{
	const uint32_t group = threadIdx.x / 32 - 1;
	const uint32_t n_rows = rows_of<L>(tile, group);
	const int32_t row = (int32_t)(tile.c_row + group * L::group_rows);

	if (n_rows < L::group_rows) {
		store_rows<L>(p, c, tile, n_rows);
		__syncwarp();
		return;
	}
	if (threadIdx.x % 32 == 0) {
		for (uint32_t panel = 0; panel < L::panels; panel++)
			cei_box_store(&p.c[tile.c],
				      { (int32_t)(tile.column + panel * PANEL_COLUMNS),
					row }, c + panel * L::panel_bytes);
		cei_store_commit();
		cei_store_wait_read<0>();
	}
	__syncwarp();
}

/* Counts this group's half of the tile at the tile's counter. Both groups do this, even if one has
 * no rows to store, because the counting expects two halves of each tile, in any order. */
static __device__ __forceinline__ void arrive(const struct cei_gemm &p,
					      const struct cei_gemm_tile &tile,
					      const volatile uint32_t *failed)
{
	if (threadIdx.x % 32)
		return;
	cei_store_wait();
	if (!p.marks.ready.counters || tile.arrive == CEI_GEMM_NONE || !tile.n_rows ||
	    (*failed && !p.marks.epoch))
		return;
	cei_fence_async();
	ceov_device_arrive(p.marks.ready, tile.arrive, tile.n_arrivals * GROUPS,
			   p.marks.arrive_value);
}

template <class L>
static __device__ void store_all(const struct cei_gemm &p,
				 const struct shared &shared)
{
	const uint32_t group = threadIdx.x / 32 - 1;
	const uint32_t block = cei_cluster_block();
	uint8_t *c = shared.c + group * L::panels * L::panel_bytes;
	struct turn sums = { 0, 0 };
	uint32_t n = 0, pair;

	while ((pair = cei_pair_next<true>(p, &shared.bars->pairs, &n)) < p.n_pairs) {
		const struct cei_gemm_tile tile = tile_at(p, pair, block);

		cei_named_arrive(BAR_C_EMPTY + group, C_THREADS);
		if (tile.reduce != CEI_GEMM_NONE && threadIdx.x % 32 == 0)
			load_sums<L>(p, shared, tile, &sums);
		__syncwarp();
		cei_named_sync(BAR_C_FULL + group, C_THREADS);
		store_tile<L>(p, c, tile);
		arrive(p, tile, &shared.bars->failed);
		__syncwarp();
	}
}

/* --- warpgroups 1 and 2: multiply ------------------------------------------------------- */

/* Where and when a group stores its rows of A. */
struct keeping {
	uint32_t row;                   /* row of C at which the group's rows of A begin */
	uint32_t first;                 /* first step of k that is stored */
	uint32_t n;                     /* how many steps are stored; 0: none */
};

/* Returns the steps of k in which the group stores its rows of A while it multiplies. */
template <class L>
static __device__ __forceinline__ struct keeping
keeping_of(const struct cei_gemm &p, const struct cei_gemm_tile &tile, uint32_t group)
{
	const uint32_t share = tile.column / L::columns;
	struct keeping kept = { tile.c_row + group * L::group_rows, 0, 0 };

	if (tile.b || share >= p.keeps || !rows_of<L>(tile, group))
		return kept;
	kept.first = p.n_steps * share / p.keeps;
	kept.n = p.n_steps * (share + 1) / p.keeps - kept.first;
	return kept;
}

/* Stores rows of A. Called by one thread. No fence is needed, because tensor copies loaded them. */
static __device__ __forceinline__ void keep(const struct cei_gemm &p, const uint8_t *a,
					    uint32_t step, uint32_t row)
{
	cei_box_store(&p.kept, { (int32_t)(step * CEI_GEMM_K_STEP), (int32_t)row }, a);
}

/* Tells the loaders of both blocks that this group has read the stage. */
static __device__ __forceinline__ void give_back(struct bars *bars, uint32_t stage)
{
	const uint32_t thread = threadIdx.x % GROUP_THREADS;

	if (thread < CEI_GEMM_CLUSTER)
		cei_bar_arrive_at(&bars->empty[stage], thread);
}

template <class L, enum cei_number NUMBER>
static __device__ __forceinline__ void
multiply_stage(typename L::sums &sums,
	       const uint8_t *stage, uint32_t group, int adds)
{
	const uint64_t a = cei_operand(stage + group * L::group_rows * 128);
	const uint64_t b = L::b_is_kn ? cei_operand_mn(stage + L::a_bytes)
				      : cei_operand(stage + L::a_bytes);
	constexpr uint32_t b_step = L::b_is_kn ? 128 : 2;

	cei_wgmma_fence();
#pragma unroll
	for (uint32_t k = 0; k < CEI_GEMM_K_STEP / 16; k++)
#pragma unroll
		for (uint32_t i = 0; i < L::blocks; i++)
			cei_wgmma<L::columns, NUMBER, L::b_is_kn>::multiply(
				sums[i], a + i * (64 * 128 >> 4) + 2 * k, b + b_step * k,
				k || adds);
	cei_wgmma_commit();
}

struct turns {                          /* ring positions of a multiplying thread */
	struct turn stage;
	uint32_t    sum_parity;
};

/* Multiplies a tile. With KEEPS, one thread of the group also stores the group's rows of A in the
 * kept steps. It is the thread that returns stages to its own block's loader in give_back(),
 * because only that loader overwrites A. So it returns a stage one step later, when the store of
 * the stage has been read from shared memory. Every step commits a group of stores, even an empty
 * one: otherwise the wait for all but the newest group would leave out the last store behind the
 * kept steps. */
template <class L, enum cei_number NUMBER, bool KEEPS>
static __device__ __forceinline__ void
multiply_tile(typename L::sums &sums, const struct cei_gemm &p, const struct shared &shared,
	      const struct keeping &kept, struct turn *turn)
{
	const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
	const bool stores = KEEPS && threadIdx.x % GROUP_THREADS == cei_cluster_block();
	const uint32_t n_steps = p.n_steps;
	uint32_t before = 0;

	for (uint32_t step = 0; step < n_steps; step++) {
		const uint8_t *stage = shared.stage + turn->index * L::stage_bytes;

		cei_bar_wait(&shared.bars->full[turn->index], turn->parity);
		multiply_stage<L, NUMBER>(sums, stage, group, step != 0);
		if (stores) {
			if (step - kept.first < kept.n)
				keep(p, stage + group * L::group_rows * 128, step, kept.row);
			cei_store_commit();
		}
		if (step) {
			cei_wgmma_wait<1>();
			if (stores)
				cei_store_wait_read<1>();
			give_back(shared.bars, before);
		}
		before = turn->index;
		turn_next(turn, L::stages);
	}
	cei_wgmma_wait<0>();
	if (stores)
		cei_store_wait_read<0>();
	give_back(shared.bars, before);
}

/* Computes one tile and writes C to shared memory. KEEPS is used only in an all-gather, where there
 * are no partial sums to add. Each instantiation has accumulators of its own: if both shared them,
 * ptxas would serialise the wgmma instructions (warning C7515). */
template <class L, enum cei_number NUMBER, bool KEEPS>
static __device__ __forceinline__ void
make_tile(const struct cei_gemm &p, const struct shared &shared,
	  const struct cei_gemm_tile &tile, const struct keeping &kept, struct turns *turns)
{
	const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
	typename L::sums sums;

	multiply_tile<L, NUMBER, KEEPS>(sums, p, shared, kept, &turns->stage);
	cei_named_sync(BAR_C_EMPTY + group, C_THREADS);
	if (!KEEPS && tile.reduce != CEI_GEMM_NONE)
		add_sums<L, NUMBER>(sums, shared, p.partials.n_sources - 1,
				    &turns->sum_parity);
	write_tile<L, NUMBER>(sums, shared);
	cei_named_arrive(BAR_C_FULL + group, C_THREADS);
}

template <class L, enum cei_number NUMBER>
static __device__ __forceinline__ void
multiply_all(const struct cei_gemm &p, const struct shared &shared)
{
	const uint32_t group = threadIdx.x / GROUP_THREADS - 1;
	const uint32_t block = cei_cluster_block();
	struct turns turns = { { 0, 0 }, 0 };
	uint32_t n = 0, pair;

	while ((pair = cei_pair_next<true>(p, &shared.bars->pairs, &n)) < p.n_pairs) {
		const struct cei_gemm_tile tile = tile_at(p, pair, block);
		const struct keeping kept = keeping_of<L>(p, tile, group);

		/* kept.n is the same in all threads of a warp. The vote tells that to the
		 * compiler, which then keeps the positions in the rings in uniform
		 * registers. */
		if (__any_sync(~0u, kept.n))
			make_tile<L, NUMBER, true>(p, shared, tile, kept, &turns);
		else
			make_tile<L, NUMBER, false>(p, shared, tile, kept, &turns);
	}
	if (p.keeps)
		cei_store_wait();
}

/* --- the kernel --------------------------------------------------------------------------- */

template <class L>
static __device__ __forceinline__ void begin(const struct shared &shared)
{
	if (threadIdx.x == 0) {
		for (uint32_t i = 0; i < L::stages; i++) {
			cei_bar_init(&shared.bars->full[i], 1);
			cei_bar_init(&shared.bars->empty[i], GROUPS * CEI_GEMM_CLUSTER);
		}
		for (uint32_t i = 0; i < GROUPS * 4; i++) {
			cei_bar_init(&shared.bars->sum_full[i / 4][i % 4], 1);
			cei_bar_init(&shared.bars->sum_empty[i / 4][i % 4], GROUP_THREADS);
		}
		cei_pairs_init(&shared.bars->pairs);
		shared.bars->failed = 0;
		cei_bar_init_fence();
	}
	__syncthreads();
	cei_cluster_sync();
}

template <class L, enum cei_number NUMBER>
static __device__ __forceinline__ void gemm(const struct cei_gemm &p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ uint8_t raw[];
	const struct shared shared = share_out<L>(raw);
	const uint32_t warp = threadIdx.x / 32;
	const bool claims = p.claimed && threadIdx.x == CLAIMER && !cei_cluster_block();
	/* made while another thread initialises barriers in begin(), which tells all of it */
	const uint32_t first = claims ? cei_pair_claim_first(p, &shared.bars->pairs) : 0;

	static_assert(L::stages >= 2 && L::stages <= 8,
		      "the ring fits struct bars");
	static_assert(sizeof(struct bars) <= 1024, "so do barriers their part");
	begin<L>(shared);
	if (warp < 4) {
		cei_registers_shrink<REGISTERS_MOVE>();
		if (warp == 0 && threadIdx.x == 0)
			load_all<L>(p, shared);
		else if (warp == 1 || warp == 2)
			store_all<L>(p, shared);
		else if (claims)
			cei_pairs_tell(p, &shared.bars->pairs, first);
	} else {
		cei_registers_grow<REGISTERS_MULTIPLY>();
		multiply_all<L, NUMBER>(p, shared);
	}
	/* The other block may still write into the shared memory of this block. */
	__syncwarp();
	cei_cluster_sync();
#else
	__trap();
#endif
}

} /* namespace */

/* On older GPUs the kernel only traps, and the host does not launch it. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CEI_CLUSTERED
#else
#define CEI_CLUSTERED __cluster_dims__(CEI_GEMM_CLUSTER, 1, 1)
#endif

#define CEI_GEMM_KERNEL(name, NUMBER, ROWS, COLUMNS, B_IS_KN) \
	extern "C" __global__ void CEI_CLUSTERED __launch_bounds__(CEI_GEMM_THREADS, 1) \
	name(const __grid_constant__ struct cei_gemm p) \
	{ \
		cei_gemm_kernels::gemm<cei_gemm_kernels::layout<ROWS, COLUMNS, B_IS_KN>, \
					NUMBER>(p); \
	}
#define CEI_GEMM_KERNELS(type, NUMBER, ROWS, COLUMNS) \
	CEI_GEMM_KERNEL(cei_gemm_##type##_##ROWS##x##COLUMNS, NUMBER, ROWS, COLUMNS, false) \
	CEI_GEMM_KERNEL(cei_gemm_##type##_##ROWS##x##COLUMNS##_kn, NUMBER, ROWS, COLUMNS, true)

CEI_GEMM_KERNELS(bf16, CEI_NUMBER_BF16, 128, 256)
CEI_GEMM_KERNELS(bf16, CEI_NUMBER_BF16, 128, 192)
CEI_GEMM_KERNELS(bf16, CEI_NUMBER_BF16, 128, 128)
CEI_GEMM_KERNELS(fp16, CEI_NUMBER_FP16, 128, 256)
CEI_GEMM_KERNELS(fp16, CEI_NUMBER_FP16, 128, 192)
CEI_GEMM_KERNELS(fp16, CEI_NUMBER_FP16, 128, 128)
