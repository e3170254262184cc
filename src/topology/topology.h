/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TOPOLOGY_H
#define CEI_TOPOLOGY_H

/*
 * What the library knows of the machine: its GPUs, where each is attached, which reach each other,
 * and what moving bytes costs. Nothing changes after opening, and no decisions are made here.
 */

#include <stdint.h>

#include "base/site.h"
#include "topology/machine.h"

#define CEI_TOPOLOGY_GPUS_MAX      64u
#define CEI_TOPOLOGY_BUS_ID_BYTES  16u

struct cei_topology_gpu {
	char     bus_id[CEI_TOPOLOGY_BUS_ID_BYTES];     /* PCI address */
	uint32_t n_copy_engines;
};

struct cei_topology {
	uint32_t                n_gpus; /* GPUs that this process sees */
	struct cei_topology_gpu gpus[CEI_TOPOLOGY_GPUS_MAX];    /* by the driver's ordinal */
	/* [a][b] is 1 if GPU a can reach GPU b's memory. */
	uint8_t                 peer[CEI_TOPOLOGY_GPUS_MAX][CEI_TOPOLOGY_GPUS_MAX];
	/* Places, links and ports; GPU i of the machine is GPU i of the driver. NULL if all members
	 * are on host memory, or if the machine cannot be read: then costs are link.h's
	 * defaults. */
	struct cei_machine     *machine;
};

/* Reads the machine, which takes tens of milliseconds, if a member is on a GPU. If it cannot be
 * read, a warning says so, and costs are the defaults of link.h.
 *
 * CEOVERLAP_MACHINE names an XML file that is used instead of this machine, also if no member is on
 * a GPU. CEOV_ERR_INVALID, raised: the file cannot be read, or describes fewer GPUs than the
 * members use. */
int  cei_topology_open(struct cei_site *site, struct cei_topology **ret_topology);
void cei_topology_close(struct cei_topology *topology);

/* Read the machine that this process runs on, for tools without ranks. The first function adds
 * the costs that were measured on this machine before (machine_cache.h); the second does not. Both
 * open the driver and close it again, and create no context on a GPU. */
int  cei_machine_open_live(struct cei_report *report, struct cei_machine **ret_machine);
int  cei_machine_open_unmeasured(struct cei_report *report,
				 struct cei_machine **ret_machine);

/* Binds the calling thread to the processors near the member's GPU, as far as the thread may use
 * them already. The thread stays where it is if the member is on host memory, or if the
 * processors cannot be found or the thread not bound. */
void cei_topology_pin(const struct cei_topology *topology, struct cei_site *site,
		      uint32_t member);

/* cei_topology_hold_memory() makes memory that the calling thread allocates come from the NUMA node
 * of a host place, until cei_topology_release_memory(). It returns NULL if memory still comes from
 * any node, because there is only one node, or because binding is not possible. */
struct cei_memory_hold;

struct cei_memory_hold *cei_topology_hold_memory(const struct cei_topology *topology,
						 uint32_t place);
void cei_topology_release_memory(struct cei_memory_hold *hold);

/* --- where topology.c gets its facts from ---------------------------------------- */

/* discover_cuda.c, or discover_absent.c in a build without CUDA. cei_topology_discover_gpus() finds
 * GPUs and peer access. cei_machine_hints_from_driver() returns these as hints, with what NVML
 * adds; without a driver n_gpus is 0. cei_topology_cuda_version() returns the version of CUDA that
 * the driver supports as 1000 * major + 10 * minor; 0: no driver. */
int  cei_topology_discover_gpus(struct cei_topology *topology, struct cei_site *site);
int  cei_machine_hints_from_driver(struct cei_site *site,
				   struct cei_machine_hints *ret_hints);
uint32_t cei_topology_cuda_version(const struct cei_site *site);

/* discover_nvml.c: adds the NVLinks of the hinted GPUs. Without NVML the hints stay unchanged. */
void cei_machine_hints_from_nvml(struct cei_report *report, struct cei_machine_hints *hints);

/* discover_hwloc.c: reads this machine with PCI devices, bridges and NICs, as input of
 * cei_machine_from_hwloc(). NULL: hwloc cannot read it, which is logged. */
struct hwloc_topology *cei_topology_load_hwloc(struct cei_report *report);

#endif /* CEI_TOPOLOGY_H */
