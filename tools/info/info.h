/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef INFO_H
#define INFO_H

/*
 * ceoverlap-info prints the hardware of a machine and how ceoverlap would use it, a section after
 * the other, as text or as parts of a JSON object.
 *
 * Names in a machine may come from an untrusted file: they pass info_plain() before they reach a
 * terminal or JSON.
 */

#include <stdint.h>
#include <stdio.h>

#include <json-c/json.h>

#include "base/report.h"
#include "topology/machine.h"

#define INFO_BUS_ID_BYTES 16u           /* "0000:19:00.0" */

enum info_section {
	INFO_MACHINE  = 1u << 0,
	INFO_LINKS    = 1u << 1,
	INFO_PORTS    = 1u << 2,
	INFO_AFFINITY = 1u << 3,
	INFO_ROUTES   = 1u << 4,
	INFO_SETTINGS = 1u << 5,
	INFO_BUILD    = 1u << 6,
};

/* Sections that need the machine. */
#define INFO_OF_MACHINE \
	(INFO_MACHINE | INFO_LINKS | INFO_PORTS | INFO_AFFINITY | INFO_ROUTES | INFO_SETTINGS)

struct info {
	uint32_t            sections;
	const char         *xml_path;   /* path of a machine's file; NULL: the machine this runs
					 * on */
	int                 is_told;    /* xml_path comes from CEOVERLAP_MACHINE */
	const char         *export_path;
	const char         *route;      /* "gpu0:gpu1"; NULL: every pair */
	uint64_t            route_bytes;
	uint8_t             rule;       /* enum cei_route_rule for the routes section */
	int                 as_json;
	struct cei_report   report;
	struct cei_machine *machine;    /* owned here; NULL if no section needs it */
};

/* --- formatting of names and values (words.c) -------------------------------- */

/* Copies text into room with all bytes that are not printable ASCII replaced; text and room may be
 * the same memory. Returns room. */
const char *info_plain(const char *text, char *room, size_t n_bytes);

/* Formats the name of a GPU's place: "gpu3"; "-" for CEOV_NOBODY. room: 16 bytes. */
const char *info_gpu_name(uint32_t gpu, char *room);

/* Add a text with unprintable bytes replaced, or a number. */
void info_add_text(struct json_object *object, const char *key, const char *text);
void info_add_number(struct json_object *object, const char *key, uint64_t number);

/* The same for rows of cells, whose lines are indented: a text, which is "-" in the table if it is
 * empty, and a place. info_cells_end() prints the row, unless out is NULL, and adds it to the
 * list. */
struct cells;
void info_cells_begin(struct cells *cells);
void info_cells_text(struct cells *cells, const char *key, const char *column, const char *text);
void info_cells_node(struct cells *cells, const char *key, const char *column, uint32_t node);
void info_cells_end(struct cells *cells, FILE *out, struct json_object *list);

/* --- facts from hwloc's tree (tree.c) ---------------------------------------- */

/* Returns the current raw rate of a device's PCIe link in GB/s; 0: not known. */
double info_pcie_gb_per_s(const struct cei_machine *machine, const char *bus_id);

/* Returns the size of a NUMA node's memory; 0: not known. */
uint64_t info_memory_bytes(const struct cei_machine *machine, uint32_t node);

/* The PCI switches above GPUs and NICs, each listed once. */
#define INFO_SWITCHES_MAX (CEI_MACHINE_GPUS_MAX + CEI_MACHINE_NICS_MAX)

struct info_switches {
	uint32_t n;
	char     bus_ids[INFO_SWITCHES_MAX][INFO_BUS_ID_BYTES];
	uint8_t  of_gpu[CEI_MACHINE_GPUS_MAX];          /* index in this list, or INFO_NO_SWITCH */
	uint8_t  of_nic[CEI_MACHINE_NICS_MAX];
};

#define INFO_NO_SWITCH 255u

void info_find_switches(const struct cei_machine *machine, struct info_switches *ret_switches);

/* --- sections --------------------------------------------------------------------- */

/* machine.c */
void info_machine_text(const struct info *info);
void info_affinity_text(const struct info *info);
/* Adds the machine, its links, ports and affinity. */
void info_machine_json(const struct info *info, struct json_object *root);
/* links.c; ports are also printed if `out` is not NULL */
void info_links_text(const struct info *info);
void info_ports_text(const struct info *info);
struct json_object *info_links(const struct cei_machine *machine);
struct json_object *info_ports(const struct cei_machine *machine, FILE *out);
/* routes.c: returns the route rule with this name; CEOV_NOBODY: no rule has it. */
uint32_t info_rule_of(const char *name);
/* The next three (routes.c, settings.c, build.c) add the section to root, or print it, if root is
 * NULL. The first: CEOV_NONE: no route exists for the requested pair. < 0: the requested places do
 * not exist, reported on stderr. */
int  info_routes(const struct info *info, struct json_object *root);
void info_settings(const struct info *info, struct json_object *root);
void info_build(const struct info *info, struct json_object *root);

/* cuda.c (absent.c in a build without CUDA): the CUDA versions of the toolkit at build
 * time and of the driver, as "13.0"; "": none. room: 32 bytes. */
struct cei_cuda;
void info_cuda_toolkit(char *room);
void info_cuda_driver(const struct cei_cuda *cuda, char *room);

#endif /* INFO_H */
