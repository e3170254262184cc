/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Allocates programs and verifies them. */

#include "ce_engine/program/program.h"

#include <stdlib.h>
#include <string.h>

int cei_program_alloc(struct cei_program *program)
{
	program->movers = calloc((size_t)program->n_movers + 1, sizeof(*program->movers));
	program->routes = calloc((size_t)program->n_routes + 1, sizeof(*program->routes));
	program->buffers = calloc((size_t)program->n_buffers + 1, sizeof(*program->buffers));
	program->signals = calloc((size_t)program->n_signals + 1, sizeof(*program->signals));
	program->expected = calloc((size_t)program->n_expected + 1,
				   sizeof(*program->expected));
	if (!program->transfers)
		program->transfers = calloc((size_t)program->n_transfers + 1,
					    sizeof(*program->transfers));
	if (program->movers && program->routes && program->buffers && program->signals &&
	    program->transfers && program->expected)
		return 0;
	return CEOV_ERR_NO_MEMORY;
}

void cei_program_strip(struct cei_program *program)
{
	free(program->movers);
	free(program->routes);
	free(program->buffers);
	free(program->signals);
	free(program->expected);
	program->movers = NULL;
	program->routes = NULL;
	program->buffers = NULL;
	program->signals = NULL;
	program->expected = NULL;
	program->n_routes = 0;
}

void cei_program_fini(struct cei_program *program)
{
	cei_program_strip(program);
	free(program->transfers);
	memset(program, 0, sizeof(*program));
}

int cei_program_copy_unrouted(const struct cei_program *program, struct cei_program *ret_copy)
{
	struct cei_program_transfer *transfers =
		calloc((size_t)program->n_transfers + 1, sizeof(*transfers));
	uint32_t i;

	if (!transfers)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < program->n_transfers; i++) {
		transfers[i] = program->transfers[i];
		transfers[i].mover = 0;
		transfers[i].has_direct = 0;
		transfers[i].direction = 0;
		transfers[i].route = CEI_PROGRAM_NONE;
		transfers[i].first_chunk = 0;
		transfers[i].n_chunks = 0;
	}
	*ret_copy = *program;
	ret_copy->transfers = transfers;
	ret_copy->n_routes = 0;
	ret_copy->n_chunks = 0;
	return 0;
}

static uint64_t address_of(const struct cei_program *program,
			   const struct cei_program_spot *spot)
{
	return program->buffers[spot->buffer].start + spot->offset_bytes;
}

struct cei_piece cei_program_piece(const struct cei_program *program, uint32_t transfer)
{
	const struct cei_program_transfer *of = &program->transfers[transfer];
	struct cei_piece piece;

	memset(&piece, 0, sizeof(piece));
	if (!of->row_bytes)
		return piece;
	piece.source = address_of(program, &of->source);
	piece.target = address_of(program, &of->target);
	piece.row_bytes = of->row_bytes;
	piece.n_rows = of->n_rows;
	piece.source_pitch_bytes = of->source.pitch_bytes;
	piece.target_pitch_bytes = of->target.pitch_bytes;
	return piece;
}

uint32_t cei_program_target_rank(const struct cei_program *program, uint32_t transfer)
{
	const struct cei_program_transfer *of = &program->transfers[transfer];

	return of->row_bytes ? program->buffers[of->target.buffer].rank
		: program->signals[of->then.signal].rank;
}

uint64_t cei_program_extent(const struct cei_program_transfer *transfer,
			    const struct cei_program_spot *spot)
{
	uint64_t rows;

	if (transfer->n_rows == 1)
		return transfer->row_bytes;
	if (__builtin_mul_overflow(transfer->n_rows - 1, spot->pitch_bytes, &rows) ||
	    __builtin_add_overflow(rows, transfer->row_bytes, &rows))
		return 0;
	return rows;
}

int cei_program_holds_count(const struct cei_program_buffer *buffer, uint32_t rank,
			    uint64_t offset_bytes)
{
	return buffer->rank == rank && buffer->kind == CEOV_PLACE_HOST &&
		!(buffer->flags & (CEI_PROGRAM_FLOATING | CEI_PROGRAM_FAR_MEMORY)) &&
		offset_bytes % sizeof(uint64_t) == 0 && buffer->size_bytes >= sizeof(uint64_t) &&
		offset_bytes <= buffer->size_bytes - sizeof(uint64_t);
}

