/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a process of a node does in the tests of faults when a call has failed. */

#include "system/node_process.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"

#define SETTLE_MS 30u                   /* in which late bytes would come */
#define NEVER     (UINT64_C(1) << 40)   /* no pass has this number */

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
		       0xa5, plan->n_bytes[i]);
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

		for (at = 0; at < plan->n_bytes[i]; at++)
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

/* --- the loss of one rail ------------------------------------------------------------------- */

/* A failure of one plan aborts the signals of that plan alone. The other node may be waiting for
 * those of the other plan, which had nothing on a lost rail and will not be launched again. So it
 * is told, as an application tells it: a launch of each plan that cannot begin is aborted. It must
 * have ended before any rank renews the signals. */
static void pass_on(struct node_process *process)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = NEVER };
	ceov_ticket ticket;
	uint32_t i;

	for (i = 0; i < LIFE_RANKS; i++) {
		if (ceov_launch(process->ways[i].plan, &launch, &ticket))
			continue;       /* its signals are aborted already */
		(void)ceov_abort(process->context, ticket);
		(void)ceov_wait(process->context, ticket, node_call_ns());
	}
}

static int renew_one(ceov_signal *signal)
{
	uint64_t deadline_ns = cei_deadline(node_call_ns());
	int r;

	while ((r = ceov_signal_renew(signal)) == CEOV_PENDING && cei_now_ns() < deadline_ns)
		pause_ms(1);
	return r;
}

static int renew_all(struct node_process *process)
{
	struct way *way;
	int r = 0;

	for (way = process->ways; !r && way < process->ways + LIFE_RANKS; way++) {
		r = renew_one(way->arrived);
		if (!r)
			r = renew_one(way->free);
		if (!r)
			r = renew_one(way->arrived_there);
		if (!r)
			r = renew_one(way->free_there);
	}
	return r;
}

/* Keeps what has failed after the loss of one rail. Returns r. */
static int note_again(struct node_process *process, const char *what, int r)
{
	struct life *life = process->life;
	struct ceov_failure failure;

	if (r && !life->again[0])
		snprintf(life->again, sizeof(life->again), "%s: %s, %s", what, ceov_strerror(r),
			 ceov_last_failure(process->context, &failure) ? "" : failure.text);
	return r;
}

static int meet(struct node_process *process, const char *what)
{
	return note_again(process, what, ceov_barrier(process->context, node_call_ns()));
}

/* The targets stay as they are before the first launch, and after the last one even when the rail
 * is there again. */
static int run_passes_again(struct node_process *process)
{
	uint64_t pass;
	int r;

	poison(process);
	count_late_bytes(process);
	r = meet(process, "barrier before passes");
	for (pass = 0; !r && pass < LIFE_SURVIVED; pass++) {
		r = note_again(process, "a pass", node_run_pass(process, pass));
		process->life->n_survived += !r;
	}
	if (r)
		return r;
	poison(process);
	node_await_flag(&process->plan->shared->is_mended);
	count_late_bytes(process);
	return meet(process, "barrier after passes");           /* as in life_run() */
}

/* All processes lost the same rail, alone: the same plans go on over the other one. Returns 0, or
 * the error if the other process is lost, too. */
static int go_on(struct node_process *process)
{
	struct life *life = process->life, before;
	int r;

	pass_on(process);
	r = meet(process, "barrier after the failure");
	if (r)
		return r;
	look_for_next(process);
	memcpy(&before, life, sizeof(before));
	r = meet(process, "barrier before signals are renewed");
	if (!r)
		r = note_again(process, "renewing signals", renew_all(process));
	if (!r)
		r = meet(process, "barrier after signals are renewed");
	if (!r)
		r = run_passes_again(process);
	memcpy(life->n_sent, before.n_sent, sizeof(life->n_sent));
	memcpy(life->n_come, before.n_come, sizeof(life->n_come));
	return r;
}

void node_end_failed(struct node_process *process)
{
	const struct way *last = &process->ways[LIFE_RANKS - 1];

	if (!last->target)
		return;                 /* the group has not opened */
	if (!last->plan || !node_has_logged(process, ONE_RAIL_IS_LOST) || go_on(process))
		look_for_late_bytes(process);
}
