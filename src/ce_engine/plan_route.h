/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_ROUTE_H
#define CEI_PLAN_ROUTE_H

/* At commit: the ways of each transfer, and the chunks that it is cut into for them. */

#include "ce_engine/plan.h"

/* A route that transfers of nearly the same size between the same places share. */
struct cei_plan_route {
	struct cei_plan_route   *next;          /* in its bucket */
	struct cei_route_request request;       /* its bytes are those of the class */
	int                      result;        /* of cei_route_find(), and of making ways */
	struct cei_route         route;
	uint32_t                 ways[CEI_ROUTE_WAYS_MAX];      /* the engine's */
};

/* Fills path, places, link and ways of steps[i]; raises where there is none. */
int  cei_plan_route(struct ceov_plan *plan, uint32_t i);

/* After all are routed: first_chunk and n_chunks of each, and the cuts. */
int  cei_plan_cut(struct ceov_plan *plan);

/* Where the buffer is for the plan's rank. What it does not reach has one address in this
 * process all the same, for who does. 0: nobody does. */
uint64_t cei_plan_address(const struct ceov_plan *plan, const struct ceov_buffer *buffer);

/* Forgets the routes. */
void cei_plan_unroute(struct ceov_plan *plan);

#endif /* CEI_PLAN_ROUTE_H */
