/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_BUILDER_H
#define CEI_MACHINE_BUILDER_H

/*
 * A machine while it is built, for machine_*.c alone. The steps in their order: what exists
 * (machine_hwloc.c), what the file says of links (machine_import.c), the ports that links
 * of the tree share (machine_ports.c), the links themselves (machine_links.c).
 */

#include <hwloc.h>

#include "topology/machine.h"

#define CEI_BUILDER_PLACES_MAX (CEI_MACHINE_GPUS_MAX + CEI_MACHINE_NODES_MAX)
#define CEI_BUILDER_UNSET    0xffu
#define CEI_BUILDER_NO_T0    UINT64_MAX

/* What a machine file says beyond hwloc's tree. Indexed by places, in the order of the
 * machine. */
struct cei_machine_imported {
	uint8_t  kind[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX]; /* or CEI_BUILDER_UNSET */
	uint8_t  origin[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX]; /* or CEI_BUILDER_UNSET */
	uint64_t bytes_per_s[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX]; /* 0: unset */
	uint64_t t0_ns[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX]; /* or CEI_BUILDER_NO_T0 */

	/* Rates as the hardware is specified, of which a copy gets only a part; 0: none. */
	uint64_t nvlink_bytes_per_s[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX];
	uint64_t to_switch_bytes_per_s[CEI_MACHINE_GPUS_MAX];
};

struct cei_machine_builder {
	struct cei_report              *report;
	const char                     *where;  /* the file or the caller, named by error
						 * messages */
	struct cei_machine             *machine;
	const struct cei_machine_hints *hints;  /* the caller's hints, or the file's, or NULL */
	int                             is_file;/* the tree came from a file, with its links */
	struct cei_machine_hints       *file_hints;     /* owned; NULL: the file has none */
	struct cei_machine_imported    *imported;       /* owned; NULL: the hints are of this
							 * machine */
	hwloc_obj_t gpus[CEI_MACHINE_GPUS_MAX];         /* PCI devices; NULL: not there */
	hwloc_obj_t nodes[CEI_MACHINE_NODES_MAX];       /* NULL where hwloc has no tree */
	hwloc_obj_t nics[CEI_MACHINE_NICS_MAX];         /* PCI devices */
};

/* Arguments of cei_machine_make(), which is cei_machine_from_hwloc() with a name for error
 * messages. hints NULL: those of the file that hwloc read. */
struct cei_machine_source {
	const char                     *where;
	struct hwloc_topology          *hwloc;
	const struct cei_machine_hints *hints;
};

int cei_machine_make(struct cei_report *report, const struct cei_machine_source *source,
		     struct cei_machine **ret_machine);

/* Copies text that others wrote into a field: drops leading spaces, replaces what is not printable
 * ASCII by '?', and cuts it to fit. */
void cei_builder_text(char *field, size_t n_bytes, const char *text);

/* Writes the PCI address of an object, "0000:19:00.0". field: at least 16 bytes. */
void cei_builder_bus_id(hwloc_obj_t object, char *field);

/* The rate that copies reach on a PCI device's or bridge's link; 0: not known. */
uint64_t cei_builder_pci_bytes_per_s(hwloc_obj_t object);

/* The PCI device that an object is or belongs to; NULL: none. */
hwloc_obj_t cei_builder_pci_of(hwloc_obj_t object);

/* The PCI device of that address. For a part of a GPU (MIG, a virtual function) that the
 * tree does not show, the GPU's. NULL: none. */
hwloc_obj_t cei_builder_find_gpu(hwloc_topology_t hwloc, const char *bus_id);

/* --- machine_import.c ------------------------------------------------------------------- */

/* Imports the list of GPUs from a file of ours into file_hints and hints. */
int cei_builder_import_gpus(struct cei_machine_builder *builder);

/* Fills imported from the file's distances and infos, once GPUs and nodes are known. */
int cei_builder_import_links(struct cei_machine_builder *builder);

/* Takes the file's costs into the links, which all exist by then, and adds its ports. */
int cei_builder_apply_imported(struct cei_machine_builder *builder);

/* machine_export.c: writes the same data into a copy of the machine's tree. 0, or an error
 * raised with `where`. */
int cei_machine_export(struct cei_report *report, const struct cei_machine *machine,
		       hwloc_topology_t hwloc, const char *where);

/* --- machine_ports.c ------------------------------------------------------------------ */

/* Adds the ports of GPUs and nodes, which exist with or without links. */
int cei_builder_add_ports(struct cei_machine_builder *builder);

/* Adds to a link's path the ports ...
 *   gpu_up     from GPU a up the tree, as far as it does not lead to b as well
 *   gpu_down   the same down to GPU b
 *   far        between the packages of two nodes (indices or CEOV_NOBODY)
 *   named      of that name, which is added with the rate where it is new
 * b CEOV_NOBODY: to the root. CEOV_ERR_INVALID, raised: more than there is room for. */
int cei_builder_path_up(struct cei_machine_builder *builder, struct cei_machine_link *link,
			uint32_t a, uint32_t b);
int cei_builder_path_down(struct cei_machine_builder *builder, struct cei_machine_link *link,
			  uint32_t a, uint32_t b);
int cei_builder_path_far(struct cei_machine_builder *builder, struct cei_machine_link *link,
			 uint32_t from_node, uint32_t to_node);
int cei_builder_path_named(struct cei_machine_builder *builder, struct cei_machine_link *link,
			   const struct cei_machine_port *port);

/* How near a GPU and a NIC are. */
enum cei_machine_distance cei_builder_distance(const struct cei_machine_builder *builder,
					       uint32_t gpu, uint32_t nic);

/* --- machine_links.c ------------------------------------------------------------------ */

int cei_builder_add_links(struct cei_machine_builder *builder);

#endif /* CEI_MACHINE_BUILDER_H */
