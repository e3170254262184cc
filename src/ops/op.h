/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_H
#define CEI_OP_H

/*
 * What all operators have in common. A kind (ag_gemm.c, gemm_rs.c, reduce.c, move.c) says
 * how much scratch a shape needs, which transfers its phases have, and what job a run
 * queues; op.c makes, explains and releases; run.c makes runs.
 */

#include <stdint.h>

#include "ce_engine/object.h"
#include "ops/chooser.h"
#include "ops/executor.h"
#include "ops/phase.h"
#include "ops/tunings.h"
#include "ops/workspace.h"

struct cei_run;

/* A list of tiles and the executor's copy of it. */
struct cei_tile_list {
	struct cei_tiles tiles;
	void            *held;
};

struct cei_op_kind {
	enum cei_op_sort sort;
	const char      *name;          /* the public noun, for messages */

	/* Of one half. The shape has no fault. */
	uint64_t (*scratch_bytes)(const struct cei_op_shape *shape);

	/* Adds the phases' transfers. Phases are open. */
	int      (*build)(ceov_op *op);

	/* Queues what computes, after the launches. */
	int      (*job)(const struct cei_run *run);

	uint32_t n_phases;
};

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
	struct cei_tile_list      list;         /* of the product, all tiles */
	struct cei_tile_list      others;       /* in a sequence: what is sent, and ... */
	struct cei_tile_list      own;          /* ... what is not; parts of list */
	struct cei_tile_list      alone;        /* made when first wanted; lock of the
						 * workspace */
	uint64_t                 *blocks;       /* that shape.blocks points to; freed with the
						 * op. Or NULL */
};

/* Rows, or elements, of all ranks, and of those before one. */
uint64_t cei_op_all_rows(const struct cei_op_shape *shape);
uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank);
uint64_t cei_op_most_rows(const struct cei_op_shape *shape);

/* What create and *_scratch_bytes refuse, or NULL. */
const char *cei_op_shape_fault(const struct cei_op_shape *shape);

/* The same of moves alone (move.c), and of the stride and scale of sums
 * alone (reduce.c). */
const char *cei_move_fault(const struct cei_op_shape *shape);
const char *cei_reduce_fault(const struct cei_op_shape *shape);

/* Of sums alone: elements of source, from the first part's begin to the last one's end. */
uint64_t cei_reduce_source(const struct cei_op_shape *shape);

/* Rows from the caller's struct. n_ranks above CEI_RANKS_MAX and rows NULL: a fault of
 * the shape, which then has no rank. */
void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks);

/* The common part of ceov_*_create(); workspace has passed its checks and tuning may be
 * NULL. Releases what it made on failure. */
int  cei_op_create(ceov_workspace *workspace, const struct cei_op_kind *kind,
		   const struct cei_op_shape *shape, const struct ceov_op_tuning *tuning,
		   ceov_op **ret_op);

/* Whether a caller leaves everything to the chooser. tuning may be NULL. */
int  cei_op_says_nothing(const struct ceov_op_tuning *tuning);

/* What this rank's executor can do; the rest of the rates is what is known of any. */
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

/* Raises where op has not that sort's run call, or run is NULL or too small. */
int  cei_op_check_run(const ceov_op *op, enum cei_op_sort sort, const void *run,
		      size_t run_bytes);

/* On GPUs the NULL stream is refused, and the legacy one where runs are not captured. */
int  cei_op_check_stream(const ceov_op *op, const void *stream);

/* One without rows has no base. */
struct cei_matrix cei_op_matrix(const void *base, uint64_t rows, uint64_t columns);

/* B of product i as the shape has it: n[i] x k, or k x n[i]. */
struct cei_matrix cei_op_b(const struct cei_op_shape *shape, uint32_t i, const void *base);

/* For measuring: only the op's GEMM, on the run's stream, with a list that waits for
 * nothing and arrives nowhere; nothing is sent, scratch is read as it is. run is the
 * struct of the op's kind. Blocks until the workspace's runs are done, replays of graphs
 * excepted. INVALID: sums. TIMEOUT: runs are not done; else the error that ended one. */
int  cei_op_gemm_alone(ceov_op *op, const void *run);

/* gemm_alone's list, with the workspace's lock held. */
int  cei_op_alone(ceov_op *op, const struct cei_tile_list **ret_list);

/* ag_gemm.c and gemm_rs.c: the job of gemm_alone. */
int  cei_ag_gemm_alone(ceov_op *op, const struct ceov_ag_gemm_run *run);
int  cei_gemm_rs_alone(ceov_op *op, const struct ceov_gemm_rs_run *run);

#endif /* CEI_OP_H */
