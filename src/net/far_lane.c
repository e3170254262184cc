/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The queue between an engine and a rail. */

#include "net/far_lane.h"

#include <stdlib.h>
#include <string.h>

/* --- the engine's thread ----------------------------------------------------- */

int cei_far_lane_has_room(struct cei_far_lane *lane, uint64_t n)
{
	/* acquire: pairs with pop() */
	return lane->appended + n <=
		atomic_load_explicit(&lane->taken, memory_order_acquire) + CEI_FAR_OPS;
}

static struct cei_far_op *append(struct cei_far_lane *lane, enum cei_far_kind kind)
{
	struct cei_far_op *op = &lane->ops[lane->appended++ % CEI_FAR_OPS];

	op->kind = kind;
	return op;
}

int cei_far_lane_copy(struct cei_far_lane *lane, const struct cei_far_copy *copies,
		      uint32_t n_copies)
{
	uint32_t i;

	if (!cei_far_lane_has_room(lane, n_copies))
		return CEOV_FULL;
	for (i = 0; i < n_copies; i++)
		append(lane, CEI_FAR_COPY)->copy = copies[i];
	return 0;
}

int cei_far_lane_post(struct cei_far_lane *lane, const struct cei_far_post *posts,
		      uint32_t n_posts)
{
	uint32_t i;

	if (!cei_far_lane_has_room(lane, n_posts))
		return CEOV_FULL;
	for (i = 0; i < n_posts; i++)
		append(lane, CEI_FAR_POST)->post = posts[i];
	return 0;
}

static void call_rail(struct cei_far_lane *lane)
{
	/* acq_rel: pairs with cei_far_lane_taken(). Either the rail finds what was published
	 * before this, or the lane is put in the ring again. The ring has room for all lanes, and
	 * each is in it once at most */
	if (!atomic_exchange_explicit(&lane->is_ready, 1, memory_order_acq_rel))
		(void)cei_ring_put(lane->ready, lane);
	cei_bell_ring(lane->bell);
}

int cei_far_lane_submit(struct cei_far_lane *lane)
{
	/* acquire: pairs with cei_far_lane_settle(), which is through with a submit's place */
	uint64_t n_done = atomic_load_explicit(&lane->n_done, memory_order_acquire);

	if (!cei_far_lane_has_room(lane, 1) || lane->n_submits - n_done == CEI_FAR_SUBMITS)
		return CEOV_FULL;
	(void)append(lane, CEI_FAR_SUBMIT);
	lane->n_submits++;
	/* release: pairs with cei_far_lane_next() */
	atomic_store_explicit(&lane->submitted, lane->appended, memory_order_release);
	call_rail(lane);
	return 0;
}

int cei_far_lane_reap(struct cei_far_lane *lane, uint64_t *ret_n_done)
{
	/* acquire, both: the error's pairs with cei_far_lane_break(), the number's with
	 * cei_far_lane_settle(). The error is read first: the number does not grow once there is
	 * one, so who sees the error has the final number. */
	int error = atomic_load_explicit(&lane->error, memory_order_acquire);

	*ret_n_done = atomic_load_explicit(&lane->n_done, memory_order_acquire);
	return error;
}

void cei_far_lane_stop(struct cei_far_lane *lane)
{
	/* relaxed: call_rail() orders it */
	atomic_store_explicit(&lane->must_stop, 1, memory_order_relaxed);
	call_rail(lane);
}

int cei_far_lane_is_idle(struct cei_far_lane *lane)
{
	/* acquire, both: pair with cei_far_lane_end() and publish_ended() */
	if (atomic_load_explicit(&lane->has_ended, memory_order_acquire))
		return 1;
	/* relaxed: nothing is submitted any more, or the same thread submits */
	return atomic_load_explicit(&lane->ended, memory_order_acquire) ==
		atomic_load_explicit(&lane->submitted, memory_order_relaxed);
}

/* --- the rail's thread ------------------------------------------------------- */

int cei_far_lane_init(struct cei_far_lane *lane, uint32_t process, struct cei_ring *ready,
		      struct cei_bell *bell)
{
	memset(lane, 0, sizeof(*lane));
	lane->ops = calloc(CEI_FAR_OPS, sizeof(*lane->ops));
	if (!lane->ops)
		return CEOV_ERR_NO_MEMORY;
	lane->process = process;
	lane->ready = ready;
	lane->bell = bell;
	cei_list_init(&lane->link);
	return 0;
}

