/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cuts pieces into chunks of nearly equal size, and a program's transfers: each path of a route
 * carries its share. */

#include "ce_engine/program/program_cut.h"

#include "ce_engine/program/program.h"

/* --- a piece ------------------------------------------------------------------- */

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* The most rows of a chunk, however short they are. */
static uint64_t rows_most(uint64_t max_bytes)
{
	uint64_t rows = max_bytes / CEI_SPLIT_ROW_BYTES;

	return rows > CEI_SPLIT_ROWS ? rows : CEI_SPLIT_ROWS;
}

/* Rows per chunk; 0: a row is too long and must be cut. */
static uint64_t rows_per_chunk(const struct cei_piece *piece, uint64_t max_bytes)
{
	uint64_t rows;

	if (piece->row_bytes > max_bytes)
		return 0;
	if (piece->source_pitch_bytes > CEI_PITCH_MAX_BYTES ||
	    piece->target_pitch_bytes > CEI_PITCH_MAX_BYTES)
		return 1;
	rows = max_bytes / piece->row_bytes;
	if (rows > rows_most(max_bytes))
		rows = rows_most(max_bytes);
	return divide_up(piece->n_rows, divide_up(piece->n_rows, rows));
}

/* Bytes of each part of a row that is cut. */
static uint64_t part_bytes(const struct cei_piece *piece, uint64_t max_bytes)
{
	uint64_t part = divide_up(piece->row_bytes, divide_up(piece->row_bytes, max_bytes));

	part = divide_up(part, CEI_CUT_ALIGN_BYTES) * CEI_CUT_ALIGN_BYTES;
	return part > max_bytes ? max_bytes : part;
}

uint64_t cei_split_count(const struct cei_piece *piece, uint64_t max_bytes)
{
	uint64_t rows;

	if (!piece->row_bytes || !piece->n_rows)
		return 1;
	rows = rows_per_chunk(piece, max_bytes);
	if (rows)
		return divide_up(piece->n_rows, rows);
	return piece->n_rows * divide_up(piece->row_bytes, part_bytes(piece, max_bytes));
}

static struct cei_piece rows_at(const struct cei_piece *piece, uint64_t first, uint64_t n)
{
	struct cei_piece cut = *piece;

	cut.source += first * piece->source_pitch_bytes;
	cut.target += first * piece->target_pitch_bytes;
	cut.n_rows = piece->n_rows - first < n ? piece->n_rows - first : n;
	return cut;
}

struct cei_piece cei_split_at(const struct cei_piece *piece, uint64_t max_bytes,
			      uint64_t i)
{
	uint64_t rows, part, parts_per_row, at;
	struct cei_piece cut;

	if (!piece->row_bytes || !piece->n_rows)
		return *piece;
	rows = rows_per_chunk(piece, max_bytes);
	if (rows)
		return rows_at(piece, i * rows, rows);
	part = part_bytes(piece, max_bytes);
	parts_per_row = divide_up(piece->row_bytes, part);
	cut = rows_at(piece, i / parts_per_row, 1);
	at = i % parts_per_row * part;
	cut.source += at;
	cut.target += at;
	cut.row_bytes = piece->row_bytes - at < part ? piece->row_bytes - at : part;
	return cut;
}

/* Targets of rows do not overlap, so where a chunk begins there says which row it begins with. */
uint64_t cei_split_bytes_within(const struct cei_piece *piece, const struct cei_piece *chunk,
				uint64_t n_rows)
{
	uint64_t at = chunk->target - piece->target, pitch = piece->target_pitch_bytes;
	uint64_t row = pitch ? at / pitch : 0, all = chunk->row_bytes * chunk->n_rows;
	uint64_t before = row * piece->row_bytes + at - row * pitch;
	uint64_t within = n_rows * piece->row_bytes;

	if (within <= before)
		return 0;
	return within - before < all ? within - before : all;
}

uint64_t cei_split_gap_bytes(const struct cei_piece *chunk, uint64_t n_bytes)
{
	if (chunk->n_rows < 2 || chunk->row_bytes >= CEI_SPLIT_ROW_BYTES)
		return 0;
	return divide_up(n_bytes, chunk->row_bytes) * (CEI_SPLIT_ROW_BYTES - chunk->row_bytes);
}

struct cei_piece cei_split_shorten(const struct cei_piece *chunk, uint64_t n_bytes)
{
	struct cei_piece cut = *chunk;

	if (cut.n_rows == 1)
		cut.row_bytes = n_bytes;
	else
		cut.n_rows = n_bytes / cut.row_bytes;
	return cut;
}

/* --- a program ----------------------------------------------------------------- */

static int is_flat(const struct cei_piece *piece)
{
	return piece->n_rows == 1 ||
	       (piece->source_pitch_bytes == piece->row_bytes &&
		piece->target_pitch_bytes == piece->row_bytes);
}

/* Rows without gaps at either end are one row. */
static struct cei_piece flattened(const struct cei_piece *piece)
{
	struct cei_piece flat = *piece;

