/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TOPOLOGY_H
#define CEI_TOPOLOGY_H

/*
 * Facts about the machine: GPUs, where they sit, which reach each other, and what
 * moving bytes costs. Takes no decisions; read-only after opening.
 *
 *   T = t0 + bytes / rate
 */

#include <stdint.h>

#include "base/site.h"

#define CEI_TOPOLOGY_GPUS_MAX      64u
#define CEI_TOPOLOGY_BUS_ID_BYTES  16u

enum cei_link_kind {                         /* a kind of way for bytes */
	CEI_LINK_LOCAL,                 /* within one GPU, by its copy engine */
	CEI_LINK_PEER,                  /* GPU to GPU, directly */
	CEI_LINK_IN,                    /* host memory to a GPU */
	CEI_LINK_OUT,                   /* a GPU to host memory */
	CEI_LINK_HOST,                  /* host memory to host memory, one thread */
};

#define CEI_LINKS 5u

struct cei_link_cost {
	uint64_t t0_ns;                 /* of a copy with its mark, queued back to back */
	uint64_t bytes_per_s;
};

struct cei_topology_gpu {
	char     bus_id[CEI_TOPOLOGY_BUS_ID_BYTES];     /* PCI */
	uint32_t numa_node;             /* nearest; CEOV_NOBODY: not known */
	uint32_t n_copy_engines;
};

struct hwloc_topology;

struct cei_topology {
	uint32_t                n_gpus; /* that this process sees, by driver ordinal */
	struct cei_topology_gpu gpus[CEI_TOPOLOGY_GPUS_MAX];
	uint8_t                 peer[CEI_TOPOLOGY_GPUS_MAX][CEI_TOPOLOGY_GPUS_MAX];
					/* [a][b]: 1: a reaches b's memory */
	struct cei_link_cost    costs[CEI_LINKS];
	struct hwloc_topology  *hwloc;  /* NULL: the host side is not known */
};

int  cei_topology_open(struct cei_site *site, struct cei_topology **ret_topology);
void cei_topology_close(struct cei_topology *topology);

/* The time that moving n_bytes in one copy should take. */
uint64_t cei_topology_expected_ns(const struct cei_topology *topology,
				  enum cei_link_kind link, uint64_t n_bytes);

/* Binds the calling thread to the processors near the member's GPU, as far as they
 * are among those that the thread may use already. Members on the host, and
 * whatever cannot be found or bound, stay where they are. */
void cei_topology_pin(const struct cei_topology *topology, struct cei_site *site,
		      uint32_t member);

/* --- the sources, for topology.c ------------------------------------------------ */

/* discover_cuda.c (discover_absent.c in a build without): GPUs and peer access. */
int  cei_topology_discover_gpus(struct cei_topology *topology, struct cei_site *site);

/* discover_hwloc.c: the host side of the GPUs found. Failing is not an error. */
void cei_topology_discover_host(struct cei_topology *topology, struct cei_site *site);
void cei_topology_forget_host(struct cei_topology *topology);

#endif /* CEI_TOPOLOGY_H */
