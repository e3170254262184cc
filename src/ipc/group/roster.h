/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROSTER_H
#define CEI_ROSTER_H

/*
 * Who is who in a group: which process holds which rank, and which node each process is on. Plain
 * arrays that their maker keeps as long as they are used. They never change.
 */

#include <stdint.h>

struct cei_roster {
	uint32_t        n_ranks;
	uint32_t        n_processes;
	uint32_t        n_nodes;
	uint32_t        own;            /* the number of this process */
	const uint32_t *process_of;     /* by rank */
	const uint32_t *node_of;        /* by process */
	const uint32_t *first_rank;     /* by process: its lowest rank, which failures name */
	const uint32_t *in_node;        /* the processes of node 0, then those of node 1, and so
					 * on; within a node in the order of their lowest ranks,
					 * so its first one is the node's leader */
	const uint32_t *node_at;        /* by node: where its processes begin in in_node; one
					 * entry more than there are nodes */
};

#endif /* CEI_ROSTER_H */
