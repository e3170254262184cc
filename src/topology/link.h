/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LINK_H
#define CEI_LINK_H

/*
 * The direct link of one copy: its direction, its kind and its cost. Routes, lanes,
 * explanations, the scheduler and the simulator take directions and costs from here.
 */

#include <stdint.h>

/* From which kind of memory to which a copy goes. */
enum cei_direction {
	CEI_DIRECTION_PEER,             /* from one GPU to another */
	CEI_DIRECTION_IN,               /* from host memory to a GPU */
	CEI_DIRECTION_OUT,              /* from a GPU to host memory */
	CEI_DIRECTION_LOCAL,            /* within one GPU's memory */
	CEI_DIRECTION_HOST,             /* from host memory to host memory, by a thread */
	CEI_DIRECTION_ANY,              /* any of the above: the direction of a lane that waits
					 * for marks */
};

/* Each GPU has this many lanes that never wait for marks: one for each of the first three
 * directions. See cei_direction_lane(). */
#define CEI_DIRECTION_LANES 3u

/* Which of the lanes that never wait carries copies of the direction; LOCAL and HOST share the
 * lane of PEER. The result is less than CEI_DIRECTION_LANES. */
static inline enum cei_direction cei_direction_lane(enum cei_direction direction)
{
	return direction < CEI_DIRECTION_LANES ? direction : CEI_DIRECTION_PEER;
}

const char *cei_direction_name(enum cei_direction direction);

/* The hardware of a link. Machine files store the names. */
enum cei_machine_link_kind {
	CEI_MACHINE_NONE,               /* no copy goes directly */
	CEI_MACHINE_SELF,               /* within one memory */
	CEI_MACHINE_NVSWITCH,           /* GPU to GPU through NVLink switches */
	CEI_MACHINE_NVLINK,             /* GPU to GPU by NVLinks without a switch */
	CEI_MACHINE_PCIE,               /* GPU to GPU over PCIe */
	CEI_MACHINE_HOST,               /* GPU to host memory or back, over PCIe */
	CEI_MACHINE_C2C,                /* GPU to host memory or back, over a coherent
					 * chip-to-chip link */
	CEI_MACHINE_NODES,              /* between NUMA nodes, copied by processor cores */
};

enum cei_machine_origin {               /* where a link's cost comes from */
	CEI_MACHINE_DEFAULT,            /* the default of the link's kind */
	CEI_MACHINE_REPORTED,           /* from widths and counts that the system reports */
	CEI_MACHINE_MEASURED,
};

#define CEI_MACHINE_PATH_MAX 16u        /* ports on one link */

/* The cost of a link: one copy that shares no port with another takes t0 + bytes / rate. */
struct cei_machine_link {
	uint8_t  kind;                  /* enum cei_machine_link_kind */
	uint8_t  origin;                /* enum cei_machine_origin */
	uint8_t  n_ports;
	uint64_t bytes_per_s;           /* 0 only for NONE */
	uint64_t t0_ns;
	uint16_t ports[CEI_MACHINE_PATH_MAX];   /* ascending, without duplicates */
};

/* How long one copy of n_bytes should take while nothing else uses the link's ports; UINT64_MAX
 * if the link is of kind CEI_MACHINE_NONE. */
uint64_t cei_machine_link_ns(const struct cei_machine_link *link, uint64_t n_bytes);

/* The default cost of a link of that direction (not ANY), for links that no machine
 * describes. It has no ports. */
const struct cei_machine_link *cei_link_default(enum cei_direction direction);

const char *cei_machine_link_kind_name(enum cei_machine_link_kind kind);
const char *cei_machine_origin_name(enum cei_machine_origin origin);

#endif /* CEI_LINK_H */
