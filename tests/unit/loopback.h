/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LOOPBACK_H
#define CEI_LOOPBACK_H

/* Transfers from rank 0 to rank 1 of one process, on host memory: a plan of several transfers, each
 * with its own counters. */

#include "testing.h"

#define LOOPBACK_BYTES UINT64_C(60000)

struct loopback {
	ceov_context *context;
	struct testing_log log;
	uint32_t      n_transfers;
	ceov_buffer  *source;
	ceov_buffer  *target;
	ceov_signal  *ready;            /* of rank 0, one counter per transfer */
	ceov_signal  *arrived;          /* of rank 1, one counter per transfer */
	ceov_signal  *free;
	ceov_plan    *plan;
};

/* How a launch waits for its sources: the engine polls their counters, or a lane waits
 * behind the producer's stream. */
enum loopback_gate { POLLED, GATED };

/* Opens a loopback. Launch k waits for ready to be k + 1 and free to be k, and raises arrived to k
 * + 1. row_bytes 0: LOOPBACK_BYTES are divided evenly. */
void loopback_open(struct loopback *loop, uint32_t n_transfers, uint64_t row_bytes);

/* Opens one without an engine thread; the caller turns the engine by ceov_turn(). */
void loopback_open_turned(struct loopback *loop, uint32_t n_transfers, uint64_t row_bytes);

/* Opens one without an engine thread on a table of movers, which ends with NULL. */
struct cei_place_ops;
void loopback_open_on(struct loopback *loop, const struct cei_place_ops *const *movers,
		      uint32_t n_transfers);

/* Opens a second loopback in the other one's context. */
void loopback_open_beside(struct loopback *loop, const struct loopback *other);
void loopback_close(struct loopback *loop);

/* Launch the plan. loopback_try() returns ceov_launch()'s result; loopback_launch() asserts that it
 * is 0. */
int  loopback_try(struct loopback *loop, uint64_t base, enum loopback_gate gate,
		  ceov_ticket *ret_ticket);
ceov_ticket loopback_launch(struct loopback *loop, uint64_t base, enum loopback_gate gate);
int  loopback_wait(struct loopback *loop, ceov_ticket ticket);

/* Raise all counters of ready, or of free. */
void loopback_ready(struct loopback *loop, uint64_t value);
void loopback_free(struct loopback *loop, uint64_t value);

#endif /* CEI_LOOPBACK_H */
