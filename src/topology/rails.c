/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Assigns NICs to GPUs, and chooses the rails of a process. */

#include "topology/rails.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* How a NIC can be used. */
enum use { UNUSABLE, AS_NET, AS_RDMA };

struct plan {
	const struct cei_machine *machine;
	uint8_t  use[CEI_MACHINE_NICS_MAX];             /* enum use */
	uint64_t suited[CEI_MACHINE_GPUS_MAX];          /* bit k: no NIC is better for the GPU
							 * than NIC k */
	uint32_t owner[CEI_MACHINE_NICS_MAX];           /* the GPU that a NIC without assignment
							 * was given to; CEOV_NOBODY: none */
	uint32_t assigned[CEI_MACHINE_GPUS_MAX];        /* the NIC of each GPU */
};

_Static_assert(CEI_MACHINE_NICS_MAX <= 64, "sets of NICs are bits of 64");

/* --- which NICs suit a GPU -------------------------------------------------------------- */

/* Orders NICs for a GPU; the lowest value is best. RDMA devices come before all others, because
 * only they move bytes without a processor. */
static uint32_t badness(const struct plan *plan, uint32_t gpu, uint32_t nic)
{
	if (plan->use[nic] == UNUSABLE)
		return UINT32_MAX;
	return (plan->use[nic] == AS_RDMA ? 0 : CEI_MACHINE_UNKNOWN + 1u) +
		plan->machine->nic_distance[gpu][nic];
}

/* The NICs of least badness, but for those that are slow beside the fastest of them: copies are
 * divided among rails in equal parts, so the slowest one would decide when they end. */
static uint64_t suited_nics(const struct plan *plan, uint32_t gpu)
{
	const struct cei_machine *machine = plan->machine;
	uint32_t nic, least = UINT32_MAX;
	uint64_t fastest = 0, rate, set = 0;

	for (nic = 0; nic < machine->n_nics; nic++)
		if (badness(plan, gpu, nic) < least)
			least = badness(plan, gpu, nic);
	for (nic = 0; nic < machine->n_nics && least < UINT32_MAX; nic++)
		if (badness(plan, gpu, nic) == least && machine->nics[nic].bytes_per_s > fastest)
			fastest = machine->nics[nic].bytes_per_s;
	for (nic = 0; nic < machine->n_nics && least < UINT32_MAX; nic++) {
		rate = machine->nics[nic].bytes_per_s;
		if (badness(plan, gpu, nic) == least && (!rate || rate >= fastest / 2))
			set |= UINT64_C(1) << nic;
	}
	return set;
}

static int is_suited(const struct plan *plan, uint32_t gpu, uint32_t nic)
{
	return plan->suited[gpu] >> nic & 1;
}

/* --- the assignment ----------------------------------------------------------------------- */

static uint32_t find_nic(const struct plan *plan, uint32_t gpu, const uint32_t *n_served)
{
	uint32_t nic, found = CEOV_NOBODY;

	for (nic = 0; nic < plan->machine->n_nics; nic++)
		if (is_suited(plan, gpu, nic) &&
		    (found == CEOV_NOBODY || n_served[nic] < n_served[found]))
			found = nic;
	return found;
}

/* GPUs with fewer equally good NICs choose first, so that the others can avoid those. */
static void assign(struct plan *plan)
{
	const struct cei_machine *machine = plan->machine;
	uint32_t n_served[CEI_MACHINE_NICS_MAX] = { 0 };
	uint32_t gpu, n;

	for (gpu = 0; gpu < machine->n_gpus; gpu++) {
		plan->suited[gpu] = suited_nics(plan, gpu);
		plan->assigned[gpu] = CEOV_NOBODY;
	}
	for (n = 1; n <= machine->n_nics; n++) {
		for (gpu = 0; gpu < machine->n_gpus; gpu++) {
			if ((uint32_t)__builtin_popcountll(plan->suited[gpu]) != n)
				continue;
			plan->assigned[gpu] = find_nic(plan, gpu, n_served);
			n_served[plan->assigned[gpu]]++;
		}
	}
}

void cei_rails_assign(const struct cei_machine *machine, uint32_t *ret_nics)
{
	struct plan plan = { .machine = machine };
	uint32_t nic;

	for (nic = 0; nic < machine->n_nics; nic++)
		plan.use[nic] = machine->nics[nic].is_rdma ? AS_RDMA : AS_NET;
	assign(&plan);
	memcpy(ret_nics, plan.assigned, machine->n_gpus * sizeof(*ret_nics));
}

/* --- NICs that serve no GPU ---------------------------------------------------------------- */

static int serves(const struct plan *plan, uint32_t nic)
{
	uint32_t gpu;

	for (gpu = 0; gpu < plan->machine->n_gpus; gpu++)
		if (plan->assigned[gpu] == nic)
			return 1;
	return 0;
}

