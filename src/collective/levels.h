/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LEVELS_H
#define CEI_LEVELS_H

/*
 * Which ranks a collective over several nodes joins directly. Each shard enters a node once, at its
 * entry: the rank whose index among the node's ranks is that of the sender, modulo the number of
 * the node's ranks. In a ring of nodes, the sender is the entry of the node before. The entry
 * passes the shard on to the other ranks of its node, and in a ring to the entry of the next one.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_levels {
	uint32_t  n_ranks;
	uint32_t  n_nodes;
	int       is_ring;              /* set by the caller after cei_levels_make() */
	uint32_t *node;                 /* [rank]: the number of its node */
	uint32_t *index;                /* [rank]: how many lower ranks are on its node */
	uint32_t *n_local;              /* [node]: number of its ranks */
};

/* CEOV_ERR_NO_MEMORY, raised. */
int  cei_levels_make(ceov_context *context, uint32_t n_ranks, struct cei_levels *ret_levels);

/* May be repeated, and called with a struct that is all zero. */
void cei_levels_free(struct cei_levels *levels);

/* Whether `from` sends its own shard to `to`. */
int  cei_levels_sends(const struct cei_levels *levels, uint32_t from, uint32_t to);

/* Whether `rank` passes the shard of `source` on to anybody. */
int  cei_levels_passes_on(const struct cei_levels *levels, uint32_t rank, uint32_t source);

/* Whether `rank`, which passes the shard of `source` on, passes it on to `to`. Outside its node
 * these are ranks to which it also sends its own shard. */
int  cei_levels_passes_to(const struct cei_levels *levels, uint32_t rank, uint32_t source,
			  uint32_t to);

#endif /* CEI_LEVELS_H */
