/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a calling thread does with a call that looks for its targets in pools. */

#include "ops/pool/pool.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "ce_engine/objects/context.h"
#include "ops/channel/gpu.h"
#include "ops/channel/waits.h"

/* --- which calls ----------------------------------------------------------------------------- */

uint64_t cei_pool_bytes_of(const struct cei_call *call)
{
	uint64_t bytes = 0;
	uint32_t rank;

	if (call->call.kind != CEOV_ALL_GATHER)
		return call->call.count * call->item_bytes;
	for (rank = 0; rank < call->n_ranks; rank++)
		bytes += call->parts[rank].from;
	return bytes;
}

/* Returns the most bytes that a rank gives to a peer, which all ranks must know alike. */
static uint64_t largest_of(const struct cei_call *call)
{
	uint64_t bytes = 0;
	uint32_t rank;

	if (call->call.kind != CEOV_ALL_GATHER)
		return cei_pool_bytes_of(call);
	for (rank = 0; rank < call->n_ranks; rank++)
		if (call->parts[rank].from > bytes)
			bytes = call->parts[rank].from;
	return bytes;
}

static int is_large(const struct cei_call *call)
{
	switch (call->call.kind) {
	case CEOV_ALL_GATHER:
	case CEOV_BROADCAST:
		break;
	case CEOV_ALL_TO_ALL:
		if (call->is_listed)
			return 0;       /* a rank does not know what others give each other */
		break;
	default:
		return 0;
	}
	return call->n_ranks > 1 && largest_of(call) >= CEOV_POOL_CALL_BYTES;
}

static int takes(ceov_pool *pool, void *stream)
{
	/* acquire: pairs with ceov_pool_connect() */
	return atomic_load_explicit(&pool->is_connected, memory_order_acquire) &&
		is_large(&pool->channel->call) && !cei_pool_gpu_is_capturing(pool, stream);
}

/* --- notices --------------------------------------------------------------------------------- */

/* A hash of what all ranks know alike: the sizes of parts of an uneven all-gather. */
static uint64_t parts_of(const struct cei_call *call)
{
	uint64_t hash = CEI_HASH_START;
	uint32_t rank;

	if (call->call.kind != CEOV_ALL_GATHER)
		return 0;
	for (rank = 0; rank < call->n_ranks; rank++)
		hash = cei_hash(hash, &call->parts[rank].from, sizeof(call->parts[rank].from));
	return hash;
}

/* Finds the call's target in the own pool. */
static uint32_t target_of(ceov_pool *pool, uint64_t *ret_offset)
{
	const struct cei_call *call = &pool->channel->call;
	uint64_t n = cei_pool_bytes_of(call);

	*ret_offset = 0;
	if (call->call.kind == CEOV_BROADCAST && call->call.root == call->rank)
		return CEI_POOL_NO_NEED;
	if (call->call.kind == CEOV_ALL_TO_ALL)
		n *= call->n_ranks;
	return cei_pool_find(pool, call->call.target, n, ret_offset);
}

/* Says once that pools do not make all large calls. */
static void say_kernel(ceov_pool *pool)
{
	const ceov_channel *channel = pool->channel;

	if (pool->has_said)
		return;
	pool->has_said = 1;
	cei_log(cei_channel_report(channel), CEI_LOG_INFO,
		"channel '%s', rank %u: %s of %" PRIu64 " bytes takes SMs, as do others whose "
		"target does not lie in one segment of the pool at each rank; this is said once",
		channel->name, channel->rank, cei_call_kind_name(channel->call.call.kind),
		cei_pool_bytes_of(&channel->call));
}

/* Where the call's notice and its task lie was used CEI_POOL_CALLS calls before. The pool's thread
 * has the deadline: a stream that other work holds up may take any time. */
static int await_room(ceov_pool *pool, uint64_t number)
{
	ceov_channel *channel = pool->channel;
	uint32_t rank = 0;
	int r = 0;

	cei_backoff_again(&channel->backoff);
	while (rank < channel->n_ranks && !r) {
		/* acquire: pairs with pass(); that thread has read the notice */
		if (atomic_load_explicit(&pool->desks[rank]->n_passed, memory_order_acquire) +
		    CEI_POOL_CALLS >= number) {
			rank++;
			continue;
		}
		r = cei_channel_error(channel);
		cei_backoff_step(&channel->backoff);
	}
	return r;
}