/* Gives each of them to that GPU which it suits and which has got the fewest. */
static void share_out(struct plan *plan)
{
	uint32_t n_given[CEI_MACHINE_GPUS_MAX] = { 0 };
	uint32_t nic, gpu, to;

	for (nic = 0; nic < plan->machine->n_nics; nic++) {
		plan->owner[nic] = to = CEOV_NOBODY;
		if (serves(plan, nic))
			continue;
		for (gpu = 0; gpu < plan->machine->n_gpus; gpu++)
			if (is_suited(plan, gpu, nic) &&
			    (to == CEOV_NOBODY || n_given[gpu] < n_given[to]))
				to = gpu;
		plan->owner[nic] = to;
		if (to != CEOV_NOBODY)
			n_given[to]++;
	}
}

/* --- names of devices ------------------------------------------------------------------------ */

/* Whether the device is a port of the NIC: its name, a colon and a number. */
static int is_port_of(const char *device, const char *nic)
{
	size_t n = strlen(nic);

	return n && !strncmp(device, nic, n) && device[n] == ':' &&
		isdigit((unsigned char)device[n + 1]);
}

/* Finds the device that stands for the NIC, of several ports the first one. */
static enum use find_device(const struct cei_machine_nic *nic,
			    const struct cei_rails_request *request, const char **ret_device)
{
	const char *net = nic->is_rdma ? nic->net_name : nic->name;
	uint32_t i;

	for (i = 0; nic->is_rdma && i < request->n_devices; i++) {
		*ret_device = request->devices[i];
		if (is_port_of(*ret_device, nic->name))
			return AS_RDMA;
	}
	for (i = 0; net[0] && i < request->n_devices; i++) {
		*ret_device = request->devices[i];
		if (!strcmp(*ret_device, net))
			return AS_NET;
	}
	return UNUSABLE;
}

/* --- the choice ------------------------------------------------------------------------------ */

static void make_plan(const struct cei_machine *machine, const struct cei_rails_request *request,
		      struct plan *ret_plan)
{
	const char *device;
	uint32_t i;

	memset(ret_plan, 0, sizeof(*ret_plan));
	ret_plan->machine = machine;
	for (i = 0; i < machine->n_nics; i++)
		ret_plan->use[i] = (uint8_t)find_device(&machine->nics[i], request, &device);
	assign(ret_plan);
	share_out(ret_plan);
}

static void take(struct cei_rails_choice *choice, uint32_t nic, uint32_t gpu)
{
	uint32_t i;

	if (nic == CEOV_NOBODY)
		return;
	for (i = 0; i < choice->n; i++)
		if (choice->rails[i].nic == nic) {
			if (gpu < choice->rails[i].gpu)
				choice->rails[i].gpu = gpu;
			return;
		}
	if (choice->n < CEI_RAILS_MAX)
		choice->rails[choice->n++] = (struct cei_rail_choice){ .nic = nic, .gpu = gpu };
}

static void sort(struct cei_rails_choice *choice)
{
	struct cei_rail_choice one;
	uint32_t i, k;

	for (i = 1; i < choice->n; i++) {
		one = choice->rails[i];
		for (k = i; k && choice->rails[k - 1].nic > one.nic; k--)
			choice->rails[k] = choice->rails[k - 1];
		choice->rails[k] = one;
	}
}

static void collect(const struct plan *plan, const struct cei_rails_request *request,
		    struct cei_rails_choice *choice)
{
	uint32_t i, nic;

	for (i = 0; i < request->n_gpus; i++)
		if (request->gpus[i] < plan->machine->n_gpus)
			take(choice, plan->assigned[request->gpus[i]], request->gpus[i]);
	for (nic = 0; nic < plan->machine->n_nics; nic++)
		for (i = 0; i < request->n_gpus; i++)
			if (plan->owner[nic] == request->gpus[i])
				take(choice, nic, request->gpus[i]);
	sort(choice);
}

static void name_rails(const struct plan *plan, const struct cei_rails_request *request,
		       struct cei_rails_choice *choice)
{
	const char *device = "";
	uint32_t i, gpu;

	for (i = 0; i < choice->n; i++) {
		(void)find_device(&plan->machine->nics[choice->rails[i].nic], request, &device);
		snprintf(choice->rails[i].device, sizeof(choice->rails[i].device), "%s", device);
		for (gpu = 0; gpu < plan->machine->n_gpus; gpu++)
			if (plan->assigned[gpu] == choice->rails[i].nic)
				choice->own[gpu] = i;
	}
}

static const char *why_none(const struct plan *plan, const struct cei_rails_request *request)
{
	if (!request->n_gpus)
		return "no rank is on a GPU";
	if (!plan->machine->n_nics)
		return "the machine shows no network card";
	return "the transport can use none of the machine's network cards: it lacks what they "
	       "need, or they are down or have no address";
}

void cei_rails_choose(const struct cei_machine *machine, const struct cei_rails_request *request,
		      struct cei_rails_choice *ret_choice)
{
	struct plan plan;
	uint32_t i;

