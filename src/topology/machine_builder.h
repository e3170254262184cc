/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_BUILDER_H
#define CEI_MACHINE_BUILDER_H

/*
 * A machine while it is built, for machine_*.c alone. The steps in their order are: find GPUs,
 * nodes and NICs (machine_hwloc.c), read what files say of links (machine_import.c), add the
 * ports that links share in hwloc's tree (machine_ports.c), add the links (machine_links.c).
 */

#include <hwloc.h>

#include "topology/machine.h"

#define CEI_BUILDER_PLACES_MAX (CEI_MACHINE_GPUS_MAX + CEI_MACHINE_NODES_MAX)
#define CEI_BUILDER_UNSET    0xffu

/* What a machine file and the file beside it say of links. Indexes are numbers of places, as in
 * struct cei_machine. */
struct cei_machine_imported {
	uint8_t  kind[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX]; /* or CEI_BUILDER_UNSET */
	uint64_t bytes_per_s[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX]; /* 0: unset */

	/* Rates as the hardware is specified, of which copies reach only a part; 0: the file
	 * gives none. */
	uint64_t nvlink_bytes_per_s[CEI_BUILDER_PLACES_MAX][CEI_BUILDER_PLACES_MAX];
	uint64_t to_switch_bytes_per_s[CEI_MACHINE_GPUS_MAX];
};

struct cei_machine_builder {
	struct cei_report              *report;
	const char                     *where;  /* the file or the caller, named by error
						 * messages */
	struct cei_machine             *machine;
	const struct cei_machine_hints *hints;  /* the caller's hints, or file_hints, or NULL */
	int                             is_file;/* the tree came from a file, which may also
						 * describe links */
	char                           *measured;       /* the text of the file beside the machine's
							 * file; NULL: there is none */
	struct cei_machine_hints       *file_hints;     /* GPUs as that text lists them; owned;
							 * NULL: it has no such list */
	/* What the file says of links; owned; NULL if the caller gave hints of this machine. */
	struct cei_machine_imported    *imported;
	hwloc_obj_t gpus[CEI_MACHINE_GPUS_MAX];         /* PCI devices; NULL: the tree does not
							 * show the GPU */
	hwloc_obj_t nodes[CEI_MACHINE_NODES_MAX];       /* NULL where hwloc has no tree */
	hwloc_obj_t nics[CEI_MACHINE_NICS_MAX];         /* PCI devices */
};

/* Arguments of cei_machine_make(), which does what cei_machine_from_hwloc() does and takes a name
 * for error messages. hints NULL: the hints are those of the file that hwloc read. */
struct cei_machine_source {
	const char                     *where;
	struct hwloc_topology          *hwloc;
	const struct cei_machine_hints *hints;
	char                           *measured;       /* the text of the file beside the one that
							 * hwloc read, or NULL; it is changed */
};

int cei_machine_make(struct cei_report *report, const struct cei_machine_source *source,
		     struct cei_machine **ret_machine);

/* Copies text that others wrote into a field: drops leading spaces, replaces what is not printable
 * ASCII by '?', and cuts it to fit. */
void cei_builder_text(char *field, size_t n_bytes, const char *text);

/* Writes the PCI address of an object, "0000:19:00.0". field: at least 16 bytes. */
void cei_builder_bus_id(hwloc_obj_t object, char *field);

/* The rate that copies reach on the link of a PCI device or bridge; 0: not known. */
uint64_t cei_builder_pci_bytes_per_s(hwloc_obj_t object);

/* The PCI device that an object is, or to which it belongs; NULL: none. */
hwloc_obj_t cei_builder_pci_of(hwloc_obj_t object);

/* --- machine_import.c ------------------------------------------------------------------- */

/* Fills imported from hwloc's distances and the kinds of links in measured, once GPUs and nodes are
 * known. */
int cei_builder_import_links(struct cei_machine_builder *builder);

/* Writes the rates of imported into the links, all of which must have been added before, and then
 * what measured says of links and ports. */
int cei_builder_apply_imported(struct cei_machine_builder *builder);

/* --- measured.c --------------------------------------------------------------------------- */

/* Take the GPUs of the text in measured into file_hints and hints; its kinds of links into
 * imported; and what was measured into the machine. They do nothing where there is no text. */
int cei_builder_take_gpus(struct cei_machine_builder *builder);
int cei_builder_take_kinds(struct cei_machine_builder *builder);
int cei_builder_take_measured(struct cei_machine_builder *builder);

/* --- machine_ports.c ------------------------------------------------------------------ */

/* Adds the ports of GPUs and nodes, which exist with or without links. */
int cei_builder_add_ports(struct cei_machine_builder *builder);

/* Add to a link's path the ports between two points of the machine:
 *   path_up     from GPU a up the PCI tree, as far as the tree does not lead to GPU b as well
 *   path_down   the same ports in the other direction, down to GPU b; a is where the copy begins
 *   path_far    between the packages of two NUMA nodes, given by index or CEOV_NOBODY
 *   path_named  the port with the given name, which is added with its rate if it is new
 * If the other GPU is CEOV_NOBODY, the path leads up to or down from the root of the tree.
 * CEOV_ERR_INVALID, raised: the link or the machine has no room for the ports. */
int cei_builder_path_up(struct cei_machine_builder *builder, struct cei_machine_link *link,
			uint32_t a, uint32_t b);
int cei_builder_path_down(struct cei_machine_builder *builder, struct cei_machine_link *link,
			  uint32_t a, uint32_t b);
int cei_builder_path_far(struct cei_machine_builder *builder, struct cei_machine_link *link,
			 uint32_t from_node, uint32_t to_node);
int cei_builder_path_named(struct cei_machine_builder *builder, struct cei_machine_link *link,
			   const struct cei_machine_port *port);

/* How near a GPU and a NIC are to each other. */
enum cei_machine_distance cei_builder_distance(const struct cei_machine_builder *builder,
					       uint32_t gpu, uint32_t nic);

/* --- machine_links.c ------------------------------------------------------------------ */

/* Adds the links between all places, each with its kind, its ports and its default cost. */
int cei_builder_add_links(struct cei_machine_builder *builder);

#endif /* CEI_MACHINE_BUILDER_H */