/* Returns when the pool's thread has queued what the call needs, or the channel has ended, which it
 * does after a deadline. */
static int await_queued(ceov_pool *pool, uint64_t number)
{
	ceov_channel *channel = pool->channel;
	int r = 0;

	cei_backoff_again(&channel->backoff);
	/* relaxed: the caller does not use what that thread has done */
	while (!r && atomic_load_explicit(&cei_pool_own_desk(pool)->n_passed,
					  memory_order_relaxed) < number) {
		cei_backoff_step(&channel->backoff);
		r = cei_channel_error(channel);
	}
	return r;
}

static int queue(ceov_pool *pool, void *stream, uint64_t number, int has_kernel)
{
	int r;

	if (!has_kernel)
		return cei_pool_gpu_wait(pool, stream, number);
	say_kernel(pool);
	r = cei_gpu_channel_run(pool->channel, stream);
	if (!r)         /* relaxed: it announces nothing */
		atomic_fetch_add_explicit(&pool->n_kernel_calls, 1, memory_order_relaxed);
	return r;
}

static int run(ceov_pool *pool, void *stream)
{
	const uint64_t number = pool->n_calls + 1;
	struct cei_pool_task *task = &pool->tasks[number % CEI_POOL_CALLS];
	struct cei_pool_notice *notice;
	int r = await_room(pool, number);

	if (r)
		return r;
	notice = &cei_pool_own_desk(pool)->notices[number % CEI_POOL_CALLS];
	notice->what = pool->channel->call.what;
	notice->bytes = cei_pool_bytes_of(&pool->channel->call);
	notice->parts = parts_of(&pool->channel->call);
	notice->segment = target_of(pool, &notice->offset);
	task->has_kernel = notice->segment == CEI_POOL_NOWHERE;
	task->call = pool->channel->call;
	r = queue(pool, stream, number, task->has_kernel);
	if (r)          /* peers would wait for this call until their deadline */
		return cei_channel_end(pool->channel, r);
	pool->n_calls = number;
	/* release: pairs with has_notice() of all ranks; the rest of the notice, and the task, are
	 * seen then */
	atomic_store_explicit(&notice->number, number, memory_order_release);
	cei_pool_ring(pool);
	return pool->waits && !task->has_kernel ? await_queued(pool, number) : 0;
}

static void explain(ceov_pool *pool, char *text, size_t n)
{
	uint64_t offset;

	if (!is_large(&pool->channel->call))
		return;
	snprintf(text, n, "outside of captures, %s\n",
		 target_of(pool, &offset) == CEI_POOL_NOWHERE ?
		 "the same: its target does not lie in one segment of the pool" :
		 "by copy engines and without SMs, if the targets of all ranks lie in their pools");
}

uint32_t cei_pool_poison(const ceov_pool *pool, uint32_t peer)
{
	/* acquire: pairs with open_all() of the peer */
	return peer == pool->channel->rank ? 0 :
		atomic_load_explicit(&pool->desks[peer]->poison, memory_order_acquire);
}

uint32_t cei_pool_poisoned(const ceov_pool *pool)
{
	uint32_t peer, poison;

	for (peer = 0; peer < pool->channel->n_ranks; peer++) {
		poison = cei_pool_poison(pool, peer);
		if (poison && poison != (uint32_t)-CEOV_ERR_STATE)
			return peer;
	}
	return CEOV_NOBODY;
}

static void look(ceov_pool *pool)
{
	struct cei_wait_cause cause = { .end = CEI_WAIT_POISONED, .where = "a large call" };

	/* acquire: pairs with start() */
	if (!atomic_load_explicit(&pool->is_connected, memory_order_acquire))
		return;
	cause.peer = cei_pool_poisoned(pool);
	if (cause.peer == CEOV_NOBODY)
		return;
	cause.poison = cei_pool_poison(pool, cause.peer);
	(void)cei_wait_raise(pool->channel, &cause);
}

const struct cei_channel_pool_ops cei_pool_ops = { takes, run, explain, look };
