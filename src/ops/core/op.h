/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_H
#define CEI_OP_H

/*
 * What all operators share: op.c creates, explains and releases them, run.c makes their
 * runs. Where they differ, they call their kind's functions: kind.h.
 */

#include <stdint.h>

#include "ce_engine/object.h"
#include "ops/compute/executor.h"
#include "ops/core/send_stage.h"
#include "ops/core/workspace.h"
#include "ops/kind.h"
#include "ops/shape.h"
#include "ops/tuning/selector.h"
#include "ops/tuning/tunings.h"

/* Parts of an op that has a product. */
struct cei_product {
	struct cei_tile_list all;
	struct cei_tile_list others;    /* of a sequence: tiles of rows that are sent, and ... */
	struct cei_tile_list own;       /* ... tiles of own rows; both are parts of `all` */
	struct cei_tile_list alone;     /* neither awaits nor arrives; made at first use, under
					 * the workspace's lock */
};

extern const struct cei_object_type cei_op_type;

struct ceov_op {
	struct cei_object         object;
	ceov_workspace           *workspace;
	const struct cei_op_kind *kind;
	struct cei_op_shape       shape;
	struct cei_choice         choice;
	struct ceov_op_tuning     told;         /* what the caller's tuning sets; 0: nothing */
	int                       is_tuned;     /* tuned by a measurement on this machine */
	struct cei_send_stage     stages[CEI_OP_STAGES_MAX];
	uint32_t                  n_sent;       /* counters of `sent` that a run awaits */
	struct cei_product        product;
	uint64_t                 *blocks;       /* of moves: what shape.blocks points to, or
						 * NULL */
};

/* ceov_*_scratch_bytes() and ceov_*_create() of a kind. from: its public struct. */
uint64_t cei_op_scratch_bytes(const struct cei_op_kind *kind, const void *from,
			      uint32_t n_ranks);
int  cei_op_create_from(ceov_workspace *workspace, const struct cei_op_kind *kind,
			const void *from, ceov_op **ret_op);

/* Creates an op of a shape; the workspace was checked; tuning may be NULL. Cleans up on
 * failure. */
int  cei_op_create(ceov_workspace *workspace, const struct cei_op_shape *shape,
		   const struct ceov_op_tuning *tuning, ceov_op **ret_op);

/* Whether the caller sets nothing. tuning may be NULL. */
int  cei_op_says_nothing(const struct ceov_op_tuning *tuning);

/* The rates for the cost model: what this rank's executor can do, what ranks agreed on
 * about their GPUs, and defaults for the rest. The workspace must be connected. */
struct cei_rates cei_op_rates(const ceov_workspace *workspace);

/* The key under which the op's tuning is stored; captured runs have other keys than those
 * of the engine. CEOV_NONE: this executor's tunings are not stored. */
int  cei_op_key(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		char key[CEI_TUNING_KEY_BYTES]);

/* The stored tuning for the shape, if it can be used here. 0, or CEOV_NONE. */
int  cei_op_recall(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		   struct ceov_op_tuning *ret_tuning);

/* Exchanges everything that depends on the tuning between two ops of the same workspace,
 * kind and shape without runs in flight. Cannot fail. */
void cei_op_swap(ceov_op *op, ceov_op *other);

/* tune.c: the common part of ceov_op_tune(), on any executor. */
struct cei_candidates;
int  cei_op_tune(ceov_op *op, void *stream, const struct cei_candidates *candidates);

#endif /* CEI_OP_H */
