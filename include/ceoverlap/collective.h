/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_COLLECTIVE_H
#define CEOVERLAP_COLLECTIVE_H

/*
 * Plan templates: each function adds to a plan the transfers that one rank makes in a
 * collective. Rank r sends to r + 1, r + 2, ... in turn, so that no two ranks send to
 * one receiver while all proceed at the same pace. The caller commits the plan.
 *
 * In all of them:
 *   - arrays are by rank of the target and have n_ranks (of the context) entries;
 *   - a shard or block is cut into `n_pieces` pieces. The size of a piece is the shard's
 *     or block's size divided by n_pieces, rounded up to a multiple of 16 bytes; the last
 *     piece has the remaining bytes. A piece has one counter, with index
 *         source rank * n_pieces + piece
 *     in the target rank's arrived and free signals; in the ready signal it is
 *     `piece` (all-gather) or target rank * n_pieces + piece (all-to-all); a broadcast has
 *     one source, so all its indices are `piece`;
 *   - a launch with base k expects ready at k + 1 and free at k, and raises
 *     arrived to k + 1;
 *   - the expected marks are declared to the plan (ceov_plan_expect).
 */

#include <ceoverlap/ceoverlap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a shard goes from node to node. */
enum ceov_nodes {
	CEOV_NODES_DEFAULT = 0,                 /* direct, for all numbers of nodes and bytes: so a
						 * caller knows which ranks it has to find. Both
						 * ways put equally many bytes on each node's
						 * network, and direct has less delay */
	CEOV_NODES_DIRECT  = 1,                 /* from its node to all others */
	CEOV_NODES_RING    = 2,                 /* from each node to the next: a rank sends to one
						 * other node and receives from one, whatever the
						 * number of nodes, for networks that do not carry
						 * many to one well */
};

/* Sends this rank's shard to every rank. In each target, the shard of rank s is at
 * target_offset_bytes + s * shard_bytes.
 *
 * With ranks on several nodes (ceov_rank_node), each shard enters every other node once, and is
 * passed on there. Let a rank's index be the number of lower ranks on its node.
 *   - A rank with index i sends its shard to all ranks of its own node and, in each other node
 *     of n ranks, only to the rank with index i modulo n.
 *   - That rank sends each piece on to the other ranks of its node, from its own target, when
 *     its own arrived counter for the piece has been raised. These transfers are part of its
 *     plan, raise the same arrived counters, and await the same free counters, as if they came
 *     from the rank that the shard is of.
 *   - With CEOV_NODES_RING a rank with index i sends its shard outside its node only to the next
 *     node, to the rank with index i modulo the number of ranks there (after the last node comes
 *     node 0). That rank also passes it on to a rank of the node after its own, found from its own
 *     index by the same rule, unless that is the node from which the shard came first.
 * So targets, arrived and free need entries for the ranks to which this rank sends its shard, and
 * free those of the ranks to which these pass it on: whoever sends a piece waits until all have
 * freed it that get it from that target. In a ring this goes for what a rank passes on, too. The
 * entries of other ranks are not read. A rank that has anything to pass on also needs its own
 * target and its own arrived signal, on the host. Until its
 * launch has ended, a rank does not change what has arrived from other nodes in its target: the
 * bytes may still be on their way to its neighbours. It may raise free before. */
struct ceov_all_gather {
	size_t              struct_bytes;
	uint64_t            shard_bytes;
	uint32_t            n_pieces;
	ceov_buffer        *source;             /* of the plan's rank */
	uint64_t            source_offset_bytes;
	ceov_buffer *const *targets;            /* for its own shard this rank adds no
						 * transfer, so raises nothing, if its
						 * own entry is NULL, or if the shard is
						 * at its place in the target already */
	uint64_t            target_offset_bytes;
	ceov_signal        *ready;              /* n_pieces counters; NULL: the source is
						 * ready when the plan is launched */
	ceov_signal *const *arrived;            /* n_ranks * n_pieces counters each */
	ceov_signal *const *free;               /* n_ranks * n_pieces counters each; NULL:
						 * targets are always free */
	uint32_t            nodes;              /* enum ceov_nodes; the same at all ranks */
};

