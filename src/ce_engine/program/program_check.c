/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks of each transfer by itself: floating buffers, bounds, who may read what, and whether the
 * engine or lanes can wait for its marks, and raise them. */

#include <inttypes.h>

#include "ce_engine/program/program.h"
#include "ce_engine/program/program_order.h"

static int is_floating(const struct cei_program *program, uint32_t buffer)
{
	return (program->buffers[buffer].flags & CEI_PROGRAM_FLOATING) != 0;
}

/* --- floating buffers ---------------------------------------------------- */

static int check_floating(const struct cei_program *program, struct cei_report *report,
			  uint32_t i)
{
	uint32_t source = program->transfers[i].source.buffer;

	if (is_floating(program, program->transfers[i].target.buffer))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: its target is a floating buffer, which can "
				 "be a source only", i);
	if (!is_floating(program, source))
		return 0;
	if (program->buffers[source].rank != program->rank)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: its source is a floating buffer of rank %u, "
				 "but the plan is of rank %u and could not read there", i,
				 program->buffers[source].rank, program->rank);
	if (program->floating != CEI_PROGRAM_NONE && program->floating != source)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: its source is a second floating buffer, but "
				 "a launch names the address of one", i);
	return 0;
}

static int find_floating(struct cei_program *program, struct cei_report *report)
{
	uint32_t i;
	int r;

	program->floating = CEI_PROGRAM_NONE;
	for (i = 0; i < program->n_transfers; i++) {
		if (!program->transfers[i].row_bytes)
			continue;
		r = check_floating(program, report, i);
		if (r)
			return r;
		if (is_floating(program, program->transfers[i].source.buffer))
			program->floating = program->transfers[i].source.buffer;
	}
	return 0;
}

/* --- bounds -------------------------------------------------------------- */

/* Raises with every value that the extent was computed from, because any of them may be the
 * mistake. */
static int raise_outside(const struct cei_program *program, struct cei_report *report,
			 uint32_t i, const struct cei_program_spot *spot, const char *what)
{
	const struct cei_program_transfer *transfer = &program->transfers[i];
	uint64_t size = program->buffers[spot->buffer].size_bytes;

	if (transfer->n_rows == 1)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: %s: 1 row of %" PRIu64 " bytes from offset %"
				 PRIu64 " on is outside of the buffer's %" PRIu64 " bytes",
				 i, what, transfer->row_bytes, spot->offset_bytes, size);
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "transfer %u: %s: %" PRIu64 " rows of %" PRIu64 " bytes, one every %"
			 PRIu64 " bytes, from offset %" PRIu64 " on are outside of the "
			 "buffer's %" PRIu64 " bytes", i, what, transfer->n_rows,
			 transfer->row_bytes, spot->pitch_bytes, spot->offset_bytes, size);
}

static int check_spot(const struct cei_program *program, struct cei_report *report,
		      uint32_t i, const struct cei_program_spot *spot, const char *what)
{
	const struct cei_program_transfer *transfer = &program->transfers[i];
	uint64_t size = program->buffers[spot->buffer].size_bytes;
	uint64_t extent = cei_program_extent(transfer, spot);

	if (transfer->n_rows > 1 && spot->pitch_bytes < transfer->row_bytes)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: %s: pitch of %" PRIu64 " bytes is less than "
				 "row_bytes %" PRIu64, i, what, spot->pitch_bytes,
				 transfer->row_bytes);
	if (!extent || spot->offset_bytes > size || extent > size - spot->offset_bytes)
		return raise_outside(program, report, i, spot, what);
	return 0;
}

static int check_rank(const struct cei_program *program, struct cei_report *report, uint32_t i)
{
	uint32_t from = program->buffers[program->transfers[i].source.buffer].rank;
	uint32_t to = program->buffers[program->transfers[i].target.buffer].rank;

	if (from == program->rank || to == program->rank)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "transfer %u: moves from rank %u to rank %u, but the plan is of "
			 "rank %u", i, from, to, program->rank);
}

/* Bytes go to another node by the engine of the rank that has them: there they are offered, and
 * the receiver names its memory. Nothing asks another node for bytes. */
