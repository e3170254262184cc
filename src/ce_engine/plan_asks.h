/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_ASKS_H
#define CEI_PLAN_ASKS_H

/*
 * Questions whether one transfer follows another by marks, collected and answered many at a
 * time: a walk along the line of transfers carries one bit for each of several hundred, and
 * so says of all that stand behind which of those they follow. What follows directly is
 * never walked for. Positions are those of order->position.
 */

#include <stdint.h>

#include "ce_engine/plan_order.h"

struct cei_ask {
	uint32_t first;                 /* positions: does second follow first? */
	uint32_t second;
	uint32_t note;                  /* the asker's */
};

#define CEI_ASKS_MASK_WORDS 8u          /* of one walk: 512 transfers, one cache line */

struct cei_asks {
	const struct cei_order *order;
	uint32_t       *before;         /* order->before, in positions */
	uint64_t      (*masks)[CEI_ASKS_MASK_WORDS];    /* made for the first walk */
	struct cei_ask *list;           /* not answered yet */
	uint32_t        n;
	int             result;         /* 0; CEOV_NONE: one was refused; CEOV_ERR_NO_MEMORY,
					 * not raised. Not 0: nothing more is asked */
	struct cei_ask  refused;        /* CEOV_NONE: of those known, the one with the least
					 * note, second and first */
};

/* CEOV_ERR_NO_MEMORY, not raised; then fini. */
int  cei_asks_init(struct cei_asks *asks, const struct cei_order *order);
void cei_asks_fini(struct cei_asks *asks);

/* The answer may come with a later call. */
void cei_asks_add(struct cei_asks *asks, uint32_t first, uint32_t second, uint32_t note);

/* An ask whose answer is known: no. */
void cei_asks_refuse(struct cei_asks *asks, uint32_t first, uint32_t second, uint32_t note);

/* Answers what is left; asks->result. */
int  cei_asks_end(struct cei_asks *asks);

#endif /* CEI_PLAN_ASKS_H */
