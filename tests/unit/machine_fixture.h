/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_FIXTURE_H
#define CEI_MACHINE_FIXTURE_H

/*
 * Artificial machines for tests, made without hwloc. Free them with machine_free().
 */

#include "topology/machine.h"

#define MACHINE_GB UINT64_C(1000000000)

/* A machine whose only links are those of each place to itself. */
struct cei_machine *machine_made(uint32_t n_gpus, uint32_t n_nodes);
void machine_free(struct cei_machine *machine);

/* Returns the port's index. */
uint32_t machine_add_port(struct cei_machine *machine, const char *name, uint64_t bytes_per_s);

/* Adds a link without ports, with t0 4 us; then adds one port to a link. */
void machine_add_link(struct cei_machine *machine, uint32_t from, uint32_t to,
		      enum cei_machine_link_kind kind, uint64_t bytes_per_s);
void machine_link_over(struct cei_machine *machine, uint32_t from, uint32_t to, uint32_t port);

/* n GPUs behind NVLink switches, one node: 395 GB/s between GPUs, 55 to and from the
 * host, of which the node gives 172 and takes 92 at most (as on 8 x H200). */
struct cei_machine *machine_nvswitch(uint32_t n_gpus);

/* 4 GPUs over PCIe: two below each of two switches, each switch below a node of its own.
 * 25 GB/s a link, 20 between the nodes. */
struct cei_machine *machine_pcie_tree(void);

/* 8 GPUs in a hybrid cube mesh: 25 GB/s an NVLink, doubled for some; 12 over PCIe, two
 * GPUs a switch, two switches a node; no copies between GPUs but over NVLink. */
struct cei_machine *machine_cube_mesh(void);

/* 2 GPUs below one node that copy to the host only. */
struct cei_machine *machine_no_peers(void);

/* A machine with random links over random ports. */
struct cei_machine *machine_random(uint64_t *random);

#endif /* CEI_MACHINE_FIXTURE_H */
