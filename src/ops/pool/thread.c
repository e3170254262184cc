/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The thread of a pool: maps what peers share, and queues the copies of calls when the streams of
 * both ranks have come to them. */

#include "ops/pool/pool.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/channel/waits.h"

#define LOOK_NS    UINT64_C(1000000)    /* between looks whether peers have gone */
#define FIND_NS    UINT64_C(1000000000) /* that a peer may take to answer */
#define REST_NS    UINT64_C(5000000)    /* of a thread that has nothing to do: then it looks for new
					 * segments of peers */

enum turn {
	TURN_IDLE,                      /* there is nothing to do */
	TURN_WAITS,
	TURN_MOVED,
};

/* --- failures -------------------------------------------------------------------------------- */

/* Opens what streams of this rank wait for; those of peers open it as well. Copies of before may
 * still write lower numbers, so it is done again and again until the thread ends. */
static void open_all(ceov_pool *pool)
{
	struct cei_pool_desk *own = cei_pool_own_desk(pool);
	const uint32_t rank = pool->channel->rank;
	uint32_t peer, none = 0;
	int error = cei_channel_error(pool->channel);

	/* release: pairs with cei_pool_poison(). It comes first: whose stream goes on because of
	 * what is opened then finds that the call has failed. */
	(void)atomic_compare_exchange_strong_explicit(&own->poison, &none, (uint32_t)-error,
						      memory_order_release, memory_order_relaxed);
	for (peer = 0; peer < pool->channel->n_ranks; peer++) {
		/* release, both: the poison is stored before */
		__atomic_store_n(&own->sent[peer].number, CEI_POOL_OPEN, __ATOMIC_RELEASE);
		__atomic_store_n(&pool->desks[peer]->sent[rank].number, CEI_POOL_OPEN,
				 __ATOMIC_RELEASE);
	}
}

static void end_wait(ceov_pool *pool, struct cei_wait_cause *cause)
{
	const struct cei_pool_task *task = &pool->tasks[pool->number % CEI_POOL_CALLS];
	char text[CEI_CALL_TEXT_BYTES];

	cei_call_text(task->call.what, text);
	snprintf(cause->where, sizeof(cause->where), "large call %" PRIu64 ", %s", pool->number,
		 text);
	(void)cei_wait_raise(pool->channel, cause);
}

/* Whether the own stream waits within a call: what comes before a call may take any time. */
static int does_wait(const ceov_pool *pool)
{
	const struct cei_pool_desk *own = cei_pool_own_desk(pool);

	/* acquire, both: pair with writes of the own stream */
	return __atomic_load_n(&own->reached.number, __ATOMIC_ACQUIRE) >
		__atomic_load_n(&own->ended.number, __ATOMIC_ACQUIRE);
}

/* Ends the channel if the wait for a peer is too long, or in vain. */
static void look(ceov_pool *pool, uint32_t peer, const char *what)
{
	struct cei_wait_cause cause = { .end = CEI_WAIT_GOES_ON, .peer = peer, .what = what };
	const uint64_t now_ns = cei_now_ns();

	if (!does_wait(pool))
		pool->late_ns = CEI_FOREVER;
	else if (pool->late_ns == CEI_FOREVER)
		pool->late_ns = cei_deadline(pool->channel->deadline_ns);
	cause.poison = cei_pool_poison(pool, peer);
	if (cause.poison)
		cause.end = CEI_WAIT_POISONED;
	else if (now_ns >= pool->late_ns)
		cause.end = CEI_WAIT_LATE;
	else if (now_ns >= pool->look_ns) {
		pool->look_ns = now_ns + LOOK_NS;
		if (cei_context_is_lost(pool->channel->object.context, peer))
			cause.end = CEI_WAIT_LOST;
	}
	if (cause.end != CEI_WAIT_GOES_ON)
		end_wait(pool, &cause);
}

/* Ends the channel if a peer has: what this rank's streams wait for may be open then although bytes
 * lack. Returns whether it has. */
static int has_poison(ceov_pool *pool)
{
	struct cei_wait_cause cause = { .end = CEI_WAIT_POISONED };

	cause.peer = cei_pool_poisoned(pool);
	if (cause.peer == CEOV_NOBODY)
		return 0;
	cause.poison = cei_pool_poison(pool, cause.peer);
	end_wait(pool, &cause);
	return 1;
}

