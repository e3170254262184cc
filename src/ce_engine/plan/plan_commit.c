/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * ceov_plan_commit(): completes the program by what is known of movers, buffers and signals,
 * has it checked, routed and bound to addresses of this process (plan_bind.c), and ends the
 * builder.
 */

#include "ce_engine/plan/plan_commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/lane.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_bind.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/program/program_order.h"

/* The gap between clusters of memory in the program's address space, and where the first one
 * begins, so that no address is 0. */
#define GAP_BYTES 4096u

/* --- the table --------------------------------------------------------------------- */

/* Lists the expected marks of signals that transfers name; marks of other signals give no order. */
static void fill_expected(struct ceov_plan *plan)
{
	const struct cei_plan_builder *builder = plan->builder;
	struct cei_program *program = &plan->program;
	struct cei_program_mark *mark;
	uint32_t i;

	program->n_expected = 0;
	for (i = 0; i < builder->n_expected; i++) {
		mark = &program->expected[program->n_expected];
		mark->signal = cei_ids_find(&builder->signals,
					    builder->expected[i].signal->control);
		mark->counter = builder->expected[i].index;
		mark->value = builder->expected[i].value;
		program->n_expected += mark->signal != CEI_PROGRAM_NONE;
	}
}

/* Returns a set: bit m says that the engine's mover m reaches the region of that rank. */
static uint32_t movers_that_reach(const struct ceov_plan *plan, const struct cei_region *region,
				  uint32_t rank)
{
	struct cei_movers *movers = &plan->object.context->engines[plan->member]->movers;
	struct cei_memory memory = cei_plan_memory(plan, region, rank);
	uint32_t i, reached = 0;

	for (i = 0; i < movers->n_own; i++)
		if (cei_backend_reaches(&movers->mover[i].backend, &memory))
			reached |= 1u << i;
	return reached;
}

static void fill_signal(const struct ceov_plan *plan, const struct ceov_signal *signal,
			struct cei_program_signal *to)
{
	snprintf(to->text, sizeof(to->text), "%s", cei_signal_text(signal).text);
	to->rank = signal->rank;
	to->n_counters = signal->n_counters;
	to->flags = (cei_signal_is_visible(signal) ? CEI_PROGRAM_SEEN : 0) |
		(signal->gpu ? CEI_PROGRAM_IN_GPU : 0) |
		(signal->far ? CEI_PROGRAM_FAR_COUNTERS : 0);
	to->reached = movers_that_reach(plan, cei_signal_spot(signal, 0).counters,
					signal->rank);
}

static void fill_signals(struct ceov_plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->program.n_signals; i++)
		fill_signal(plan, plan->signals[i], &plan->program.signals[i]);
}

/* --- the address space ------------------------------------------------------------- */

struct extent {
	const struct cei_region *unmapped;      /* the region if it has no address in this process,
						 * else NULL */
	uint64_t                 begin;         /* in this process; unmapped: in the region */
	uint64_t                 end;
	uint32_t                 buffer;
};

static int compare_extents(const void *left, const void *right)
{
	const struct extent *a = left, *b = right;

	if (a->unmapped != b->unmapped)
		return (uintptr_t)a->unmapped < (uintptr_t)b->unmapped ? -1 : 1;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

/* Places buffers in the program's address space. Buffers that overlap in this process are a cluster
 * and overlap there, too; clusters stand behind each other. A region that is not mapped here is a
 * cluster of its own. */
static void place(struct cei_program *program, const struct extent *extents, uint32_t n)
{
	uint64_t start = GAP_BYTES, origin = 0, end = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!i || extents[i].unmapped != extents[i - 1].unmapped ||
		    extents[i].begin >= end) {
			start += (end - origin + GAP_BYTES - 1) / GAP_BYTES * GAP_BYTES;
			origin = extents[i].begin;
			end = origin;
		}
		program->buffers[extents[i].buffer].start = start + extents[i].begin - origin;
		if (extents[i].end > end)
			end = extents[i].end;
	}
}

/* Whether only the rank's own GPU can access the buffer: GPU memory that is mapped for it alone,
 * such as that of another process, or a floating buffer. */
