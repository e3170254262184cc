/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NODES_RIG_H
#define CEI_NODES_RIG_H

/*
 * Contexts of several nodes within this process, joined by a simulated network
 * (loop_transport.h) in the system's time. Each node has one process with one rank or more. Unless
 * a test says otherwise, ranks are on host memory and numbered node by node.
 */

#include <pthread.h>

#include <ceoverlap/ceoverlap.h>

#include "testing.h"
#include "unit/loop_transport.h"

#define NODES_MAX         7u
#define NODES_MEMBERS_MAX 4u
#define NODES_RANKS_MAX   (NODES_MAX * NODES_MEMBERS_MAX)
#define NODES_TIMEOUT_NS  (2000 * TESTING_MS)   /* until a silent peer counts as lost */

struct nodes;
struct cei_place_ops;

struct node {
	struct nodes      *nodes;
	uint32_t           number;
	ceov_context      *context;
	struct testing_log log;
	int                result;              /* of ceov_open() */
};

struct nodes {
	struct loop_net   net;
	uint32_t          n;
	uint32_t          n_ranks;
	uint32_t          node_of[NODES_RANKS_MAX];     /* [rank] */
	struct ceov_place places[NODES_RANKS_MAX];      /* [rank]; host memory by default */
	const struct cei_transport_ops *transport;      /* NULL: the simulated network */
	int                is_loop;              /* transport is the simulated network's, changed */
	const struct cei_place_ops *const *movers;    /* NULL: those of the build */
	uint64_t          timeout_ns;           /* until a silent peer counts as lost */
	int               is_turned;            /* node 0 makes progress only in ceov_turn() */
	int               is_late;              /* node 1 gets the records later than node 0 */
	int               found;                /* result of a find right behind node 0's open */
	pthread_barrier_t barrier;              /* of the first all-gather */
	uint8_t          *gathered;
	struct node       node[NODES_MAX];
};

/* Opens n nodes of n_members ranks each; asserts that it goes well. */
void nodes_open(struct nodes *nodes, uint32_t n, uint32_t n_members);

/* Opens n nodes of one rank each; a silent peer counts as lost after that time. */
void nodes_open_strict(struct nodes *nodes, uint32_t n, uint64_t timeout_ns);

/* The same, with rank r on node node_of[r]; each node has one rank or more. */
void nodes_open_mixed(struct nodes *nodes, uint32_t n, uint32_t n_ranks, const uint32_t *node_of);

/* The same, with rank r at places[r]. transport NULL: the simulated network. */
struct nodes_map {
	uint32_t                        n_nodes;
	uint32_t                        n_ranks;
	const uint32_t                 *node_of;
	const struct ceov_place        *places;
	const struct cei_transport_ops *transport;
	int                             is_loop;        /* transport is the simulated network's
							 * table, changed */
	const struct cei_place_ops *const *movers;    /* NULL: those of the build */
};
void nodes_open_map(struct nodes *nodes, const struct nodes_map *map);

/* Opens nodes of one rank each; node 0 makes progress only in ceov_turn(). */
void nodes_open_turned(struct nodes *nodes, uint32_t n);

/* Opens n nodes of one rank each, at these places. transport NULL: the simulated network. */
void nodes_open_at(struct nodes *nodes, uint32_t n, const struct ceov_place *places,
		   const struct cei_transport_ops *transport);

/* Opens two nodes of one rank each. Node 0 asks node 1 for a buffer before that has opened. */
void nodes_open_late(struct nodes *nodes);

/* Cuts the simulated network between two nodes, both ways: nothing comes, and nothing fails. */
void nodes_cut(struct nodes *nodes, uint32_t one, uint32_t other);

/* Gives every link of the simulated network a delay of up to 1 ms, and a jitter of up to 2 ms. */
void nodes_delay(struct nodes *nodes, uint64_t *random);

/* Closes the contexts that are open, all at once. */
void nodes_close(struct nodes *nodes);

/* Closes one of them. */
void nodes_close_one(struct nodes *nodes, uint32_t number);

/* The context of a rank's node. */
ceov_context *nodes_context(struct nodes *nodes, uint32_t rank);

/* Shared by the rank under that name, and found by another rank's node. Both are released at the
 * contexts' close. */
ceov_buffer *nodes_buffer(struct nodes *nodes, uint32_t rank, const char *name, uint64_t n_bytes);
ceov_signal *nodes_signal(struct nodes *nodes, uint32_t rank, const char *name, uint32_t n);
ceov_buffer *nodes_find_buffer(struct nodes *nodes, uint32_t finder, uint32_t rank,
			       const char *name);
ceov_signal *nodes_find_signal(struct nodes *nodes, uint32_t finder, uint32_t rank,
			       const char *name);

/* Polls until the counter has the value. */
void nodes_await(ceov_signal *signal, uint32_t index, uint64_t value);

#endif /* CEI_NODES_RIG_H */