	memset(ret_choice, 0, sizeof(*ret_choice));
	for (i = 0; i < CEI_MACHINE_GPUS_MAX; i++)
		ret_choice->own[i] = CEOV_NOBODY;
	make_plan(machine, request, &plan);
	collect(&plan, request, ret_choice);
	name_rails(&plan, request, ret_choice);
	if (!ret_choice->n)
		snprintf(ret_choice->why, sizeof(ret_choice->why), "%s",
			 why_none(&plan, request));
}

void cei_rails_explain(const struct cei_machine *machine, const struct cei_rail_choice *rail,
		       char ret_why[CEI_RAIL_WHY_BYTES_MAX])
{
	static const char *const where[] = {
		[CEI_MACHINE_SAME_SWITCH] = "below one PCI switch with",
		[CEI_MACHINE_SAME_TREE] = "below one host bridge with",
		[CEI_MACHINE_SAME_NODE] = "at the NUMA node of",
		[CEI_MACHINE_SAME_PACKAGE] = "at the processor package of",
		[CEI_MACHINE_FAR] = "at another processor package than",
		[CEI_MACHINE_UNKNOWN] = "at an unknown distance from",
	};

	snprintf(ret_why, CEI_RAIL_WHY_BYTES_MAX, "%s, %s GPU %u",
		 strchr(rail->device, ':') ? "RDMA device" : "net device",
		 where[machine->nic_distance[rail->gpu][rail->nic]], rail->gpu);
}

/* --- what was left ------------------------------------------------------------------------- */

/* The first of the request's GPUs that the NIC suits, or CEOV_NOBODY. */
static uint32_t suited_gpu(const struct plan *plan, const struct cei_rails_request *request,
			   uint32_t nic)
{
	uint32_t i;

	for (i = 0; i < request->n_gpus; i++)
		if (request->gpus[i] < plan->machine->n_gpus &&
		    is_suited(plan, request->gpus[i], nic))
			return request->gpus[i];
	return CEOV_NOBODY;
}

/* The GPU that has the NIC, or CEOV_NOBODY. */
static uint32_t owner_of(const struct plan *plan, uint32_t nic)
{
	uint32_t gpu;

	for (gpu = 0; gpu < plan->machine->n_gpus; gpu++)
		if (plan->assigned[gpu] == nic)
			return gpu;
	return plan->owner[nic];
}

/* Why the NIC is not among the best of any of the request's GPUs: as seen from the one that it is
 * the least bad for. */
static void say_unsuited(const struct plan *plan, const struct cei_rails_request *request,
			 uint32_t nic, char *ret_why)
{
	uint32_t i, gpu, best = CEOV_NOBODY, rival;

	for (i = 0; i < request->n_gpus; i++) {
		gpu = request->gpus[i];
		if (gpu < plan->machine->n_gpus &&
		    (best == CEOV_NOBODY || badness(plan, gpu, nic) < badness(plan, best, nic)))
			best = gpu;
	}
	if (best == CEOV_NOBODY) {
		snprintf(ret_why, CEI_RAIL_WHY_BYTES_MAX, "no rank of the process is on a GPU");
		return;
	}
	rival = plan->assigned[best];
	snprintf(ret_why, CEI_RAIL_WHY_BYTES_MAX, "GPU %u has %s, which is %s", best,
		 plan->machine->nics[rival].name,
		 plan->use[rival] > plan->use[nic] ? "an RDMA device"
		 : badness(plan, best, rival) < badness(plan, best, nic) ? "nearer"
		 : "as near, and more than twice as fast");
}

int cei_rails_explain_left(const struct cei_machine *machine,
			   const struct cei_rails_request *request,
			   const struct cei_rails_choice *choice, uint32_t nic,
			   char ret_why[CEI_RAIL_WHY_BYTES_MAX])
{
	struct plan plan;
	uint32_t i, gpu;

	for (i = 0; i < choice->n; i++)
		if (choice->rails[i].nic == nic)
			return 0;
	make_plan(machine, request, &plan);
	if (plan.use[nic] == UNUSABLE) {
		snprintf(ret_why, CEI_RAIL_WHY_BYTES_MAX, "the transport cannot use it: it lacks "
			 "what that needs, or is down or has no address");
		return 1;
	}
	gpu = suited_gpu(&plan, request, nic);
	if (gpu == CEOV_NOBODY)
		say_unsuited(&plan, request, nic, ret_why);
	else if (choice->n == CEI_RAILS_MAX)
		snprintf(ret_why, CEI_RAIL_WHY_BYTES_MAX, "a process opens %u rails at most",
			 CEI_RAILS_MAX);
	else
		snprintf(ret_why, CEI_RAIL_WHY_BYTES_MAX, "it is as near to GPU %u, but is GPU "
			 "%u's, which no rank of the process is on", gpu, owner_of(&plan, nic));
	return 1;
}
