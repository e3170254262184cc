/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_CUH
#define CEI_CHANNEL_CUH

/* What the kernels of channels share: heads, how a run begins and ends, and failures. */

#include <ceoverlap/device.cuh>
#include <ceoverlap/channel.h>

#include "kernels/channel.h"
#include "kernels/vectors.cuh"

namespace cei_channel {

constexpr uint32_t FLIGHT = 8;          /* vectors that a thread has in flight in copies */
constexpr uint32_t POLLS = 64;          /* looks at what is awaited before a look at failures */

static __device__ __forceinline__ bool is_peer(const struct cei_channel_place &place, uint32_t rank)
{
	return rank < place.n_ranks && rank != place.own;
}

static __device__ __forceinline__ struct cei_channel_memory *
memory_of(const struct cei_channel_place &place, uint32_t rank)
{
	return (struct cei_channel_memory *)place.memory[rank];
}

static __device__ __forceinline__ struct cei_channel_state *
state_of(const struct cei_channel_place &place)
{
	return &memory_of(place, place.own)->state;
}

/* Orders all that this thread has stored or acquired ahead of what it stores next. */
static __device__ __forceinline__ void release_stores()
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ void store_counter(uint64_t *counter, uint64_t value)
{
	asm volatile("st.relaxed.sys.u64 [%0], %1;" :: "l"(counter), "l"(value) : "memory");
}

/* Looks at a counter without acquiring anything. An acquire empties the SM's L1 cache, and other
 * warps work while one looks again and again. */
static __device__ __forceinline__ uint64_t peek(const uint64_t *counter)
{
	uint64_t value;

	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
	return value;
}

/* --- packets --------------------------------------------------------------------------------- */

static __device__ __forceinline__ void store_packet(void *to,
						    const struct cei_channel_packet &packet)
{
	asm volatile("{.reg .b128 both;\n"
		     " mov.b128 both, {%1, %2};\n"
		     " st.relaxed.sys.b128 [%0], both;}"
		     :: "l"(to), "l"(packet.bytes), "l"(packet.number) : "memory");
}

static __device__ __forceinline__ struct cei_channel_packet load_packet(const void *from)
{
	struct cei_channel_packet packet;

	asm volatile("{.reg .b128 both;\n"
		     " ld.relaxed.sys.b128 both, [%2];\n"
		     " mov.b128 {%0, %1}, both;}"
		     : "=l"(packet.bytes), "=l"(packet.number) : "l"(from) : "memory");
	return packet;
}

/* A thread's 16 bytes of a line. All lanes of a warp store together, and load together: the eight
 * that share a line make one access of 128 bytes. Lanes that have come here on different ways, as
 * from the bytes of a misaligned operand, would go on one behind the other, and the line's number
 * could leave before its bytes; so they meet first. */
static __device__ __forceinline__ void store_line(void *to, const struct cei_channel_packet &part)
{
	__syncwarp();
	store_packet(to, part);
}

static __device__ __forceinline__ struct cei_channel_packet load_line(const void *from)
{
	__syncwarp();
	return load_packet(from);
}

/* --- failures -------------------------------------------------------------------------------- */

struct failure {
	enum cei_channel_end  end;
	enum cei_channel_wait wait;
	uint32_t              peer;
	uint64_t              run;      /* 0: messages */
	uint64_t              cause;
	uint64_t              what;
	struct cei_channel_note note;
};

static __device__ __forceinline__ bool has_ended(const struct cei_channel_place &place)
{
	return *(const volatile uint32_t *)&state_of(place)->failed;
}

static __device__ __forceinline__ void store_note(struct cei_channel_note *to,
						  const struct cei_channel_note &note)
{
	store_counter(&to->found.what, note.found.what);
	store_counter(&to->found.bytes, note.found.bytes);
	store_counter(&to->expected.what, note.expected.what);
	store_counter(&to->expected.bytes, note.expected.bytes);
}

static __device__ __forceinline__ struct cei_channel_note
load_note(const struct cei_channel_note *from)
{
	return { { peek(&from->found.what), peek(&from->found.bytes) },
		 { peek(&from->expected.what), peek(&from->expected.bytes) } };
}

static __device__ __noinline__ void poison_peers(const struct cei_channel_place &place,
						 const struct failure &failure)
{
	const uint64_t poison = failure.end | (uint64_t)failure.peer << 8;
	uint32_t rank;

	for (rank = 0; rank < place.n_ranks; rank++)
		if (rank != place.own)
			store_note(&memory_of(place, rank)->words.notes[place.own], failure.note);
	release_stores();               /* notes come first */
	for (rank = 0; rank < place.n_ranks; rank++)
		if (rank != place.own)
			store_counter(&memory_of(place, rank)->words.poison[place.own], poison);
}

static __device__ __forceinline__ bool has_head(const struct cei_channel_place &place,
						uint32_t rank, uint64_t number)
{
	const struct cei_channel_words &words = memory_of(place, place.own)->words;

	return number && load_packet(&words.heads[number % 2][rank][1]).number == number;
}

/* Ends the channel, unless it has ended. The status is complete before its `end` is. */
static __device__ __noinline__ void fail(const struct cei_channel_place &place,
					 const struct failure &failure)
{
	volatile struct cei_channel_status *status = place.status;

	if (atomicExch(&state_of(place)->failed, 1u))
		return;
	status->peer = failure.peer;
	status->wait = failure.wait;
	status->run = failure.run;
	status->cause = failure.cause;
	status->what = failure.what;
	status->has_head = has_head(place, failure.peer, failure.run);
	place.status->note = failure.note;
	__threadfence_system();
	status->end = failure.end;
	/* Poison comes to all peers from who stores it first. That of an orderly release is
	 * believed by who waits for that rank alone, so this rank's end is news to others. */
	if (failure.end != CEI_CHANNEL_POISONED || (failure.cause & 255) == CEI_CHANNEL_RELEASED)
		poison_peers(place, failure);
}

struct looks {                          /* of a wait; zeros at first */
	uint64_t start_ns;
	uint32_t released;              /* peers that were seen to have released the channel while
					 * they were awaited, one bit each */
};

/* Whether the poison of a rank ends the wait. That of an orderly release does so only if this rank
 * is awaited, and from the second look on: the rank may have done what is awaited before it
 * released the channel, and the polls between two looks find that then. */
static __device__ __forceinline__ bool is_poison(uint64_t poison, uint32_t rank, uint32_t awaited,
						 struct looks *looks)
{
	const bool was = looks->released & 1u << rank;

