/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_H
#define CEI_OP_H

/*
 * What all operators have in common: op.c makes, explains and releases them, run.c makes
 * their runs. What differs is in their kinds: kind.h.
 */

#include <stdint.h>

#include "ce_engine/object.h"
#include "ops/compute/executor.h"
#include "ops/core/phase.h"
#include "ops/core/workspace.h"
#include "ops/kind.h"
#include "ops/shape.h"
#include "ops/tuning/chooser.h"
#include "ops/tuning/tunings.h"

/* Of an op with a product. */
struct cei_product {
	struct cei_tile_list all;
	struct cei_tile_list others;    /* in a sequence: what is sent, and ... */
	struct cei_tile_list own;       /* ... what is not; parts of all */
	struct cei_tile_list alone;     /* waits for nothing and arrives nowhere: made when
					 * first wanted; lock of the workspace */
};

extern const struct cei_object_type cei_op_type;

struct ceov_op {
	struct cei_object         object;
	ceov_workspace           *workspace;
	const struct cei_op_kind *kind;
	struct cei_op_shape       shape;
	struct cei_choice         choice;
	struct ceov_op_tuning     told;         /* by the caller; zeros: nothing */
	int                       is_tuned;     /* as measured on this machine */
	struct cei_phase          phases[CEI_OP_PHASES_MAX];
	uint32_t                  n_sent;       /* counters of sent that a run awaits */
	struct cei_product        product;
	uint64_t                 *blocks;       /* of moves: what shape.blocks points to, or
						 * NULL */
};

/* ceov_*_scratch_bytes() and ceov_*_create() of a kind; from is its public struct. */
uint64_t cei_op_scratch_bytes(const struct cei_op_kind *kind, const void *from,
			      uint32_t n_ranks);
int  cei_op_create_from(ceov_workspace *workspace, const struct cei_op_kind *kind,
			const void *from, ceov_op **ret_op);

/* The same from a shape; workspace has passed its checks and tuning may be NULL. Releases
 * what it made on failure. */
int  cei_op_create(ceov_workspace *workspace, const struct cei_op_shape *shape,
		   const struct ceov_op_tuning *tuning, ceov_op **ret_op);

/* Whether a caller leaves everything to the chooser. tuning may be NULL. */
int  cei_op_says_nothing(const struct ceov_op_tuning *tuning);

/* What this rank's executor can do, and what the machine tells of all ranks' GPUs; the rest
 * of the rates is what is known of any GPU. The workspace is connected. */
struct cei_rates cei_op_rates(const ceov_workspace *workspace);

/* Under which key the op's tuning is remembered; engines' runs and captured ones have
 * keys of their own. CEOV_NONE: this executor's are not. */
int  cei_op_key(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		char key[CEI_TUNING_KEY_BYTES]);

/* What was remembered for the shape here, if it can be had. 0, or CEOV_NONE. */
int  cei_op_recall(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		   struct ceov_op_tuning *ret_tuning);

/* Gives the op all that was built for the other's tuning, and the other what it had.
 * Same workspace, kind and shape; neither has runs in flight. Cannot fail. */
void cei_op_swap(ceov_op *op, ceov_op *other);

/* tune.c: the common part of ceov_op_tune(), on any executor. */
struct cei_candidates;
int  cei_op_tune(ceov_op *op, void *stream, const struct cei_candidates *candidates);

#endif /* CEI_OP_H */
