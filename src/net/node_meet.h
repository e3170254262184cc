/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NODE_MEET_H
#define CEI_NODE_MEET_H

/*
 * How a group's processes of one node meet at a path, and get a socket to each other.
 *
 * The process that holds the first rank, the lowest one of the node, listens on a unix socket
 * (mode 0600, same user only). The other processes connect and name their ranks. When all ranks of
 * the node have come, the first rank's process sends every pair of processes a socket pair of their
 * own, unlinks the path and stops listening: afterwards all processes are equal and nothing is left
 * in the file system.
 */

#include <stdint.h>

#include "base/site.h"
#include "ipc/group/roster.h"
#include "net/links.h"

/* Meets the processes of the node. Blocks until all ranks of the node have come, or until the
 * deadline (CEOV_ERR_TIMEOUT; the failure names the missing ranks). It also fails if the processes
 * differ in version or number of ranks, if two processes hold the same rank, or if the path belongs
 * to another user or group; the failure then names the values of both sides. The caller closes
 * *ret_links, or gives it away. No links and path unused: all ranks of the node are in this
 * process. */
int  cei_node_meet(const struct cei_site *site, const char *path, uint64_t deadline_ns,
		   struct cei_links *ret_links);

/* The roster of a group that is on one node, made of the links to all its other processes.
 * Processes are numbered in the order of their lowest ranks. It points into itself, so it stays
 * where it was made. */
struct cei_node_roster {
	struct cei_roster roster;
	uint32_t          process_of[CEI_LOCAL_MAX];
	uint32_t          node_of[CEI_LOCAL_MAX];
	uint32_t          first_rank[CEI_LOCAL_MAX];
	uint32_t          in_node[CEI_LOCAL_MAX];
	uint32_t          node_at[2];
};

void cei_node_roster_make(const struct cei_site *site, const struct cei_links *links,
			  struct cei_node_roster *ret_roster);

#endif /* CEI_NODE_MEET_H */
