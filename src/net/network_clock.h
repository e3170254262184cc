/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_CLOCK_H
#define CEI_NETWORK_CLOCK_H

/*
 * The clocks of nodes, for traces: how far the monotonic clock of rank 0's process, the reference,
 * is ahead of this node's. On every other node the process with the lowest rank asks the reference
 * what time it is, several times, and keeps the answer that came back soonest. It does so when the
 * context opens and again when it closes, because clocks drift.
 *
 * Processes of one node have one clock: of them only that one process asks, so that the reference
 * has one connection a node for this.
 */

#include <stdint.h>

#include "net/clock_offset.h"

#define CEI_NETWORK_NODE_NAME_BYTES 64u         /* with the final 0 */

struct cei_network;

/* Measures the offset for the first time, if this process is the one of its node that does. Takes 2
 * seconds at most; if there is no answer, or the reference contradicts itself, it warns, and the
 * offset stays unknown. A reference that does not answer does not count as lost. */
void cei_network_clock_begin(struct cei_network *network);

/* The same for the last time, and tells the reference that this was it. Does nothing if there was
 * no first time. */
void cei_network_clock_end(struct cei_network *network);

struct cei_network_clock_view {
	uint64_t group;                 /* process 0's instance */
	uint32_t process;
	uint32_t n_processes;
	uint32_t node;                  /* number of this node, from 0 on; 0 is rank 0's */
	uint32_t n_nodes;
	uint32_t measurer;              /* the node's lowest rank, whose process measures */
	uint32_t n_offsets;             /* measured by this process, in their order */
	struct cei_clock_offset offsets[CEI_CLOCK_OFFSETS_MAX];
	char     node_name[CEI_NETWORK_NODE_NAME_BYTES];
};

/* Tells who and where this process is, and what it has measured. */
void cei_network_clock_look(struct cei_network *network, struct cei_network_clock_view *ret_view);

#endif /* CEI_NETWORK_CLOCK_H */
