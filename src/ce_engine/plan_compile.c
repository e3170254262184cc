/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* From what was added to a plan to its program: every handle becomes a number. */

#include <stdlib.h>

#include "base/ids.h"
#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "ce_engine/plan.h"
#include "ce_engine/plan_bind.h"

/* Clusters of memory stand apart by this much, and the first begins here: so that no
 * address of a program is 0. */
#define GAP_BYTES 4096u

static int no_memory(const struct ceov_plan *plan)
{
	return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
			 "ceov_plan_commit: no memory for the program");
}

/* --- numbers ----------------------------------------------------------------------- */

struct numbers {
	struct cei_ids buffers;
	struct cei_ids signals;         /* by their control: two handles may be of one signal */
};

static int number_mark(struct numbers *numbers, const struct ceov_mark *mark)
{
	uint32_t number;

	if (!mark->signal)
		return 0;
	return cei_ids_number(&numbers->signals, mark->signal->control, &number);
}

static int number_transfer(struct numbers *numbers, const struct ceov_transfer *transfer)
{
	uint32_t number;
	int r = number_mark(numbers, &transfer->source_ready);

	if (!r)
		r = number_mark(numbers, &transfer->target_free);
	if (!r)
		r = number_mark(numbers, &transfer->then);
	if (!r && transfer->row_bytes)
		r = cei_ids_number(&numbers->buffers, transfer->source.buffer, &number);
	if (!r && transfer->row_bytes)
		r = cei_ids_number(&numbers->buffers, transfer->target.buffer, &number);
	return r;
}

/* And room for the lists. */
static int number_all(struct ceov_plan *plan, struct numbers *numbers)
{
	struct cei_program *program = &plan->program;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < plan->n_transfers; i++)
		r = number_transfer(numbers, &plan->transfers[i]);
	if (r)
		return r;
	program->n_buffers = numbers->buffers.n;
	program->n_signals = numbers->signals.n;
	program->n_transfers = plan->n_transfers;
	program->n_expected = plan->n_expected;
	plan->buffers = calloc((size_t)program->n_buffers + 1, sizeof(*plan->buffers));
	plan->signals = calloc((size_t)program->n_signals + 1, sizeof(*plan->signals));
	if (!plan->buffers || !plan->signals)
		return CEOV_ERR_NO_MEMORY;
	return cei_program_alloc(program);
}

/* --- the table --------------------------------------------------------------------- */

static struct cei_program_mark mark_of(struct ceov_plan *plan, const struct numbers *numbers,
				       const struct ceov_mark *from)
{
	struct cei_program_mark mark = { CEI_PROGRAM_NONE, 0, 0 };

	if (!from->signal)
		return mark;
	mark.signal = cei_ids_find(&numbers->signals, from->signal->control);
	if (mark.signal == CEI_PROGRAM_NONE)
		return mark;
	mark.counter = from->index;
	mark.value = from->value;
	plan->signals[mark.signal] = from->signal;
	return mark;
}

static struct cei_program_spot spot_of(struct ceov_plan *plan, const struct numbers *numbers,
				       const struct ceov_transfer *transfer,
				       const struct ceov_spot *from)
{
	struct cei_program_spot spot = { CEI_PROGRAM_NONE, 0, 0 };

	if (!transfer->row_bytes)
		return spot;
	spot.buffer = cei_ids_find(&numbers->buffers, from->buffer);
	spot.offset_bytes = from->offset_bytes;
	spot.pitch_bytes = transfer->n_rows == 1 ? 0 : from->pitch_bytes;
	plan->buffers[spot.buffer] = from->buffer;
	return spot;
}

static void fill_transfers(struct ceov_plan *plan, const struct numbers *numbers)
{
	const struct ceov_transfer *from;
	struct cei_program_transfer *to;
	uint32_t i;

	for (i = 0; i < plan->n_transfers; i++) {
		from = &plan->transfers[i];
		to = &plan->program.transfers[i];
		to->source = spot_of(plan, numbers, from, &from->source);
		to->target = spot_of(plan, numbers, from, &from->target);
		to->row_bytes = from->row_bytes;
		to->n_rows = from->row_bytes ? from->n_rows : 0;
		to->source_ready = mark_of(plan, numbers, &from->source_ready);
		to->target_free = mark_of(plan, numbers, &from->target_free);
		to->then = mark_of(plan, numbers, &from->then);
		to->route = CEI_PROGRAM_NONE;
	}
}

/* Marks of signals that no transfer names order nothing. */
static void fill_expected(struct ceov_plan *plan, const struct numbers *numbers)
{
	struct cei_program *program = &plan->program;
	uint32_t i;

	program->n_expected = 0;
	for (i = 0; i < plan->n_expected; i++) {
		program->expected[program->n_expected] = mark_of(plan, numbers,
								 &plan->expected[i]);
		program->n_expected +=
			program->expected[program->n_expected].signal != CEI_PROGRAM_NONE;
	}
}

static void fill_signal(const struct ceov_plan *plan, const struct ceov_signal *signal,
			struct cei_program_signal *to)
{
	const struct cei_region *counters = signal->gpu ? signal->gpu : signal->control;

