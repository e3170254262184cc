/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SPLIT_H
#define CEI_SPLIT_H

/* At commit: cuts a transfer into chunks. Pure arithmetic. */

#include <stdint.h>

#include "backend/backend.h"

/* The driver refuses larger pitches (CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2^31 - 1). */
#define CEI_PITCH_MAX_BYTES INT32_MAX

/* Cuts are at multiples of this. */
#define CEI_CUT_ALIGN_BYTES 512u

/* The number of chunks of at most max_bytes (> 0) for a piece: at least 1. Rows are kept
 * whole where they fit; longer rows are cut. */
uint64_t cei_split_count(const struct cei_piece *piece, uint64_t max_bytes);

/* Chunk number i, less than the count. */
struct cei_piece cei_split_at(const struct cei_piece *piece, uint64_t max_bytes,
			      uint64_t i);

/* How many bytes of a chunk of the piece belong to the piece's first n_rows rows. */
uint64_t cei_split_bytes_within(const struct cei_piece *piece, const struct cei_piece *chunk,
				uint64_t n_rows);

/* The chunk's first n_bytes bytes, at least 1 and at most all; whole rows where it has several. */
struct cei_piece cei_split_shorten(const struct cei_piece *chunk, uint64_t n_bytes);

#endif /* CEI_SPLIT_H */
