/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_*: building and commit. Checks are in plan_check.c, the lines of
 * ceov_plan_explain() in plan_explain.c, the release in plan_release.c. */

#include "ce_engine/plan.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/plan_bind.h"
#include "ce_engine/signal.h"

const struct cei_object_type cei_plan_type = {
	.name = "plan",
	.list_at = offsetof(ceov_context, plans),
};

/* All 0 where the caller has none. */
static int take_options(ceov_context *context, const struct ceov_plan_options *from,
			struct ceov_plan_options *ret_options)
{
	int r = 0;

	if (from)
		r = cei_sized_check(&context->report, from,
				    offsetof(struct ceov_plan_options, routes),
				    sizeof(*ret_options), "ceov_plan_create: options");
	if (r)
		return r;
	cei_sized_take(ret_options, from, sizeof(*ret_options));
	if (ret_options->routes <= CEOV_ROUTES_ALL &&
	    ret_options->urgency <= CEOV_URGENCY_BACKGROUND)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "ceov_plan_create: options: routes is %u and urgency %u, must "
			 "be 0 to 2", ret_options->routes, ret_options->urgency);
}

static uint32_t rule_of(const ceov_context *context, uint32_t routes)
{
	if (routes == CEOV_ROUTES_DEFAULT)
		return context->rule;
	return routes == CEOV_ROUTES_ALL ? CEI_ROUTE_RULE_ALL : CEI_ROUTE_RULE_DIRECT;
}

int ceov_plan_create(ceov_context *context, uint32_t rank,
		     const struct ceov_plan_options *from, ceov_plan **ret_plan)
{
	struct ceov_plan_options options;
	ceov_plan *plan;
	uint32_t member;
	int r = cei_context_check(context);

	if (!r)
		r = cei_context_own_rank(context, rank, "ceov_plan_create", &member);
	if (!r)
		r = take_options(context, from, &options);
	if (r)
		return r;
	if (!ret_plan)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_plan_create: no ret_plan");
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_create: no memory");
	plan->rank = rank;
	plan->member = member;
	plan->run.gate = CEOV_NOBODY;
	plan->max_chunk_bytes = options.max_chunk_bytes
		? options.max_chunk_bytes : context->max_chunk_bytes;
	plan->mark_group_bytes = options.mark_group_bytes
		? options.mark_group_bytes : CEI_MARK_GROUP_DEFAULT_BYTES;
	plan->rule = rule_of(context, options.routes);
	plan->urgency = options.urgency;
	pthread_mutex_init(&plan->lock, NULL);
	cei_list_init(&plan->run.idle);
	cei_object_init(&plan->object, context, &cei_plan_type);
	*ret_plan = plan;
	return 0;
}

static int check_open(ceov_plan *plan, const char *call)
{
	int r = cei_object_check(plan, &cei_plan_type, call);

	if (r)
		return r;
	if (plan->is_committed)
		return cei_raise(&plan->object.context->report, CEOV_ERR_STATE, 0,
				 "%s: the plan is committed and cannot change", call);
	return 0;
}

/* Room for one more element; doubles. */
static int make_room(ceov_plan *plan, void **array, size_t element_bytes, uint32_t n,
		     uint32_t *room)
{
	uint32_t wanted = *room ? *room * 2 : 16;
	void *grown;

	if (n < *room)
		return 0;
	if (n >= CEI_PROGRAM_TRANSFERS_MAX)
		return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
				 "a plan holds at most %u transfers or expected marks",
				 CEI_PROGRAM_TRANSFERS_MAX);
	grown = realloc(*array, wanted * element_bytes);
	if (!grown)
		return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for %u transfers", wanted);
	*array = grown;
	*room = wanted;
	return 0;
}

static int check_mark(ceov_plan *plan, const struct ceov_mark *mark, const char *what)
{
	ceov_context *context = plan->object.context;
	struct cei_counter counter;
	char text[96];
	int r;

	if (!mark->signal)
		return 0;
	snprintf(text, sizeof(text), "transfer %u: %s", plan->n_transfers, what);
	r = cei_object_check(mark->signal, &cei_signal_type, text);
	if (!r && mark->signal->object.context != context)
		r = cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			      "%s: the signal is of another context", text);
	return r ? r : cei_signal_resolve(mark, plan->member, text, &counter);
}

static int check_buffer(ceov_plan *plan, const struct ceov_spot *spot, const char *what)
{
	ceov_context *context = plan->object.context;
	char text[96];
	int r;

	snprintf(text, sizeof(text), "transfer %u: %s", plan->n_transfers, what);
	if (!spot->buffer)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0, "%s: no buffer",
				 text);
	r = cei_object_check(spot->buffer, &cei_buffer_type, text);
	if (!r && spot->buffer->object.context != context)
		r = cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			      "%s: the buffer is of another context", text);
	return r;
}

