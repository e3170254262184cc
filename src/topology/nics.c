/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Assigns NICs to GPUs, and chooses the NIC of a process. */

#include "topology/nics.h"

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

/* The NICs of least badness, but for those that are slow beside the fastest of them: a port for
 * management is often as near as the others. */
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

void cei_nics_assign(const struct cei_machine *machine, uint32_t *ret_nics)
{
	struct plan plan = { .machine = machine };
	uint32_t nic;

	for (nic = 0; nic < machine->n_nics; nic++)
		plan.use[nic] = machine->nics[nic].is_rdma ? AS_RDMA : AS_NET;
	assign(&plan);
	memcpy(ret_nics, plan.assigned, machine->n_gpus * sizeof(*ret_nics));
}

/* --- names of devices ------------------------------------------------------------------------ */

/* Whether the device is a port of the NIC: its name, a colon and a number. */
static int is_port_of(const char *device, const char *nic)
{
	size_t n = strlen(nic);

	return n && !strncmp(device, nic, n) && device[n] == ':' &&
		isdigit((unsigned char)device[n + 1]);
}

static int is_named(const struct cei_nic_request *request, const char *device)
{
	const char *at = request->named;
	size_t n;

	while (at) {
		n = strcspn(at, ",");
		if (n == strlen(device) && !strncmp(at, device, n))
			return 1;
		at = at[n] ? at + n + 1 : NULL;
	}
	return !request->named;
}

/* Finds the device that stands for the NIC, of several ports the first one. */
static enum use find_device(const struct cei_machine_nic *nic,
			    const struct cei_nic_request *request, const char **ret_device)
{
	const char *net = nic->is_rdma ? nic->net_name : nic->name;
	uint32_t i;

	for (i = 0; nic->is_rdma && i < request->n_devices; i++) {
		*ret_device = request->devices[i];
		if (is_port_of(*ret_device, nic->name) && is_named(request, *ret_device))
			return AS_RDMA;
	}
	for (i = 0; net[0] && i < request->n_devices; i++) {
		*ret_device = request->devices[i];
		if (!strcmp(*ret_device, net) && is_named(request, *ret_device))
			return AS_NET;
	}
	return UNUSABLE;
}

/* --- the choice ------------------------------------------------------------------------------ */

static void make_plan(const struct cei_machine *machine, const struct cei_nic_request *request,
		      struct plan *ret_plan)
{
	const char *device;
	uint32_t i;

	memset(ret_plan, 0, sizeof(*ret_plan));
	ret_plan->machine = machine;
	for (i = 0; i < machine->n_nics; i++)
		ret_plan->use[i] = (uint8_t)find_device(&machine->nics[i], request, &device);
	assign(ret_plan);
}

static const char *where_is(const struct cei_machine *machine, const struct cei_nic_choice *choice)
{
	static const char *const where[] = {
		[CEI_MACHINE_SAME_SWITCH] = "below one PCI switch with",
		[CEI_MACHINE_SAME_TREE] = "below one host bridge with",
		[CEI_MACHINE_SAME_NODE] = "at the NUMA node of",
		[CEI_MACHINE_SAME_PACKAGE] = "at the processor package of",
		[CEI_MACHINE_FAR] = "at another processor package than",
		[CEI_MACHINE_UNKNOWN] = "at an unknown distance from",
	};

	return where[machine->nic_distance[choice->gpu][choice->nic]];
}

/* Returns whether one of the GPUs has a NIC. */
static int choose(const struct cei_machine *machine, const struct cei_nic_request *request,
		  struct cei_nic_choice *choice)
{
	struct plan plan;
	const char *device = "";
	uint32_t i, gpu;

	make_plan(machine, request, &plan);
	for (i = 0; i < request->n_gpus; i++) {
		gpu = request->gpus[i];
		if (gpu >= machine->n_gpus || plan.assigned[gpu] == CEOV_NOBODY)
			continue;
		choice->nic = plan.assigned[gpu];
		choice->gpu = gpu;
		(void)find_device(&machine->nics[choice->nic], request, &device);
		snprintf(choice->device, sizeof(choice->device), "%s", device);
		snprintf(choice->why, sizeof(choice->why), "%s, %s GPU %u",
			 strchr(device, ':') ? "RDMA device" : "net device",
			 where_is(machine, choice), gpu);
		return 1;
	}
	return 0;
}

