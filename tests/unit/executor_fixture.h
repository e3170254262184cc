/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTOR_FIXTURE_H
#define CEI_EXECUTOR_FIXTURE_H

/*
 * Fixture of the executors' suites: one rank's part of an all-gather + GEMM or a GEMM +
 * reduce-scatter on host memory, with all that its peers would send. Asserts with Check.
 */

#include "feeder.h"
#include "ops/compute/executor.h"
#include "testing.h"

#define FIXTURE_RANKS 5u
#define FIXTURE_PIECES 4u
#define FIXTURE_COUNTERS (FIXTURE_RANKS * FIXTURE_PIECES)

enum fixture_shape {
	FIXTURE_ANY,
	FIXTURE_PLAIN                   /* bf16, two ranks of 100 rows, of which ours is rank 0;
					 * pieces of 64 and 36 rows; k is 10, 20 columns */
};

struct executor_fixture {
	struct cei_executor       executor;
	struct cei_tiles_args args;
	struct cei_tiles          tiles;
	struct cei_gemm_job       job;
	struct feeder             feeder;
	uint64_t                  rows[FIXTURE_RANKS];
	uint64_t                  columns[CEI_GEMM_B_MAX];
	uint64_t                  n_rows;       /* rows of all ranks together */
	uint64_t                  own_row;
	uint64_t                  own_rows;
	int                       are_whole;
	uint16_t                 *a;            /* all rows of A */
	uint16_t                 *gathered;     /* the rows of A that have arrived so far */
	uint16_t                 *b[CEI_GEMM_B_MAX];
	uint16_t                 *c[CEI_GEMM_C_MAX];
	uint16_t                 *sent;         /* copy of C's partial sums, taken when they were
						 * ready */
	uint16_t                 *partials;     /* what all peers will send */
	uint16_t                 *come;         /* the partial sums that have arrived so far */
};

/* Makes the fixture for a context with FIXTURE_RANKS ranks. Results, and memory for what peers have
 * yet to send, are filled with NaN. */
struct executor_fixture *fixture_make(ceov_context *context, int scatters,
				      enum fixture_shape shape, uint64_t *random);
void fixture_free(struct executor_fixture *fixture);

/* Resets results to NaN for another run. */
void fixture_clear(struct executor_fixture *fixture);

/* Adds everything that peers send to the feeder's list. */
void fixture_add_deliveries(struct executor_fixture *fixture);

/* Thread function: copies each piece of the partial sums as soon as it is ready. */
void *fixture_take(void *fixture);

/* Assert that one result matrix, or every result, is right. */
void fixture_check_c(const struct executor_fixture *fixture, uint32_t c);
void fixture_check(const struct executor_fixture *fixture);

#endif /* CEI_EXECUTOR_FIXTURE_H */
