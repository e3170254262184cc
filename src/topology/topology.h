/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TOPOLOGY_H
#define CEI_TOPOLOGY_H

/*
 * Facts about the machine: its GPUs, where they are attached, which reach each other, and what
 * moving bytes costs. Takes no decisions; read-only after opening.
 */

#include <stdint.h>

#include "base/site.h"
#include "topology/machine.h"

#define CEI_TOPOLOGY_GPUS_MAX      64u
#define CEI_TOPOLOGY_BUS_ID_BYTES  16u

struct cei_topology_gpu {
	char     bus_id[CEI_TOPOLOGY_BUS_ID_BYTES];     /* PCI */
	uint32_t numa_node;             /* nearest, its os_index; CEOV_NOBODY: not known */
	uint32_t n_copy_engines;
};

struct cei_topology {
	uint32_t                n_gpus; /* that this process sees, by driver ordinal */
	struct cei_topology_gpu gpus[CEI_TOPOLOGY_GPUS_MAX];
	uint8_t                 peer[CEI_TOPOLOGY_GPUS_MAX][CEI_TOPOLOGY_GPUS_MAX];
					/* [a][b]: 1: a reaches b's memory */
	struct cei_machine     *machine;
					/* places, links and ports; its GPU i is the driver's
					 * GPU i. NULL: the context is on host memory alone,
					 * or the machine cannot be read: then costs are
					 * link.h's defaults */
};

/* Reads the machine where a member is on a GPU, in tens of milliseconds. Where it cannot be
 * read a warning says so, and costs are the defaults of link.h.
 *
 * CEOVERLAP_MACHINE names an XML file that is used instead of this machine, also without
 * GPUs. CEOV_ERR_INVALID, raised: it cannot be read, or has fewer GPUs than the members
 * use. */
int  cei_topology_open(struct cei_site *site, struct cei_topology **ret_topology);
void cei_topology_close(struct cei_topology *topology);

/* Reads the machine that this process runs on, for tools without ranks, with the costs that were
 * measured here before; the second function leaves these out. Opens the driver and closes it again;
 * creates no context on a GPU. */
int  cei_machine_open_live(struct cei_report *report, struct cei_machine **ret_machine);
int  cei_machine_open_unmeasured(struct cei_report *report,
				 struct cei_machine **ret_machine);

/* Binds the calling thread to the processors near the member's GPU, as far as they
 * are among those that the thread may use already. Members on the host, and
 * whatever cannot be found or bound, stay where they are. */
void cei_topology_pin(const struct cei_topology *topology, struct cei_site *site,
		      uint32_t member);

/* From the hold to its release, memory that the calling thread allocates comes from the
 * NUMA node of a host place. NULL: from anywhere, because there is only one node, or
 * binding is not possible. */
struct cei_memory_hold;

struct cei_memory_hold *cei_topology_hold_memory(const struct cei_topology *topology,
						 uint32_t place);
void cei_topology_release_memory(struct cei_memory_hold *hold);

/* --- the sources, for topology.c ------------------------------------------------ */

/* discover_cuda.c (discover_absent.c in a build without CUDA): the first function finds GPUs and
 * peer access; the second returns them as hints, with what NVML adds; n_gpus is 0 without a driver.
 * The third returns the version of CUDA that the driver supports, 1000 major + 10 minor; 0: no
 * driver. */
int  cei_topology_discover_gpus(struct cei_topology *topology, struct cei_site *site);
int  cei_machine_hints_from_driver(struct cei_site *site,
				   struct cei_machine_hints *ret_hints);
uint32_t cei_topology_cuda_version(const struct cei_site *site);

/* discover_nvml.c: adds the NVLinks of hinted GPUs. Without NVML hints stay as they are. */
void cei_machine_hints_from_nvml(struct cei_report *report, struct cei_machine_hints *hints);

/* discover_hwloc.c: this machine with PCI devices, bridges and NICs, for
 * cei_machine_from_hwloc(); NULL: hwloc cannot read it, which is logged. */
struct hwloc_topology *cei_topology_load_hwloc(struct cei_report *report);

#endif /* CEI_TOPOLOGY_H */
