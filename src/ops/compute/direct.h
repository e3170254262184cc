/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COMPUTE_DIRECT_H
#define CEI_COMPUTE_DIRECT_H

/* A small collective that ranks of one node make by themselves, without copy engines: the executor
 * stores to the peers' scratch, and raises and awaits counters (kernels/direct.h). */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "kernels/direct.h"
#include "kernels/direct_ll.h"
#include "ops/compute/executor.h"

/* Words in GPU memory of runs that count themselves; see struct cei_direct. */
struct cei_direct_words {
	uint64_t *epoch;                /* NULL: the run is not captured */
	uint64_t *last_use;
	uint32_t *n_ended;
};

struct cei_direct_job {
	int                    is_sum;  /* 0: bytes are copied, and dtype and scale are unused */
	enum ceov_dtype        dtype;
	/* The fields from here to steps_first mean the same as in struct cei_direct. */
	float                  scale;
	const void            *source;
	void                  *target;
	struct cei_direct_span spans[CEI_DIRECT_RANKS_MAX];
	uint64_t               half_bytes;
	uint64_t               gather_at;
	uint32_t               gathers;
	uint32_t               n_ranks;
	uint32_t               own;
	uint32_t               half;
	uint32_t               second;
	uint32_t               each;            /* on a GPU; ignored elsewhere, as are the next
						 * three */
	uint32_t               n_steps;         /* 0: not in steps */
	uint32_t               step_rows;
	uint32_t               steps_first;
	uint32_t               is_ll;           /* 1: a GPU does as kernels/direct_ll.h says, and
						 * gathers and n_steps are 0; ignored elsewhere */
	uint32_t               n_blocks;        /* on a GPU: how many SMs to use; everywhere: how
						 * many counters there are for each rank */
	char                  *scratch[CEI_DIRECT_RANKS_MAX];   /* [rank]: the first half, as this
								 * rank reaches it; mail, if
								 * is_ll, is behind the second */
	ceov_signal *const    *arrived[CEI_DIRECT_HALVES];      /* [half][rank] */
	ceov_signal *const    *done;            /* [rank]; captured runs only */
	struct cei_direct_words words;
	struct cei_job_marks   marks;           /* awaited, ready and sent are unused */
};

#endif /* CEI_COMPUTE_DIRECT_H */
