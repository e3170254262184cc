/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LEVELS_H
#define CEI_LEVELS_H

/*
 * Which ranks an all-gather over several nodes joins directly. Each shard enters a node once: at
 * the rank whose index among the node's ranks is that of the sender among its own node's ranks,
 * modulo the number of the node's ranks. That rank passes it on to the other ranks of its node.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_levels {
	uint32_t  n_ranks;
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

/* Whether `rank` passes the shard of `source` on to the other ranks of its node, of which there is
 * at least one. */
int  cei_levels_passes_on(const struct cei_levels *levels, uint32_t rank, uint32_t source);

#endif /* CEI_LEVELS_H */