#define CEOV_ALL_GATHER_INIT CEOV_SIZED(struct ceov_all_gather)

int ceov_plan_add_all_gather(ceov_plan *plan, const struct ceov_all_gather *gather);

/* A block of an all-to-all whose blocks have different sizes. */
struct ceov_block {
	uint64_t bytes;                         /* 0: nothing is moved, and the block's counters are
						 * raised like others */
	uint64_t source_offset_bytes;           /* in addition to those of struct ceov_all_to_all */
	uint64_t target_offset_bytes;
};

/* Sends block t of this rank's source, at source_offset_bytes + t * block_bytes, to rank t.
 * In each target, the block from rank s is at target_offset_bytes + s * block_bytes. Blocks go
 * directly to the ranks of all nodes, so all entries are needed.
 *
 * With `blocks` each has its own size and places, so block_bytes is 0. Each block is cut into
 * n_pieces by its own size. Those that are left without bytes move nothing, and their counters are
 * awaited and raised all the same: a receiver need not know how large a block is to await it. */
struct ceov_all_to_all {
	size_t              struct_bytes;
	uint64_t            block_bytes;
	uint32_t            n_pieces;
	ceov_buffer        *source;
	uint64_t            source_offset_bytes;
	ceov_buffer *const *targets;            /* if this rank's own entry is NULL, its
						 * block for itself is not moved */
	uint64_t            target_offset_bytes;
	ceov_signal        *ready;              /* n_ranks * n_pieces counters, in the
						 * order of targets; or n_pieces, each
						 * for that piece of every block; NULL:
						 * ready when the plan is launched */
	ceov_signal *const *arrived;            /* this and free: as in ceov_all_gather */
	ceov_signal *const *free;
	const struct ceov_block *blocks;        /* n_ranks entries by rank of the target, read
						 * during the call; NULL: all have block_bytes */
};

#define CEOV_ALL_TO_ALL_INIT CEOV_SIZED(struct ceov_all_to_all)

int ceov_plan_add_all_to_all(ceov_plan *plan, const struct ceov_all_to_all *exchange);

/* Sends the root's bytes to all other ranks, to target_offset_bytes in each target. Every rank adds
 * it to a plan of its own, with the same root, bytes and n_pieces. Counters of ready, arrived and
 * free have the piece as index.
 *
 * The root sends piece p to one rank of its node, the one with index p modulo the number of the
 * node's ranks (the index is that of ceov_all_gather; it may be the root itself). That rank sends
 * the piece on as it would send its shard in an all-gather: to the others of its node but the
 * root, and to one rank of each other node, which passes it on to its neighbours. With as many
 * pieces as the root's node has ranks, or more, all of these share the work.
 *
 * A rank needs the targets, arrived and free signals of the ranks to which it sends, the free
 * signals of those to which these send the pieces on, and if it is
 * not the root its own target and its own arrived signal, on the host; the entries of other ranks
 * are not read. A rank that sends to nobody gets no transfers; its plan may be committed and
 * launched all the same. Until its launch has ended, a rank does not change what has arrived: the
 * bytes may still be on their way to others. It may raise free before. */
struct ceov_broadcast {
	size_t              struct_bytes;
	uint64_t            bytes;
	uint32_t            n_pieces;
	uint32_t            root;
	ceov_buffer        *source;             /* of the root; others do not need it */
	uint64_t            source_offset_bytes;
	ceov_buffer *const *targets;
	uint64_t            target_offset_bytes;
	ceov_signal        *ready;              /* of the root: n_pieces counters; NULL: the source
						 * is ready when its plan is launched */
	ceov_signal *const *arrived;            /* n_pieces counters each */
	ceov_signal *const *free;               /* n_pieces counters each; NULL: targets are always
						 * free */
};

#define CEOV_BROADCAST_INIT CEOV_SIZED(struct ceov_broadcast)

int ceov_plan_add_broadcast(ceov_plan *plan, const struct ceov_broadcast *broadcast);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_COLLECTIVE_H */
