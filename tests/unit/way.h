/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WAY_H
#define CEI_WAY_H

/* A way for bytes from rank 0 to rank 1, in one process on host memory: a plan of
 * some transfers, each with counters of its own. */

#include "testing.h"

#define WAY_BYTES UINT64_C(60000)

struct way {
	ceov_context *context;
	struct testing_log log;
	uint32_t      n_transfers;
	ceov_buffer  *source;
	ceov_buffer  *target;
	ceov_signal  *ready;            /* of rank 0, one counter per transfer */
	ceov_signal  *arrived;          /* of rank 1, likewise */
	ceov_signal  *free;
	ceov_plan    *plan;
};

/* Launch k: ready at k + 1, free at k, arrived k + 1. row_bytes 0: an equal part. */
void way_open(struct way *way, uint32_t n_transfers, uint64_t row_bytes);
void way_open_with(struct way *way, uint32_t n_transfers, uint64_t row_bytes,
		   int by_caller);

/* In the other's context. */
void way_open_beside(struct way *way, const struct way *other);
void way_close(struct way *way);

int  way_try(struct way *way, uint64_t base, int is_gated, ceov_ticket *ret_ticket);
ceov_ticket way_launch(struct way *way, uint64_t base, int is_gated);
int  way_wait(struct way *way, ceov_ticket ticket);

/* Raises all counters. */
void way_ready(struct way *way, uint64_t value);
void way_free(struct way *way, uint64_t value);

#endif /* CEI_WAY_H */
