/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_FIXTURE_H
#define CEI_MACHINE_FIXTURE_H

/*
 * Artificial machines for tests, built without hwloc. Free them with machine_free().
 */

#include "topology/machine.h"

#define MACHINE_GB UINT64_C(1000000000)

/* Makes a machine whose only links are those of each place to itself. */
struct cei_machine *machine_made(uint32_t n_gpus, uint32_t n_nodes);
void machine_free(struct cei_machine *machine);

/* Adds a port and returns its index. */
uint32_t machine_add_port(struct cei_machine *machine, const char *name, uint64_t bytes_per_s);

/* machine_add_link() adds a link without ports, with a t0 of 4 us. */
void machine_add_link(struct cei_machine *machine, uint32_t from, uint32_t to,
		      enum cei_machine_link_kind kind, uint64_t bytes_per_s);
void machine_link_over(struct cei_machine *machine, uint32_t from, uint32_t to, uint32_t port);

/* Makes n GPUs behind NVLink switches, and one node: 395 GB/s between GPUs, 55 between a GPU and
 * the host. The node can send at most 172 GB/s and receive 92 in total (as measured on 8 x
 * H200). */
struct cei_machine *machine_nvswitch(uint32_t n_gpus);

/* Makes 4 GPUs over PCIe: two below each of two switches, each switch below its own node. Each link
 * has 25 GB/s, the link between the nodes 20. */
struct cei_machine *machine_pcie_tree(void);

/* Makes 8 GPUs in a hybrid cube mesh: 25 GB/s per NVLink, with some pairs joined by two; 12 GB/s
 * over PCIe, two GPUs per switch, two switches per node. GPUs copy to each other over NVLink
 * only. */
struct cei_machine *machine_cube_mesh(void);

/* Makes 2 GPUs below one node that copy to and from the host only. */
struct cei_machine *machine_no_peers(void);

/* Makes a machine with random links over random ports. */
struct cei_machine *machine_random(uint64_t *random);

#endif /* CEI_MACHINE_FIXTURE_H */