static const struct cei_pool_notice *notice_of(const ceov_pool *pool, uint32_t rank)
{
	return &pool->desks[rank]->notices[pool->number % CEI_POOL_CALLS];
}

static void raise_differing(ceov_pool *pool, uint32_t peer)
{
	const uint32_t rank = pool->channel->rank;
	const struct cei_pool_notice *own = notice_of(pool, rank), *other = notice_of(pool, peer);
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	struct cei_two_calls two = { .run = pool->number, .a = rank, .b = peer };
	char text[CEI_CALL_TEXT_BYTES];

	two.what_a = own->what;
	two.what_b = other->what;
	if (two.what_a != two.what_b) {
		(void)cei_channel_end(pool->channel,
				      cei_channel_raise_calls(pool->channel, &two));
		return;
	}
	failure.rank = peer;
	cei_call_text(own->what, text);
	(void)cei_channel_end(pool->channel, cei_raise_failure(
		cei_channel_report(pool->channel), &failure, "channel '%s', large call %" PRIu64
		": rank %u calls %s of %" PRIu64 " bytes, but rank %u calls the same of %" PRIu64,
		pool->channel->name, pool->number, rank, text, own->bytes, peer, other->bytes));
}

/* --- segments of peers ----------------------------------------------------------------------- */

/* Maps what a peer has shared since. Returns 0: segment `least` is known; CEOV_NONE: not yet; other
 * errors are raised. */
static int map(ceov_pool *pool, uint32_t peer, uint32_t least)
{
	uint32_t *n_found = &pool->n_found[peer];
	char name[CEI_GROUP_NAME_BYTES];
	struct cei_lookup lookup = { peer, name, 0 };
	uint32_t n;
	int r = 0;

	/* acquire: pairs with add_segment() of the peer */
	n = atomic_load_explicit(&pool->desks[peer]->n_segments, memory_order_acquire);
	if (n > CEOV_POOL_SEGMENTS_MAX)
		n = CEOV_POOL_SEGMENTS_MAX;
	while (!r && *n_found < n) {
		cei_pool_name(pool, *n_found, name);
		lookup.deadline_ns = cei_now_ns() + FIND_NS;
		r = cei_buffer_find(pool->channel->object.context, &lookup,
				    &pool->found[peer][*n_found]);
		if (!r)
			++*n_found;
	}
	return r || least < *n_found ? r : CEOV_NONE;
}

/* Not of peers that leave, which would not answer. */
static void map_all(ceov_pool *pool)
{
	uint32_t peer;

	for (peer = 0; peer < pool->channel->n_ranks; peer++)
		if (peer != pool->channel->rank && !cei_pool_poison(pool, peer) &&
		    !cei_context_is_lost(pool->channel->object.context, peer))
			(void)map(pool, peer, 0);
}

/* --- calls ----------------------------------------------------------------------------------- */

static int has_notice(const ceov_pool *pool, uint32_t rank)
{
	/* acquire: pairs with run() of the rank */
	return atomic_load_explicit(&notice_of(pool, rank)->number, memory_order_acquire) ==
		pool->number;
}

/* Whether the rank's stream has come to the call. */
static int has_reached(const ceov_pool *pool, uint32_t rank)
{
	/* acquire: pairs with the write of that rank's stream */
	return __atomic_load_n(&pool->desks[rank]->reached.number, __ATOMIC_ACQUIRE) >=
		pool->number;
}

static enum turn pass(ceov_pool *pool)
{
	/* release: pairs with await_room() of all ranks: this thread has read notice and task */
	atomic_store_explicit(&cei_pool_own_desk(pool)->n_passed, pool->number,
			      memory_order_release);
	pool->number++;
	pool->made = 0;
	pool->late_ns = CEI_FOREVER;
	return TURN_MOVED;
}

/* Returns whether all ranks have made the call, and the same one. */
static int are_there(ceov_pool *pool)
{
	const uint32_t own = pool->channel->rank;
	uint32_t rank;

	for (rank = 0; rank < pool->channel->n_ranks; rank++) {
		if (!has_notice(pool, rank)) {
			look(pool, rank, "has not made this call");
			return 0;
		}
		if (notice_of(pool, rank)->what != notice_of(pool, own)->what ||
		    notice_of(pool, rank)->bytes != notice_of(pool, own)->bytes ||
		    notice_of(pool, rank)->parts != notice_of(pool, own)->parts) {
			raise_differing(pool, rank);
			return 0;
		}
	}
	return 1;
}

