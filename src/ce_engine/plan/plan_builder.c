/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_create(), _add() and _expect(): handles become numbers. */

#include "ce_engine/plan/plan_builder.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"

const struct cei_object_type cei_plan_type = {
	.name = "plan",
	.list_at = offsetof(ceov_context, plans),
};

/* Takes the caller's options, or zeroes if there are none. */
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

static void fill(struct ceov_plan *plan, const ceov_context *context,
		 const struct ceov_plan_options *options)
{
	struct cei_program *program = &plan->program;

	program->n_ranks = context->site.n_ranks;
	program->max_chunk_bytes = options->max_chunk_bytes
		? options->max_chunk_bytes : context->max_chunk_bytes;
	program->rule = rule_of(context, options->routes);
	program->floating = CEI_PROGRAM_NONE;
	program->mark_group_bytes = options->mark_group_bytes
		? options->mark_group_bytes : CEI_MARK_GROUP_DEFAULT_BYTES;
	program->urgency = options->urgency == CEOV_URGENCY_NORMAL ? context->urgency
		: options->urgency;
	plan->run.gate = CEOV_NOBODY;
	pthread_mutex_init(&plan->lock, NULL);
	cei_list_init(&plan->run.idle);
}

int ceov_plan_create(ceov_context *context, uint32_t rank,
		     const struct ceov_plan_options *from, ceov_plan **ret_plan)
{
	struct ceov_plan_options options;
	ceov_plan *plan;
	uint32_t member;
	int r = cei_context_check(context, "ceov_plan_create");

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
	if (plan)
		plan->builder = calloc(1, sizeof(*plan->builder));
	if (!plan || !plan->builder) {
		free(plan);
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_create: no memory");
	}
	fill(plan, context, &options);
	plan->program.rank = rank;
	plan->member = member;
	cei_object_init(&plan->object, context, &cei_plan_type);
	*ret_plan = plan;
	return 0;
}

int cei_plan_check_open(ceov_plan *plan, const char *call)
{
	int r = cei_object_check(plan, &cei_plan_type, call);

	if (r)
		return r;
	if (!plan->builder)
		return cei_raise(&plan->object.context->report, CEOV_ERR_STATE, 0,
				 "%s: the plan is committed and cannot change", call);
	return 0;
}

/* --- checks of what is added --------------------------------------------- */

static int check_mark(ceov_plan *plan, const struct ceov_mark *mark, const char *what)
{
	ceov_context *context = plan->object.context;
	struct cei_counter counter;
	char text[96];
	int r;

	if (!mark->signal)
		return 0;
	snprintf(text, sizeof(text), "transfer %u: %s", plan->program.n_transfers, what);
	r = cei_object_check(mark->signal, &cei_signal_type, text);
	if (!r && mark->signal->object.context != context)
		r = cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			      "%s: %s is of another context", text,
			      cei_signal_text(mark->signal).text);
	return r ? r : cei_signal_resolve(mark, plan->member, text, &counter);
}

static int check_buffer(ceov_plan *plan, const struct ceov_spot *spot, const char *what)
{
	ceov_context *context = plan->object.context;
	char text[96];
	int r;

	snprintf(text, sizeof(text), "transfer %u: %s", plan->program.n_transfers, what);
	if (!spot->buffer)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0, "%s: no buffer",
				 text);
	r = cei_object_check(spot->buffer, &cei_buffer_type, text);
	if (!r && spot->buffer->object.context != context)
		r = cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			      "%s: the buffer is of another context", text);
	return r;
}

static int check_count(ceov_plan *plan, const struct ceov_transfer *transfer)
{
	int r = check_buffer(plan, &transfer->n_rows_at, "n_rows_at");

	if (r || (transfer->row_bytes && !transfer->n_rows_at.pitch_bytes))
		return r;
	return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
			 "transfer %u: n_rows_at says how many rows are moved: %s",
			 plan->program.n_transfers, transfer->row_bytes
			 ? "its pitch_bytes must be 0" : "row_bytes must not be 0");
}

