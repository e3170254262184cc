/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Lists the paths between two places, with the ports and engines that each one uses. */

#include "topology/route_private.h"

#include <string.h>

/* How much later the first byte of a pull comes than that of a push. Measured on 8 x H200 with
 * NVSwitch: 8.9 us for each of several 4 KiB pulls queued back to back, and 1.8 us for a push. */
#define PULL_NS 7000.0

/* What each staging slot costs beside its copy: the host is told that the first leg has ended, and
 * starts the second. Measured on 4 x H200: slots of 4 MiB moved 45 GB/s, where the copies alone
 * would have moved 51 GB/s. */
#define TURN_NS 12000.0

/* The load of other transfers counts for at most this part of a port's rate, so that a new transfer
 * always gets some of it. */
#define LOAD_MAX 0.9

/* The copy engines of a GPU that the model tells apart: from the host, to the host, to peers. */
#define ENGINE_IN     0u
#define ENGINE_OUT    1u
#define ENGINE_PUSH   2u
#define ENGINES       3u

static double bytes_of(const struct cei_route_request *request)
{
	return request->bytes ? (double)request->bytes : 1;
}

static double slot_of(const struct cei_route_request *request)
{
	uint64_t slot = request->slot_bytes ? request->slot_bytes : CEI_ROUTE_SLOT_BYTES;

	return (double)slot < bytes_of(request) ? (double)slot : bytes_of(request);
}

static int may_drive(const struct cei_route_request *request, uint32_t gpu)
{
	return request->may_drive >> gpu & 1;
}

/* --- legs -------------------------------------------------------------------------- */

/*
 * Identifies the copy engine whose time a leg takes. The model has one engine of a GPU for each
 * direction to the host and one for peers, as the driver assigns them on Hopper behind switches
 * (measured: all three at once reach their full rate). If the GPU has fewer engines, directions
 * share one. GPUs that NVLinks connect without a switch have more engines, one for each peer: then
 * the result is CEOV_NOBODY, an engine that no other leg uses.
 */
static uint32_t engine_key(const struct cei_machine *machine, uint32_t gpu,
			   const struct cei_machine_link *link, uint32_t engine)
{
	uint32_t n_engines = machine->gpus[gpu].n_copy_engines;

	if (link->kind == CEI_MACHINE_NVLINK && (!n_engines || n_engines >= ENGINES))
		return CEOV_NOBODY;
	if (n_engines && engine >= n_engines)
		engine = n_engines - 1;
	return CEI_MACHINE_PORTS_MAX + gpu * ENGINES + engine;
}

/* Finds the GPU whose engine moves the leg, and which of its engines. Returns 0 if no engine that
 * could move the leg may be used. */
static int find_engine(const struct cei_machine *machine,
		       const struct cei_route_request *request, uint32_t from, uint32_t to,
		       struct cei_route_leg *leg)
{
	int is_from_gpu = cei_machine_is_gpu(machine, from);
	int is_to_gpu = cei_machine_is_gpu(machine, to);
	uint32_t engine = ENGINE_PUSH;

	leg->engine = leg->engine_key = CEOV_NOBODY;
	if (!is_from_gpu && !is_to_gpu)
		return 1;
	if (!is_from_gpu)
		engine = ENGINE_IN;
	else if (!is_to_gpu)
		engine = ENGINE_OUT;
	if (is_from_gpu && may_drive(request, from))
		leg->engine = from;
	else if (is_to_gpu && may_drive(request, to))
		leg->engine = to;
	else
		return 0;
	leg->engine_key = engine_key(machine, leg->engine, leg->link, engine);
	return 1;
}

/* Describes one leg. Returns 0 if there is no link between the places, or no engine that could move
 * the leg may be used. */
static int leg_init(const struct cei_machine *machine,
		    const struct cei_route_request *request, uint32_t from, uint32_t to,
		    struct cei_route_leg *leg)
{
	leg->link = cei_machine_link(machine, from, to);
	if (leg->link->kind == CEI_MACHINE_NONE || !leg->link->bytes_per_s)
		return 0;
	if (!find_engine(machine, request, from, to, leg))
		return 0;
	leg->bytes_per_ns = (double)leg->link->bytes_per_s * 1e-9;
	leg->t0_ns = (double)leg->link->t0_ns;
	if (cei_machine_is_gpu(machine, from) && leg->engine != from)
		leg->t0_ns += PULL_NS;
	return 1;
}

/* Lowers the rate of a leg that is sent slot by slot: each slot costs t0 and TURN_NS. */
static void leg_cut(struct cei_route_leg *leg, double slot_bytes)
{
	leg->bytes_per_ns = slot_bytes /
		(leg->t0_ns + TURN_NS + slot_bytes / leg->bytes_per_ns);
}

