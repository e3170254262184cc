/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_H
#define CEI_MACHINE_H

/*
 * A machine as data: its GPUs, NUMA nodes and NICs, where each is attached, the links between
 * places, the cost of each link, and the ports that links share. It may be the machine that we run
 * on or one that a file describes. Takes no decisions; read-only once it is made.
 *
 * Places are the memories that bytes move between: GPUs first, then the NUMA nodes of
 * the host:
 *
 *   place i < n_gpus             GPU i's memory, and its copy engines
 *   place n_gpus + j             host memory of node j
 *
 * A link is the direct path of one copy from a place to another. A port is one direction
 * of something that several links have to share: a GPU's way into the NVLink switch, a
 * PCIe link of a device or of a switch, the way between two packages.
 */

#include <stdint.h>

#include "base/report.h"
#include "topology/link.h"

#define CEI_MACHINE_GPUS_MAX   64u
#define CEI_MACHINE_NODES_MAX  64u
#define CEI_MACHINE_NICS_MAX   64u
#define CEI_MACHINE_PORTS_MAX  2048u
#define CEI_MACHINE_NAME_BYTES 64u

struct hwloc_topology;

struct cei_machine_port {
	char     name[CEI_MACHINE_NAME_BYTES];  /* "GPU 3 NVLink in", "0000:15:00.0 up" */
	uint64_t bytes_per_s;           /* total of all links over this port */
	uint8_t  origin;                /* enum cei_machine_origin, of bytes_per_s */
	uint8_t  is_added;              /* found by a measurement, not read from the tree */
};

struct cei_machine_gpu {
	char     name[CEI_MACHINE_NAME_BYTES];  /* "NVIDIA H200"; "" where it is not known */
	char     bus_id[16];            /* PCI, "0000:19:00.0"; "": not known */
	uint32_t node;                  /* the nearest NUMA node, an index into
					 * cei_machine.nodes; CEOV_NOBODY: not known */
	uint32_t n_copy_engines;        /* 0: not known */
	uint32_t n_nvlinks;             /* 0: none or not known */
	int      is_coherent;           /* reaches host memory coherently over C2C (Grace) */
	uint64_t nvlink_bytes_per_s;    /* of one NVLink in one direction, as specified;
					 * 0: not known */
	int      is_on_switch;          /* its NVLinks end at switches */
};

struct cei_machine_node {
	uint32_t os_index;              /* the operating system's number of the NUMA node */
	uint32_t package;               /* the operating system's number of the processor
					 * package; CEOV_NOBODY: none */
	int      is_gpu_memory;         /* a NUMA node that is a GPU's own memory */
};

struct cei_machine_nic {
	char     name[CEI_MACHINE_NAME_BYTES];  /* "mlx5_0", "eth0" */
	char     net_name[CEI_MACHINE_NAME_BYTES];      /* of its net device, the first if it has
							 * several; "": none */
	char     bus_id[16];
	uint32_t node;                  /* the nearest NUMA node, an index into
					 * cei_machine.nodes; CEOV_NOBODY: not known */
	int      is_rdma;               /* 1: an OpenFabrics device; 0: a plain net device */
	uint64_t bytes_per_s;           /* of the NIC's PCIe link; 0: not known */
};

/* How near two PCI devices are, nearest first. NCCL calls these PIX, PXB, PHB or NODE, and SYS. */
enum cei_machine_distance {
	CEI_MACHINE_SAME_SWITCH,        /* below one PCI switch (one bridge between) */
	CEI_MACHINE_SAME_TREE,          /* below one host bridge, several switches */
	CEI_MACHINE_SAME_NODE,
	CEI_MACHINE_SAME_PACKAGE,
	CEI_MACHINE_FAR,
	CEI_MACHINE_UNKNOWN,            /* the system does not report where one of the two is
					 * attached */
};

struct cei_machine {
	char     name[CEI_MACHINE_NAME_BYTES];  /* of the host or of the file; only for display */
	char     driver[32];            /* version of the GPUs' driver, "580.159"; "": no GPU
					 * driver, or not known */
	uint64_t hash;                  /* of the machine's parts and where they are attached, but
					 * not of costs or the host's name: equal machines
					 * have equal hashes */
	uint32_t n_gpus;
	uint32_t n_nodes;
	uint32_t n_nics;
	uint32_t n_ports;
	int      has_nvswitch;
	struct cei_machine_gpu   gpus[CEI_MACHINE_GPUS_MAX];
	struct cei_machine_node  nodes[CEI_MACHINE_NODES_MAX];
	struct cei_machine_nic   nics[CEI_MACHINE_NICS_MAX];
	struct cei_machine_port  ports[CEI_MACHINE_PORTS_MAX];
	/* enum cei_machine_distance between a GPU and a NIC */
	uint8_t  nic_distance[CEI_MACHINE_GPUS_MAX][CEI_MACHINE_NICS_MAX];
	struct cei_machine_link *links; /* [from * n_places + to]; owned */
	struct hwloc_topology   *hwloc; /* the tree that the machine was made from; owned; may be
					 * NULL */
};