static int is_private(const struct ceov_buffer *buffer)
{
	if (buffer->is_floating)
		return 1;
	return buffer->region->kind == CEOV_PLACE_GPU &&
	       (buffer->region->origin == CEI_REGION_IMPORTED || !buffer->region->is_open);
}

/* Where the buffer's memory is in the topology's machine; CEOV_NOBODY: not known, or there
 * is no machine. Host ranks that stand in for a machine's places (CEOVERLAP_MACHINE) are
 * its places by rank. */
static uint32_t machine_place(const struct cei_engine *engine, const struct ceov_buffer *buffer)
{
	const struct cei_machine *machine = engine->topology->machine;
	const struct cei_region *region = buffer->region;

	if (!machine || engine->place == CEOV_NOBODY || region->origin == CEI_REGION_FAR)
		return CEOV_NOBODY;
	if (!(engine->backend->ops->caps & CEI_CAP_DEVICE))
		return buffer->rank < cei_machine_n_places(machine) ? buffer->rank : CEOV_NOBODY;
	if (region->kind == CEOV_PLACE_GPU)
		return region->gpu < machine->n_gpus ? region->gpu : CEOV_NOBODY;
	return cei_machine_near_host(machine, engine->place);
}

static void fill_buffer(const struct ceov_plan *plan, const struct ceov_buffer *buffer,
			struct cei_program_buffer *to)
{
	const struct cei_engine *engine = plan->object.context->engines[plan->member];
	const struct cei_region *region = buffer->region;

	to->rank = buffer->rank;
	to->kind = region->kind;
	to->gpu = region->kind == CEOV_PLACE_GPU ? region->gpu : CEOV_NOBODY;
	to->place = machine_place(engine, buffer);
	to->size_bytes = region->size_bytes;
	to->flags = (buffer->is_floating ? CEI_PROGRAM_FLOATING : 0) |
		(cei_plan_address(plan, buffer) ? CEI_PROGRAM_MAPPED : 0) |
		(is_private(buffer) ? CEI_PROGRAM_PRIVATE : 0) |
		(region->origin == CEI_REGION_FAR ? CEI_PROGRAM_FAR_MEMORY : 0);
	to->reached = movers_that_reach(plan, region, buffer->rank);
}

/* Returns the set of GPUs whose copy engines staged paths may use. Helpers need mapped addresses,
 * so a mover with an address space of its own has no helpers. */
static uint64_t may_drive(const struct cei_engine *engine, const struct cei_place_ops *ops)
{
	const struct cei_topology *topology = engine->topology;
	uint32_t n = topology->machine ? topology->machine->n_gpus : 0; /* at most 64 */

	if (ops->memory_open)
		return engine->place == CEOV_NOBODY ? 0 : UINT64_C(1) << engine->place;
	/* a file may tell of more GPUs than the driver shows */
	if (ops->caps & CEI_CAP_DEVICE && topology->n_gpus < n)
		n = topology->n_gpus;
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* The first mover alone has lanes that wait. */
static void fill_mover(const struct cei_engine *engine, uint32_t m, struct cei_program_mover *to)
{
	struct cei_backend *backend = (struct cei_backend *)&engine->movers.mover[m].backend;

	if (!m && cei_backend_caps(backend) & CEI_CAP_LANE_WAIT)
		to->flags = CEI_PROGRAM_CAN_WAIT;
	if (backend->ops->caps & CEI_CAP_LEAVES_MACHINE)
		to->flags |= CEI_PROGRAM_LEAVES_MACHINE;
	to->moves = backend->ops->moves;
	to->gpu = backend->place.kind == CEOV_PLACE_GPU ? backend->place.index : CEOV_NOBODY;
	to->place = engine->place;
	to->may_drive = may_drive(engine, backend->ops);
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
		extents[n].unmapped = extents[n].begin ? NULL : buffer->region;
		extents[n].end = extents[n].begin + buffer->region->size_bytes;
		extents[n++].buffer = i;
	}
	qsort(extents, n, sizeof(*extents), compare_extents);
	place(program, extents, n);
	free(extents);
	return 0;
}

