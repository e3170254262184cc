/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PART_H
#define CEI_PART_H

/*
 * For the suites of executors: one rank's part in an all-gather + GEMM or a GEMM +
 * reduce-scatter on host memory, with all that peers would send. Asserts with Check.
 */

#include "feeder.h"
#include "ops/compute/executor.h"
#include "testing.h"

#define PART_RANKS    5u
#define PART_PIECES   4u
#define PART_COUNTERS (PART_RANKS * PART_PIECES)

enum part_shape {
	PART_ANY,
	PART_PLAIN                      /* bf16, two ranks of 100 rows, ours is 0; pieces
					 * of 64 and 36 rows; k 10, 20 columns */
};

struct part {
	struct cei_executor       executor;
	struct cei_tiles_question question;
	struct cei_tiles          tiles;
	struct cei_gemm_job       job;
	struct feeder             feeder;
	uint64_t                  rows[PART_RANKS];
	uint64_t                  columns[CEI_GEMM_B_MAX];
	uint64_t                  n_rows;       /* of all ranks */
	uint64_t                  own_row;
	uint64_t                  own_rows;
	int                       are_whole;
	uint16_t                 *a;            /* all rows of it */
	uint16_t                 *gathered;     /* what has come of it */
	uint16_t                 *b[CEI_GEMM_B_MAX];
	uint16_t                 *c[CEI_GEMM_C_MAX];
	uint16_t                 *sent;         /* C's partial sums when they were ready */
	uint16_t                 *partials;     /* what others send, all sources */
	uint16_t                 *come;         /* what has come of it */
};

/* The context has PART_RANKS ranks. What comes and results are NaN. */
struct part *part_make(ceov_context *context, int scatters, enum part_shape shape,
		       uint64_t *random);
void part_free(struct part *part);

/* Anew: results are NaN. */
void part_clear(struct part *part);

/* Gives the feeder all that peers send. */
void part_add_deliveries(struct part *part);

/* A thread's: takes each piece of the partial sums the moment it is ready. */
void *part_take(void *part);

/* Asserts that one C, or all that was made, is right. */
void part_check_c(const struct part *part, uint32_t c);
void part_check(const struct part *part);

#endif /* CEI_PART_H */
