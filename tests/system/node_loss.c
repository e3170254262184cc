/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a process of a node does in the tests of faults when a call has failed. */

#include "system/node_process.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"

#define SETTLE_MS 30u                   /* in which late bytes would come */

/* --- bytes that come late -------------------------------------------------------------------- */

/* A launch that fails is no promise that nothing lands any more; a rank that is lost is. */
static void await_loss(struct node_process *process)
{
	uint64_t deadline_ns = cei_deadline(node_call_ns());

	while (!node_has_logged(process, "was lost; what waits for it ends")) {
		if (cei_now_ns() > deadline_ns) {
			process->life->is_unsaid = 1;
			return;
		}
		pause_ms(1);
	}
}

/* Nothing is to write to the targets from now on. */
static void poison(struct node_process *process)
{
	const struct life_plan *plan = process->plan;
	uint32_t i;

	for (i = 0; i < LIFE_RANKS; i++)
		memset(ceov_buffer_base(process->ways[i].target, plan->node * LIFE_RANKS + i),
		       0xa5, plan->n_bytes);
}

static void count_late_bytes(struct node_process *process)
{
	const struct life_plan *plan = process->plan;
	struct life *life = process->life;
	uint64_t at;
	uint32_t i;

	pause_ms(SETTLE_MS);
	for (i = 0; i < LIFE_RANKS; i++) {
		const uint8_t *bytes = ceov_buffer_base(process->ways[i].target,
							plan->node * LIFE_RANKS + i);

		for (at = 0; at < plan->n_bytes; at++)
			life->n_late += bytes[at] != 0xa5;
	}
	life->n_looks++;
}

/* What the sender calls done must have come, even if this process has not received it. */
static void look_for_next(struct node_process *process)
{
	uint32_t i;

	for (i = 0; i < LIFE_RANKS; i++)
		process->life->has_next[i] = node_holds(process, i, process->life->n_come[i]);
}

/* After a loss memory is this process' again: what others do later changes no byte. */
static void look_for_late_bytes(struct node_process *process)
{
	await_loss(process);
	look_for_next(process);
	poison(process);
	node_await_flag(&process->plan->shared->is_mended);
	count_late_bytes(process);
}

void node_end_failed(struct node_process *process)
{
	if (process->ways[LIFE_RANKS - 1].target)       /* the group has opened */
		look_for_late_bytes(process);
}
