/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Decides which paths bytes take, and how much goes over which path. */

#include "topology/route.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "topology/route_private.h"

#define SHARE_BYTES UINT64_C(4096)      /* a path's share is a multiple of this */
/* Fewer bytes than this take one path: using several would cost more in marks, and in time of other
 * GPUs' engines, than it saves. */
#define SPLIT_MIN   CEI_ROUTE_SLOT_BYTES
/* Another path is taken if it makes the transfer at least 2 % faster ... */
#define GAIN_MIN    1.02
/* ... and a relay that only spreads the load may make it 0.5 % slower. */
#define SPREAD_MAX  1.005

/* A set of paths that are taken at once. */
struct choice {
	uint32_t set;                   /* bit i: options->list[i] is taken */
	double   ns;                    /* time in which the paths together move all bytes */
	double   rate[CEI_ROUTE_OPTIONS_MAX];   /* of each path, bytes per ns */
};

const char *cei_route_kind_name(enum cei_route_kind kind)
{
	switch (kind) {
	case CEI_ROUTE_DIRECT:  return "direct";
	case CEI_ROUTE_STAGED:  return "staged";
	case CEI_ROUTE_RELAYED: return "relayed";
	case CEI_ROUTE_MIDDLE:  return "middle";
	}
	return "unknown";
}

static void __attribute__((format(printf, 2, 3)))
tell(struct cei_route *route, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(route->why, sizeof(route->why), format, args);
	va_end(args);
}

/* Rounds a time up to whole nanoseconds; UINT64_MAX if it does not fit. */
static uint64_t whole_ns(double ns)
{
	uint64_t whole;

	if (!(ns < 1e19))
		return UINT64_MAX;
	whole = (uint64_t)ns;
	return whole + ((double)whole < ns);
}

/* --- one path ----------------------------------------------------------------------- */

static void fill_path(const struct cei_route_option *option, double rate,
		      struct cei_route_path *path)
{
	path->kind = option->kind;
	path->via = option->via;
	path->engines[0] = option->legs[0].engine;
	path->engines[1] = option->n_legs == 2 ? option->legs[1].engine : CEOV_NOBODY;
	path->bytes_per_s = (uint64_t)(rate * 1e9);
	path->t0_ns = whole_ns(option->t0_ns);
}

static void take_one(const struct cei_route_request *request,
		     const struct cei_route_option *option, struct cei_route *route)
{
	route->n_paths = 1;
	fill_path(option, option->bytes_per_ns, &route->paths[0]);
	route->paths[0].bytes = request->bytes;
	route->expected_ns = whole_ns(request->bytes ? option->ns : option->t0_ns);
}

static uint32_t find_fastest(const struct cei_route_options *options)
{
	uint32_t i, fastest = 0;

	for (i = 1; i < options->n; i++)
		if (options->list[i].ns < options->list[fastest].ns)
			fastest = i;
	return fastest;
}

static const char *through(const struct cei_machine *machine,
			   const struct cei_route_request *request)
{
	switch (cei_machine_link(machine, request->from, request->to)->kind) {
	case CEI_MACHINE_SELF:     return "within one memory";
	case CEI_MACHINE_NVSWITCH: return "through NVLink switches";
	case CEI_MACHINE_NVLINK:   return "over NVLinks between the two";
	case CEI_MACHINE_PCIE:     return "over PCIe";
	case CEI_MACHINE_HOST:     return "over the GPU's PCIe link";
	case CEI_MACHINE_C2C:      return "over a chip-to-chip link";
	case CEI_MACHINE_NODES:    return "between NUMA nodes, by processors";
	}
	return "directly";
}

/* Explains why there is no direct path. */
static const char *why_not_direct(const struct cei_machine *machine,
				  const struct cei_route_request *request)
{
	const struct cei_machine_link *link =
		cei_machine_link(machine, request->from, request->to);

	if (link->kind == CEI_MACHINE_NONE || !link->bytes_per_s)
		return "no copy goes directly";
	if (request->no_direct)
		return "the memory is not mapped for a direct copy";
	return "the engines of a direct copy may not be used here";
}

/* Explains, where there is no direct path, which other path was chosen of how many. */
static void tell_needed(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_options *options, struct cei_route *route)
{
	char name[16];

	tell(route, "%s; over %s, the fastest of %u path%s", why_not_direct(machine, request),
	     cei_machine_place_name(machine, route->paths[0].via, name), options->n,
	     options->n == 1 ? "" : "s");
}

static void tell_none(const struct cei_machine *machine,
		      const struct cei_route_request *request, struct cei_route *route)
{
	const char *why = why_not_direct(machine, request);
	int is_over_gpus = cei_machine_is_gpu(machine, request->from) ||
		cei_machine_is_gpu(machine, request->to);

	route->n_paths = 0;
	route->expected_ns = 0;
	if (request->rule == CEI_ROUTE_RULE_DIRECT)
		tell(route, "%s, and others are not asked for", why);
	else if (!is_over_gpus)
		tell(route, "%s, and between host memories nothing else does", why);
	else
		tell(route, "%s, and over no other memory do links lead from and to them "
		     "whose engines may be used", why);
}