static int check_pull(const struct cei_program *program, struct cei_report *report, uint32_t i)
{
	const struct cei_program_buffer *source =
		&program->buffers[program->transfers[i].source.buffer];

	if (!(source->flags & CEI_PROGRAM_FAR_MEMORY))
		return 0;
	return cei_raise(report, CEOV_ERR_NO_ROUTE, 0,
			 "ceov_plan_commit: transfer %u reads memory of rank %u, which is on "
			 "another node: let rank %u commit a plan that sends it", i, source->rank,
			 source->rank);
}

static int check_count(const struct cei_program *program, struct cei_report *report, uint32_t i)
{
	const struct cei_program_transfer *transfer = &program->transfers[i];
	const struct cei_program_buffer *buffer;

	if (!transfer->is_counted)
		return 0;
	buffer = &program->buffers[transfer->count.buffer];
	if (transfer->source_ready.signal == CEI_PROGRAM_NONE)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: n_rows_at is set, and source_ready, which says that "
				 "the number of rows can be read, is not", i);
	if (cei_program_holds_count(buffer, program->rank, transfer->count.offset_bytes))
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "transfer %u: n_rows_at: offset %" PRIu64 " of a buffer of rank %u with %"
			 PRIu64 " bytes of %s memory; it must be 8 bytes of host memory of rank "
			 "%u, aligned to 8 bytes", i, transfer->count.offset_bytes, buffer->rank,
			 buffer->size_bytes, buffer->kind == CEOV_PLACE_GPU ? "GPU" : "host",
			 program->rank);
}

int cei_program_check_spots(struct cei_program *program, struct cei_report *report)
{
	const struct cei_program_transfer *transfer;
	uint32_t i;
	int r = find_floating(program, report);

	for (i = 0; !r && i < program->n_transfers; i++) {
		transfer = &program->transfers[i];
		if (!transfer->row_bytes)
			continue;
		r = check_spot(program, report, i, &transfer->source, "source");
		if (!r)
			r = check_spot(program, report, i, &transfer->target, "target");
		if (!r)
			r = check_rank(program, report, i);
		if (!r)
			r = check_pull(program, report, i);
		if (!r)
			r = check_count(program, report, i);
	}
	return r;
}

/* --- marks ------------------------------------------------------------------- */

static int has(const struct cei_program *program, const struct cei_program_mark *mark,
	       enum cei_program_signal_flags flag)
{
	return (program->signals[mark->signal].flags & flag) != 0;
}

static int is_mark(const struct cei_program_mark *mark)
{
	return mark->signal != CEI_PROGRAM_NONE;
}

static const char *why_not_gated(const struct cei_program *program)
{
	const struct cei_program_mark *ready;
	uint32_t i, signal = CEI_PROGRAM_NONE;

	if (program->n_movers && !(program->movers[0].flags & CEI_PROGRAM_CAN_WAIT))
		return "lanes cannot wait here";
	for (i = 0; i < program->n_transfers; i++) {
		if (cei_program_leaves_node(program, i))
			return "a transfer goes to another node";
		if (program->transfers[i].mover)
			return "the rank's first mover does not move all transfers";
		if (!program->transfers[i].has_direct)
			return "a transfer has no direct path";
		if (program->transfers[i].is_counted)
			return "the number of rows of a transfer is read when its mark is reached";
		ready = &program->transfers[i].source_ready;
		if (!is_mark(ready))
			continue;
		if (signal != CEI_PROGRAM_NONE && ready->signal != signal)
			return "source_ready marks are of several signals, no rising chain";
		signal = ready->signal;
	}
	if (signal == CEI_PROGRAM_NONE)
		return "no source_ready marks to wait for";
	if (program->signals[signal].flags & CEI_PROGRAM_FAR_COUNTERS)
		return "source_ready marks are of another node";
	if (program->signals[signal].flags & CEI_PROGRAM_IN_GPU &&
	    program->signals[signal].rank != program->rank)
		return "source_ready marks are in another rank's GPU";
	return NULL;
}

static void note_value(struct cei_triggers *triggers, const struct cei_program_mark *mark)
{
	if (mark->value > triggers->largest_value)
		triggers->largest_value = mark->value;
}

static int check_marks(const struct cei_program *program, struct cei_report *report, uint32_t i,
		     struct cei_triggers *triggers)
{
	const struct cei_program_transfer *transfer = &program->transfers[i];

