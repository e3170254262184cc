/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_ORDER_H
#define CEI_PROGRAM_ORDER_H

/*
 * At commit: which transfer comes after which. Order comes from marks only: b
 * follows a where b waits for a value of a counter that a raises, directly or
 * through others. Marks raised outside, and those of earlier launches (value 0),
 * order nothing; nor does the place of a transfer without bytes behind all before it
 * in the plan, but what can never come behind them is refused.
 */

#include <stdint.h>

#include "ce_engine/program.h"

struct cei_order {
	const struct cei_program *program;
	struct cei_report        *report;       /* for what is refused */
	uint32_t *before;               /* 2 per transfer: what its marks follow, or
					 * CEOV_NOBODY */
	uint32_t *empty;                /* the last transfer without bytes that it follows,
					 * counted from 1; 0: none */
	uint32_t *stack;                /* scratch of walks */
	uint32_t *position;             /* of each transfer in a line in which all stand
					 * behind what they follow (CEOV_NOBODY: it has
					 * none yet), ... */
	uint32_t *line;                 /* ... and the transfers in that line */
	uint32_t  n_placed;             /* of them, so far */
	uint32_t  n;                    /* transfers */
	int       raises_again;         /* two transfers raise one counter */
};

/* Refuses marks that nobody raises, circles, and counters with several raisers.
 * On failure fini. */
int  cei_order_init(struct cei_order *order, const struct cei_program *program,
		    struct cei_report *report);
void cei_order_fini(struct cei_order *order);

/* Raises that checks have no memory. */
int  cei_order_no_memory(const struct cei_order *order);

/* program_overlap.c: refuses overlapping bytes that nothing orders. */
int  cei_overlap_check(const struct cei_order *order);

#endif /* CEI_PROGRAM_ORDER_H */