/* --- verifying --------------------------------------------------------------------- */

#define MOVES        0xfu               /* enum cei_moves */
#define BUFFER_FLAGS ((uint32_t)(CEI_PROGRAM_FLOATING | CEI_PROGRAM_MAPPED | \
				 CEI_PROGRAM_PRIVATE))

#define MOVER_FLAGS  ((uint32_t)(CEI_PROGRAM_CAN_WAIT | CEI_PROGRAM_LEAVES_MACHINE))
#define SIGNAL_FLAGS ((uint32_t)(CEI_PROGRAM_SEEN | CEI_PROGRAM_IN_GPU))

/* Whether a place is valid on some machine; this one may have fewer places. */
static int is_place(uint32_t place)
{
	return place == CEOV_NOBODY ||
		place < CEI_MACHINE_GPUS_MAX + CEI_MACHINE_NODES_MAX;
}

static int is_mover(const struct cei_program_mover *mover)
{
	return mover->moves && !(mover->moves & ~MOVES) &&
		!(mover->flags & ~MOVER_FLAGS) &&
		(mover->place == CEOV_NOBODY || mover->place < CEI_MACHINE_GPUS_MAX);
}

static int is_path(const struct cei_route_path *path)
{
	int is_direct = path->kind == CEI_ROUTE_DIRECT;

	return path->kind <= CEI_ROUTE_MIDDLE && path->bytes && is_place(path->via) &&
		(path->via == CEOV_NOBODY) == is_direct && is_place(path->engines[0]) &&
		is_place(path->engines[1]);
}

/* Verifies a route; the sum of its shares must equal its bytes. */
static int is_route(const struct cei_program_route *route)
{
	uint64_t bytes = 0;
	uint32_t i;

	if (!is_place(route->from) || !is_place(route->to) || route->no_direct > 1 ||
	    route->route.n_paths > CEI_ROUTE_PATHS_MAX)
		return 0;
	for (i = 0; i < route->route.n_paths; i++)
		if (!is_path(&route->route.paths[i]) ||
		    __builtin_add_overflow(bytes, route->route.paths[i].bytes, &bytes))
			return 0;
	return memchr(route->route.why, 0, sizeof(route->route.why)) != NULL;
}

/* Whether the set names only movers of the program. */
static int are_movers(const struct cei_program *program, uint32_t reached)
{
	return !(reached >> program->n_movers);
}

static int is_buffer(const struct cei_program *program, uint32_t i)
{
	const struct cei_program_buffer *buffer = &program->buffers[i];
	int is_floating = (buffer->flags & CEI_PROGRAM_FLOATING) != 0;

	if (buffer->rank >= program->n_ranks || buffer->flags & ~BUFFER_FLAGS ||
	    !are_movers(program, buffer->reached) ||
	    !is_place(buffer->place) || buffer->kind > CEOV_PLACE_GPU ||
	    (buffer->kind != CEOV_PLACE_GPU && buffer->gpu != CEOV_NOBODY))
		return 0;
	if (!buffer->size_bytes || buffer->start > UINT64_MAX - buffer->size_bytes)
		return 0;
	if (!is_floating)
		return 1;
	return !buffer->start && i == program->floating && buffer->rank == program->rank;
}

static int is_signal(const struct cei_program *program, uint32_t i)
{
	return program->signals[i].rank < program->n_ranks && program->signals[i].n_counters &&
		!(program->signals[i].flags & ~SIGNAL_FLAGS) &&
		are_movers(program, program->signals[i].reached);
}

static int is_mark(const struct cei_program *program, const struct cei_program_mark *mark)
{
	if (mark->signal == CEI_PROGRAM_NONE)
		return !mark->counter && !mark->value;
	return mark->signal < program->n_signals &&
		mark->counter < program->signals[mark->signal].n_counters &&
		mark->value < CEOV_VALUE_LIMIT;
}

static int is_empty_spot(const struct cei_program_spot *spot)
{
	return spot->buffer == CEI_PROGRAM_NONE && !spot->offset_bytes && !spot->pitch_bytes;
}