static const char *why_none(const struct cei_machine *machine,
			    const struct cei_nic_request *request)
{
	if (!machine)
		return "the machine's topology is not known";
	if (!request->n_gpus)
		return "no rank is on a GPU";
	if (!machine->n_nics)
		return "the machine shows no network card";
	if (request->named)
		return "none of those that are named is a card of the machine that the transport "
		       "can use";
	return "the transport can use none of the machine's network cards: it lacks what they "
	       "need, or they are down or have no address";
}

void cei_nic_choose(const struct cei_machine *machine, const struct cei_nic_request *request,
		    struct cei_nic_choice *ret_choice)
{
	const char *named = request->named ? request->named : "";
	size_t n = strcspn(named, ",");

	memset(ret_choice, 0, sizeof(*ret_choice));
	ret_choice->nic = CEOV_NOBODY;
	if (machine && (!n || named[n]) && choose(machine, request, ret_choice))
		return;
	snprintf(ret_choice->device, sizeof(ret_choice->device), "%.*s", (int)n, named);
	if (n && !named[n])
		snprintf(ret_choice->why, sizeof(ret_choice->why), "it was named");
	else
		snprintf(ret_choice->why, sizeof(ret_choice->why), "%s%s",
			 n ? "the first that was named: " : "", why_none(machine, request));
}

/* --- what was left ------------------------------------------------------------------------- */

/* The first of the request's GPUs that the NIC suits, or CEOV_NOBODY. */
static uint32_t suited_gpu(const struct plan *plan, const struct cei_nic_request *request,
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
	return CEOV_NOBODY;
}

/* Why the NIC is not among the best of any of the request's GPUs: as seen from the one that it is
 * the least bad for. */
static void say_unsuited(const struct plan *plan, const struct cei_nic_request *request,
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
		snprintf(ret_why, CEI_NIC_WHY_BYTES, "no rank of the process is on a GPU");
		return;
	}
	rival = plan->assigned[best];
	snprintf(ret_why, CEI_NIC_WHY_BYTES, "GPU %u has %s, which is %s", best,
		 plan->machine->nics[rival].name,
		 plan->use[rival] > plan->use[nic] ? "an RDMA device"
		 : badness(plan, best, rival) < badness(plan, best, nic) ? "nearer"
		 : "as near, and more than twice as fast");
}

/* Why a NIC that suits the GPU is not the process's. */
static void say_spare(const struct plan *plan, const struct cei_nic_request *request,
		      uint32_t nic, uint32_t gpu, char *ret_why)
{
	uint32_t owner = owner_of(plan, nic), i, own;

	for (i = 0; i < request->n_gpus; i++) {
		own = request->gpus[i];
		if (own < plan->machine->n_gpus && plan->assigned[own] == nic)
			owner = gpu = own;
	}
	if (owner == CEOV_NOBODY)
		snprintf(ret_why, CEI_NIC_WHY_BYTES, "it is as near to GPU %u, but a process uses "
			 "one NIC", gpu);
	else if (owner == gpu)
		snprintf(ret_why, CEI_NIC_WHY_BYTES, "it is GPU %u's, but a process uses one NIC: "
			 "run a process for each GPU", gpu);
	else
		snprintf(ret_why, CEI_NIC_WHY_BYTES, "it is as near to GPU %u, but is GPU %u's, "
			 "which no rank of the process is on", gpu, owner);
}

int cei_nic_explain_left(const struct cei_machine *machine, const struct cei_nic_request *request,
			 const struct cei_nic_choice *choice, uint32_t nic,
			 char ret_why[CEI_NIC_WHY_BYTES])
{
	struct plan plan;
	uint32_t gpu;

	if (choice->nic == nic)
		return 0;
	make_plan(machine, request, &plan);
	gpu = suited_gpu(&plan, request, nic);
	if (plan.use[nic] == UNUSABLE)
		snprintf(ret_why, CEI_NIC_WHY_BYTES, "the transport cannot use it: it lacks what "
			 "that needs, or is down or has no address%s",
			 request->named ? "; or it was not named" : "");
	else if (gpu == CEOV_NOBODY)
		say_unsuited(&plan, request, nic, ret_why);
	else
		say_spare(&plan, request, nic, gpu, ret_why);
	return 1;
}
