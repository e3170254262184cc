/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_H
#define CEI_OP_H

/*
 * What all operators share. op.c creates, explains and releases them, and run.c makes their runs.
 * Where operators differ, these files call functions of the operator's kind (kind.h).
 */

#include <stdatomic.h>
#include <stdint.h>

#include "ce_engine/objects/object.h"
#include "ops/compute/embedding.h"
#include "ops/compute/experts.h"
#include "ops/compute/executor.h"
#include "ops/core/agree.h"
#include "ops/core/send_stage.h"
#include "ops/core/workspace.h"
#include "ops/kind.h"
#include "ops/shape.h"
#include "ops/tuning/selector.h"
#include "ops/tuning/tunings.h"

/* The lists of tiles of an op that has a product. `others` and `own` are parts of `all`. */
struct cei_product {
	struct cei_tile_list all;
	struct cei_tile_list others;    /* for sequences: the tiles whose rows are sent to peers */
	struct cei_tile_list own;       /* for sequences: the tiles of the rank's own rows */
	struct cei_tile_list *pieces;   /* n_pieces parts of `all`, if a job computes piece after
					 * piece; else NULL */
	struct cei_tile_list alone;     /* for measurements: tiles that neither await nor raise
					 * a mark; made at first use, under the workspace's
					 * lock */
	void                *whole;     /* the executor's: A or C of a product one after the other
					 * with its transfers (gemm/whole.h); else NULL */
};

/* The transfers of one plan as a list for SMs (sm_lane.h), in memory that the executor holds. */
struct cei_carried {
	void    *steps;                 /* struct cei_sm_lane_step[n_steps]; NULL: there is none */
	void    *n_arrived;             /* uint32_t[n_steps] */
	uint32_t n_steps;
};

/* The rank's own tables of an op with an embedding. */
struct cei_op_tables {
	struct cei_embedding_table *list;       /* NULL: there are none */
	void                       *held;       /* the executor's copy */
	uint64_t                    most_vectors;       /* of a row of any of them */
};

/* The marks of a GEMM's groups of tiles (gemm_marks.c). In run e a group's counter rises to e; in
 * captured runs, whose replays have no numbers, from 0 to 1. */
struct cei_group_marks {
	ceov_signal     *signal;        /* of the op, at the rank's place: [group] */
	_Atomic uint64_t n_runs;        /* that were begun */
	int              is_captured;   /* 1: the last run was captured. Guarded by the
					 * workspace's lock */
	void            *fork;          /* the executor's: where the captured run begins; NULL:
					 * none was captured */
};

extern const struct cei_object_type cei_op_type;

struct ceov_op {
	struct cei_object         object;
	ceov_workspace           *workspace;
	const struct cei_op_kind *kind;
	struct cei_op_shape       shape;
	struct cei_choice         choice;
	struct ceov_op_tuning     given;        /* the caller's tuning; a field of 0 was left
						 * open */
	int                       is_tuned;     /* 1: choice was measured on this machine */
	int                       meets;        /* 1: the stream of each run waits until all ranks
						 * have come to it, before the engine launches
						 * what follows the stream */
	uint32_t                  hash;         /* by which ranks compare it (agreed.h); 0: they do
						 * not */
	int                       is_told;      /* 1: peers expect its first run */
	_Atomic int               is_agreed;    /* 1: it is alike at all ranks */
	struct cei_send_stage     stages[CEI_OP_STAGES_MAX];
	struct cei_carried        carried[CEI_OP_STAGES_MAX][CEI_OP_HALVES];     /* if SMs make the
						 * transfers of the stages */
	uint32_t                  n_sent;       /* counters of `sent` that a run awaits */
	struct cei_product        product;
	struct cei_op_tables      tables;
	uint64_t                 *counts;       /* numbers of rows to be sent, [half][rank], where
						 * the executor's jobs reach them, and the buffer
						 * that they are; NULL: see cei_op_make_counts() */
	ceov_buffer              *counts_buffer;
	struct cei_group_marks    marks;        /* GEMMs with marks only */
	int                       may_run;      /* 1: it is released, and its kernels have not
						 * ended by the deadline: what they may write
						 * stays until the context is closed */
	uint64_t                 *blocks;       /* the memory that shape.blocks points to, or
						 * NULL */
};

/* Returns whether SMs make the op's transfers beside its job (sm_lane.h). */
static inline int cei_op_has_sm_lane(const ceov_op *op)
{
	return cei_kind_has_sm_lane(&op->shape, op->choice.mode);
}

/* Implement ceov_*_scratch_bytes() and ceov_*_create() for one kind. `from` is the public struct
 * that the caller of these functions filled. */
uint64_t cei_op_scratch_bytes(const struct cei_op_kind *kind, const void *from,
			      uint32_t n_ranks);
