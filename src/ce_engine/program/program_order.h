/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_ORDER_H
#define CEI_PROGRAM_ORDER_H

/*
 * At commit: the order of transfers, which comes from marks only: b follows a where b waits
 * for a value of a counter that a raises, directly or through others. Marks from outside,
 * and those of earlier launches (value 0), give no order; nor does the position of a
 * transfer without bytes behind all before it, but a plan in which it could never come
 * behind them is refused.
 */

#include <stdint.h>

#include "ce_engine/program/program.h"

struct cei_order {
	const struct cei_program *program;
	struct cei_report        *report;       /* for errors */
	uint32_t *before;               /* 2 per transfer: the transfers that its marks follow, or
					 * CEOV_NOBODY */
	uint32_t *empty;                /* the last transfer without bytes that it follows,
					 * counted from 1; 0: none */
	uint32_t *stack;                /* scratch memory of walks */
	uint32_t *position;             /* the transfer's position in a line in which each stands
					 * behind all that it follows (CEOV_NOBODY: none yet),
					 * ... */
	uint32_t *line;                 /* ... and the transfer at each position */
	uint32_t  n_placed;             /* number of transfers that have a position */
	uint32_t  n;                    /* transfers */
	int       raises_again;         /* two transfers raise one counter */
};

/* Refuses marks that nobody raises, cycles, and counters with several raisers. After a
 * failure call fini. */
int  cei_order_init(struct cei_order *order, const struct cei_program *program,
		    struct cei_report *report);
void cei_order_fini(struct cei_order *order);

/* Raises that there is no memory for the checks. */
int  cei_order_no_memory(const struct cei_order *order);

/* program_overlap.c: refuses overlapping bytes that nothing orders. */
int  cei_overlap_check(const struct cei_order *order);

/* --- questions ------------------------------------------------------------------- */

/*
 * Questions whether one transfer of a program comes after another by marks, collected and
 * answered many at a time: one walk over the transfers in their order carries a bit for each
 * of several hundred, and so says of every transfer behind them which of those it follows.
 * What follows directly needs no walk. Positions are those of order->position.
 */

struct cei_query {
	uint32_t first;                 /* positions; the question is whether second follows
					 * first */
	uint32_t second;
	uint32_t note;                  /* for the caller, who chose it */
};

#define CEI_QUERY_MASK_WORDS 8u         /* of one walk: 512 transfers, one cache line */

struct cei_queries {
	const struct cei_order *order;
	uint32_t         *before;       /* order->before, in positions */
	uint64_t        (*masks)[CEI_QUERY_MASK_WORDS]; /* made for the first walk */
	struct cei_query *list;         /* not answered yet */
	uint32_t          n;
	int               result;       /* 0: all answers were yes; CEOV_NONE: one was no;
					 * CEOV_ERR_NO_MEMORY, not raised. If it is not 0, no more
					 * is answered */
	struct cei_query  refused;      /* CEOV_NONE: of those with the answer no, the one
					 * with the least note, second and first */
};

/* CEOV_ERR_NO_MEMORY, not raised; then fini. */
int  cei_queries_init(struct cei_queries *queries, const struct cei_order *order);
void cei_queries_fini(struct cei_queries *queries);

/* Adds a question; it may be answered by a later call. */
void cei_queries_add(struct cei_queries *queries, uint32_t first, uint32_t second,
		     uint32_t note);

/* For a query whose answer is known to be no. */
void cei_queries_refuse(struct cei_queries *queries, uint32_t first, uint32_t second,
			uint32_t note);

/* Answers what is left, and returns queries->result. */
int  cei_queries_end(struct cei_queries *queries);

#endif /* CEI_PROGRAM_ORDER_H */
