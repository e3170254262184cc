/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The kernels whose bytes travel together with the number of their run. direct_ll.h says what they
 * do.
 *
 * With so few bytes a run is all latency, so what it waits for is one way across the link. The
 * first vectors that leave are loaded while the run's number is, and nothing stands between the
 * arrival of packets and the stores to target but the barrier that tells whether all of a block's
 * packets have come.
 */

#include "kernels/direct.cuh"
#include "kernels/direct_ll.h"

namespace cei_ll {

#define LL_FAILED 65536u                /* what a failed block counts beside itself */
#define LL_POLLS 64u                    /* looks for packets before a block looks for failures */

/* What a thread knows while its block awaits packets. */
struct await {
	uint64_t start_ns;              /* 0: the block has not looked for failures yet */
	bool     is_good;
	bool     is_suspect;            /* this thread has seen poison, so the block has to look for
					 * failures, even if all packets have come */
};

struct packet {
	uint64_t bytes, number;
};

/* --- packets --------------------------------------------------------------- */

static __device__ __forceinline__ void store_packet(void *to, const struct packet &packet)
{
	asm volatile("{.reg .b128 both;\n"
		     " mov.b128 both, {%1, %2};\n"
		     " st.relaxed.sys.b128 [%0], both;}"
		     :: "l"(to), "l"(packet.bytes), "l"(packet.number) : "memory");
}

static __device__ __forceinline__ struct packet load_packet(const void *from)
{
	struct packet packet;

	asm volatile("{.reg .b128 both;\n"
		     " ld.relaxed.sys.b128 both, [%2];\n"
		     " mov.b128 {%0, %1}, both;}"
		     : "=l"(packet.bytes), "=l"(packet.number) : "l"(from) : "memory");
	return packet;
}

static __device__ __forceinline__ void store_vector(const struct cei_direct_ll &direct, char *mail,
						    const uint4 &v, uint64_t number)
{
	store_packet(mail, { (uint64_t)v.y << 32 | v.x, number });
	store_packet(mail + direct.span_max, { (uint64_t)v.w << 32 | v.z, number });
}

/* Returns whether both packets of the vector belong to the run. */
static __device__ __forceinline__ bool take_vector(const struct packet (&packets)[2],
						   uint64_t number, uint4 *ret_v)
{
	ret_v->x = (uint32_t)packets[0].bytes;
	ret_v->y = (uint32_t)(packets[0].bytes >> 32);
	ret_v->z = (uint32_t)packets[1].bytes;
	ret_v->w = (uint32_t)(packets[1].bytes >> 32);
	return packets[0].number == number && packets[1].number == number;
}

/* --- sending ---------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t first_byte()
{
	return (blockIdx.x * blockDim.x + threadIdx.x) * (uint32_t)sizeof(uint4);
}

static __device__ __forceinline__ uint32_t byte_step()
{
	return gridDim.x * blockDim.x * (uint32_t)sizeof(uint4);
}

/* Loads what leaves for each peer `at` bytes behind where that begins. */
template <uint32_t RANKS>
static __device__ __forceinline__ void load_leaving(const struct cei_direct_ll &direct,
						    uint32_t at, uint4 (&leaving)[RANKS])
{
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (is_peer(direct, rank) && at < direct.peers[rank].n_leaves)
			leaving[rank] = cei_load(vectors_at(direct.source,
							    direct.peers[rank].leaves + at));
}

static __device__ __forceinline__ uint32_t half_at(const struct cei_direct_ll &direct,
						   const struct direct_turn &turn)
{
	return turn.half * direct.n_ranks * 2 * direct.span_max;
}

template <uint32_t RANKS>
static __device__ __forceinline__ void store_leaving(const struct cei_direct_ll &direct,
						     const struct direct_turn &turn, uint32_t at,
						     const uint4 (&leaving)[RANKS])
{
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (is_peer(direct, rank) && at < direct.peers[rank].n_leaves)
			store_vector(direct, direct.peers[rank].mail + half_at(direct, turn) + at,
				     leaving[rank], turn.number);
}

/* Tells peers how many runs of this rank have ended, as raise_peers() of direct_kernels.cu does. */
static __device__ __forceinline__ void tell_done(const struct cei_direct_ll &direct,
						 const struct direct_turn &turn)
{
	if (direct.epoch && !blockIdx.x && is_peer(direct, threadIdx.x))
		store_counter(direct.counters[threadIdx.x % CEI_DIRECT_LL_RANKS_MAX].done,
			      turn.number - 1);
}

/* Returns whether the thread, of a peer's number, sees poison of that peer or of an abort. It is
 * stored at both halves; the first one is looked at. Without this look a run that begins behind an
 * abort would succeed, if the peers' packets for it have come before. */
static __device__ __forceinline__ bool sees_poison(const struct cei_direct_ll &direct)
{
	const uint32_t index = threadIdx.x * gridDim.x + blockIdx.x;

	return is_peer(direct, threadIdx.x) &&
		((const volatile uint64_t *)direct.arrived.counters)[index] >= CEOV_VALUE_LIMIT;
}

/* Finds the run's number and half, and sends all that this block sends. */
template <uint32_t RANKS>
static __device__ __forceinline__ struct direct_turn begin_run(const struct cei_direct_ll &direct)
{
	struct direct_turn turn = { direct.value, direct.half, true };
	uint4 leaving[RANKS];
	uint32_t at = first_byte(), most = 0, rank;
	uint64_t first, other;

	load_leaving(direct, at, leaving);
	if (direct.epoch) {
		turn.number = *(const volatile uint64_t *)direct.epoch + 1;
		first = ((const volatile uint64_t *)direct.last_use)[0];
		other = ((const volatile uint64_t *)direct.last_use)[1];
		turn.half = first <= other ? 0 : 1;
		turn.is_good = turn.number <= CEOV_VALUE_LIMIT;
	} else {
		turn.is_good = !*(const volatile uint32_t *)direct.failed;
	}
	if (!turn.is_good)
		return turn;
	store_leaving(direct, turn, at, leaving);
	tell_done(direct, turn);
#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (is_peer(direct, rank))
			most = max(most, direct.peers[rank].n_leaves);
	for (at += byte_step(); at < most; at += byte_step()) {
		load_leaving(direct, at, leaving);
		store_leaving(direct, turn, at, leaving);
	}
	return turn;
}

/* --- receiving -------------------------------------------------------------- */

/* Looks once for the packets of the ranks in *missing, one bit each, and takes out those whose
 * vector has come. */
template <uint32_t RANKS>
static __device__ __forceinline__ void poll(const struct cei_direct_ll &direct, const char *mail,
					    uint64_t number, uint32_t *missing,
					    uint4 (&come)[RANKS])
{
	struct packet packets[RANKS][2];
	const char *from;
	uint32_t rank;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (*missing & 1u << rank) {
			from = mail + rank * 2 * direct.span_max;
			packets[rank][0] = load_packet(from);
			packets[rank][1] = load_packet(from + direct.span_max);
		}
#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (*missing & 1u << rank && take_vector(packets[rank], number, &come[rank]))
			*missing &= ~(1u << rank);
}

/* Looks whether the run has failed somewhere: one thread for each peer whether that has stored
 * poison, and one for all else. Returns false if it has. Called by all threads of the block. */
static __device__ __forceinline__ bool is_alive(const struct cei_direct_ll &direct,
						struct await *await)
{
	const struct ceov_device_signal &signal = direct.arrived;
	const uint64_t now = ceov_device_now_ns();
	int result = CEOV_DEVICE_REACHED;

