/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OVERLAP_SWEEP_H
#define CEI_OVERLAP_SWEEP_H

/*
 * Which transfers must be ordered because they access the same bytes, along one dimension.
 *
 * Consider the transfers that access one byte, sorted by position: each writer must follow
 * the writer before it, and all readers in between; each reader must follow the writer
 * before it. The rest follows from these. So of a byte's n transfers only neighbours are
 * compared instead of n * n pairs, and only where a span begins: where one ends, the new
 * neighbours were ordered through it.
 */

#include <stdint.h>

#include "base/number_set.h"
#include "ce_engine/program/program_order.h"

struct cei_span {                       /* a range of bytes, rows or columns of one transfer */
	uint64_t begin;
	uint64_t end;                   /* > begin */
	uint32_t position;              /* a transfer's read spans, and its write spans, do not
					 * overlap each other */
	uint32_t is_written;
};

/* The note of a query: which of the two write. */
#define CEI_SWEEP_FIRST_WRITES  1u
#define CEI_SWEEP_SECOND_WRITES 2u

struct cei_sweep {
	struct cei_queries   *queries;
	struct cei_number_set writers;  /* positions of write spans at the present point */
	struct cei_number_set readers;
	struct cei_span      *ends;     /* the spans sorted by end */
	uint32_t              room;
};

/* For positions below `bound`. CEOV_ERR_NO_MEMORY, not raised; then call fini. */
int  cei_sweep_init(struct cei_sweep *sweep, struct cei_queries *queries, uint32_t bound);
void cei_sweep_fini(struct cei_sweep *sweep);

/* Adds the necessary questions, and stops when one is answered no. Sorts the spans. 0 or
 * CEOV_ERR_NO_MEMORY, not raised. */
int  cei_sweep_run(struct cei_sweep *sweep, struct cei_span *spans, uint32_t n);

#endif /* CEI_OVERLAP_SWEEP_H */
