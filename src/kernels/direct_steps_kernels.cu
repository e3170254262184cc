/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Sums of many bytes in steps. direct.h says what they do, and how steps are counted.
 *
 * A block keeps links busy while it adds, because each of its warps has one task:
 *
 *   adders          wait for the peers' addends of a step, add up chunks into slots in shared
 *                   memory
 *   PUSH            copies what the peers add up from source to their scratch
 *   STORE           copies sums from the slots to target and, if they are gathered, to the peers
 *   COPY            copies the peers' sums from scratch to target
 *   AWAIT_ADDENDS   awaits the peers' counters, one lane each
 *   AWAIT_SUMS      the same for the counters of their sums
 *   TELL_ADDENDS    raises the peers' counters when PUSH has stored a step, one lane each
 *   TELL_SUMS       the same when STORE has stored the sums of a step
 *
 * PUSH, STORE and COPY are one thread each. They use bulk copies, of which many bytes are under way
 * without a register. PUSH waits for nobody; COPY and the adders wait for peers only through the
 * two AWAIT warps. A barrier in shared memory for each step passes each step on. It is used once in
 * a run, so a warp that is several steps behind cannot mistake one step for another.
 *
 * WHEN A WAIT FAILS, its warp sets bars.has_failed and passes on all steps that are left, so every
 * other warp comes to its end. Adders and STORE then go through their rounds without moving
 * anything, COPY ends, and counters of sums are raised no more. PUSH goes on, which is allowed as
 * long as the run has not ended: peers use the half for nothing else before that.
 */

#include "kernels/direct_steps.cuh"

namespace cei_direct_steps {

#define TEAMS        2u                 /* of adders; a team adds up a chunk */
#define TEAM_THREADS (CEI_DIRECT_STEP_ADDERS * 32u / TEAMS)
#define VECTORS      8u                 /* that an adder has in flight, of all ranks */

static_assert(CEI_DIRECT_CHUNK % (TEAM_THREADS * sizeof(uint4)) == 0, "adders share chunks");

/* --- adders and STORE -------------------------------------------------------- */

/* Where the own part's addends lie: those of rank r at spans[r].here behind one of these. */
struct addends {
	const char *own;                /* this rank's */
	const char *half;               /* the peers' */
};

/* Loads the thread's next N vectors from each rank; the first lies `at` bytes behind where the own
 * part begins, and n_left of the chunk are left. */
template <uint32_t RANKS, uint32_t N>
static __device__ __forceinline__ void
load_addends(const struct cei_direct &direct, const struct addends &addends, uint64_t at,
	     uint32_t n_left, uint4 (&raw)[RANKS][N])
{
	const char *own = addends.own + at, *half = addends.half + at;
	const uint4 *from;
	uint32_t rank, e;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++) {
		if (rank >= direct.n_ranks)
			continue;
		from = vectors_at(rank == direct.own ? own : half, direct.spans[rank].here);
#pragma unroll
		for (e = 0; e < N; e++)
			if (e * TEAM_THREADS < n_left)
				raw[rank][e] = cei_load(from + e * TEAM_THREADS);
	}
}