/* Whether the transfer's rows lie within the buffer that they name. */
static int is_spot(const struct cei_program *program,
		   const struct cei_program_transfer *transfer,
		   const struct cei_program_spot *spot)
{
	uint64_t size, extent = cei_program_extent(transfer, spot);

	if (spot->buffer >= program->n_buffers)
		return 0;
	if (transfer->n_rows == 1 && spot->pitch_bytes)
		return 0;
	if (transfer->n_rows > 1 && spot->pitch_bytes < transfer->row_bytes)
		return 0;
	size = program->buffers[spot->buffer].size_bytes;
	return extent && spot->offset_bytes <= size && extent <= size - spot->offset_bytes;
}

/* Whether the number of rows lies in memory that is known, and a mark says when it is there. */
static int is_count(const struct cei_program *program,
		    const struct cei_program_transfer *transfer)
{
	const struct cei_program_spot *count = &transfer->count;

	if (!transfer->is_counted)
		return !count->buffer && !count->offset_bytes && !count->pitch_bytes;
	return transfer->is_counted == 1 && transfer->row_bytes &&
		transfer->source_ready.signal != CEI_PROGRAM_NONE &&
		count->buffer < program->n_buffers && !count->pitch_bytes &&
		cei_program_holds_count(&program->buffers[count->buffer], program->rank,
					count->offset_bytes);
}

static int has_route(const struct cei_program *program,
		     const struct cei_program_transfer *transfer)
{
	return transfer->route == CEI_PROGRAM_NONE ||
		(transfer->row_bytes && transfer->route < program->n_routes &&
		 program->routes[transfer->route].route.n_paths);
}

static int is_transfer(const struct cei_program *program,
		       const struct cei_program_transfer *transfer)
{
	if (transfer->mover >= program->n_movers || transfer->has_direct > 1 ||
	    transfer->direction >= CEI_DIRECTION_ANY || !has_route(program, transfer))
		return 0;
	if (!is_mark(program, &transfer->source_ready) ||
	    !is_mark(program, &transfer->target_free) || !is_mark(program, &transfer->then) ||
	    !is_count(program, transfer))
		return 0;
	if (!transfer->row_bytes)
		return !transfer->n_rows && is_empty_spot(&transfer->source) &&
			is_empty_spot(&transfer->target);
	if (!transfer->n_rows || !is_spot(program, transfer, &transfer->source) ||
	    !is_spot(program, transfer, &transfer->target))
		return 0;
	if (program->buffers[transfer->target.buffer].flags & CEI_PROGRAM_FLOATING)
		return 0;
	return program->buffers[transfer->source.buffer].rank == program->rank ||
		program->buffers[transfer->target.buffer].rank == program->rank;
}

/* Verifies the fields outside of the lists. */
static int is_head(const struct cei_program *program)
{
	if (program->rank >= program->n_ranks || !program->max_chunk_bytes ||
	    !program->mark_group_bytes || program->urgency > CEOV_URGENCY_BACKGROUND ||
	    program->has_template > 1 || program->keeps_order > 1 ||
	    program->rule > CEI_ROUTE_RULE_ALL)
		return 0;
	if (program->floating == CEI_PROGRAM_NONE)
		return 1;
	return program->floating < program->n_buffers &&
		program->buffers[program->floating].flags & CEI_PROGRAM_FLOATING;
}

int cei_program_verify(const struct cei_program *program)
{
	uint32_t i;
	int is_program = is_head(program);

	for (i = 0; is_program && i < program->n_movers; i++)
		is_program = is_mover(&program->movers[i]);
	for (i = 0; is_program && i < program->n_routes; i++)
		is_program = is_route(&program->routes[i]);
	for (i = 0; is_program && i < program->n_buffers; i++)
		is_program = is_buffer(program, i);
	for (i = 0; is_program && i < program->n_signals; i++)
		is_program = is_signal(program, i);
	for (i = 0; is_program && i < program->n_transfers; i++)
		is_program = is_transfer(program, &program->transfers[i]);
	for (i = 0; is_program && i < program->n_expected; i++)
		is_program = program->expected[i].signal != CEI_PROGRAM_NONE &&
			is_mark(program, &program->expected[i]);
	return is_program ? 0 : CEOV_ERR_INVALID;
}