typedef void use(struct cei_object *object);

/* What a plan names stays: it is used from when it is added. */
static void for_mark(const struct ceov_mark *mark, use *call)
{
	if (mark->signal)
		call(&mark->signal->object);
}

static void for_transfer(const struct ceov_transfer *transfer, use *call)
{
	for_mark(&transfer->source_ready, call);
	for_mark(&transfer->target_free, call);
	for_mark(&transfer->then, call);
	if (!transfer->row_bytes)
		return;
	call(&transfer->source.buffer->object);
	call(&transfer->target.buffer->object);
}

int ceov_plan_add(ceov_plan *plan, const struct ceov_transfer *transfer)
{
	int r = check_open(plan, "ceov_plan_add");
	int moves;

	if (!r)
		r = cei_sized_check(&plan->object.context->report, transfer,
				    sizeof(*transfer), sizeof(*transfer),
				    "ceov_plan_add: transfer");
	if (r)
		return r;
	moves = transfer->row_bytes != 0;
	if (moves && !transfer->n_rows)
		return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
				 "transfer %u: n_rows is 0, and row_bytes %" PRIu64 ": where "
				 "nothing is to be moved, and `then` only raised, row_bytes "
				 "must be 0", plan->n_transfers, transfer->row_bytes);
	r = check_mark(plan, &transfer->source_ready, "source_ready");
	if (!r)
		r = check_mark(plan, &transfer->target_free, "target_free");
	if (!r)
		r = check_mark(plan, &transfer->then, "then");
	if (!r && moves)
		r = check_buffer(plan, &transfer->source, "source");
	if (!r && moves)
		r = check_buffer(plan, &transfer->target, "target");
	if (!r)
		r = make_room(plan, (void **)&plan->transfers, sizeof(*transfer),
			      plan->n_transfers, &plan->transfers_room);
	if (r)
		return r;
	plan->transfers[plan->n_transfers] = *transfer;
	for_transfer(&plan->transfers[plan->n_transfers++], cei_object_use);
	return 0;
}

int ceov_plan_expect(ceov_plan *plan, const struct ceov_mark *mark)
{
	int r = check_open(plan, "ceov_plan_expect");

	if (r)
		return r;
	if (!mark || !mark->signal)
		return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_plan_expect: no mark");
	r = check_mark(plan, mark, "expected mark");
	if (!r)
		r = make_room(plan, (void **)&plan->expected, sizeof(*mark),
			      plan->n_expected, &plan->expected_room);
	if (r)
		return r;
	plan->expected[plan->n_expected++] = *mark;
	for_mark(mark, cei_object_use);
	return 0;
}

/* --- commit -------------------------------------------------------------- */

/* Undoes what a commit built; the transfers stay. */
static void unbuild(struct ceov_plan *plan)
{
	cei_waits_fini(&plan->waits);
	cei_program_fini(&plan->program);
	free(plan->ways);
	free(plan->steps);
	free(plan->run.turns);
	free(plan->cuts);
	free(plan->signals);
	free(plan->buffers);
	plan->ways = NULL;
	plan->steps = NULL;
	plan->run.turns = NULL;
	plan->cuts = NULL;
	plan->signals = NULL;
	plan->buffers = NULL;
	plan->floating = NULL;
	plan->n_cuts = plan->n_signals = 0;
}

void cei_plan_set_template(struct ceov_plan *plan)
{
	plan->has_template = 1;
}

void cei_plan_keep_order(struct ceov_plan *plan)
{
	plan->keeps_order = 1;
}

int ceov_plan_commit(ceov_plan *plan)
{
	struct cei_report *report;
	int r = check_open(plan, "ceov_plan_commit");

	if (r)
		return r;
	report = &plan->object.context->report;
	if (!plan->n_transfers && !plan->has_template)
		return cei_raise(report, CEOV_ERR_STATE, 0,
				 "ceov_plan_commit: the plan has no transfer");
	r = cei_plan_compile(plan);
	if (!r)
		r = cei_program_check_floating(&plan->program, report);
	if (!r)
		r = cei_program_check_bounds(&plan->program, report);
	if (!r)
		r = cei_plan_bind(plan);
	if (!r)
		r = cei_plan_check(plan);
	if (!r)
		r = cei_plan_cut(plan);
	if (r) {
		unbuild(plan);
		return r;
	}
	plan->is_committed = 1;
	return 0;
}

void cei_plan_empty(struct ceov_plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->n_transfers; i++)
		for_transfer(&plan->transfers[i], cei_object_unuse);
	for (i = 0; i < plan->n_expected; i++)
		for_mark(&plan->expected[i], cei_object_unuse);
	plan->n_transfers = plan->n_expected = 0;
	unbuild(plan);
	free(plan->transfers);
	free(plan->expected);
	plan->transfers = NULL;
	plan->expected = NULL;
}