static int check_transfer(ceov_plan *plan, const struct ceov_transfer *transfer)
{
	int r;

	if (transfer->row_bytes && !transfer->n_rows)
		return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
				 "transfer %u: n_rows is 0, and row_bytes %" PRIu64 ": where "
				 "nothing is to be moved, and `then` only raised, row_bytes "
				 "must be 0", plan->program.n_transfers, transfer->row_bytes);
	r = check_mark(plan, &transfer->source_ready, "source_ready");
	if (!r)
		r = check_mark(plan, &transfer->target_free, "target_free");
	if (!r)
		r = check_mark(plan, &transfer->then, "then");
	if (!r && transfer->row_bytes)
		r = check_buffer(plan, &transfer->source, "source");
	if (!r && transfer->row_bytes)
		r = check_buffer(plan, &transfer->target, "target");
	if (!r && transfer->n_rows_at.buffer)
		r = check_count(plan, transfer);
	return r;
}

/* --- numbers for handles ------------------------------------------------- */

static int no_memory(const ceov_plan *plan)
{
	return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
			 "no memory for transfer %u of a plan", plan->program.n_transfers);
}

/* Makes room for one more element, by doubling the array. */
static int make_room(const ceov_plan *plan, void **array, size_t element_bytes, uint32_t n,
		     uint32_t *room)
{
	uint32_t wanted = *room ? *room * 2 : 16;
	void *grown;

	if (n < *room)
		return 0;
	grown = realloc(*array, wanted * element_bytes);
	if (!grown)
		return no_memory(plan);
	*array = grown;
	*room = wanted;
	return 0;
}

static int check_limit(const ceov_plan *plan, uint32_t n)
{
	if (n < CEI_PROGRAM_TRANSFERS_MAX)
		return 0;
	return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
			 "a plan holds at most %u transfers or expected marks",
			 CEI_PROGRAM_TRANSFERS_MAX);
}

/* Gives the buffer a number in the plan, which uses it from then on, so that it is not released. */
static int number_buffer(ceov_plan *plan, ceov_buffer *buffer, uint32_t *ret_number)
{
	uint32_t *n = &plan->program.n_buffers;
	int r = make_room(plan, (void **)&plan->buffers, sizeof(*plan->buffers), *n,
			  &plan->builder->buffers_room);

	if (!r && cei_ids_number(&plan->builder->buffers, buffer, ret_number))
		r = no_memory(plan);
	if (r || *ret_number < *n)
		return r;
	cei_object_use(&buffer->object);
	plan->buffers[(*n)++] = buffer;
	return 0;
}

static int number_signal(ceov_plan *plan, ceov_signal *signal, uint32_t *ret_number)
{
	uint32_t *n = &plan->program.n_signals;
	int r = make_room(plan, (void **)&plan->signals, sizeof(*plan->signals), *n,
			  &plan->builder->signals_room);

	if (!r && cei_ids_number(&plan->builder->signals, signal->control, ret_number))
		r = no_memory(plan);
	if (r || *ret_number < *n)
		return r;
	cei_object_use(&signal->object);
	plan->signals[(*n)++] = signal;
	return 0;
}

static int take_mark(ceov_plan *plan, const struct ceov_mark *from,
		     struct cei_program_mark *to)
{
	*to = (struct cei_program_mark){ CEI_PROGRAM_NONE, 0, 0 };
	if (!from->signal)
		return 0;
	to->counter = from->index;
	to->value = from->value;
	return number_signal(plan, from->signal, &to->signal);
}

static int take_spot(ceov_plan *plan, const struct ceov_transfer *transfer,
		     const struct ceov_spot *from, struct cei_program_spot *to)
{
	*to = (struct cei_program_spot){ CEI_PROGRAM_NONE, 0, 0 };
	if (!transfer->row_bytes)
		return 0;
	to->offset_bytes = from->offset_bytes;
	to->pitch_bytes = transfer->n_rows == 1 ? 0 : from->pitch_bytes;
	return number_buffer(plan, from->buffer, &to->buffer);
}

static int take_transfer(ceov_plan *plan, const struct ceov_transfer *from,
			 struct cei_program_transfer *to)
{
	int r;

	memset(to, 0, sizeof(*to));
	to->row_bytes = from->row_bytes;
	to->n_rows = from->row_bytes ? from->n_rows : 0;
	to->route = CEI_PROGRAM_NONE;
	r = take_mark(plan, &from->source_ready, &to->source_ready);
	if (!r)
		r = take_mark(plan, &from->target_free, &to->target_free);
	if (!r)
		r = take_mark(plan, &from->then, &to->then);
	if (!r)
		r = take_spot(plan, from, &from->source, &to->source);
	if (!r)
		r = take_spot(plan, from, &from->target, &to->target);
	if (r || !from->n_rows_at.buffer)
		return r;
	to->is_counted = 1;
	to->count.offset_bytes = from->n_rows_at.offset_bytes;
	return number_buffer(plan, from->n_rows_at.buffer, &to->count.buffer);
}

