/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ORDER_QUERIES_H
#define CEI_ORDER_QUERIES_H

/*
 * Questions whether one transfer of a program comes after another by marks, collected and
 * answered many at a time: one walk over the transfers in their order carries a bit for each
 * of several hundred, and so says of every transfer behind them which of those it follows.
 * What follows directly needs no walk. Positions are those of order->position.
 */

#include <stdint.h>

#include "ce_engine/program/program_order.h"

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

#endif /* CEI_ORDER_QUERIES_H */
