/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROUTE_PRIVATE_H
#define CEI_ROUTE_PRIVATE_H

/*
 * Between route.c, which decides, route_options.c, which knows what paths there are, and
 * route_rates.c, which knows how fast several go at once.
 *
 * Rates are in bytes per nanosecond here (GB/s), times in nanoseconds, both double.
 */

#include <stdint.h>

#include "topology/route.h"

#define CEI_ROUTE_OPTIONS_MAX 24u       /* paths that are weighed against each other */
#define CEI_ROUTE_HOSTS_MAX   7u        /* of them at most through host memory */
#define CEI_ROUTE_USES_MAX    36u       /* ports and engines of one path */
#define CEI_ROUTE_LIMITS_MAX  256u      /* ports and engines of all */

struct cei_route_leg {
	const struct cei_machine_link *link;
	uint32_t engine;                /* GPU, or CEOV_NOBODY: processors */
	uint32_t engine_key;            /* which of its engines, for struct cei_route_use;
					 * CEOV_NOBODY: one that no other leg takes */
	double   t0_ns;
	double   bytes_per_ns;          /* of two legs: each slot's t0 counted in it */
};

/* One path, not yet chosen. */
struct cei_route_option {
	uint8_t  kind;                  /* enum cei_route_kind */
	uint32_t via;
	uint32_t n_legs;
	struct cei_route_leg legs[2];
	double   t0_ns;                 /* as in struct cei_route_path */
	double   bytes_per_ns;          /* alone beside the load */
	double   ns;                    /* for all bytes of the request */
};

struct cei_route_options {
	uint32_t n;
	struct cei_route_option list[CEI_ROUTE_OPTIONS_MAX];    /* the direct one first */
};

/* What a path takes of something that several may take of: of the room of a port (bytes
 * per ns), of the time of an engine (1). */
struct cei_route_use {
	uint32_t key;                   /* equal for the same port or engine */
	double   room;
	double   per_rate;              /* taken for each byte per ns */
};

/* --- route_options.c --------------------------------------------------------------- */

/* The direct path, or 0 where there is none. */
int  cei_route_direct(const struct cei_machine *machine,
		      const struct cei_route_request *request,
		      struct cei_route_option *ret_option);

/* All paths, or the best CEI_ROUTE_OPTIONS_MAX. */
void cei_route_list(const struct cei_machine *machine,
		    const struct cei_route_request *request,
		    struct cei_route_options *ret_options);

/* Into uses [CEI_ROUTE_USES_MAX]; none twice. Returns how many. */
uint32_t cei_route_uses(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_option *option, struct cei_route_use *uses);

/* Whether a relay goes to or from the host beside another path to or from it: what they
 * share there, all copies between this host memory and any GPU share. Of the direct path
 * the relay's leg between GPUs takes nothing either. */
int  cei_route_is_apart(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_option *relay,
			const struct cei_route_option *other);

/* --- route_rates.c ----------------------------------------------------------------- */

/* The paths that may be taken together, and what bounds them. Sets of them are bits. */
struct cei_rates {
	double   bytes;
	uint32_t n;                     /* paths */
	uint32_t n_limits;
	double   t0_ns[CEI_ROUTE_OPTIONS_MAX];
	double   rate[CEI_ROUTE_OPTIONS_MAX];   /* of each, alone */
	double   ns[CEI_ROUTE_OPTIONS_MAX];     /* and its time for all bytes */
	uint32_t key[CEI_ROUTE_LIMITS_MAX];
	double   room[CEI_ROUTE_LIMITS_MAX];
	double   per_rate[CEI_ROUTE_LIMITS_MAX][CEI_ROUTE_OPTIONS_MAX];
};

/* The options' bits that found room: those whose limits are beyond
 * CEI_ROUTE_LIMITS_MAX are left out. */
uint32_t cei_rates_init(struct cei_rates *rates, const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_options *options);

/* The least time in which paths of the set (not empty) move all bytes if each may be held
 * to any rate. ret_rates: [CEI_ROUTE_OPTIONS_MAX], 0 for paths that are not needed. */
double cei_rates_best(const struct cei_rates *rates, uint32_t set, double *ret_rates);

/* The time if all paths of the set run at once and share evenly what they share (max-min
 * fair), those that would come too late to help left out. */
double cei_rates_fair(const struct cei_rates *rates, uint32_t set, double *ret_rates);

#endif /* CEI_ROUTE_PRIVATE_H */