	if (!await->start_ns)
		await->start_ns = now;
	if (!await->is_good) {
		;                       /* whoever found that has recorded it */
	} else if (is_peer(direct, threadIdx.x)) {
		if (ceov_device_load(signal.counters + threadIdx.x * gridDim.x + blockIdx.x) >=
		    CEOV_VALUE_LIMIT)
			result = CEOV_DEVICE_ABORTED;
	} else if (threadIdx.x == direct.own) {
		if (*(const volatile uint32_t *)direct.failed || ceov_device_is_aborted(signal))
			result = CEOV_DEVICE_ABORTED;
		/* now can be less when the thread was moved to another SM */
		else if (now > await->start_ns && now - await->start_ns >= direct.timeout_ns)
			result = CEOV_DEVICE_TIMEOUT;
	}
	if (result != CEOV_DEVICE_REACHED)
		cei_mark_fail({ direct.status, direct.failed, direct.epoch }, result);
	return __syncthreads_and(await->is_good && result == CEOV_DEVICE_REACHED);
}

/* Awaits what each peer has sent `at` bytes behind where that begins, where there is so much.
 * Returns whether all of the block's came. Called by all threads of the block, which meet here. */
template <uint32_t RANKS>
static __device__ __forceinline__ bool receive(const struct cei_direct_ll &direct,
					       const struct direct_turn &turn, uint32_t at,
					       struct await *await, uint4 (&come)[RANKS])
{
	const char *mail = direct.peers[direct.own].mail + half_at(direct, turn) + at;
	uint32_t missing = 0, rank, i;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (is_peer(direct, rank) && at < direct.peers[rank].n_here && await->is_good)
			missing |= 1u << rank;
	for (;;) {
#pragma unroll 1
		for (i = 0; missing && i < LL_POLLS; i++)
			poll(direct, mail, turn.number, &missing, come);
		if (__syncthreads_and(await->is_good && !await->is_suspect && !missing)) {
			await->start_ns = 0;
			return true;
		}
		await->is_suspect = false;
		await->is_good = is_alive(direct, await);
		if (!await->is_good)
			return false;
	}
}

/* --- the end of a run --------------------------------------------------------- */

/* Stores poison in the peers' `arrived` when a block of a captured run has failed: at both halves,
 * since peers may be at another one, and in the counters of all blocks, since a block of a peer may
 * wait for packets of any of them. */
static __device__ __forceinline__ void poison_arrived(const struct cei_direct_ll &direct)
{
	const struct cei_direct_ll_counters &peer =
		direct.counters[threadIdx.x % CEI_DIRECT_LL_RANKS_MAX];
	const uint32_t first = direct.own * gridDim.x;
	uint32_t block;

	if (!direct.epoch || !is_peer(direct, threadIdx.x))
		return;
	release_stores();               /* the status, for whoever finds the poison */
	for (block = 0; block < gridDim.x; block++) {
		store_counter(peer.arrived[0] + first + block, CEOV_VALUE_LIMIT);
		store_counter(peer.arrived[1] + first + block, CEOV_VALUE_LIMIT);
	}
}

/* Stores poison in the peers' `done`. Called by one thread of the block that is counted last: what
 * tell_done() has stored there comes before it, by the count or by a barrier of the block. Another
 * block that fails could have its poison covered by that. */
static __device__ __forceinline__ void poison_done(const struct cei_direct_ll &direct)
{
	release_stores();               /* the status, as above */
	for (uint32_t rank = 0; rank < direct.n_ranks; rank++)
		if (rank != direct.own)
			store_counter(direct.counters[rank].done, CEOV_VALUE_LIMIT);
}

/* Adds a block to those of a run that have come to their end. Returns what was there before, which
 * also tells of failed ones: to look at the poisoned number would cost another access. */
static __device__ __forceinline__ uint32_t count_block(uint32_t *n_ended, uint32_t block)
{
	uint32_t n_before;

	asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
		     : "=r"(n_before) : "l"(n_ended), "r"(block) : "memory");
	return n_before;
}

