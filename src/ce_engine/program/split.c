/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cuts pieces into chunks of nearly equal size. */

#include "ce_engine/program/split.h"

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