static int compile(struct ceov_plan *plan)
{
	const struct cei_engine *engine = plan->object.context->engines[plan->member];
	struct cei_program *program = &plan->program;
	uint32_t i;
	int r;

	program->n_movers = engine->movers.n_own;
	program->n_expected = plan->builder->n_expected;
	r = cei_program_alloc(program);
	if (!r)
		r = fill_buffers(plan);
	if (r)
		return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory for the program");
	for (i = 0; i < program->n_movers; i++)
		fill_mover(engine, i, &program->movers[i]);
	fill_signals(plan);
	fill_expected(plan);
	return 0;
}

/* --- who waits for what --------------------------------------------------------------- */

static const struct cei_counter *mark_of(const struct ceov_plan *plan, uint32_t step,
					 uint32_t mark)
{
	return mark ? &plan->steps[step].target_free : &plan->steps[step].source_ready;
}

static int compare_waiters(const void *left, const void *right)
{
	const struct cei_waiter *a = left, *b = right;

	if (a->counter->seen != b->counter->seen)
		return (uintptr_t)a->counter->seen < (uintptr_t)b->counter->seen ? -1 : 1;
	if (a->counter->value != b->counter->value)
		return a->counter->value < b->counter->value ? -1 : 1;
	return a->step < b->step ? -1 : a->step > b->step;
}

static void list_waiters(struct cei_waits *waits, const struct ceov_plan *plan)
{
	const struct cei_counter *counter;
	struct cei_waiter *waiter;
	uint32_t i, n = 0;

	for (i = 0; i < 2 * plan->program.n_transfers; i++) {
		counter = mark_of(plan, i / 2, i % 2);
		waits->waiter_of[i] = CEOV_NOBODY;
		if (!counter->signal || !counter->seen || waits->before[i] != CEOV_NOBODY)
			continue;
		waits->waiters[n++] = (struct cei_waiter){ counter, i / 2, i % 2, 0 };
	}
	qsort(waits->waiters, n, sizeof(*waits->waiters), compare_waiters);
	for (i = 0; i < n; i++) {
		waiter = &waits->waiters[i];
		if (!i || waiter[-1].counter->seen != waiter->counter->seen)
			waits->watch_at[waits->n_watches++] = i;
		waiter->watch = waits->n_watches - 1;
		waits->waiter_of[2 * waiter->step + waiter->mark] = i;
	}
	waits->watch_at[waits->n_watches] = n;
}

/* Counting sort: counts, adds up, and places each. */
static void list_after(struct cei_waits *waits, uint32_t n_steps)
{
	uint32_t i, before;

	for (i = 0; i < 2 * n_steps; i++)
		if (waits->before[i] != CEOV_NOBODY)
			waits->after_at[waits->before[i]]++;
	for (i = 1; i <= n_steps; i++)
		waits->after_at[i] += waits->after_at[i - 1];
	for (i = 2 * n_steps; i-- > 0;) {
		before = waits->before[i];
		if (before != CEOV_NOBODY)
			waits->after[--waits->after_at[before]] = i / 2;
	}
}

/* CEOV_ERR_NO_MEMORY, not raised; then fini_waits(), which accepts zeroes. */
static int init_waits(struct cei_waits *waits, const struct ceov_plan *plan,
		      const struct cei_order *order)
{
	size_t n = plan->program.n_transfers;

	waits->before = malloc((2 * n + 1) * sizeof(uint32_t));
	waits->after_at = calloc(n + 1, sizeof(uint32_t));
	waits->after = malloc((2 * n + 1) * sizeof(uint32_t));
	waits->waiters = malloc((2 * n + 1) * sizeof(*waits->waiters));
	waits->waiter_of = malloc((2 * n + 1) * sizeof(uint32_t));
	waits->watch_at = malloc((2 * n + 1) * sizeof(uint32_t));
	if (!waits->before || !waits->after_at || !waits->after || !waits->waiters ||
	    !waits->waiter_of || !waits->watch_at)
		return CEOV_ERR_NO_MEMORY;
	memcpy(waits->before, order->before, 2 * n * sizeof(uint32_t));
	list_waiters(waits, plan);
	list_after(waits, plan->program.n_transfers);
	return 0;
}

