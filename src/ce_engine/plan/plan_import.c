/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Numbers of a program become handles, and the handles numbers again, by ceov_plan_add(). */

#include "ce_engine/plan/plan_import.h"

#include <inttypes.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/program/program_wire.h"

static const char call[] = "a program's import";

static int read_program(ceov_context *context, const void *bytes, size_t n_bytes,
			struct cei_program *ret_program)
{
	int r = cei_program_read(bytes, n_bytes, ret_program);

	if (!r)
		return 0;
	return cei_raise(&context->report, r, 0, "%s: its %zu bytes are %s", call, n_bytes,
			 r == CEOV_ERR_VERSION ? "of another version" : r == CEOV_ERR_INVALID
			 ? "no program" : "more than there is memory for");
}

/* --- checks ---------------------------------------------------------------- */

static int check_buffer(ceov_context *context, const struct cei_program *program,
			const ceov_buffer *handle, uint32_t i)
{
	const struct cei_program_buffer *buffer = &program->buffers[i];
	int is_floating = (buffer->flags & CEI_PROGRAM_FLOATING) != 0;
	int r = handle ? cei_object_check(handle, &cei_buffer_type, call) : 0;

	if (r)
		return r;
	if (!handle || handle->object.context != context)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: buffer %u is %s", call, i,
				 handle ? "of another context" : "missing");
	if (handle->rank == buffer->rank && handle->region->kind == buffer->kind &&
	    handle->region->size_bytes == buffer->size_bytes &&
	    !handle->is_floating == !is_floating)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "%s: buffer %u is %" PRIu64 " bytes of rank %u, and not, as the "
			 "program says, %" PRIu64 " bytes of rank %u; or the kind of memory "
			 "differs", call, i, handle->region->size_bytes, handle->rank,
			 buffer->size_bytes, buffer->rank);
}

static int check_signal(ceov_context *context, const struct cei_program *program,
			const ceov_signal *handle, uint32_t i)
{
	const struct cei_program_signal *signal = &program->signals[i];
	int is_in_gpu = (signal->flags & CEI_PROGRAM_IN_GPU) != 0;
	int r = handle ? cei_object_check(handle, &cei_signal_type, call) : 0;

	if (r)
		return r;
	if (!handle || handle->object.context != context)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: signal %u is %s", call, i,
				 handle ? "of another context" : "missing");
	if (handle->rank == signal->rank && handle->n_counters == signal->n_counters &&
	    !handle->gpu == !is_in_gpu)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "%s: signal %u has %u counters of rank %u, and not, as the program "
			 "says, %u counters of rank %u; or the kind of memory differs", call,
			 i, handle->n_counters, handle->rank, signal->n_counters,
			 signal->rank);
}

static int check_handles(ceov_context *context, const struct cei_program *program,
			 const struct cei_plan_handles *handles)
{
	uint32_t i;
	int r = 0;

	if (program->n_ranks != context->site.n_ranks)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: it is for a group of %u ranks, this one has %u", call,
				 program->n_ranks, context->site.n_ranks);
	if (handles->n_buffers != program->n_buffers || handles->n_signals != program->n_signals)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: it names %u buffers and %u signals, but %u and %u were "
				 "given", call, program->n_buffers, program->n_signals,
				 handles->n_buffers, handles->n_signals);
	for (i = 0; !r && i < program->n_buffers; i++)
		r = check_buffer(context, program, handles->buffers[i], i);
	for (i = 0; !r && i < program->n_signals; i++)
		r = check_signal(context, program, handles->signals[i], i);
	return r;
}

/* --- adding ---------------------------------------------------------------- */

static struct ceov_mark mark_of(const struct cei_plan_handles *handles,
				const struct cei_program_mark *from)
{
	struct ceov_mark mark = { NULL, from->counter, from->value };

	if (from->signal != CEI_PROGRAM_NONE)
		mark.signal = handles->signals[from->signal];
	return mark;
}

static struct ceov_spot spot_of(const struct cei_plan_handles *handles,
				const struct cei_program_spot *from)
{
	struct ceov_spot spot = { NULL, from->offset_bytes, from->pitch_bytes };

	if (from->buffer != CEI_PROGRAM_NONE)
		spot.buffer = handles->buffers[from->buffer];
	return spot;
}

static int add_all(ceov_plan *plan, const struct cei_program *program,
		   const struct cei_plan_handles *handles)
{
	const struct cei_program_transfer *from;
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	struct ceov_mark mark;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < program->n_transfers; i++) {
		from = &program->transfers[i];
		transfer.source = spot_of(handles, &from->source);
		transfer.target = spot_of(handles, &from->target);
		transfer.row_bytes = from->row_bytes;
		transfer.n_rows = from->n_rows;
		transfer.source_ready = mark_of(handles, &from->source_ready);
		transfer.target_free = mark_of(handles, &from->target_free);
		transfer.then = mark_of(handles, &from->then);
		r = ceov_plan_add(plan, &transfer);
	}
	for (i = 0; !r && i < program->n_expected; i++) {
		mark = mark_of(handles, &program->expected[i]);
		r = ceov_plan_expect(plan, &mark);
	}
	return r;
}

static int build(ceov_context *context, const struct cei_program *program,
		 const struct cei_plan_handles *handles, ceov_plan **ret_plan)
{
	ceov_plan *plan;
	int r = ceov_plan_create(context, program->rank, NULL, &plan);

	if (r)
		return r;
	if (program->max_chunk_bytes < plan->program.max_chunk_bytes)
		plan->program.max_chunk_bytes = program->max_chunk_bytes;
	plan->program.mark_group_bytes = program->mark_group_bytes;
	plan->program.urgency = program->urgency;
	plan->program.has_template = program->has_template;
	plan->program.keeps_order = program->keeps_order;
	plan->program.rule = program->rule;
	r = add_all(plan, program, handles);
	if (!r)
		r = ceov_plan_commit(plan);
	if (r)
		ceov_plan_release(plan);
	else
		*ret_plan = plan;
	return r;
}

int cei_plan_import(ceov_context *context, const void *bytes, size_t n_bytes,
		    const struct cei_plan_handles *handles, ceov_plan **ret_plan)
{
	struct cei_program program;
	int r = cei_context_check(context, call);

	if (!r)
		r = read_program(context, bytes, n_bytes, &program);
	if (r)
		return r;
	r = check_handles(context, &program, handles);
	if (!r)
		r = build(context, &program, handles, ret_plan);
	cei_program_fini(&program);
	return r;
}