	if ((poison & 255) != CEI_CHANNEL_RELEASED)
		return poison;
	if (rank == awaited)
		looks->released |= 1u << rank;
	return rank == awaited && was;
}

/* Looks whether the host has ended the channel, unless another thread has done so of late. */
static __device__ __forceinline__ bool is_aborted(const struct cei_channel_place &place,
						  uint64_t now)
{
	unsigned long long *looked = &state_of(place)->looked_ns;
	const uint64_t before = *(const volatile unsigned long long *)looked;

	if (now < before + CEI_CHANNEL_ABORT_NS || atomicCAS(looked, before, now) != before)
		return false;
	return *(const volatile uint32_t *)&place.status->abort;
}

/* Looks why a wait for failure.peer should end; fills in the rest of the failure and records it
 * then. Returns whether the wait goes on. */
static __device__ __noinline__ bool goes_on(const struct cei_channel_place &place,
					    struct failure failure, struct looks *looks)
{
	const struct cei_channel_words &words = memory_of(place, place.own)->words;
	const uint64_t now = ceov_device_now_ns();
	const uint32_t awaited = failure.peer;
	uint32_t rank;

	if (has_ended(place))
		return false;
	failure.end = CEI_CHANNEL_GOOD;
	for (rank = 0; failure.end == CEI_CHANNEL_GOOD && rank < place.n_ranks; rank++) {
		failure.cause = ceov_device_load(&words.poison[rank]);
		if (!is_poison(failure.cause, rank, awaited, looks))
			continue;
		failure.end = CEI_CHANNEL_POISONED;
		failure.peer = rank;
		failure.note = load_note(&words.notes[rank]);
	}
	if (!looks->start_ns)
		looks->start_ns = now;
	if (failure.end == CEI_CHANNEL_GOOD && is_aborted(place, now))
		failure.end = CEI_CHANNEL_ABORTED;
	/* now can be less when the thread was moved to another SM */
	if (failure.end == CEI_CHANNEL_GOOD && now > looks->start_ns &&
	    now - looks->start_ns >= place.timeout_ns)
		failure.end = CEI_CHANNEL_LATE;
	if (failure.end == CEI_CHANNEL_GOOD)
		return true;
	fail(place, failure);
	return false;
}

/* --- runs ------------------------------------------------------------------------------------ */

static __device__ __forceinline__ struct failure failure_of(const struct cei_channel_run &run,
							    uint64_t number)
{
	struct failure failure = {};

	failure.run = number;
	failure.what = run.what;
	return failure;
}

/* Returns the run's number, or more than CEI_CHANNEL_NO_RUN: the channel has ended. It changes only
 * when all blocks of a run have ended, or one has failed. */
static __device__ __forceinline__ uint64_t number_of(const struct cei_channel_run &run)
{
	const uint64_t number = *(const volatile uint64_t *)&state_of(run.place)->epoch + 1;

	return has_ended(run.place) ? CEI_CHANNEL_NO_RUN + 1 : number;
}

/* Run by a warp of block 0: tells all peers what this run is, one lane each. */
static __device__ __forceinline__ void send_heads(const struct cei_channel_run &run,
						  uint64_t number)
{
	const uint32_t rank = threadIdx.x % 32;
	struct cei_channel_packet(*heads)[2];

	if (!is_peer(run.place, rank))
		return;
	heads = &memory_of(run.place, rank)->words.heads[number % 2][run.place.own];
	store_packet(&(*heads)[0], { run.what, number });
	store_packet(&(*heads)[1], { run.gives[rank], number });
}

static __device__ __noinline__ void fail_unordered(const struct cei_channel_run &run,
						   uint64_t number)
{
	struct failure failure = failure_of(run, number);

	failure.end = CEI_CHANNEL_UNORDERED;
	failure.peer = run.place.own;
	fail(run.place, failure);
}

/* Awaits the head of a peer and compares it. Returns whether it is right. A peer that has ended the
 * channel may have sent all of this run before; the run fails all the same, so that no rank goes on
 * by itself. */
static __device__ __forceinline__ bool await_head(const struct cei_channel_run &run, uint32_t rank,
						  uint64_t number, uint64_t poison)
{
	const struct cei_channel_words &words = memory_of(run.place, run.place.own)->words;
	const struct cei_channel_packet *head = words.heads[number % 2][rank];
	struct failure failure = failure_of(run, number);
	struct cei_channel_packet what, bytes;
	struct looks looks = {};
	uint32_t i;

	failure.peer = rank;
	failure.wait = CEI_CHANNEL_FOR_HEAD;
	if (poison && (poison & 255) != CEI_CHANNEL_RELEASED &&
	    !goes_on(run.place, failure, &looks))
		return false;
	for (i = 1;; i++) {
		what = load_packet(head);
		bytes = load_packet(head + 1);
		if (what.number == number && bytes.number == number)
			break;
		if (i % POLLS == 0 && !goes_on(run.place, failure, &looks))
			return false;
	}
	if (what.bytes == run.what && bytes.bytes == run.gets[rank])
		return true;
	failure.end = CEI_CHANNEL_DIFFERS;
	failure.note = { { what.bytes, bytes.bytes }, { run.what, run.gets[rank] } };
	fail(run.place, failure);
	return false;
}

/* Run by a warp of block 0, behind send_heads(): returns when the heads of all peers are right, or
 * the run has failed, which it tells. */
static __device__ __forceinline__ bool check_heads(const struct cei_channel_run &run,
						   uint64_t number)
{
	const struct cei_channel_words &words = memory_of(run.place, run.place.own)->words;
	const uint32_t rank = threadIdx.x % 32;
	unsigned long long before = number - 1;
	uint64_t poison = 0;
	bool is_good;

	/* Both are under way at the same time. */
	if (rank == run.place.own)
		before = atomicAdd(&state_of(run.place)->order, 1ull);
	else if (rank < run.place.n_ranks)
		poison = peek(&words.poison[rank]);
	is_good = before == number - 1;
	if (!is_good)
		fail_unordered(run, number);
	else if (is_peer(run.place, rank))
		is_good = await_head(run, rank, number, poison);
	return __all_sync(0xffffffffu, is_good);
}

/* Called by one thread of each block, behind a barrier: counts the blocks, of which the last one
 * ends the run, and adds up the numbers that they have found, which differ if the run before was
 * under way when some of them began. A block that is alone does not count, since that would cost a
 * run of few bytes a part of its time. A block that has failed is not counted, so its run does not
 * end. */
static __device__ __forceinline__ void end_run(const struct cei_channel_run &run, uint64_t number)
{
	const uint64_t own = number << 8 | 1;   /* a run has fewer than 256 blocks */
	struct cei_channel_state *state = state_of(run.place);
	uint64_t before = 0;

	if (gridDim.x > 1)
		asm volatile("atom.acq_rel.gpu.add.u64 %0, [%1], %2;"
			     : "=l"(before) : "l"(&state->ended), "l"(own) : "memory");
	if ((before + own) % 256 != gridDim.x)
		return;
	if (before + own != gridDim.x * own)
		return fail_unordered(run, number);
	if (gridDim.x > 1)
		*(volatile uint64_t *)&state->ended = 0;
	*(volatile uint64_t *)&state->epoch = number;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static __device__ __forceinline__ bool is_aligned(const void *p)
{
	return !((uintptr_t)p & (sizeof(uint4) - 1));
}

/* Loads up to 16 bytes from any address. */
static __device__ __noinline__ uint4 load_bytes(const char *from, uint32_t n)
{
	uint32_t words[4] = {}, i;

#pragma unroll 1
	for (i = 0; i < n && i < sizeof(uint4); i++)
		words[i / 4] |= (uint32_t)*(const volatile uint8_t *)(from + i) << i % 4 * 8;
	return make_uint4(words[0], words[1], words[2], words[3]);
}

static __device__ __noinline__ void store_bytes(char *to, const uint4 &v, uint32_t n)
{
	const uint32_t words[4] = { v.x, v.y, v.z, v.w };
	uint32_t i;

#pragma unroll 1
	for (i = 0; i < n && i < sizeof(uint4); i++)
		to[i] = (char)(words[i / 4] >> i % 4 * 8);
}

/* Loads the vector of which n_left bytes exist. */
static __device__ __forceinline__ uint4 load_vector(const char *from, uint64_t n_left)
{
	if (is_aligned(from) && n_left >= sizeof(uint4))
		return cei_load((const uint4 *)from);
	return load_bytes(from, n_left < sizeof(uint4) ? (uint32_t)n_left : sizeof(uint4));
}

static __device__ __forceinline__ void store_vector(char *to, const uint4 &v, uint64_t n_left)
{
	if (is_aligned(to) && n_left >= sizeof(uint4))
		*(uint4 *)to = v;
	else
		store_bytes(to, v, n_left < sizeof(uint4) ? (uint32_t)n_left : sizeof(uint4));
}

/* Copies whole vectors from `at` on, some of which are in flight together. Returns where the thread
 * goes on. */
static __device__ __forceinline__ uint64_t copy_vectors(const struct cei_channel_part &own,
							uint64_t at, uint64_t step)
{
	uint4 raw[FLIGHT];
	uint32_t i;

	for (; at + (FLIGHT - 1) * step + sizeof(uint4) <= own.from; at += FLIGHT * step) {
#pragma unroll
		for (i = 0; i < FLIGHT; i++)
			raw[i] = cei_load((const uint4 *)(own.source + at + i * step));
#pragma unroll
		for (i = 0; i < FLIGHT; i++)
			*(uint4 *)(own.target + at + i * step) = raw[i];
	}
	return at;
}

/* Copies what stays at this rank, unless it is in its place already, by n_threads of each block, of
 * which this is the one of number `thread`. */
static __device__ __forceinline__ void copy_own(const struct cei_channel_run &run, uint32_t thread,
						uint32_t n_threads)
{
	const struct cei_channel_part &own = run.parts[run.place.own];
	const uint64_t step = (uint64_t)gridDim.x * n_threads * sizeof(uint4);
	uint64_t at = ((uint64_t)blockIdx.x * n_threads + thread) * sizeof(uint4);

	if (own.source == own.target)
		return;
	if (is_aligned(own.source) && is_aligned(own.target))
		at = copy_vectors(own, at, step);
	for (; at < own.from; at += step)
		store_vector(own.target + at, load_vector(own.source + at, own.from - at),
			     own.from - at);
}

/* --- sums ------------------------------------------------------------------------------------ */

/* What kernels are made of: the type of the numbers that they add up, or none. */
struct no_numbers { static constexpr bool is_moves = true; };
template <class V> struct numbers : V { static constexpr bool is_moves = false; };

/* The smaller or larger number; a NaN wins, as with the host's sums. */
static __device__ __forceinline__ float chosen(float sum, float addend, bool is_least)
{
	const bool is_further = is_least ? addend < sum : addend > sum;

	return is_further || addend != addend ? addend : sum;
}

/* Takes the vector of one rank into a sum. The first one sets the sum, because adding -0 to 0 would
 * lose the sign. */
template <class T>
static __device__ __forceinline__ void take_addend(uint32_t reduction, const uint4 &v,
						   bool is_first, float *sum)
{
	float wide[T::n_elements];
	uint32_t i;

	if (is_first || reduction == CEOV_SUM || reduction == CEOV_MEAN)
		return cei_add_vector<T>(v, is_first, sum);
	T::widen(v, wide);
#pragma unroll
	for (i = 0; i < T::n_elements; i++)
		sum[i] = reduction == CEOV_PRODUCT ? sum[i] * wide[i]
			: chosen(sum[i], wide[i], reduction == CEOV_MIN);
}

/* Ends the sum of a run that is scaled. */
template <class T>
static __device__ __forceinline__ uint4 finish_scaled(const struct cei_channel_run &run, float *sum)
{
#pragma unroll
	for (uint32_t i = 0; i < T::n_elements; i++)
		sum[i] *= run.scale;
	return T::narrow(sum);
}

template <class T>
static __device__ __forceinline__ uint4 finish(const struct cei_channel_run &run, float *sum)
{
	if (run.reduction == CEOV_MEAN) {
#pragma unroll
		for (uint32_t i = 0; i < T::n_elements; i++)
			sum[i] = __fdiv_rn(sum[i], (float)run.place.n_ranks);
	}
	return T::narrow(sum);
}

} /* namespace */

#endif /* CEI_CHANNEL_CUH */