static inline uint32_t cei_machine_n_places(const struct cei_machine *machine)
{
	return machine->n_gpus + machine->n_nodes;
}

static inline uint32_t cei_machine_host_place(const struct cei_machine *machine, uint32_t node)
{
	return machine->n_gpus + node;
}

static inline int cei_machine_is_gpu(const struct cei_machine *machine, uint32_t place)
{
	return place < machine->n_gpus;
}

/* The link between two places; from and to are numbers of places of the machine. */
static inline const struct cei_machine_link *
cei_machine_link(const struct cei_machine *machine, uint32_t from, uint32_t to)
{
	return &machine->links[from * cei_machine_n_places(machine) + to];
}

/* The direction of a copy from one place to another. */
enum cei_direction cei_machine_direction(const struct cei_machine *machine, uint32_t from,
					 uint32_t to);

const char *cei_machine_distance_name(enum cei_machine_distance distance);

/* Writes "gpu3" or "node0" into text, which has at least 16 bytes, and returns text. */
const char *cei_machine_place_name(const struct cei_machine *machine, uint32_t place,
				   char *text);

/* Whether the GPU and each other GPU reach each other's memory directly. 0 also if there is no such
 * GPU. */
int cei_machine_reaches_all(const struct cei_machine *machine, uint32_t gpu);

/* Whether bytes go by NVLink between the GPU and each other GPU, in both directions. 0 also if
 * there is no such GPU, or no other one. */
int cei_machine_nvlinks_all(const struct cei_machine *machine, uint32_t gpu);

/* The lowest rate of the GPU's links to other GPUs. 0: it has no such link, or there is no such
 * GPU. */
uint64_t cei_machine_peer_rate(const struct cei_machine *machine, uint32_t gpu);

/* The longest t0 of the GPU's links to other GPUs. 0: not known, because not all of them were
 * measured, or there is none. */
uint64_t cei_machine_peer_t0(const struct cei_machine *machine, uint32_t gpu);

/* The place of the NUMA node nearest to a GPU; the first node's place if that is not known. */
uint32_t cei_machine_near_host(const struct cei_machine *machine, uint32_t gpu);

/* Frees the machine and what it owns. NULL is allowed. */
void cei_machine_destroy(struct cei_machine *machine);

/* --- what the driver knows beside the tree (discover_cuda.c, discover_nvml.c) ------ */

/* One GPU as the driver and NVML report it; the fields mean the same as in cei_machine_gpu. */
struct cei_machine_hint_gpu {
	char     name[CEI_MACHINE_NAME_BYTES];
	char     bus_id[16];
	uint32_t n_copy_engines;
	uint32_t n_nvlinks;             /* NVLinks that are up; 0: none or not known */
	uint64_t nvlink_bytes_per_s;    /* of one link and direction, 0: not known */
	int      is_on_switch;          /* its links end at switches */
	int      is_coherent;
};

struct cei_machine_hints {
	uint32_t n_gpus;
	struct cei_machine_hint_gpu gpus[CEI_MACHINE_GPUS_MAX];
	/* [a][b] is 1 if GPU a can copy to GPU b's memory directly. */
	uint8_t  peer[CEI_MACHINE_GPUS_MAX][CEI_MACHINE_GPUS_MAX];
	/* [a][b] is the number of NVLinks that lead from GPU a to GPU b without a switch. */
	uint8_t  n_direct[CEI_MACHINE_GPUS_MAX][CEI_MACHINE_GPUS_MAX];
};

/* --- making a machine from a tree (machine_hwloc.c) -----------------------------------
 *
 * Makes a machine from hwloc's tree and, if hints are given, from what the driver reports. The
 * function takes ownership of hwloc, and destroys it on failure, too.
 *
 * If hints is NULL, the GPUs are those that the tree's XML lists, or else NVIDIA's PCI devices
 * with a display or 3D class, in PCI order; links are those that the XML keeps. With hints the
 * machine has exactly the hinted GPUs in their order, and one that the tree does not show is
 * attached nowhere. If hwloc is NULL, the machine has one node and no tree.
 *
 * CEOV_ERR_INVALID, raised: there are more GPUs, nodes, NICs or ports than there is room for. */
int cei_machine_from_hwloc(struct cei_report *report, struct hwloc_topology *hwloc,
			   const struct cei_machine_hints *hints,
			   struct cei_machine **ret_machine);

/* Tells hwloc which devices a machine consists of (bridges, PCI devices, NICs). The topology must
 * be initialised and not yet loaded. CEOV_ERR_SYSTEM, not raised: hwloc refused. */
int cei_machine_set_filters(struct hwloc_topology *hwloc);

/* --- files (machine_xml.c) -----------------------------------------------------------
 *
 * Machine files are hwloc's XML, which lstopo can show; hwloc reads and writes them, and trusts
 * what it reads. What it refuses is refused with one line that names the file and, where it is in
 * the format of another hwloc, the one that is needed. What hwloc does not know of GPUs and links
 * is in the file "<path>.measured" beside it (below), which is written, too, and read where it
 * is. */
