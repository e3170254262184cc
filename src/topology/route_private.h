/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROUTE_PRIVATE_H
#define CEI_ROUTE_PRIVATE_H

/*
 * Shared by route.c, which decides on a route, route_options.c, which lists the possible paths, and
 * route_rates.c, which computes how fast several paths are at once.
 *
 * Rates are in bytes per nanosecond here (GB/s), times in nanoseconds, both double.
 */

#include <stdint.h>

#include "topology/route.h"

#define CEI_ROUTE_OPTIONS_MAX 24u       /* paths that are compared with each other */
#define CEI_ROUTE_HOSTS_MAX   7u        /* how many of these may go through host memory */
#define CEI_ROUTE_USES_MAX    36u       /* ports and engines that one path uses */
#define CEI_ROUTE_LIMITS_MAX  256u      /* ports and engines that all paths together use */

struct cei_route_leg {
	const struct cei_machine_link *link;
	uint32_t engine;                /* the GPU whose copy engine moves the leg; CEOV_NOBODY:
					 * processors do */
	uint32_t engine_key;            /* identifies that engine in struct cei_route_use;
					 * CEOV_NOBODY: no other leg uses it */
	double   t0_ns;
	double   bytes_per_ns;          /* on a path of two legs this includes what each slot
					 * costs in addition */
};

/* One possible path. */
struct cei_route_option {
	uint8_t  kind;                  /* enum cei_route_kind */
	uint32_t via;
	uint32_t n_legs;
	struct cei_route_leg legs[2];
	double   t0_ns;                 /* as in struct cei_route_path */
	double   bytes_per_ns;          /* its rate while no other path of the route is taken */
	double   ns;                    /* its time if it moves all bytes of the request */
};

struct cei_route_options {
	uint32_t n;
	/* if there is a direct path, it comes first */
	struct cei_route_option list[CEI_ROUTE_OPTIONS_MAX];
};

/* How much of a port or an engine a path uses. A port offers a rate (bytes per ns), and an engine
 * offers all of its time (1). */
struct cei_route_use {
	uint32_t key;                   /* identifies the port or engine */
	double   room;                  /* what the port or engine offers */
	double   per_rate;              /* how much of it each byte per ns of the path uses */
};

/* --- route_options.c --------------------------------------------------------------- */

/* Describes the direct path. Returns 0 if there is none. */
int  cei_route_direct(const struct cei_machine *machine,
		      const struct cei_route_request *request,
		      struct cei_route_option *ret_option);

/* Lists all possible paths, or the best CEI_ROUTE_OPTIONS_MAX of them. */
void cei_route_list(const struct cei_machine *machine,
		    const struct cei_route_request *request,
		    struct cei_route_options *ret_options);

/* Lists the ports and engines that a path uses, each once, in uses [CEI_ROUTE_USES_MAX]. Returns
 * how many there are. */
uint32_t cei_route_uses(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_option *option, struct cei_route_use *uses);

/* Whether a relay avoids the bottlenecks of another path: the legs of both that touch the host
 * share no engine and no port, except ports that every copy between this host memory and any GPU
 * crosses anyway. If the other path is direct, the relay's leg between GPUs must not share anything
 * with it either. */
int  cei_route_is_apart(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_option *relay,
			const struct cei_route_option *other);

/* --- route_rates.c ----------------------------------------------------------------- */

/* The paths that may be taken together, and what limits them. A set of paths is a word in which bit
 * i stands for path i. */
struct cei_rates {
	double   bytes;
	uint32_t n;                     /* number of paths */
	uint32_t n_limits;
	double   t0_ns[CEI_ROUTE_OPTIONS_MAX];
	double   rate[CEI_ROUTE_OPTIONS_MAX];   /* of each path while no other one is taken */
	double   ns[CEI_ROUTE_OPTIONS_MAX];     /* and the time in which it moves all bytes */

	/* Each limit is a port or an engine: see struct cei_route_use. */
	uint32_t key[CEI_ROUTE_LIMITS_MAX];
	double   room[CEI_ROUTE_LIMITS_MAX];
	double   per_rate[CEI_ROUTE_LIMITS_MAX][CEI_ROUTE_OPTIONS_MAX];
};

/* Collects the limits of all options. Returns the set of options that may be taken; it lacks those
 * whose limits did not fit into CEI_ROUTE_LIMITS_MAX. */
uint32_t cei_rates_init(struct cei_rates *rates, const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_options *options);

/* Returns the least time in which paths of the set (not empty) can move all bytes if each one may
 * be slowed down to any rate. ret_rates: [CEI_ROUTE_OPTIONS_MAX], 0 for paths that are not
 * needed. */
double cei_rates_best(const struct cei_rates *rates, uint32_t set, double *ret_rates);

/* Returns the time in which the paths of the set move all bytes if all run at once and share ports
 * and engines evenly (max-min fair). Paths whose t0 is so long that they would not help are left
 * out: their rate is 0. */
double cei_rates_fair(const struct cei_rates *rates, uint32_t set, double *ret_rates);

#endif /* CEI_ROUTE_PRIVATE_H */