	to->rank = signal->rank;
	to->n_counters = signal->n_counters;
	to->flags = (cei_signal_is_visible(signal) ? CEI_PROGRAM_SEEN : 0) |
		(counters->address[plan->member] ? CEI_PROGRAM_RAISED : 0) |
		(signal->gpu ? CEI_PROGRAM_IN_GPU : 0);
}

static void fill_signals(struct ceov_plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->program.n_signals; i++)
		fill_signal(plan, plan->signals[i], &plan->program.signals[i]);
}

/* --- the address space ------------------------------------------------------------- */

struct extent {
	uint64_t begin;                 /* in this process */
	uint64_t end;
	uint32_t buffer;
};

static int compare_extents(const void *left, const void *right)
{
	const struct extent *a = left, *b = right;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* Those that overlap here, as a cluster, do there; clusters stand behind each other. What
 * nobody reaches has no address here: it is refused later, wherever it stands. */
static void place(struct cei_program *program, const struct extent *extents, uint32_t n)
{
	uint64_t start = GAP_BYTES, origin = 0, end = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!i || extents[i].begin >= end) {
			start += (end - origin + GAP_BYTES - 1) / GAP_BYTES * GAP_BYTES;
			origin = extents[i].begin;
			end = origin;
		}
		program->buffers[extents[i].buffer].start = start + extents[i].begin - origin;
		if (extents[i].end > end)
			end = extents[i].end;
	}
}

/* Memory that only our own GPU can touch: a peer process's, mapped for it alone, and what
 * each launch names. */
static int is_private(const struct ceov_buffer *buffer)
{
	if (buffer->is_floating)
		return 1;
	return buffer->region->kind == CEOV_PLACE_GPU &&
	       (buffer->region->origin == CEI_REGION_IMPORTED || !buffer->region->is_open);
}

static void fill_buffer(const struct ceov_plan *plan, const struct ceov_buffer *buffer,
			struct cei_program_buffer *to)
{
	const struct cei_engine *engine = &plan->object.context->engines[plan->member];
	const struct cei_region *region = buffer->region;

	to->rank = buffer->rank;
	to->kind = region->kind;
	to->gpu = region->kind == CEOV_PLACE_GPU ? region->gpu : CEOV_NOBODY;
	to->place = cei_router_place(engine, buffer);
	to->size_bytes = region->size_bytes;
	to->flags = (buffer->is_floating ? CEI_PROGRAM_FLOATING : 0) |
		(region->address[plan->member] ? CEI_PROGRAM_REACHED : 0) |
		(cei_plan_address(plan, buffer) ? CEI_PROGRAM_MAPPED : 0) |
		(is_private(buffer) ? CEI_PROGRAM_PRIVATE : 0);
}

/* The engine of the plan's rank moves everything. */
static void fill_mover(struct ceov_plan *plan)
{
	const struct cei_engine *engine = &plan->object.context->engines[plan->member];
	const struct cei_topology *topology = engine->topology;
	struct cei_program_mover *mover = plan->program.movers;
	uint32_t n = topology->machine ? topology->machine->n_gpus : 0; /* at most 64 */

	if (engine->backend.ops->live_caps((struct cei_backend *)&engine->backend) &
	    CEI_CAP_LANE_WAIT)
		mover->flags = CEI_PROGRAM_CAN_WAIT;
	mover->moves = engine->backend.ops->moves;
	mover->gpu = engine->backend.place.kind == CEOV_PLACE_GPU ? engine->backend.place.index
		: CEOV_NOBODY;
	mover->place = engine->place;
	/* a file may tell of more GPUs than the driver shows */
	if (engine->backend.ops->caps & CEI_CAP_DEVICE && topology->n_gpus < n)
		n = topology->n_gpus;
	mover->may_drive = n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

static int fill_buffers(struct ceov_plan *plan)
{
	struct cei_program *program = &plan->program;
	struct extent *extents = calloc((size_t)program->n_buffers + 1, sizeof(*extents));
	const struct ceov_buffer *buffer;
	uint32_t i, n = 0;

	if (!extents)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < program->n_buffers; i++) {
		buffer = plan->buffers[i];
		fill_buffer(plan, buffer, &program->buffers[i]);
		if (buffer->is_floating)
			continue;
		extents[n].begin = cei_plan_address(plan, buffer);
		extents[n].end = extents[n].begin + buffer->region->size_bytes;
		extents[n++].buffer = i;
	}
	qsort(extents, n, sizeof(*extents), compare_extents);
	place(program, extents, n);
	free(extents);
	return 0;
}

int cei_plan_compile(struct ceov_plan *plan)
{
	struct cei_program *program = &plan->program;
	struct numbers numbers = { 0 };
	int r;

	program->rank = plan->rank;
	program->n_ranks = plan->object.context->site.n_ranks;
	program->max_chunk_bytes = plan->max_chunk_bytes;
	program->has_template = plan->has_template != 0;
	program->rule = plan->rule;
	program->n_movers = 1;
	program->floating = CEI_PROGRAM_NONE;
	r = number_all(plan, &numbers);
	if (!r) {
		fill_mover(plan);
		fill_transfers(plan, &numbers);
		fill_expected(plan, &numbers);
		fill_signals(plan);
		r = fill_buffers(plan);
		plan->n_signals = program->n_signals;
	}
	cei_ids_fini(&numbers.buffers);
	cei_ids_fini(&numbers.signals);
	return r ? no_memory(plan) : 0;
}