static int is_direct(const ceov_pool *pool)
{
	uint32_t rank;

	for (rank = 0; rank < pool->channel->n_ranks; rank++)
		if (notice_of(pool, rank)->segment == CEI_POOL_NOWHERE)
			return 0;
	return 1;
}

static enum turn make_kernel(ceov_pool *pool, const struct cei_pool_task *task)
{
	int r;

	if (!has_reached(pool, pool->channel->rank)) {
		look(pool, pool->channel->rank, "has not come to it");
		return TURN_WAITS;
	}
	r = cei_pool_gpu_kernel(pool, task);
	if (r) {
		(void)cei_channel_end(pool->channel, r);
		return TURN_WAITS;
	}
	/* relaxed: it announces nothing */
	atomic_fetch_add_explicit(&pool->n_kernel_calls, 1, memory_order_relaxed);
	return pass(pool);
}

/* Finds where this rank's part goes in the target of a peer, which says where that lies. Returns
 * NULL if the channel has ended, or the peer's segment is not mapped yet. */
static char *place_at(ceov_pool *pool, const struct cei_pool_task *task, uint32_t peer)
{
	const struct cei_pool_notice notice = *notice_of(pool, peer);
	const uint64_t at = task->call.parts[task->call.rank].target_at;
	const uint64_t n = task->call.parts[peer].to;
	const ceov_buffer *buffer;
	uint64_t size;
	char *base;
	int r;

	r = notice.segment < CEOV_POOL_SEGMENTS_MAX ? map(pool, peer, notice.segment) : CEOV_NONE;
	if (r < 0)
		(void)cei_channel_end(pool->channel, r);
	if (r)
		return NULL;
	buffer = pool->found[peer][notice.segment];
	base = cei_buffer_address(buffer, pool->channel->rank);
	size = base && buffer->region->kind == CEOV_PLACE_GPU ? buffer->region->size_bytes : 0;
	if (notice.offset <= size && at <= size - notice.offset && n <= size - notice.offset - at)
		return base + notice.offset + at;
	(void)cei_channel_end(pool->channel, cei_raise(
		cei_channel_report(pool->channel), CEOV_ERR_INVALID, 0, "channel '%s', large call %"
		PRIu64 ": the target of rank %u does not lie in the segment that it names",
		pool->channel->name, pool->number, peer));
	return NULL;
}

/* Queues the copy to a peer. Returns whether it is. */
static int make_copy(ceov_pool *pool, const struct cei_pool_task *task, uint32_t peer)
{
	const struct cei_call_part *part = &task->call.parts[peer];
	struct cei_pool_copy copy = { .peer = peer, .bytes = part->to };
	int r;

	copy.from = (const char *)task->call.call.source + part->source_at;
	if (copy.bytes)
		copy.to = place_at(pool, task, peer);
	if (copy.bytes && !copy.to)
		return 0;
	r = cei_pool_gpu_copy(pool, &copy);
	if (r)
		(void)cei_channel_end(pool->channel, r);
	return !r;
}

static enum turn make_copies(ceov_pool *pool, const struct cei_pool_task *task)
{
	const uint32_t own = pool->channel->rank, n_ranks = pool->channel->n_ranks;
	uint32_t i, peer, late = own;
	enum turn turn = TURN_WAITS;

	if (has_poison(pool))
		return TURN_WAITS;
	for (i = 1; i < n_ranks && has_reached(pool, own); i++) {
		peer = (own + i) % n_ranks;
		if (pool->made & 1u << peer)
			continue;
		late = peer;
		if (!has_reached(pool, peer) || !make_copy(pool, task, peer))
			continue;
		pool->made |= 1u << peer;
		turn = TURN_MOVED;
	}
	if (pool->made == (((1u << n_ranks) - 1) & ~(1u << own))) {
		/* relaxed: it announces nothing */
		atomic_fetch_add_explicit(&pool->n_engine_calls, 1, memory_order_relaxed);
		return pass(pool);
	}
	if (turn == TURN_WAITS)
		look(pool, late, "has not come to it: its stream has other work before it");
	return turn;
}