/* Adds up a thread's vectors of the chunk at `at`, in the order of ranks, into a slot. A thread's
 * vectors are TEAM_THREADS apart, and of each rank some are in flight. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_chunk(const struct block &block,
						 const struct addends &addends, uint64_t at,
						 uint4 *slot)
{
	constexpr uint32_t n = VECTORS / RANKS;
	const uint32_t n_vectors = chunk_bytes(at, block.direct.spans[block.direct.own].n_here) /
		sizeof(uint4);
	uint4 raw[RANKS][n];
	float sum[T::n_elements];
	uint32_t i, e, rank;

#pragma unroll 1
	for (i = threadIdx.x % TEAM_THREADS; i < n_vectors; i += n * TEAM_THREADS) {
		load_addends<RANKS, n>(block.direct, addends, at + i * sizeof(uint4),
				       n_vectors - i, raw);
#pragma unroll
		for (e = 0; e < n; e++) {
#pragma unroll
			for (rank = 0; rank < RANKS; rank++)
				if (rank < block.direct.n_ranks)
					cei_add_vector<T>(raw[rank][e], rank == 0, sum);
			if (e * TEAM_THREADS < n_vectors - i)
				slot[i + e * TEAM_THREADS] = finish_sum<T>(block.direct.scale, sum);
		}
	}
}

static __device__ __forceinline__ char *sum_slot(const struct block &block, uint32_t row)
{
	return block.slots + (CEI_DIRECT_PUSH_SLOTS + CEI_DIRECT_COPY_SLOTS +
			      row % CEI_DIRECT_SUM_SLOTS) * CEI_DIRECT_CHUNK;
}

/* Run by all adders. A slot is used again when STORE has emptied it. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void add_all(const struct block &block)
{
	const struct cei_direct &direct = block.direct;
	const struct cei_direct_span &own = direct.spans[direct.own];
	const struct addends addends = {
		(const char *)direct.source + own.leaves - own.here,
		half_of(direct, block.turn, direct.own)
	};
	uint32_t row, slot, step, n_begun = 0;
	bool is_good = true;

	for (row = threadIdx.x / TEAM_THREADS; chunk_at(row) < own.n_here; row += TEAMS) {
		step = step_of(direct, row);
		if (n_begun <= step) {
			cei_bar_wait(block.bars->arrived + step, 0);
			is_good = !has_failed(block);
			n_begun = step + 1;
		}
		slot = row % CEI_DIRECT_SUM_SLOTS;
		if (row >= CEI_DIRECT_SUM_SLOTS)
			cei_bar_wait(block.bars->sum_empty + slot,
				     (row / CEI_DIRECT_SUM_SLOTS - 1) % 2);
		if (is_good)
			add_chunk<T, RANKS>(block, addends, chunk_at(row),
					    vectors_to(sum_slot(block, row), 0));
		cei_fence_async_shared();       /* bulk stores will read the slot */
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			cei_bar_arrive(block.bars->sum_full + slot);
	}
}

static __device__ __forceinline__ void store_sums(const struct block &block, uint32_t row)
{
	const struct cei_direct &direct = block.direct;
	const struct cei_direct_span &span = direct.spans[direct.own];
	const uint64_t at = span.place + chunk_at(row);
	const uint32_t n_bytes = chunk_bytes(chunk_at(row), span.n_here);
	const char *slot = sum_slot(block, row);
	uint32_t k, rank = first_peer(direct);

	for (k = 1; direct.gathers && k < direct.n_ranks; k++) {
		cei_bulk_store(half_of(direct, block.turn, rank) + direct.gather_at + at, slot,
			       n_bytes);
		rank = peer_after(direct, rank);
	}
	cei_bulk_store((char *)direct.target + at, slot, n_bytes);
}

/* Passes on steps before this one. */
static __device__ __forceinline__ void tell_stored(const struct block &block, uint32_t *n_told,
						   uint32_t step)
{
#pragma unroll 1
	for (; *n_told < step; ++*n_told)
		cei_bar_arrive(block.bars->stored + *n_told);
}

/* Run by one thread. When the stores of a chunk have begun, it waits until those of the chunk
 * before have been read, and gives that one's slot back; behind a step also until they have been
 * written. */
static __device__ __forceinline__ void store_all(const struct block &block)
{
	const struct cei_direct &direct = block.direct;
	const uint64_t n_here = direct.spans[direct.own].n_here;
	uint32_t row, n_told = 0;

	cei_fence_async();
	for (row = 0; chunk_at(row) < n_here; row++) {
		cei_bar_wait(block.bars->sum_full + row % CEI_DIRECT_SUM_SLOTS,
			     row / CEI_DIRECT_SUM_SLOTS % 2);
		if (!has_failed(block))
			store_sums(block, row);
		cei_store_commit();
		cei_store_wait_read<1>();
		if (row)
			cei_bar_arrive(block.bars->sum_empty + (row - 1) % CEI_DIRECT_SUM_SLOTS);
		if (n_told == step_of(direct, row))
			continue;
		cei_store_wait_all_but<1>();
		tell_stored(block, &n_told, step_of(direct, row));
	}
	cei_store_wait();
	tell_stored(block, &n_told, direct.n_steps);
}

/* --- counters ---------------------------------------------------------------- */

static __device__ __forceinline__ uint64_t value_of(const struct block &block, uint32_t step)
{
	return block.turn.number * CEI_DIRECT_STEP_VALUES + step + 1;
}

/* Returns the first counter of addends, or that of sums. */
static __device__ __forceinline__ uint32_t counters_of(const struct cei_direct &direct,
						       bool is_sums)
{
	return direct.steps_first +
		(is_sums ? direct.n_ranks * CEI_DIRECT_STEP_BLOCKS_MAX : 0);
}