/* --- what a path takes -------------------------------------------------------------- */

static double room_of(const struct cei_machine *machine,
		      const struct cei_route_request *request, uint32_t port)
{
	double room = (double)machine->ports[port].bytes_per_s;
	double load = request->port_load ? (double)request->port_load[port] : 0;

	if (load > room * LOAD_MAX)
		load = room * LOAD_MAX;
	return (room - load) * 1e-9;
}

static uint32_t add_use(struct cei_route_use *uses, uint32_t n, struct cei_route_use use)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (uses[i].key == use.key) {
			uses[i].per_rate += use.per_rate;
			return n;
		}
	}
	uses[n] = use;
	return n + 1;
}

uint32_t cei_route_uses(const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_option *option, struct cei_route_use *uses)
{
	const struct cei_route_leg *leg;
	uint32_t i, j, port, n = 0;

	for (i = 0; i < option->n_legs; i++) {
		leg = &option->legs[i];
		for (j = 0; j < leg->link->n_ports; j++) {
			port = leg->link->ports[j];
			if (machine->ports[port].bytes_per_s)
				n = add_use(uses, n, (struct cei_route_use)
					    { port, room_of(machine, request, port), 1 });
		}
		if (leg->engine_key != CEOV_NOBODY)
			n = add_use(uses, n, (struct cei_route_use)
				    { leg->engine_key, 1, 1 / leg->bytes_per_ns });
	}
	return n;
}

/* Computes the path's rate: that of its slower leg, or less where the load of other transfers on a
 * port leaves less. */
static void weigh(const struct cei_machine *machine,
		  const struct cei_route_request *request, struct cei_route_option *option)
{
	struct cei_route_use uses[CEI_ROUTE_USES_MAX];
	uint32_t i, n = cei_route_uses(machine, request, option, uses);
	double rate = option->legs[0].bytes_per_ns;

	if (option->n_legs == 2 && option->legs[1].bytes_per_ns < rate)
		rate = option->legs[1].bytes_per_ns;
	for (i = 0; i < n; i++)
		if (uses[i].room < rate * uses[i].per_rate)
			rate = uses[i].room / uses[i].per_rate;
	option->bytes_per_ns = rate;
	option->ns = option->t0_ns + bytes_of(request) / rate;
}

/* --- paths -------------------------------------------------------------------------- */

int cei_route_direct(const struct cei_machine *machine,
		     const struct cei_route_request *request,
		     struct cei_route_option *ret_option)
{
	struct cei_route_option option = { .kind = CEI_ROUTE_DIRECT, .via = CEOV_NOBODY,
					   .n_legs = 1 };

	if (request->no_direct ||
	    !leg_init(machine, request, request->from, request->to, &option.legs[0]))
		return 0;
	option.t0_ns = option.legs[0].t0_ns;
	weigh(machine, request, &option);
	*ret_option = option;
	return 1;
}

static uint8_t kind_over(const struct cei_machine *machine,
			 const struct cei_route_request *request, uint32_t via)
{
	if (!cei_machine_is_gpu(machine, via))
		return CEI_ROUTE_STAGED;
	if (cei_machine_is_gpu(machine, request->from) &&
	    cei_machine_is_gpu(machine, request->to))
		return CEI_ROUTE_MIDDLE;
	return CEI_ROUTE_RELAYED;
}

/*
 * Describes the path over a third place. Sending n slots takes n times a slot's time on the slower
 * leg, and one slot's time on the faster leg, which carries the first slot in or the last slot out.
 * A share smaller than a slot still pays the slower leg's t0.
 */
static int make_over(const struct cei_machine *machine,
		     const struct cei_route_request *request, uint32_t via,
		     struct cei_route_option *ret_option)
{
	struct cei_route_option option = { .kind = kind_over(machine, request, via),
					   .via = via, .n_legs = 2 };
	double slot_bytes = slot_of(request);
	struct cei_route_leg *legs = option.legs;
	uint32_t i, fast;

	if (!leg_init(machine, request, request->from, via, &legs[0]) ||
	    !leg_init(machine, request, via, request->to, &legs[1]))
		return 0;
	for (i = 0; i < 2; i++)
		leg_cut(&legs[i], slot_bytes);
	fast = legs[1].bytes_per_ns > legs[0].bytes_per_ns;
	option.t0_ns = slot_bytes / legs[fast].bytes_per_ns + legs[!fast].t0_ns;
	weigh(machine, request, &option);
	*ret_option = option;
	return 1;
}

static uint32_t n_ports(const struct cei_route_option *option)
{
	return option->legs[0].link->n_ports + option->legs[1].link->n_ports;
}