/* --- several at once --------------------------------------------------------------- */

static uint32_t support_of(const double *rate)
{
	uint32_t i, set = 0;

	for (i = 0; i < CEI_ROUTE_OPTIONS_MAX; i++)
		if (rate[i] > 0)
			set |= 1u << i;
	return set;
}

static void weigh_best(const struct cei_rates *rates, uint32_t set,
		       struct choice *ret_choice)
{
	ret_choice->ns = cei_rates_best(rates, set, ret_choice->rate);
	ret_choice->set = support_of(ret_choice->rate);
}

static void weigh_fair(const struct cei_rates *rates, uint32_t set,
		       struct choice *ret_choice)
{
	ret_choice->ns = cei_rates_fair(rates, set, ret_choice->rate);
	ret_choice->set = support_of(ret_choice->rate);
}

/* The path of the set that moves least. */
static uint32_t find_least(const struct cei_rates *rates, const struct choice *choice,
			   uint32_t set)
{
	double bytes, least = INFINITY;
	uint32_t i, found = 0;

	for (i = 0; i < rates->n; i++) {
		if (!(set >> i & 1))
			continue;
		bytes = choice->rate[i] * (choice->ns - rates->t0_ns[i]);
		if (bytes < least) {
			least = bytes;
			found = i;
		}
	}
	return found;
}

/* Drops paths without which all bytes take at most ns_max, and paths beyond the number that a route
 * can hold, the smallest share first. */
static void prune(const struct cei_rates *rates, double ns_max, struct choice *choice)
{
	uint32_t least, to_try = choice->set;
	struct choice without;

	while (to_try & (to_try - 1)) {
		least = find_least(rates, choice, to_try);
		to_try &= ~(1u << least);
		weigh_best(rates, choice->set & ~(1u << least), &without);
		if (without.ns > ns_max &&
		    __builtin_popcount(choice->set) <= (int)CEI_ROUTE_PATHS_MAX)
			continue;
		*choice = without;
		to_try &= choice->set;
	}
}

/* Whether relay i is outside the set, and shares no bottleneck of its own with the direct path or
 * with any path of the set (cei_route_is_apart()). */
static int is_spread(const struct cei_machine *machine,
		     const struct cei_route_request *request,
		     const struct cei_route_options *options, uint32_t set, uint32_t i)
{
	const struct cei_route_option *option = &options->list[i];
	uint32_t j;

	if (option->kind != CEI_ROUTE_RELAYED || (set >> i & 1))
		return 0;
	for (j = 0; j < options->n; j++)
		if (((set >> j & 1) || options->list[j].kind == CEI_ROUTE_DIRECT) &&
		    !cei_route_is_apart(machine, request, option, &options->list[j]))
			return 0;
	return 1;
}

/*
 * Adds relays to a choice as long as the model says that this costs almost nothing. The reason is
 * that only the total rate of host memory was measured, with all links in use: a few links may
 * share a bottleneck that nobody measured, and more relays reduce the load on each link.
 *
 * If fair shares are as fast as the choice's rates, takes those instead: copies side by side share
 * ports evenly anyway, so with these rates all paths end at the same time.
 */
static void spread(const struct cei_machine *machine,
		   const struct cei_route_request *request,
		   const struct cei_route_options *options, const struct cei_rates *rates,
		   struct choice *choice)
{
	double ns_max = choice->ns * SPREAD_MAX;
	struct choice wider;
	uint32_t i;

	weigh_fair(rates, choice->set, &wider);
	if (wider.ns > ns_max)
		return;
	*choice = wider;
	for (i = 0; i < rates->n; i++) {
		if (__builtin_popcount(choice->set) == (int)CEI_ROUTE_PATHS_MAX ||
		    !is_spread(machine, request, options, choice->set, i))
			continue;
		weigh_fair(rates, choice->set | 1u << i, &wider);
		if (wider.ns <= ns_max)
			*choice = wider;
	}
}

/* --- shares ------------------------------------------------------------------------ */

/* Makes the paths of a choice into the paths of a route, the largest share first. */
static void take_paths(const struct cei_route_options *options,
		       const struct choice *choice, struct cei_route *route)
{
	struct cei_route_path path;
	double share;
	uint32_t i, j;

	route->n_paths = 0;
	for (i = 0; i < options->n; i++) {
		share = choice->rate[i] * (choice->ns - options->list[i].t0_ns);
		if (!(choice->set >> i & 1) || share < (double)SHARE_BYTES)
			continue;
		fill_path(&options->list[i], choice->rate[i], &path);
		path.bytes = (uint64_t)share / SHARE_BYTES * SHARE_BYTES;
		for (j = route->n_paths++; j && route->paths[j - 1].bytes < path.bytes; j--)
			route->paths[j] = route->paths[j - 1];
		route->paths[j] = path;
	}
}

