/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_CUT_H
#define CEI_PROGRAM_CUT_H

/* Cuts a transfer into chunks. Pure arithmetic; program.h has the cuts of a whole program. */

#include <stdint.h>

#include "backend/place.h"

/* The driver refuses larger pitches (CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2^31 - 1). */
#define CEI_PITCH_MAX_BYTES INT32_MAX

/* Cuts are at multiples of this. */
#define CEI_CUT_ALIGN_BYTES 512u

/* Each of several rows takes a copy as long as this many bytes at least, and the rate of its link
 * says how long that is: 64 ns on the host, where a row is a call and a miss of the caches. */
#define CEI_SPLIT_ROW_BYTES 512u

/* A piece of so many rows is not cut because they are many. */
#define CEI_SPLIT_ROWS 1024u

/* The number of chunks for a piece, at least 1. A chunk has at most max_bytes (> 0), and takes no
 * longer than so many bytes in one row, or CEI_SPLIT_ROWS rows. Rows are kept whole where they
 * fit; longer rows are cut. */
uint64_t cei_split_count(const struct cei_piece *piece, uint64_t max_bytes);

/* Chunk number i, less than the count. */
struct cei_piece cei_split_at(const struct cei_piece *piece, uint64_t max_bytes,
			      uint64_t i);

/* How many bytes of a chunk of the piece belong to the piece's first n_rows rows. */
uint64_t cei_split_bytes_within(const struct cei_piece *piece, const struct cei_piece *chunk,
				uint64_t n_rows);

/* How much longer the first n_bytes of a chunk take because of its rows, as bytes of one row: 0
 * where it has one row, or rows of at least CEI_SPLIT_ROW_BYTES. */
uint64_t cei_split_gap_bytes(const struct cei_piece *chunk, uint64_t n_bytes);

/* The chunk's first n_bytes bytes, at least 1 and at most all; whole rows where it has several. */
struct cei_piece cei_split_shorten(const struct cei_piece *chunk, uint64_t n_bytes);

#endif /* CEI_PROGRAM_CUT_H */