/* Whether calls that were made have not ended. */
static int is_under_way(ceov_pool *pool)
{
	/* acquire: pairs with the write of the own stream */
	uint64_t ended = __atomic_load_n(&cei_pool_own_desk(pool)->ended.number, __ATOMIC_ACQUIRE);

	if (ended != pool->ended)
		pool->late_ns = CEI_FOREVER;
	pool->ended = ended;
	return pool->last_waited > ended;
}

/* Looks for what the stream of this rank waits for while all copies are queued. */
static enum turn watch(ceov_pool *pool)
{
	const uint32_t own = pool->channel->rank;
	uint32_t peer, late = own;

	if (!is_under_way(pool)) {
		pool->late_ns = CEI_FOREVER;
		return TURN_IDLE;
	}
	if (has_poison(pool))
		return TURN_WAITS;
	for (peer = 0; peer < pool->channel->n_ranks; peer++)
		if (peer != own && __atomic_load_n(&pool->desks[peer]->sent[own].number,
						   __ATOMIC_ACQUIRE) <= pool->ended)
			late = peer;
	look(pool, late, "has not sent all of a large call before");
	return TURN_WAITS;
}

static enum turn turn(ceov_pool *pool)
{
	const struct cei_pool_task *task = &pool->tasks[pool->number % CEI_POOL_CALLS];

	if (!has_notice(pool, pool->channel->rank))
		return watch(pool);
	if (task->has_kernel)
		return pass(pool);
	pool->last_waited = pool->number;
	if (!are_there(pool))
		return TURN_WAITS;
	return is_direct(pool) ? make_copies(pool, task) : make_kernel(pool, task);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* Sleeps until the bell is rung, or there may be segments to map; at first it only yields, since
 * waking it takes longer than a call. */
static void rest(ceov_pool *pool, uint64_t idle_ns, uint32_t bell)
{
	if (cei_now_ns() - idle_ns < CEI_SLEEP_AFTER_NS) {
		cei_backoff_yield(&pool->backoff);
		return;
	}
	map_all(pool);
	cei_pool_tell(pool);
	cei_futex_wait(&pool->bell, bell, cei_now_ns() + REST_NS);
}

static void *pool_main(void *arg)
{
	ceov_pool *pool = arg;
	uint64_t idle_ns = cei_now_ns();
	enum turn last;
	uint32_t bell;

	/* acquire: pairs with cei_pool_stop() */
	while (!atomic_load_explicit(&pool->is_stopping, memory_order_acquire)) {
		bell = atomic_load_explicit(&pool->bell, memory_order_acquire);
		if (cei_channel_error(pool->channel)) {
			open_all(pool);
			cei_pool_tell(pool);
			cei_futex_wait(&pool->bell, bell, cei_now_ns() + LOOK_NS);
			continue;
		}
		last = turn(pool);
		if (last != TURN_IDLE)
			idle_ns = cei_now_ns();
		if (last == TURN_IDLE)
			rest(pool, idle_ns, bell);
		else if (last == TURN_WAITS)
			cei_backoff_step(&pool->backoff);
		else
			cei_backoff_again(&pool->backoff);
	}
	if (cei_channel_error(pool->channel))
		open_all(pool);
	cei_pool_tell(pool);
	return NULL;
}

void cei_pool_ring(ceov_pool *pool)
{
	/* release: pairs with pool_main(), which then sees what there is to do */
	atomic_fetch_add_explicit(&pool->bell, 1, memory_order_release);
	cei_futex_wake(&pool->bell);
}

/* Signals are for the application's threads. */
int cei_pool_start(ceov_pool *pool)
{
	sigset_t all, before;
	int r;

	pool->number = 1;
	pool->late_ns = CEI_FOREVER;
	cei_backoff_reset(&pool->backoff);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&pool->thread, NULL, pool_main, pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return cei_raise(cei_channel_report(pool->channel), CEOV_ERR_SYSTEM, r,
				 "ceov_pool_connect: channel '%s', rank %u: cannot start a thread",
				 pool->channel->name, pool->channel->rank);
	pool->has_thread = 1;
	return 0;
}

void cei_pool_stop(ceov_pool *pool)
{
	if (!pool->has_thread)
		return;
	/* release: pairs with pool_main() */
	atomic_store_explicit(&pool->is_stopping, 1, memory_order_release);
	cei_pool_ring(pool);
	(void)pthread_join(pool->thread, NULL);
	pool->has_thread = 0;
}
