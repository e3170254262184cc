/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_WAITS_H
#define CEI_PLAN_WAITS_H

/*
 * Who waits for whom in a committed plan, so that the doorbell need not look at each mark
 * (parking.h): by the transfer of the plan that raises the mark, or else by the counter.
 * Each transfer has two marks: number 0 is source_ready, 1 target_free.
 */

#include <stdint.h>

#include "ce_engine/signal.h"

struct cei_order;
struct ceov_plan;

struct cei_waiter {
	const struct cei_counter *counter;      /* the step's mark */
	uint32_t                  step;
	uint32_t                  mark;
	uint32_t                  watch;        /* which of the plan's counters it is of */
};

struct cei_waits {
	uint32_t          *before;      /* 2 per step: the step that raises the mark, or
					 * CEOV_NOBODY: none of this launch */
	uint32_t          *after_at;    /* where in `after` the steps begin that wait for a
					 * mark of the i-th; one more at the end */
	uint32_t          *after;
	struct cei_waiter *waiters;     /* marks raised by nobody in the launch, which the
					 * engine can see: by counter, value and step */
	uint32_t          *waiter_of;   /* 2 per step: in waiters, or CEOV_NOBODY */
	uint32_t          *watch_at;    /* where in waiters each counter begins; one more at
					 * the end */
	uint32_t           n_watches;   /* counters that are told apart */
};

/* At commit, when the plan is checked. CEOV_ERR_NO_MEMORY, not raised; then fini, which
 * accepts zeroes. */
int  cei_waits_init(struct cei_waits *waits, const struct ceov_plan *plan,
		    const struct cei_order *order);
void cei_waits_fini(struct cei_waits *waits);

#endif /* CEI_PLAN_WAITS_H */