/* Makes the shares add up to bytes. What is left of bytes beyond a multiple of SHARE_BYTES goes to
 * the last share, which gives up SHARE_BYTES for it; what rounding down left over goes to the first
 * share. Returns 0 if the shares are larger than bytes. */
static int round_shares(uint64_t bytes, struct cei_route *route)
{
	struct cei_route_path *last = &route->paths[route->n_paths - 1];
	uint64_t sum = 0;
	uint32_t i;

	if (bytes % SHARE_BYTES)
		last->bytes = last->bytes - SHARE_BYTES + bytes % SHARE_BYTES;
	for (i = 0; i < route->n_paths; i++)
		sum += route->paths[i].bytes;
	if (sum > bytes)
		return 0;
	route->paths[0].bytes += bytes - sum;
	return 1;
}

static uint64_t last_ns(const struct cei_route *route)
{
	const struct cei_route_path *path;
	double ns, last = 0;
	uint32_t i;

	for (i = 0; i < route->n_paths; i++) {
		path = &route->paths[i];
		ns = (double)path->t0_ns + (double)path->bytes / ((double)path->bytes_per_s * 1e-9);
		last = ns > last ? ns : last;
	}
	return whole_ns(last);
}

/* Fills the route with several paths. Returns 0 if they are not faster than the single path, which
 * takes ns_single. */
static int take_several(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_options *options, double ns_single,
			struct cei_route *route)
{
	struct cei_rates rates;
	struct choice choice;
	uint32_t set;

	if (options->n < 2 || request->bytes < SPLIT_MIN)
		return 0;
	set = cei_rates_init(&rates, machine, request, options);
	weigh_best(&rates, set, &choice);
	if (!(choice.ns * GAIN_MIN < ns_single))
		return 0;
	prune(&rates, choice.ns * GAIN_MIN, &choice);
	spread(machine, request, options, &rates, &choice);
	take_paths(options, &choice, route);
	if (route->n_paths < 2 || !round_shares(request->bytes, route))
		return 0;
	route->expected_ns = last_ns(route);
	return (double)route->expected_ns < ns_single;
}

static const char *why_not_several(const struct cei_route_request *request,
				   const struct cei_route_options *options)
{
	if (options->n < 2)
		return "there is no other path";
	if (request->bytes < SPLIT_MIN)
		return "too little to take several paths";
	return "others beside it would bring less than 2 %";
}

/* --- all --------------------------------------------------------------------------- */

static void find_all(const struct cei_machine *machine,
		     const struct cei_route_request *request,
		     const struct cei_route_options *options, struct cei_route *route)
{
	const struct cei_route_option *fastest = &options->list[find_fastest(options)];
	char name[16];

	if (take_several(machine, request, options, fastest->ns, route)) {
		tell(route, "%u paths at once, expected to be %.2f times as fast as %s alone",
		     route->n_paths, fastest->ns / (double)route->expected_ns,
		     fastest->n_legs == 1 ? "the direct one"
		     : cei_machine_place_name(machine, fastest->via, name));
		return;
	}
	take_one(request, fastest, route);
	if (fastest->n_legs == 1)
		tell(route, "directly, %s; %s", through(machine, request),
		     why_not_several(request, options));
	else if (options->list[0].n_legs == 1)
		tell(route, "over %s, faster than directly, %s",
		     cei_machine_place_name(machine, fastest->via, name),
		     through(machine, request));
	else
		tell_needed(machine, request, options, route);
}

static int find_other(const struct cei_machine *machine,
		      const struct cei_route_request *request, struct cei_route *route)
{
	struct cei_route_options options;

	cei_route_list(machine, request, &options);
	if (!options.n) {
		tell_none(machine, request, route);
		return CEOV_ERR_NO_ROUTE;
	}
	if (request->rule == CEI_ROUTE_RULE_ALL && request->bytes) {
		find_all(machine, request, &options, route);
		return 0;
	}
	take_one(request, &options.list[find_fastest(&options)], route);
	tell_needed(machine, request, &options, route);
	return 0;
}

int cei_route_find(const struct cei_machine *machine, const struct cei_route_request *request,
		   struct cei_route *ret_route)
{
	uint32_t n_places = cei_machine_n_places(machine);
	int is_simple = request->rule != CEI_ROUTE_RULE_ALL || !request->bytes;
	struct cei_route_option direct;

	if (request->from >= n_places || request->to >= n_places) {
		ret_route->n_paths = 0;
		ret_route->expected_ns = 0;
		tell(ret_route, "the machine has no such place");
		return CEOV_ERR_NO_ROUTE;
	}
	if (is_simple && cei_route_direct(machine, request, &direct)) {
		take_one(request, &direct, ret_route);
		tell(ret_route, "directly, %s", through(machine, request));
		return 0;
	}
	if (request->rule == CEI_ROUTE_RULE_DIRECT) {
		tell_none(machine, request, ret_route);
		return CEOV_ERR_NO_ROUTE;
	}
	return find_other(machine, request, ret_route);
}
