/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROUTE_H
#define CEI_ROUTE_H

/*
 * Which paths bytes take from one place to another, and how much goes over which path: a
 * pure function of machine, request and load.
 *
 *   direct     one copy
 *   staged     through pinned host memory, GPU -> host -> GPU
 *   relayed    through a peer GPU and its own PCIe link: host -> peer -> GPU, or
 *              GPU -> peer -> host
 *   middle     GPU -> GPU -> GPU, where there is no direct link
 *
 * Paths of two legs are pipelined through bounded staging slots in the memory between.
 * Several paths at once take shares such that all are done at the same time.
 */

#include <stdint.h>

#include "topology/machine.h"

#define CEI_ROUTE_PATHS_MAX   16u
#define CEI_ROUTE_SLOT_BYTES  (UINT64_C(4) << 20)       /* of one staging slot */
#define CEI_ROUTE_SLOTS       4u                        /* of one path */
#define CEI_ROUTE_WHY_BYTES   160u

enum cei_route_kind {
	CEI_ROUTE_DIRECT,
	CEI_ROUTE_STAGED,
	CEI_ROUTE_RELAYED,
	CEI_ROUTE_MIDDLE,
};

enum cei_route_rule {                    /* which paths a request allows */
	CEI_ROUTE_RULE_NEEDED,          /* direct where there is a direct link, else the
					 * best other path */
	CEI_ROUTE_RULE_DIRECT,          /* direct or none */
	CEI_ROUTE_RULE_ALL,             /* several paths at once where that is faster */
};

struct cei_route_path {
	uint8_t  kind;                  /* enum cei_route_kind */
	uint32_t via;                   /* the place between both legs; CEOV_NOBODY: direct */
	/* The GPU whose copy engines move the first leg, and the second leg. Between two GPUs the
	 * source pushes, or the target pulls if only its engines may be used. CEOV_NOBODY: there
	 * is no such leg, or it lies within the host, where processors copy. */
	uint32_t engines[2];
	uint64_t bytes;                 /* how many of the request's bytes this path moves */
	uint64_t bytes_per_s;           /* the rate expected while the route's other paths run */
	/* The path takes t0 + bytes / bytes_per_s. With two legs, t0_ns is the t0 of the slower
	 * leg and one slot's time on the faster leg. */
	uint64_t t0_ns;
};

struct cei_route_request {
	uint32_t from;                  /* number of the place where the bytes are */
	uint32_t to;                    /* number of the place where they go */
	uint64_t bytes;
	uint64_t slot_bytes;            /* 0: CEI_ROUTE_SLOT_BYTES */
	uint8_t  rule;                  /* enum cei_route_rule */
	uint8_t  no_direct;             /* 1: the direct path cannot be taken, even if the
					 * machine has a link, because the memory is not mapped */
	uint64_t may_drive;             /* bit i: GPU i's copy engines may be used, and staging
					 * memory may be allocated there */
	const uint64_t *port_load;      /* [n_ports] bytes per second that other transfers take
					 * from each port at present; NULL: none */
};

struct cei_route {
	uint32_t n_paths;
	struct cei_route_path paths[CEI_ROUTE_PATHS_MAX];       /* the largest share first */
	uint64_t expected_ns;
	char     why[CEI_ROUTE_WHY_BYTES];      /* one line for people: why these paths were
						 * chosen, or why there is none */
};

/* Finds the route of a request. CEOV_ERR_NO_ROUTE (not raised): no path exists or is allowed, and
 * ret_route->why says why.
 *
 * The paths' shares add up to request->bytes. Each share but the last is a multiple of 4 KiB, and
 * none is 0 unless request->bytes is 0. No path uses a link of kind CEI_MACHINE_NONE, or engines
 * that may not be driven. Staging memory is at most CEI_ROUTE_PATHS_MAX * CEI_ROUTE_SLOTS *
 * slot_bytes. */
int cei_route_find(const struct cei_machine *machine, const struct cei_route_request *request,
		   struct cei_route *ret_route);

const char *cei_route_kind_name(enum cei_route_kind kind);

#endif /* CEI_ROUTE_H */
