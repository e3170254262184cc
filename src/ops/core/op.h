/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_H
#define CEI_OP_H

/*
 * What all operators share: op.c creates, explains and releases them, run.c makes their
 * runs. Where they differ, they call their kind's functions: kind.h.
 */

#include <stdint.h>

#include "ce_engine/objects/object.h"
#include "ops/compute/executor.h"
#include "ops/core/send_stage.h"
#include "ops/core/workspace.h"
#include "ops/kind.h"
#include "ops/shape.h"
#include "ops/tuning/selector.h"
#include "ops/tuning/tunings.h"

/* The lists of tiles of an op that has a product. */
struct cei_product {
	struct cei_tile_list all;
	struct cei_tile_list others;    /* sequences: the tiles whose rows are sent */
	struct cei_tile_list own;       /* sequences: the tiles of own rows; both lists are parts
					 * of `all` */
	struct cei_tile_list alone;     /* for measurements: its tiles neither await nor arrive;
					 * made at first use, under the workspace's lock */
};

extern const struct cei_object_type cei_op_type;

struct ceov_op {
	struct cei_object         object;
	ceov_workspace           *workspace;
	const struct cei_op_kind *kind;
	struct cei_op_shape       shape;
	struct cei_choice         choice;
	struct ceov_op_tuning     given;        /* the caller's tuning; 0: the caller left that
						 * field open */
	int                       is_tuned;     /* tuned by a measurement on this machine */
	struct cei_send_stage     stages[CEI_OP_STAGES_MAX];
	uint32_t                  n_sent;       /* counters of `sent` that a run awaits */
	struct cei_product        product;
	uint64_t                 *blocks;       /* moves only: the memory that shape.move.blocks
						 * points to, or NULL */
};

/* Implement ceov_*_scratch_bytes() and ceov_*_create() of a kind. from: the kind's public
 * struct. */
uint64_t cei_op_scratch_bytes(const struct cei_op_kind *kind, const void *from,
			      uint32_t n_ranks);
int  cei_op_create_from(ceov_workspace *workspace, const struct cei_op_kind *kind,
			const void *from, ceov_op **ret_op);

/* Creates an op of this shape. The workspace was checked; tuning may be NULL. Cleans up on
 * failure. */
int  cei_op_create(ceov_workspace *workspace, const struct cei_op_shape *shape,
		   const struct ceov_op_tuning *tuning, ceov_op **ret_op);

/* Returns whether the tuning leaves everything open; NULL does. */
int  cei_op_says_nothing(const struct ceov_op_tuning *tuning);

/* Returns the rates for the cost model: what this rank's executor can do, what all ranks
 * agreed on about their GPUs, and defaults for the rest. The workspace must be
 * connected. */
struct cei_rates cei_op_rates(const ceov_workspace *workspace);

/* Writes the key under which the op's tuning is stored. Ops in capturable workspaces have
 * other keys than ops whose runs the engine launches. CEOV_NONE: tunings of this executor
 * are not stored. */
int  cei_op_key(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		char key[CEI_TUNING_KEY_BYTES]);

/* Finds the stored tuning for the shape. CEOV_NONE: none is stored, or this executor cannot
 * use it. */
int  cei_op_recall(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		   struct ceov_op_tuning *ret_tuning);

/* Exchanges everything that depends on the tuning between two ops of the same workspace,
 * kind and shape without runs in flight. Cannot fail. */
void cei_op_swap(ceov_op *op, ceov_op *other);

/* Implements ceov_op_tune() behind its checks, on any executor: measures the candidates and
 * gives the op what was built for the fastest one (tune.c). */
struct cei_candidates;
int  cei_op_tune(ceov_op *op, void *stream, const struct cei_candidates *candidates);

#endif /* CEI_OP_H */