/* --- adding -------------------------------------------------------------- */

int ceov_plan_add(ceov_plan *plan, const struct ceov_transfer *from)
{
	struct cei_program_transfer taken;
	struct ceov_transfer transfer;
	struct cei_program *program;
	int r = cei_plan_check_open(plan, "ceov_plan_add");

	if (!r)
		r = cei_sized_check(&plan->object.context->report, from,
				    offsetof(struct ceov_transfer, n_rows_at), sizeof(transfer),
				    "ceov_plan_add: transfer");
	if (r)
		return r;
	cei_sized_take(&transfer, from, sizeof(transfer));
	r = check_transfer(plan, &transfer);
	if (r)
		return r;
	program = &plan->program;
	r = check_limit(plan, program->n_transfers);
	if (!r)
		r = make_room(plan, (void **)&program->transfers, sizeof(taken),
			      program->n_transfers, &plan->builder->transfers_room);
	if (!r)
		r = take_transfer(plan, &transfer, &taken);
	if (!r)
		program->transfers[program->n_transfers++] = taken;
	return r;
}

int cei_plan_await_also(struct ceov_plan *plan, const struct ceov_mark *mark)
{
	struct cei_report *report = cei_object_report(&plan->object);
	struct cei_also also = { .step = plan->program.n_transfers - 1 };
	struct cei_program_mark taken;
	struct ceov_mark own = *mark;
	int r = check_mark(plan, mark, "free");

	if (!r)
		r = check_limit(plan, plan->n_also);
	if (!r)
		r = make_room(plan, (void **)&plan->also, sizeof(also), plan->n_also,
			      &plan->builder->also_room);
	if (!r)
		r = take_mark(plan, mark, &taken);
	if (r)
		return r;
	own.signal = plan->signals[taken.signal];
	r = cei_signal_resolve(&own, plan->member, "free", &also.counter);
	if (!r && !also.counter.seen)
		r = cei_raise(report, CEOV_ERR_INVALID, 0,
			      "transfer %u: free, of %s, cannot be seen by the engine; create "
			      "its signal on the host or with CEOV_SIGNAL_HOST_VISIBLE",
			      also.step, cei_signal_text(own.signal).text);
	if (!r)
		plan->also[plan->n_also++] = also;
	return r;
}

int ceov_plan_expect(ceov_plan *plan, const struct ceov_mark *mark)
{
	struct cei_plan_builder *builder;
	int r = cei_plan_check_open(plan, "ceov_plan_expect");

	if (r)
		return r;
	if (!mark || !mark->signal)
		return cei_raise(&plan->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_plan_expect: no mark");
	builder = plan->builder;
	r = check_mark(plan, mark, "expected mark");
	if (!r)
		r = check_limit(plan, builder->n_expected);
	if (!r)
		r = make_room(plan, (void **)&builder->expected, sizeof(*mark),
			      builder->n_expected, &builder->expected_room);
	if (r)
		return r;
	builder->expected[builder->n_expected++] = *mark;
	cei_object_use(&mark->signal->object);
	return 0;
}

void cei_plan_set_template(struct ceov_plan *plan, const char *label)
{
	plan->label = label;
	plan->program.has_template = 1;
}

void cei_plan_set_between_nodes(struct ceov_plan *plan, const char *words)
{
	plan->between_nodes = words;
}

void cei_plan_keep_order(struct ceov_plan *plan)
{
	plan->program.keeps_order = 1;
}

void cei_plan_end_builder(struct ceov_plan *plan)
{
	struct cei_plan_builder *builder = plan->builder;
	uint32_t i;

	if (!builder)
		return;
	plan->builder = NULL;
	for (i = 0; i < builder->n_expected; i++)
		cei_object_unuse(&builder->expected[i].signal->object);
	cei_ids_fini(&builder->buffers);
	cei_ids_fini(&builder->signals);
	free(builder->expected);
	free(builder);
}