/* Among equally fast paths the one with fewer ports is better: it goes over a nearer place. */
static int is_better(const struct cei_route_option *option,
		     const struct cei_route_option *other)
{
	if (option->ns != other->ns)
		return option->ns < other->ns;
	return n_ports(option) < n_ports(other);
}

/* Inserts an option into the list behind the first `first` entries, which stay. The entries behind
 * them are the best n_max options so far, the best one first. */
static void keep(struct cei_route_options *options, uint32_t first, uint32_t n_max,
		 const struct cei_route_option *option)
{
	uint32_t i = options->n;

	if (options->n - first < n_max)
		options->n++;
	else if (!n_max || !is_better(option, &options->list[--i]))
		return;
	for (; i > first && is_better(option, &options->list[i - 1]); i--)
		options->list[i] = options->list[i - 1];
	options->list[i] = *option;
}

static void list_over_hosts(const struct cei_machine *machine,
			    const struct cei_route_request *request,
			    struct cei_route_options *options)
{
	uint32_t node, first = options->n;
	struct cei_route_option option;

	for (node = 0; node < machine->n_nodes; node++)
		if (!machine->nodes[node].is_gpu_memory &&
		    make_over(machine, request, cei_machine_host_place(machine, node),
			      &option))
			keep(options, first, CEI_ROUTE_HOSTS_MAX, &option);
}

static void list_over_gpus(const struct cei_machine *machine,
			   const struct cei_route_request *request,
			   struct cei_route_options *options)
{
	uint32_t gpu, first = options->n;
	struct cei_route_option option;

	for (gpu = 0; gpu < machine->n_gpus; gpu++)
		if (gpu != request->from && gpu != request->to &&
		    may_drive(request, gpu) && make_over(machine, request, gpu, &option))
			keep(options, first, CEI_ROUTE_OPTIONS_MAX - first, &option);
}

void cei_route_list(const struct cei_machine *machine,
		    const struct cei_route_request *request,
		    struct cei_route_options *ret_options)
{
	int is_from_gpu = cei_machine_is_gpu(machine, request->from);
	int is_to_gpu = cei_machine_is_gpu(machine, request->to);

	ret_options->n = (uint32_t)cei_route_direct(machine, request,
						    &ret_options->list[0]);
	if (request->from == request->to)
		return;
	if (is_from_gpu && is_to_gpu)
		list_over_hosts(machine, request, ret_options);
	if (is_from_gpu || is_to_gpu)
		list_over_gpus(machine, request, ret_options);
}

/* --- relays ------------------------------------------------------------------------ */

/* Whether every copy between the request's host memory and any GPU, in the request's direction,
 * uses this port. */
static int is_of_all(const struct cei_machine *machine,
		     const struct cei_route_request *request, uint32_t port)
{
	const struct cei_machine_link *link;
	uint32_t gpu, i;

	for (gpu = 0; gpu < machine->n_gpus; gpu++) {
		link = cei_machine_is_gpu(machine, request->from)
			? cei_machine_link(machine, gpu, request->to)
			: cei_machine_link(machine, request->from, gpu);
		if (link->kind == CEI_MACHINE_NONE)
			continue;
		for (i = 0; i < link->n_ports && link->ports[i] != port; i++)
			;
		if (i == link->n_ports)
			return 0;
	}
	return 1;
}

static int is_over_host(const struct cei_route_leg *leg)
{
	return leg->link->kind == CEI_MACHINE_HOST || leg->link->kind == CEI_MACHINE_C2C;
}

static int do_share(const struct cei_machine *machine,
		    const struct cei_route_request *request,
		    const struct cei_route_leg *leg, const struct cei_route_leg *other)
{
	uint32_t i, j;

	if (leg->engine_key != CEOV_NOBODY && leg->engine_key == other->engine_key)
		return 1;
	for (i = 0; i < leg->link->n_ports; i++)
		for (j = 0; j < other->link->n_ports; j++)
			if (leg->link->ports[i] == other->link->ports[j] &&
			    !is_of_all(machine, request, leg->link->ports[i]))
				return 1;
	return 0;
}

int cei_route_is_apart(const struct cei_machine *machine,
		       const struct cei_route_request *request,
		       const struct cei_route_option *relay,
		       const struct cei_route_option *other)
{
	uint32_t i, j;

	for (i = 0; i < relay->n_legs; i++)
		for (j = 0; j < other->n_legs; j++)
			if (is_over_host(&other->legs[j]) &&
			    (is_over_host(&relay->legs[i]) || other->n_legs == 1) &&
			    do_share(machine, request, &relay->legs[i], &other->legs[j]))
				return 0;
	return 1;
}