static void fini_waits(struct cei_waits *waits)
{
	free(waits->before);
	free(waits->after_at);
	free(waits->after);
	free(waits->waiters);
	free(waits->waiter_of);
	free(waits->watch_at);
	memset(waits, 0, sizeof(*waits));
}

/* --- checks ------------------------------------------------------------------------ */

static int check_stale(const struct ceov_plan *plan)
{
	struct cei_region *region;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < plan->program.n_buffers; i++) {
		region = plan->buffers[i]->region;
		if (region->origin == CEI_REGION_ADOPTED)
			r = cei_share_for(region->kind)->check(region);
	}
	return r;
}

static int check_order(struct ceov_plan *plan)
{
	struct cei_report *report = &plan->object.context->report;
	struct cei_order order;
	int r = cei_program_check_triggers(&plan->program, report, &plan->triggers);

	if (r)
		return r;
	r = cei_order_init(&order, &plan->program, report);
	if (!r)
		r = cei_triggers_follow(&plan->triggers, &order);
	if (!r)
		r = cei_overlap_check(&order);
	if (!r && init_waits(&plan->waits, plan, &order))
		r = cei_order_no_memory(&order);
	cei_order_fini(&order);
	return r;
}

/* --- commit ------------------------------------------------------------------------ */

/* Undoes what cei_plan_complete() built. */
static void take_down(struct ceov_plan *plan)
{
	fini_waits(&plan->waits);
	cei_plan_unbind(plan);
	free(plan->paths);
	free(plan->steps);
	free(plan->run.turns);
	free(plan->cuts);
	plan->paths = NULL;
	plan->steps = NULL;
	plan->run.turns = NULL;
	plan->cuts = NULL;
}

void cei_plan_unprepare(struct ceov_plan *plan)
{
	take_down(plan);
	cei_program_strip(&plan->program);
}

int cei_plan_prepare(struct ceov_plan *plan)
{
	struct cei_report *report = &plan->object.context->report;
	int r = compile(plan);

	if (!r)
		r = cei_program_check_spots(&plan->program, report);
	if (!r)
		r = cei_program_check_triggers(&plan->program, report, &plan->triggers);
	if (r)
		cei_plan_unprepare(plan);
	return r;
}

int cei_plan_complete(struct ceov_plan *plan)
{
	int r = cei_plan_bind(plan);

	if (!r)
		r = check_stale(plan);
	if (!r)
		r = check_order(plan);
	if (!r)
		r = cei_plan_cut(plan);
	if (r)
		take_down(plan);
	return r;
}

int cei_plan_commit(struct ceov_plan *plan)
{
	int r = compile(plan);

	if (!r)
		r = cei_program_check_spots(&plan->program, &plan->object.context->report);
	if (!r)
		r = cei_plan_complete(plan);
	if (r)
		cei_plan_unprepare(plan);
	else
		cei_plan_end_builder(plan);
	return r;
}

int ceov_plan_commit(ceov_plan *plan)
{
	int r = cei_plan_check_open(plan, "ceov_plan_commit");

	if (r)
		return r;
	if (!plan->program.n_transfers && !plan->program.has_template)
		return cei_raise(&plan->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_plan_commit: the plan has no transfer");
	return plan->object.context->door->commit(plan);
}

void cei_plan_empty(struct ceov_plan *plan)
{
	ceov_context *context = plan->object.context;
	struct cei_program *program = &plan->program;

	cei_plan_end_builder(plan);
	cei_plan_unbind(plan);          /* while the memory is still in use */
	/* ceov_abort() holds the lock while it reads the list of signals */
	pthread_mutex_lock(&context->lock);
	while (program->n_buffers)
		plan->buffers[--program->n_buffers]->object.n_users--;
	while (program->n_signals)
		plan->signals[--program->n_signals]->object.n_users--;
	pthread_mutex_unlock(&context->lock);
	cei_plan_unprepare(plan);
	cei_program_fini(program);
	free(plan->signals);
	free(plan->also);
	free(plan->buffers);
	plan->signals = NULL;
	plan->also = NULL;
	plan->n_also = 0;
	plan->buffers = NULL;
}