	triggers->is_direct &= transfer->has_direct && !transfer->mover;
	if (triggers->leaves_node == CEOV_NOBODY && cei_program_leaves_node(program, i))
		triggers->leaves_node = i;
	if (is_mark(&transfer->target_free) &&
	    !has(program, &transfer->target_free, CEI_PROGRAM_SEEN))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: target_free, of %s, cannot be seen by the engine; "
				 "create its signal on the host or with "
				 "CEOV_SIGNAL_HOST_VISIBLE", i,
				 cei_program_signal_text(program, transfer->target_free.signal));
	if (is_mark(&transfer->source_ready) &&
	    !has(program, &transfer->source_ready, CEI_PROGRAM_SEEN))
		triggers->is_pollable = 0;
	if (!triggers->is_pollable && !triggers->is_gateable)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "transfer %u: source_ready, of %s, cannot be polled (its signal "
				 "is in a GPU and not host visible) nor gated (%s)", i,
				 cei_program_signal_text(program, transfer->source_ready.signal),
				 triggers->why_polled);
	if (is_mark(&transfer->then) &&
	    !(program->signals[transfer->then.signal].reached >> transfer->mover & 1))
		return cei_raise(report, CEOV_ERR_NO_ROUTE, 0,
				 "transfer %u: rank %u does not reach the counters of then, which "
				 "are those of %s", i, program->rank,
				 cei_program_signal_text(program, transfer->then.signal));
	note_value(triggers, &transfer->source_ready);
	note_value(triggers, &transfer->target_free);
	note_value(triggers, &transfer->then);
	return 0;
}

int cei_program_check_triggers(const struct cei_program *program, struct cei_report *report,
			       struct cei_triggers *ret_triggers)
{
	struct cei_triggers triggers = { .why_polled = why_not_gated(program),
					 .is_direct = 1, .is_pollable = 1,
					 .leaves_node = CEOV_NOBODY };
	uint32_t i;
	int r = 0;

	triggers.is_gateable = !triggers.why_polled;
	for (i = 0; !r && i < program->n_transfers; i++)
		r = check_marks(program, report, i, &triggers);
	if (!r)
		*ret_triggers = triggers;
	return r;
}

/* --- what follows from the order ----------------------------------------------------- */

/* Refuses a lane's wait for a mark that a later transfer of the lane raises: it would never
 * end. */
static int check_gates(struct cei_triggers *triggers, const struct cei_order *order)
{
	uint32_t i;

	for (i = 0; triggers->is_gateable && i < order->n; i++) {
		if (order->before[2 * i] == CEOV_NOBODY)
			continue;
		triggers->why_polled = "the plan itself raises a source_ready mark";
		triggers->is_gateable = 0;
		if (!triggers->is_pollable)
			return cei_raise(order->report, CEOV_ERR_INVALID, 0,
					 "transfer %u: source_ready, of %s, is raised by the plan "
					 "and cannot be polled (its signal is in a GPU and not "
					 "host visible)", i, cei_program_signal_text(
					 order->program,
					 order->program->transfers[i].source_ready.signal));
	}
	return 0;
}

/* Whether transfers must go in the program's order: in a template, with a mark that covers
 * all transfers before it, or with a counter that several raise. */
static int keeps_order(const struct cei_order *order)
{
	const struct cei_program *program = order->program;
	uint32_t i;

	for (i = 0; i < program->n_transfers; i++)
		if (!program->transfers[i].row_bytes)
			return 1;
	return program->keeps_order || program->has_template || order->raises_again;
}

/* The first transfer that would wait for ever if all ran in the program's order. */
static uint32_t waits_ahead(const struct cei_order *order)
{
	uint32_t i;

	for (i = 0; i < 2 * order->n; i++)
		if (order->before[i] != CEOV_NOBODY && order->before[i] > i / 2)
			return i / 2;
	return CEOV_NOBODY;
}

int cei_triggers_follow(struct cei_triggers *triggers, const struct cei_order *order)
{
	triggers->keeps_order = keeps_order(order);
	triggers->waits_ahead = waits_ahead(order);
	return check_gates(triggers, order);
}