	if (!is_flat(piece))
		return flat;
	flat.row_bytes *= flat.n_rows;
	flat.n_rows = 1;
	flat.source_pitch_bytes = flat.target_pitch_bytes = 0;
	return flat;
}

/* What path w carries: units (rows, or 4 KiB of one row) in proportion to its share, the
 * last path the rest. Empty (n_rows 0) where that is none. */
static struct cei_piece part_of(const struct cei_route *route, const struct cei_piece *whole,
				uint32_t w)
{
	struct cei_piece piece = flattened(whole);
	int is_row = piece.n_rows == 1;
	uint64_t unit = is_row ? 4096 : 1;
	uint64_t n = is_row ? piece.row_bytes : piece.n_rows;
	uint64_t before = 0, total = 0, first, end;
	uint32_t i;

	for (i = 0; i < route->n_paths; i++) {
		total += route->paths[i].bytes;
		before += i < w ? route->paths[i].bytes : 0;
	}
	first = (uint64_t)((double)n * (double)before / (double)total) / unit * unit;
	end = (uint64_t)((double)n * (double)(before + route->paths[w].bytes) /
			 (double)total) / unit * unit;
	if (w + 1 == route->n_paths || end > n) /* rounding of the double may exceed n */
		end = n;
	if (first >= end) {
		piece.n_rows = 0;
		return piece;
	}
	if (is_row) {
		piece.source += first;
		piece.target += first;
		piece.row_bytes = end - first;
		return piece;
	}
	piece.source += first * piece.source_pitch_bytes;
	piece.target += first * piece.target_pitch_bytes;
	piece.n_rows = end - first;
	return piece;
}

static uint64_t chunk_limit(const struct cei_program *program, const struct cei_route *route,
			    uint32_t w)
{
	if (route->paths[w].kind == CEI_ROUTE_DIRECT ||
	    program->max_chunk_bytes < CEI_ROUTE_SLOT_BYTES)
		return program->max_chunk_bytes;
	return CEI_ROUTE_SLOT_BYTES;
}

/* The route of a transfer that has one, or NULL. */
static const struct cei_route *route_of(const struct cei_program *program, uint32_t i)
{
	uint32_t route = program->transfers[i].route;

	return route == CEI_PROGRAM_NONE ? NULL : &program->routes[route].route;
}

/* Counts the chunks of a routed transfer, with the last one, which closes it and moves nothing. */
static uint64_t count_routed(const struct cei_program *program, const struct cei_route *route,
			     const struct cei_piece *whole)
{
	struct cei_piece part;
	uint64_t n = 1;
	uint32_t w;

	for (w = 0; w < route->n_paths; w++) {
		part = part_of(route, whole, w);
		if (part.n_rows)
			n += cei_split_count(&part, chunk_limit(program, route, w));
	}
	return n;
}

int cei_program_count(struct cei_program *program, struct cei_report *report)
{
	const struct cei_route *route;
	struct cei_piece piece;
	uint64_t n, total = 0;
	uint32_t i;

	for (i = 0; i < program->n_transfers; i++) {
		route = route_of(program, i);
		piece = cei_program_piece(program, i);
		n = route ? count_routed(program, route, &piece)
			: cei_split_count(&piece, program->max_chunk_bytes);
		if (n > CEI_PROGRAM_CHUNKS_MAX - total)
			return cei_raise(report, CEOV_ERR_INVALID, 0,
					 "transfer %u: the plan would have more than %u "
					 "chunks; raise max_chunk_bytes", i,
					 CEI_PROGRAM_CHUNKS_MAX);
		program->transfers[i].first_chunk = (uint32_t)total;
		program->transfers[i].n_chunks = (uint32_t)n;
		total += n;
	}
	program->n_chunks = (uint32_t)total;
	return 0;
}

static struct cei_cut *cut_part(const struct cei_piece *part, uint64_t limit,
				const struct cei_cut *like, struct cei_cut *cut)
{
	uint64_t k, n = cei_split_count(part, limit);

	for (k = 0; k < n; k++, cut++) {
		*cut = *like;
		cut->piece = cei_split_at(part, limit, k);
	}
	return cut;
}

void cei_program_cut(const struct cei_program *program, uint32_t transfer,
		     struct cei_cut *ret_cuts)
{
	const struct cei_route *route = route_of(program, transfer);
	struct cei_piece part, piece = cei_program_piece(program, transfer);
	struct cei_cut like = { .step = transfer, .path = CEI_PROGRAM_NONE };
	uint32_t w;

	if (!route) {
		cut_part(&piece, program->max_chunk_bytes, &like, ret_cuts);
		return;
	}
	for (w = 0; w < route->n_paths; w++) {
		part = part_of(route, &piece, w);
		like.path = w;
		if (part.n_rows)
			ret_cuts = cut_part(&part, chunk_limit(program, route, w), &like,
					    ret_cuts);
	}
	like.path = CEI_PROGRAM_NONE;
	*ret_cuts = like;               /* closes the transfer, moves nothing */
}