/* Looks at a counter without acquiring anything. An acquire empties the SM's L1 cache, and here
 * other warps work while one looks again and again. */
static __device__ __forceinline__ uint64_t peek(const uint64_t *counter)
{
	uint64_t value;

	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
	return value;
}

/* Awaits a counter that had the value *seen when it was last acquired. It looks more often than
 * await_counter() whether another wait of the block has failed: lanes and warps wait at the same
 * time, and a run should not last for two timeouts. */
static __device__ __forceinline__ bool await_value(const struct block &block, uint32_t index,
						   uint64_t value, uint64_t *seen)
{
	const struct cei_direct &direct = block.direct;
	const struct ceov_device_signal &signal = direct.arrived[block.turn.half];
	uint64_t start, now;
	int result;

	if (is_reached(*seen, value))
		return true;
#pragma unroll 1
	for (uint32_t i = 0; i < DIRECT_POLLS && peek(signal.counters + index) < value; i++)
		;
	*seen = ceov_device_load(signal.counters + index);
	if (is_reached(*seen, value))
		return true;
	start = ceov_device_now_ns();
#pragma unroll 1
	for (;;) {
		result = ceov_device_await(signal, index, value, CEI_MARK_PATIENCE_NS);
		/* now can be less than start when the thread was moved to another SM */
		now = ceov_device_now_ns();
		if (result != CEOV_DEVICE_TIMEOUT ||
		    (now > start && now - start >= direct.timeout_ns))
			break;
		if (has_failed(block))
			return false;
		if (*(const volatile uint32_t *)direct.failed) {
			result = CEOV_DEVICE_ABORTED;
			break;
		}
	}
	if (result != CEOV_DEVICE_REACHED)
		cei_mark_fail({ direct.status, direct.failed, direct.epoch }, result);
	return result == CEOV_DEVICE_REACHED;
}

/* Run by a warp: awaits each step of all peers, one lane each, and passes it on. The lanes'
 * meeting puts what they have acquired before the arrival at the barrier. Sums are awaited from
 * when the step's addends are there, so that no wait lasts for the time of two. */
static __device__ __forceinline__ void await_all(const struct block &block, uint64_t *bars,
						 bool is_sums)
{
	const struct cei_direct &direct = block.direct;
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t index = counters_of(direct, is_sums) + lane * gridDim.x + blockIdx.x;
	uint64_t seen = 0;
	bool is_good = true;
	uint32_t step;

	for (step = 0; step < direct.n_steps; step++) {
		if (is_sums) {
			cei_bar_wait(block.bars->arrived + step, 0);
			is_good = is_good && !has_failed(block);
		}
		if (is_good && is_peer(direct, lane))
			is_good = await_value(block, index, value_of(block, step), &seen);
		is_good = __all_sync(0xffffffffu, is_good);
		__syncwarp();           /* a vote alone passes on nothing that lanes acquired */
		if (lane)
			continue;
		if (!is_good)
			*(volatile uint32_t *)&block.bars->has_failed = 1;
		cei_bar_arrive(bars + step);
	}
}

/* Run by a warp: raises a counter at each peer, one lane each, when a step has been stored there.
 * With the first step of a captured run one block also tells how many runs of this rank have ended,
 * as raise_peers() of the other form does. */
static __device__ __forceinline__ void tell_all(const struct block &block, uint64_t *bars,
						bool is_sums)
{
	const struct cei_direct &direct = block.direct;
	const uint32_t lane = threadIdx.x % 32;
	const struct cei_direct_peer &peer = direct.peers[lane];
	const uint32_t index = counters_of(direct, is_sums) + direct.own * gridDim.x + blockIdx.x;
	uint32_t step;

	if (!is_peer(direct, lane))
		return;
	for (step = 0; step < direct.n_steps; step++) {
		cei_bar_wait(bars + step, 0);
		if (has_failed(block))
			return;
		cei_fence_async();      /* what bulk stores have written */
		release_stores();
		store_counter(peer.arrived[block.turn.half] + index, value_of(block, step));
		if (direct.epoch && !is_sums && !step && !blockIdx.x)
			store_counter(peer.done, block.turn.number - 1);
	}
}

/* Stores poison at the peers behind a captured run that has failed: at both halves, since peers may
 * be at another one, and in place of all that the run would have raised. Called by all threads. */
