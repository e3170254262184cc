/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SPLIT_H
#define CEI_SPLIT_H

/* At commit: cuts a transfer's piece into chunks. Pure arithmetic. */

#include <stdint.h>

#include "backend/backend.h"

/* The driver refuses larger pitches (CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2^31 - 1). */
#define CEI_PITCH_MAX_BYTES INT32_MAX

/* Cuts are multiples of this, but for the last. */
#define CEI_CUT_ALIGN_BYTES 512u

/* How many chunks of at most max_bytes (> 0) the piece makes: at least 1. Rows stay
 * whole where they fit; a longer row is cut within. */
uint64_t cei_split_count(const struct cei_piece *piece, uint64_t max_bytes);

/* Chunk number i of them, i < count. */
struct cei_piece cei_split_at(const struct cei_piece *piece, uint64_t max_bytes,
			      uint64_t i);

#endif /* CEI_SPLIT_H */
