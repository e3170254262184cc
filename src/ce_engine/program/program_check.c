/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks of each transfer by itself: floating buffers, bounds, and who may read what. */

#include <inttypes.h>

#include "ce_engine/program/program.h"

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