/* Counts a block of a captured run, when all its packets have come or it has failed: the last block
 * advances the run's number, unless one has failed. A barrier in receive() has shown that all
 * threads of the block know the number. It is called before results are stored, so that the stores
 * do not wait for the count: nobody reads the number before the kernel has ended. */
static __device__ __forceinline__ void count_run(const struct cei_direct_ll &direct,
						 const struct direct_turn &turn, bool is_good)
{
	uint32_t before = 0;

	if (!direct.epoch || threadIdx.x)
		return;
	if (gridDim.x > 1) {
		before = count_block(direct.n_ended, is_good ? 1 : LL_FAILED + 1);
		if (before % LL_FAILED + 1 != gridDim.x)
			return;
		*direct.n_ended = 0;
	}
	if (!is_good || before >= LL_FAILED)
		return poison_done(direct);
	direct.last_use[turn.half] = turn.number;
	*direct.epoch = turn.number;
}

static __device__ __forceinline__ void end_failed(const struct cei_direct_ll &direct,
						  const struct direct_turn &turn)
{
	poison_arrived(direct);
	count_run(direct, turn, false);
}

/* --- runs --------------------------------------------------------------------- */

/* Returns the size of the largest span that has come or stays here. All blocks go through as much,
 * since each has to meet and to be counted. */
template <uint32_t RANKS>
static __device__ __forceinline__ uint32_t most_here(const struct cei_direct_ll &direct)
{
	uint32_t most = 0, rank;

#pragma unroll
	for (rank = 0; rank < RANKS; rank++)
		if (rank < direct.n_ranks)
			most = max(most, direct.peers[rank].n_here);
	return most;
}

template <uint32_t RANKS>
static __device__ __forceinline__ void copy_come(const struct cei_direct_ll &direct, uint32_t at,
						 const uint4 (&come)[RANKS])
{
#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (is_peer(direct, rank) && at < direct.peers[rank].n_here)
			*vectors_to(direct.target, direct.peers[rank].place + at) = come[rank];
}

