/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef NAMESPACES_H
#define NAMESPACES_H

/*
 * Nodes on one machine: network namespaces, each with a network interface, e0, whose cable tests
 * change, and one to meet by, e1, whose cable stays as it is. The interfaces of equal number are
 * joined by a bridge in a further namespace, that of the process which makes all this. It needs no
 * root, but user namespaces and the programs ip and tc. What is made ends with the processes that
 * are in it.
 */

#include <stdint.h>
#include <sys/types.h>

#define NAMESPACES_MAX 4u

#define NAMESPACES_STORE "10.77.2.1:2900"       /* where node 0 can listen, on its e1 */

struct namespaces {
	uint32_t n;
	pid_t    holders[NAMESPACES_MAX];       /* sleep in the namespaces, and so keep them */
};

/* Puts the calling process, which has one thread, into namespaces of its own, and makes n nodes.
 * Returns NULL, or what is missing. */
const char *namespaces_open(struct namespaces *nodes, uint32_t n);

/* Ends the processes that hold the nodes. */
void namespaces_close(struct namespaces *nodes);

/* Puts the calling process, a child of the one that made the nodes, on a node. Returns 0, or -1
 * with errno. */
int namespaces_join(const struct namespaces *nodes, uint32_t node);

/* The following change the cable of a node's e0; by the process that made the nodes. All end the
 * process with a message if the system refuses. */

/* Pulls the cable out, or plugs it in. */
void namespaces_plug(const struct namespaces *nodes, uint32_t node, int is_in);

/* Nothing arrives at the node any more, while all that it sends arrives elsewhere. */
void namespaces_deafen(const struct namespaces *nodes, uint32_t node);

/* Limits what arrives at the node to so many megabits per second. */
void namespaces_limit(const struct namespaces *nodes, uint32_t node, uint32_t megabits);

/* Asks the kernel about a network interface, as UCX does when it opens one or connects. Returns the
 * nanoseconds that took: much where namespaces are made or removed meanwhile. */
uint64_t namespaces_ask(void);

/* Ends namespaces_deafen() and namespaces_limit(). */
void namespaces_unlimit(const struct namespaces *nodes, uint32_t node);

#endif /* NAMESPACES_H */