void cei_far_lane_fini(struct cei_far_lane *lane)
{
	cei_list_remove(&lane->link);
	free(lane->ops);
	lane->ops = NULL;
}

void cei_far_lane_taken(struct cei_far_lane *lane)
{
	/* acq_rel: see call_rail() */
	(void)atomic_exchange_explicit(&lane->is_ready, 0, memory_order_acq_rel);
}

static uint64_t taken_of(struct cei_far_lane *lane)
{
	/* relaxed: only this thread writes it */
	return atomic_load_explicit(&lane->taken, memory_order_relaxed);
}

/* The thread is through with the next operation. */
static void pop(struct cei_far_lane *lane)
{
	lane->row = 0;
	lane->at = 0;
	/* release: pairs with cei_far_lane_has_room() in the engine's thread, which writes there */
	atomic_store_explicit(&lane->taken, taken_of(lane) + 1, memory_order_release);
}

static int is_stopped(struct cei_far_lane *lane)
{
	/* relaxed: ordered by the ring; see call_rail(). Both stay once they are set */
	return atomic_load_explicit(&lane->must_stop, memory_order_relaxed) ||
		atomic_load_explicit(&lane->error, memory_order_relaxed);
}

struct cei_far_op *cei_far_lane_next(struct cei_far_lane *lane)
{
	struct cei_far_op *op;

	/* acquire: pairs with cei_far_lane_submit() */
	while (taken_of(lane) != atomic_load_explicit(&lane->submitted, memory_order_acquire)) {
		op = &lane->ops[taken_of(lane) % CEI_FAR_OPS];
		if (op->kind == CEI_FAR_SUBMIT)
			lane->behind[lane->n_begun++ % CEI_FAR_SUBMITS] = lane->last;
		else if (!is_stopped(lane))
			return op;
		pop(lane);
	}
	return NULL;
}

void cei_far_lane_sent(struct cei_far_lane *lane, uint64_t number, int is_whole)
{
	lane->last = number;
	if (is_whole)
		pop(lane);
}

static void publish_ended(struct cei_far_lane *lane, uint64_t ended)
{
	if (ended < lane->last)
		return;
	/* release: pairs with cei_far_lane_is_idle(), after which memory is given away */
	atomic_store_explicit(&lane->ended, taken_of(lane), memory_order_release);
}

void cei_far_lane_settle(struct cei_far_lane *lane, uint64_t ended)
{
	/* relaxed: only this thread writes them */
	uint64_t n_done = atomic_load_explicit(&lane->n_done, memory_order_relaxed);

	if (atomic_load_explicit(&lane->error, memory_order_relaxed)) {
		if (lane->last <= ended)
			cei_far_lane_end(lane);
		return;
	}
	while (n_done < lane->n_begun && lane->behind[n_done % CEI_FAR_SUBMITS] <= ended)
		n_done++;
	/* release: pairs with cei_far_lane_reap(): what was sent is at its target */
	atomic_store_explicit(&lane->n_done, n_done, memory_order_release);
	publish_ended(lane, ended);
}

int cei_far_lane_is_settled(struct cei_far_lane *lane)
{
	/* relaxed: only this thread writes them; acquire: as in cei_far_lane_next() */
	return atomic_load_explicit(&lane->has_ended, memory_order_relaxed) ||
		atomic_load_explicit(&lane->ended, memory_order_relaxed) ==
		atomic_load_explicit(&lane->submitted, memory_order_acquire);
}

void cei_far_lane_break(struct cei_far_lane *lane, int error)
{
	/* relaxed: only this thread writes it */
	if (atomic_load_explicit(&lane->error, memory_order_relaxed))
		return;
	/* release: pairs with cei_far_lane_reap() */
	atomic_store_explicit(&lane->error, error, memory_order_release);
}

void cei_far_lane_end(struct cei_far_lane *lane)
{
	/* release: pairs with cei_far_lane_is_idle() */
	atomic_store_explicit(&lane->has_ended, 1, memory_order_release);
}
