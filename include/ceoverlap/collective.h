/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_COLLECTIVE_H
#define CEOVERLAP_COLLECTIVE_H

/*
 * Plan templates: each adds to a plan the transfers of one rank's part of a
 * collective, in the order in which they keep receivers apart (rank r serves
 * r + 1, r + 2, ... in turn). They only add: the caller commits.
 *
 * In all of them:
 *   - arrays are by rank of the target and have n_ranks (of the context) entries;
 *   - a shard or block is cut into `n_pieces` pieces: each has the size divided by
 *     n_pieces, rounded up, and then up to a multiple of 16 bytes; the last one is
 *     what is left. A piece has one counter, index
 *         source rank * n_pieces + piece
 *     in the target rank's arrived and free signals; in the ready signal it is
 *     `piece` (all-gather) or target rank * n_pieces + piece (all-to-all);
 *   - a launch with base k expects ready at k + 1 and free at k, and raises
 *     arrived to k + 1;
 *   - the expected marks are declared to the plan (ceov_plan_expect).
 */

#include <ceoverlap/ceoverlap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's shard goes to the same place in every rank's target: shard s is at
 * target_offset_bytes + s * shard_bytes. */
struct ceov_all_gather {
	size_t              struct_bytes;
	uint64_t            shard_bytes;
	uint32_t            n_pieces;
	ceov_buffer        *source;             /* of the plan's rank */
	uint64_t            source_offset_bytes;
	ceov_buffer *const *targets;            /* [own]: NULL, or the buffer that is
						 * source already (in place), moves
						 * nothing and raises nothing */
	uint64_t            target_offset_bytes;
	ceov_signal        *ready;              /* n_pieces counters; NULL: at launch */
	ceov_signal *const *arrived;            /* n_ranks * n_pieces counters each */
	ceov_signal *const *free;               /* likewise; NULL: targets are always free */
};

int ceov_plan_add_all_gather(ceov_plan *plan, const struct ceov_all_gather *gather);

/* Block t of this rank's source (at source_offset_bytes + t * block_bytes) goes to rank t,
 * where it is block number `this rank` of the target. */
struct ceov_all_to_all {
	size_t              struct_bytes;
	uint64_t            block_bytes;
	uint32_t            n_pieces;
	ceov_buffer        *source;
	uint64_t            source_offset_bytes;
	ceov_buffer *const *targets;            /* [own]: NULL skips the own block */
	uint64_t            target_offset_bytes;
	ceov_signal        *ready;              /* n_ranks * n_pieces counters, in the
						 * order of targets; or n_pieces, each
						 * for that piece of every block */
	ceov_signal *const *arrived;
	ceov_signal *const *free;
};

int ceov_plan_add_all_to_all(ceov_plan *plan, const struct ceov_all_to_all *exchange);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_COLLECTIVE_H */