int  cei_op_create_from(ceov_workspace *workspace, const struct cei_op_kind *kind,
			const void *from, ceov_op **ret_op);

/* Returns how much, in rows or bytes, source sends to target; 0: nothing. The same at all ranks. */
typedef uint64_t cei_op_sends(const struct cei_op_shape *shape, uint32_t source, uint32_t target);

/* For the ranks that a run exchanges no bytes with, since all have to know that the others have
 * begun it. The first, before anything is sent, adds to a stage marks that tell it to those whom
 * this rank sends nothing; the second, behind what is sent, awaits those of the ranks that send
 * nothing here, each with a counter of `sent`, which is counted in op->n_sent. */
int  cei_op_say_present(ceov_op *op, struct cei_send_stage *stage, cei_op_sends *sends);
int  cei_op_await_here(ceov_op *op, struct cei_send_stage *stage, cei_op_sends *sends);

/* Adds to a stage what the op sends to each other rank, by calls of send(). Ranks of other nodes
 * come first, because their bytes take longest. If the stage says that bytes were sent, it does so
 * for each rank of another node and for the ranks of this node together, each with a counter of
 * `sent`, which is counted in op->n_sent. */
int  cei_op_send_all(ceov_op *op, struct cei_send_stage *stage,
		     int (*send)(ceov_op *op, uint32_t target));

/* The same by calls of send() for each piece, and ranks of this node get all first pieces before
 * second ones. Ranks of other nodes get block after block: each has a lane of its own. */
int  cei_op_send_in_turn(ceov_op *op, struct cei_send_stage *stage,
			 int (*send)(ceov_op *op, uint32_t target, uint32_t piece));

/* One of the two, by calls of send() for each piece: in turn if the op's tiles are taken in turns,
 * else block after block. */
int  cei_op_send_pieces(ceov_op *op, struct cei_send_stage *stage,
			int (*send)(ceov_op *op, uint32_t target, uint32_t piece));

/* Adds one piece of what the op sends to each other rank, to ranks of other nodes first: for ops
 * that put what they send in an order of their own, and do not say that it was sent. */
int  cei_op_send_piece(ceov_op *op, uint32_t piece,
		       int (*send)(ceov_op *op, uint32_t target, uint32_t piece));

/* For ops that send as many rows as a run says: makes op->counts, numbers in host memory, where the
 * engine reads them and a daemon can map them, and where kernels of the rank's GPU can write. Their
 * values are not set. They are released with the op. */
int  cei_op_make_counts(ceov_op *op);

/* Adds to a stage, for a gather over several nodes, what this rank passes on to others of its
 * node: by calls of pass() for each piece of each shard that enters the node at this rank. */
int  cei_op_pass_all(ceov_op *op,
		     int (*pass)(ceov_op *op, uint32_t source, uint32_t target, uint32_t piece));

/* Creates an op of the given shape, which ranks do not compare (agreed.h). The workspace must have
 * been checked; tuning may be NULL. On failure nothing is left behind. */
int  cei_op_create(ceov_workspace *workspace, const struct cei_op_shape *shape,
		   const struct ceov_op_tuning *tuning, ceov_op **ret_op);

/* Returns why a tuning, which may be NULL, is refused for the shape on every executor; or NULL.
 * What an executor lacks for it the kind's lacks() says. The shape has no fault. */
const char *cei_op_tuning_fault(const struct cei_op_shape *shape,
				const struct ceov_op_tuning *tuning);

/* Returns whether a tuning leaves all fields open, or is NULL. */
int  cei_op_says_nothing(const struct ceov_op_tuning *tuning);

/* Returns the rates for the cost model: what this rank's executor can do, what all ranks agreed on
 * about their GPUs, and defaults for everything else. The workspace must be connected. */
struct cei_rates cei_op_rates(const ceov_workspace *workspace);

/* Writes the key under which the op's tuning is stored. Ops whose runs the calling thread
 * queues have other keys than ops whose runs the engine launches. CEOV_NONE: tunings of this
 * executor are not stored. */
int  cei_op_key(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		char key[CEI_TUNING_KEY_BYTES]);

/* Finds the stored tuning for a shape. CEOV_NONE: there is none, or this executor cannot use it. */
int  cei_op_recall(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		   struct ceov_op_tuning *ret_tuning);

/* Exchanges all that depends on the tuning between two ops, which ranks then compare again. They
 * must be of the same workspace, kind and shape, and have no runs in flight. Cannot fail. */
void cei_op_swap(ceov_op *op, ceov_op *other);

/* The part of ceov_op_tune() behind its checks, for any executor: measures the candidates, and
 * gives the op what was built for the fastest one (tune.c). */
struct cei_candidates;
int  cei_op_tune(ceov_op *op, void *stream, const struct cei_candidates *candidates);

#endif /* CEI_OP_H */
