/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stage 1: polls the host words of marks. Issues nothing. */

#include "ce_engine/doorbell.h"

#include "ce_engine/engine.h"
#include "ce_engine/launch.h"

enum look { LOOK_REACHED, LOOK_NOT_YET, LOOK_ABORTED };

void cei_doorbell_init(struct cei_doorbell *doorbell)
{
	cei_list_init(&doorbell->armed);
	doorbell->n_armed = 0;
}

void cei_doorbell_arm(struct cei_doorbell *doorbell, struct cei_launch *launch)
{
	const struct ceov_plan *plan = launch->plan;
	struct cei_chunk *chunk;
	uint32_t i;

	for (i = 0; i < plan->n_transfers; i++) {
		chunk = &launch->chunks[plan->steps[i].first_chunk];
		cei_list_append(&doorbell->armed, &chunk->link);
		doorbell->n_armed++;
	}
}

static enum look look_at(const struct cei_counter *counter, uint64_t base)
{
	uint64_t seen;

	if (!counter->signal)
		return LOOK_REACHED;
	/* acquire: pairs with the raiser's release - a kernel's st.release.sys, a
	 * lane's flag write, cei_signal raise by a thread */
	seen = atomic_load_explicit(counter->seen, memory_order_acquire);
	/* acquire: pairs with cei_signal_abort() */
	if (atomic_load_explicit(&counter->header->abort_code, memory_order_acquire))
		return LOOK_ABORTED;
	return seen >= base + counter->value ? LOOK_REACHED : LOOK_NOT_YET;
}

static void fail_aborted(struct cei_engine *engine, struct cei_chunk *chunk,
			 const struct cei_counter *counter)
{
	struct ceov_failure failure = cei_failure(0, 0);

	failure.error = cei_counter_aborted(counter, &failure.rank);
	failure.mark_value = chunk->launch->base + counter->value;
	failure.seen_value = atomic_load_explicit(counter->seen, memory_order_relaxed);
	cei_launch_fail(engine, chunk->launch, chunk, &failure);
}

/* A gated launch has left source_ready to its lane, but not its abort word. */
static enum look look_at_abort(const struct cei_counter *counter)
{
	if (!counter->signal)
		return LOOK_REACHED;
	/* acquire: pairs with cei_signal_abort() */
	return atomic_load_explicit(&counter->header->abort_code, memory_order_acquire)
		? LOOK_ABORTED : LOOK_REACHED;
}

static enum look look_at_step(const struct cei_launch *launch, const struct cei_step *step,
			      const struct cei_counter **ret_counter)
{
	enum look look;

	*ret_counter = &step->target_free;
	look = look_at(&step->target_free, launch->base);
	if (look != LOOK_REACHED)
		return look;
	*ret_counter = &step->source_ready;
	if (launch->gate != CEOV_NOBODY)
		return look_at_abort(&step->source_ready);
	return look_at(&step->source_ready, launch->base);
}

static uint32_t pass_on(struct cei_engine *engine, struct cei_launch *launch,
			struct cei_step *step)
{
	struct cei_chunk *chunk;
	uint32_t i;

	step->turn = launch->sequence + 1;
	engine->doorbell.n_armed--;
	for (i = 0; i < step->n_chunks; i++) {
		chunk = &launch->chunks[step->first_chunk + i];
		cei_list_remove(&chunk->link);
		chunk->state = CEI_CHUNK_READY;
		cei_scheduler_add(&engine->scheduler, chunk);
	}
	return step->n_chunks;
}

uint32_t cei_doorbell_poll(struct cei_engine *engine)
{
	struct cei_list *armed = &engine->doorbell.armed;
	struct cei_list *node = armed->next;
	const struct cei_counter *counter;
	struct cei_chunk *chunk;
	struct cei_step *step;
	uint32_t n_looks, n_passed = 0;
	enum look look;

	for (n_looks = 0; n_looks < CEI_DOORBELL_LOOKS && node != armed; n_looks++) {
		chunk = CEI_OWNER(node, struct cei_chunk, link);
		node = node->next;
		step = &chunk->launch->plan->steps[
			chunk->launch->plan->cuts[chunk->index].step];
		if (step->turn < chunk->launch->sequence)
			continue;
		look = look_at_step(chunk->launch, step, &counter);
		if (look == LOOK_REACHED) {
			n_passed += pass_on(engine, chunk->launch, step);
		} else if (look == LOOK_ABORTED) {
			fail_aborted(engine, chunk, counter);
			return n_passed;        /* it unlinked what node may be */
		}
	}
	if (node != armed) {            /* begin there next time */
		cei_list_remove(armed);
		cei_list_append(node, armed);
	}
	return n_passed;
}