static __device__ __forceinline__ void poison_peers(const struct cei_direct &direct)
{
	const struct cei_direct_peer &peer = direct.peers[threadIdx.x % CEI_DIRECT_RANKS_MAX];
	const uint32_t own = direct.own * gridDim.x + blockIdx.x;
	uint32_t half;

	if (!direct.epoch || !is_peer(direct, threadIdx.x))
		return;
	release_stores();
	for (half = 0; half < CEI_DIRECT_HALVES; half++) {
		store_counter(peer.arrived[half] + counters_of(direct, false) + own,
			      CEOV_VALUE_LIMIT);
		store_counter(peer.arrived[half] + counters_of(direct, true) + own,
			      CEOV_VALUE_LIMIT);
	}
	if (!blockIdx.x)
		store_counter(peer.done, CEOV_VALUE_LIMIT);
}

/* --- a run -------------------------------------------------------------------- */

static __device__ __forceinline__ void init_bars(struct bars *bars)
{
	uint32_t i;

#pragma unroll 1
	for (i = 0; i < CEI_DIRECT_STEPS_MAX; i++) {
		cei_bar_init(bars->pushed + i, 1);
		cei_bar_init(bars->arrived + i, 1);
		cei_bar_init(bars->stored + i, 1);
		cei_bar_init(bars->gathered + i, 1);
	}
	for (i = 0; i < CEI_DIRECT_PUSH_SLOTS; i++)
		cei_bar_init(bars->push_full + i, 1);
	for (i = 0; i < CEI_DIRECT_COPY_SLOTS; i++)
		cei_bar_init(bars->copy_full + i, 1);
	for (i = 0; i < CEI_DIRECT_SUM_SLOTS; i++) {
		cei_bar_init(bars->sum_full + i, TEAM_THREADS / 32);
		cei_bar_init(bars->sum_empty + i, 1);
	}
	bars->has_failed = 0;
	cei_bar_init_fence();
}

template <class T>
static __device__ __forceinline__ void add_sums(const struct block &block)
{
	if (block.direct.n_ranks <= 2)
		add_all<T, 2>(block);
	else if (block.direct.n_ranks <= 4)
		add_all<T, 4>(block);
	else
		add_all<T, 8>(block);
}

template <class T>
static __device__ __forceinline__ void do_task(const struct block &block)
{
	const uint32_t warp = threadIdx.x / 32;
	const bool is_first = threadIdx.x % 32 == 0, gathers = block.direct.gathers;

	if (warp < PUSH)
		add_sums<T>(block);
	else if (warp == PUSH && is_first)
		move_all<struct push_route>(block);
	else if (warp == STORE && is_first)
		store_all(block);
	else if (warp == COPY && is_first && gathers)
		move_all<struct copy_route>(block);
	else if (warp == AWAIT_ADDENDS)
		await_all(block, block.bars->arrived, false);
	else if (warp == AWAIT_SUMS && gathers)
		await_all(block, block.bars->gathered, true);
	else if (warp == TELL_ADDENDS)
		tell_all(block, block.bars->pushed, false);
	else if (warp == TELL_SUMS && gathers)
		tell_all(block, block.bars->stored, true);
	__syncwarp();
}

/* The barriers are ready for all threads when begin_turn() returns. */
template <class T>
static __device__ __forceinline__ void run(const struct cei_direct &direct)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ __align__(128) char shared[];
	struct block block = { direct, {}, (struct bars *)shared, shared + CEI_DIRECT_BARS_BYTES };

	if (!threadIdx.x)
		init_bars(block.bars);
	block.turn = begin_turn(direct);
	if (block.turn.is_good)
		do_task<T>(block);
	__syncthreads();
	if (!block.turn.is_good || has_failed(block))
		poison_peers(direct);
	end_turn(direct, block.turn);
#else
	__trap();
#endif
}

} /* namespace */

/* On older GPUs the kernels only trap, and the host does not launch them. */
extern "C" __global__ void __launch_bounds__(CEI_DIRECT_STEP_THREADS, 1)
cei_direct_steps_bf16(const __grid_constant__ struct cei_direct direct)
{
	cei_direct_steps::run<struct vector_pairs<struct pair_bf16>>(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_STEP_THREADS, 1)
cei_direct_steps_fp16(const __grid_constant__ struct cei_direct direct)
{
	cei_direct_steps::run<struct vector_pairs<struct pair_fp16>>(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_STEP_THREADS, 1)
cei_direct_steps_fp32(const __grid_constant__ struct cei_direct direct)
{
	cei_direct_steps::run<struct vector_fp32>(direct);
}