int cei_machine_read_xml(struct cei_report *report, const char *path,
			 struct cei_machine **ret_machine);
int cei_machine_write_xml(struct cei_report *report, const struct cei_machine *machine,
			  const char *path);

/* Sets one link's measured cost. Ports of the link that are narrower than the new rate become as
 * wide as the rate. */
void cei_machine_set_measured(struct cei_machine *machine, uint32_t from, uint32_t to,
			      uint64_t bytes_per_s, uint64_t t0_ns);

/* --- measured bandwidth that links share (measured.c) ------------------- */

struct cei_machine_pair {
	uint32_t from;                  /* number of a place */
	uint32_t to;                    /* number of a place */
};

struct cei_shared_bandwidth {
	const char *name;               /* of the port */
	uint64_t    bytes_per_s;        /* total of all pairs when they copy at once */
	uint32_t    n_pairs;
	const struct cei_machine_pair *pairs;   /* the pairs whose links go over the port */
};

/* Sets the measured rate of the port with the given name. If the machine has no such port, adds
 * it to the links of the pairs. The port's rate is never set below what one of its links carries
 * alone. CEOV_FULL (not raised): the machine, or one of the links, has no room for another port.
 * CEOV_ERR_INVALID (not raised): the rate is 0, the name is empty or too long, or a pair names a
 * place that does not exist. */
int cei_machine_set_shared_bandwidth(struct cei_machine *machine,
				     const struct cei_shared_bandwidth *shared);

/* Writes one measured port as text, and reads it back. The text names devices by bus id and
 * nodes by their os_index, so it means the same when the order of places changes:
 *
 *   172000000000 n0>0000:19:00.0,n0>0000:3b:00.0 host out 0
 *
 * that is bytes per second, pairs of places, and the port's name. Pairs are written only for ports
 * that a measurement added, and are "-" for others. Writing returns CEOV_FULL if text has no room,
 * and CEOV_NONE if the port was not measured. Reading returns CEOV_ERR_INVALID (not raised), and
 * leaves the machine unchanged, if the text is no such line or names something that the machine
 * does not have. */
#define CEI_MACHINE_PORT_TEXT_BYTES 8192u
int cei_machine_port_to_text(const struct cei_machine *machine, uint32_t port,
			     char text[CEI_MACHINE_PORT_TEXT_BYTES]);
int cei_machine_port_from_text(struct cei_machine *machine, const char *text);

/* --- the file of what was measured (measured.c, measured_read.c) -----------------
 *
 * Text, one fact a line:
 *
 *   ceoverlap-measured 1
 *   machine 0c1f5e0a9b8d7c6e 580.159
 *   gpu 0000:19:00.0 3 18 26562000000 1 0 NVIDIA H200
 *   kind 0000:19:00.0 0000:3b:00.0 0 NVSwitch
 *   link n0 0000:19:00.0 55000000000 4012
 *   port 172000000000 n0>0000:19:00.0,n0>0000:3b:00.0 host out 0
 *   end
 *
 * The machine is its hash ("-": any) and the driver's version ("-": none). A GPU is what a hint has
 * of it; where there are GPUs, the machine has these. A kind is of the link between two places,
 * with the bytes a second of an NVLink (0: not known). A link is a measured one: bytes a second and
 * the nanoseconds of t0. Places are named as in ports. */
#define CEI_MEASURED_SUFFIX    ".measured"      /* of the file's name */
#define CEI_MEASURED_VERSION   "ceoverlap-measured 1"
#define CEI_MEASURED_BYTES_MAX (UINT64_C(16) << 20)
#define CEI_MEASURED_RATE_MAX  UINT64_C(1000000000000000)       /* 1 PB/s: nonsense above */
#define CEI_MEASURED_PAIRS_MAX 1024u                            /* of one port */
#define CEI_MEASURED_PLACE_BYTES 24u                            /* of a name, with its NUL */

/* The port with this name; the first GPU with this address, which parts of one GPU (MIG) share.
 * CEOV_NOBODY: none. */
uint32_t cei_machine_find_port(const struct cei_machine *machine, const char *name);
uint32_t cei_machine_find_gpu(const struct cei_machine *machine, const char *bus_id);

/* Returns the text, with a NUL behind it; the caller frees it. CEOV_FULL (not raised): more links
 * share a port than a line can name. CEOV_ERR_NO_MEMORY (not raised). */
int cei_machine_measured_text(const struct cei_machine *machine, char **ret_text,
			      uint64_t *ret_n_bytes);

/* Takes the costs in a text, which it changes, into machine, and the driver's version if machine
 * has none. CEOV_ERR_INVALID, raised with `where` and the line: it is no such text, or of another
 * machine or driver, and machine is unchanged. */
int cei_machine_take_measured(struct cei_report *report, struct cei_machine *machine,
			      const char *where, char *text);

#endif /* CEI_MACHINE_H */
