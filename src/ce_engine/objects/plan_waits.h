/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_WAITS_H
#define CEI_PLAN_WAITS_H

/*
 * Lists the transfers of a committed plan by what they wait for: by the transfer of the same
 * launch that raises the mark, or else by the counter. So the engine need not check every mark
 * (parking.h). A transfer waits for at most two marks: number 0 is source_ready, 1 target_free.
 * plan_commit.c fills the lists.
 */

#include <stdint.h>

#include "ce_engine/objects/signal.h"

struct cei_waiter {
	const struct cei_counter *counter;      /* the step's mark */
	uint32_t                  step;
	uint32_t                  mark;
	uint32_t                  watch;        /* index of the counter among those that are
						 * watched */
};

struct cei_waits {
	uint32_t          *before;      /* 2 per step: the step that raises the mark; CEOV_NOBODY:
					 * none of this launch */
	uint32_t          *after_at;    /* index in `after` of the first step that waits for the
					 * i-th; one more at the end */
	uint32_t          *after;
	struct cei_waiter *waiters;     /* marks that no transfer of the launch raises and that
					 * the engine can see: by counter, value and step */
	uint32_t          *waiter_of;   /* 2 per step: index in waiters, or CEOV_NOBODY */
	uint32_t          *watch_at;    /* index in waiters of each counter's first; one more at
					 * the end */
	uint32_t           n_watches;   /* number of different counters */
};

#endif /* CEI_PLAN_WAITS_H */
