/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KERNELS_ROWS_H
#define CEI_KERNELS_ROWS_H

/*
 * The parameters of the kernel cei_copy_rows, for host code and device code. It copies rows with
 * gaps between them within one GPU's memory, on any number of blocks of CEI_ROWS_THREADS threads.
 * It waits for nothing.
 */

#include <stdint.h>

#define CEI_ROWS_THREADS      1024u
#define CEI_ROWS_VECTOR_BYTES 16u       /* addresses, rows and pitches are multiples of it */
#define CEI_ROWS_FLIGHT       4u        /* vectors that a thread has on their way at a time */

struct cei_copy_rows {
	const char *source;
	char       *target;
	uint64_t    n_rows;
	uint64_t    row_vectors;                /* vectors of a row; not 0 */
	uint64_t    source_pitch_bytes;         /* from one row to the next */
	uint64_t    target_pitch_bytes;
};

#endif /* CEI_KERNELS_ROWS_H */
