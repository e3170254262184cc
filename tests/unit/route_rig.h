/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROUTE_RIG_H
#define CEI_ROUTE_RIG_H

/* Properties that every route must have on any machine. */

#include "topology/route.h"

#define ROUTE_RIG_ALL UINT64_MAX        /* may_drive: every GPU */

struct cei_route_request route_rig_request(uint32_t from, uint32_t to, uint64_t bytes,
					   enum cei_route_rule rule);

/* Finds a route and checks its properties; returns cei_route_find()'s result. */
int route_rig_find(const struct cei_machine *machine, const struct cei_route_request *request,
		   struct cei_route *ret_route);

/* Finds and checks a route, and asserts that there is one. */
struct cei_route route_rig_get(const struct cei_machine *machine,
			       const struct cei_route_request *request);

/* The paths of a kind. */
uint32_t route_rig_count(const struct cei_route *route, enum cei_route_kind kind);

#endif /* CEI_ROUTE_RIG_H */
