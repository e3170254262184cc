/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LOWER_H
#define CEI_LOWER_H

/*
 * Lowering: what a step of a plan is for a backend. Each mark that is awaited, each piece
 * and each mark that is raised is made into a backend's await, piece and post here, and
 * nowhere else, for all that carry plans out:
 *
 *   an engine's lane     lanes.c, chunk by chunk, as marks are reached
 *   a caller's stream    ceov_plan_queue(), whole plans in their order
 *   a captured lane      operators in CUDA graphs, likewise, with values from memory
 */

#include <stdint.h>

#include "backend/lane.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"

/* The await and the post of a counter; counter->signal is not NULL. */
static inline struct cei_await cei_lower_await(const struct cei_counter *counter, uint64_t base)
{
	struct cei_await await = {
		.counter = counter->address,
		.value = base + counter->value,
		.abort_word = (const uint32_t *)&counter->header->abort_code,
	};

	return await;
}

static inline struct cei_post cei_lower_post(const struct cei_counter *counter, uint64_t base)
{
	struct cei_post post = {
		.counter = counter->address,
		.word = counter->word,
		.value = base + counter->value,
	};

	return post;
}

/* Returns a copy of `piece`, which is all of the step or one chunk of it, with its source as an
 * address. If the step reads the memory that each launch names, the source is an offset in that
 * memory, and `floating` is the memory's address; for other steps it is an address already. */
static inline struct cei_piece cei_lower_piece(const struct cei_step *step,
					       const struct cei_piece *piece,
					       uint64_t floating)
{
	struct cei_piece lowered = *piece;

	if (step->is_floating)
		lowered.source += floating;
	return lowered;
}

/* A plan as work of a stream, from its first step to its last. The first mover of the plan's
 * rank can move each of them in one copy. */
struct cei_stream_run {
	const struct ceov_plan *plan;
	struct cei_backend     *backend;        /* that mover */
	void                   *stream;
	uint64_t                base;
	uint64_t                floating;
	uint64_t                value_at;       /* as in struct cei_stream_work: 0, or marks rise
						 * to what this word holds, while waits still
						 * go by the base. Then steps that move
						 * nothing are left out: what begins and ends
						 * such a run stands in for them */
};

/* Queues it, in as few calls as its marks allow: steps that follow each other and have the same
 * marks, or none, are one batch, whose copies have no order. Any thread. */
int cei_lower_to_stream(const struct cei_stream_run *run);

#endif /* CEI_LOWER_H */