/* Copies what stays at this rank, unless it is in its place already. */
static __device__ __forceinline__ void copy_own(const struct cei_direct_ll &direct)
{
	const struct cei_direct_ll_peer &own = direct.peers[direct.own];
	const uint4 *from = vectors_at(direct.source, own.leaves);
	uint4 *to = vectors_to(direct.target, own.place);
	uint32_t at;

	if (from == to)
		return;
	for (at = first_byte(); at < own.n_here; at += byte_step())
		to[at / sizeof(uint4)] = cei_load(from + at / sizeof(uint4));
}

template <uint32_t RANKS>
static __device__ __forceinline__ void copy_run(const struct cei_direct_ll &direct)
{
	const struct direct_turn turn = begin_run<RANKS>(direct);
	const uint32_t most = most_here<RANKS>(direct);
	struct await await = { 0, turn.is_good, sees_poison(direct) };
	uint4 come[RANKS];
	uint32_t i;

	if (turn.is_good)
		copy_own(direct);
	for (i = 0; i < most; i += byte_step()) {
		if (!receive(direct, turn, first_byte() + i, &await, come))
			return end_failed(direct, turn);
		if (most - i <= byte_step())
			count_run(direct, turn, true);
		copy_come(direct, first_byte() + i, come);
	}
}

static __device__ __forceinline__ uint4 pick(bool is_first, const uint4 &first, const uint4 &other)
{
	return make_uint4(is_first ? first.x : other.x, is_first ? first.y : other.y,
			  is_first ? first.z : other.z, is_first ? first.w : other.w);
}

/* Adds up vectors of all ranks in their order. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void store_sum(const struct cei_direct_ll &direct, uint32_t at,
						 const uint4 &own, const uint4 (&come)[RANKS])
{
	float sum[T::n_elements];

#pragma unroll
	for (uint32_t rank = 0; rank < RANKS; rank++)
		if (rank < direct.n_ranks)
			cei_add_vector<T>(pick(rank == direct.own, own, come[rank]), rank == 0,
					  sum);
	*vectors_to(direct.target, direct.peers[direct.own].place + at) =
		finish_sum<T>(direct.scale, sum);
}

/* The own addends are loaded while those of the peers are awaited. */
template <class T, uint32_t RANKS>
static __device__ __forceinline__ void sum_run(const struct cei_direct_ll &direct)
{
	const struct direct_turn turn = begin_run<RANKS>(direct);
	const struct cei_direct_ll_peer &part = direct.peers[direct.own];
	struct await await = { 0, turn.is_good, sees_poison(direct) };
	uint4 own, come[RANKS];
	uint32_t i, at;

	for (i = 0; i < part.n_here; i += byte_step()) {
		at = first_byte() + i;
		if (at < part.n_here)
			own = cei_load(vectors_at(direct.source, part.leaves + at));
		if (!receive(direct, turn, at, &await, come))
			return end_failed(direct, turn);
		if (part.n_here - i <= byte_step())
			count_run(direct, turn, true);
		if (at < part.n_here)
			store_sum<T>(direct, at, own, come);
	}
}

template <class T>
static __device__ __forceinline__ void sum_all(const struct cei_direct_ll &direct)
{
	if (direct.n_ranks <= 2)
		sum_run<T, 2>(direct);
	else if (direct.n_ranks <= 4)
		sum_run<T, 4>(direct);
	else
		sum_run<T, CEI_DIRECT_LL_RANKS_MAX>(direct);
}

static __device__ __forceinline__ void copy_all(const struct cei_direct_ll &direct)
{
	if (direct.n_ranks <= 2)
		copy_run<2>(direct);
	else if (direct.n_ranks <= 4)
		copy_run<4>(direct);
	else
		copy_run<CEI_DIRECT_LL_RANKS_MAX>(direct);
}

} /* namespace */

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_ll_copy(const __grid_constant__ struct cei_direct_ll direct)
{
	cei_ll::copy_all(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_ll_bf16(const __grid_constant__ struct cei_direct_ll direct)
{
	cei_ll::sum_all<struct vector_pairs<struct pair_bf16>>(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_ll_fp16(const __grid_constant__ struct cei_direct_ll direct)
{
	cei_ll::sum_all<struct vector_pairs<struct pair_fp16>>(direct);
}

extern "C" __global__ void __launch_bounds__(CEI_DIRECT_THREADS, 1)
cei_direct_ll_fp32(const __grid_constant__ struct cei_direct_ll direct)
{
	cei_ll::sum_all<struct vector_fp32>(direct);
}
