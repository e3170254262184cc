/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KIND_H
#define CEI_KIND_H

/*
 * The interface of one kind of operator. To add an operator, define a constant of this type in a
 * file of its own, and add a line to kinds.h; no other code tests which kind an op has.
 *
 * Functions that take only a shape are pure, and are called only for valid shapes.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "ops/shape.h"

struct cei_choice;                      /* selector.h */
struct cei_choose_args;
struct cei_rates;
struct cei_listing;                     /* candidates.h */
struct cei_product_kind;                /* product.h */
struct cei_run;                         /* run.h */

/* How many elements of the shape's dtype each operand of a measurement has; 0: the kind does not
 * use that operand. struct cei_trial_operands has the same fields, with pointers. */
struct cei_trial_sizes {
	uint32_t n;                     /* how many entries of b and c are in use, at most
					 * CEOV_OP_GEMMS_MAX */
	uint64_t a;
	uint64_t b[CEOV_OP_GEMMS_MAX];
	uint64_t c[CEOV_OP_GEMMS_MAX];
};

struct cei_trial_operands {
	void *stream;
	void *a;
	void *b[CEOV_OP_GEMMS_MAX];
	void *c[CEOV_OP_GEMMS_MAX];
};

/* How a kind's tunings are measured. */
struct cei_op_trial {
	/* Adds candidates to the list, whose first entry is the model's choice. */
	void (*candidates)(const struct cei_listing *listing);

	/* Returns the sizes of the operands. */
	void (*sizes)(const ceov_op *op, struct cei_trial_sizes *ret_sizes);

	/* Calls the kind's public run call with these operands. */
	int  (*run)(ceov_op *op, const struct cei_trial_operands *operands);
};

struct cei_op_kind {
	const char *name;               /* prefix of the public calls, for messages:
					 * "ceov_all_gather" */
	const char *key;                /* part of the keys of stored tunings: unique, and never
					 * changed */
	const char *run_call;           /* name of the public run call, which several kinds may
					 * share */
	uint32_t    run_bytes;          /* size of the struct that the run call takes */
	uint32_t    run_first_bytes;    /* size of that struct in the first header that had it, if
					 * it has grown since: then take() and job() read the struct
					 * by cei_sized_take(), and is_counted is set, since
					 * graphs compare whole structs. 0: the struct has not
					 * grown */
	uint32_t    n_stages;           /* stages of a run, which makes at most one launch for
					 * each; 0 only if is_local */
	int         is_local;           /* 1: a run needs no other rank. It uses neither scratch
					 * nor signals of the workspace, and is no part of the
					 * sequence that runs of all ranks form */
	int         is_counted;         /* 1: a run sends as many rows as it has counted, which only
					 * the engine reads, so the calling thread cannot queue
					 * its transfers */

	int         gathers;            /* of kinds with a product. 1: its operand comes from all
					 * ranks, which may differ in n. 0: it goes to all ranks,
					 * which may differ in k. In the rest of the shape they
					 * have to be alike (core/agreed.h) */

	/* Fills the shape, whose `kind` is set already, from the caller's public struct. If that
	 * struct is NULL or has an unknown size, sets shape->fault. Returns the tuning that the
	 * caller's struct points to, or NULL. */
	const struct ceov_op_tuning *(*shape)(struct cei_op_shape *shape, const void *from,
					      uint32_t n_ranks);

	/* Returns why the shape is refused, or NULL. n_ranks of the shape is valid. */
	const char *(*fault)(const struct cei_op_shape *shape);

	/* Returns why the workspace's executor does not support the shape with this tuning (which
	 * may be NULL), or NULL. A kind that every executor supports sets no function. */
	const char *(*lacks)(const ceov_workspace *workspace, const struct cei_op_shape *shape,
			     const struct ceov_op_tuning *tuning,
			     const struct cei_rates *rates);

	/* Returns why the shape is refused in a direct mode, or NULL. A kind that has none of
	 * these modes sets no function. */
	const char *(*direct_fault)(const struct cei_op_shape *shape, enum ceov_op_mode mode);

	/* Returns whether, in CEOV_MODE_DIRECT, the job of such a shape has SMs make the transfers
	 * of its stages (core/sm_lane.h). In other direct modes there are no stages, and the job
	 * itself stores to peers. A kind that has no such shapes sets no function. */
	int (*has_sm_lane)(const struct cei_op_shape *shape);

	/* Returns whether runs that the engine launches gain by ranks that begin them together:
	 * they do if they are long, since copies of ranks that are out of step meet at receivers.
	 * Then copies have to follow the stream. A kind that never gains sets no function. */
	int (*meets)(const struct cei_op_shape *shape);

	/* Returns the bytes of one unit of shape->rows, which is a row, an element or a byte, as
	 * it is sent. */
	uint64_t (*row_bytes)(const struct cei_op_shape *shape);

	/* Returns how many bytes of scratch one half needs. */
	uint64_t (*scratch_bytes)(const struct cei_op_shape *shape);

	/* Returns the number of pieces that the cost model chooses. */
	uint32_t (*pieces)(const struct cei_op_shape *shape);

	/* Completes a choice. Its number of pieces is set, and its mode is the one that the
	 * caller set, or CEOV_MODE_OVERLAP if the caller left it open. Sets only the fields
	 * that the kind uses. */
	void (*choose)(const struct cei_choose_args *args, struct cei_choice *choice);

	/* Appends lines that explain the choice to its text, by cei_choice_say(). */
	void (*explain)(const struct cei_choose_args *args, struct cei_choice *choice);

	/* Opens the stages of the op, which are zeroed, and adds their transfers. */
	int  (*build)(ceov_op *op);

	/* Completes what needs the committed plans of the stages. A kind that needs nothing of them
	 * sets no function. */
	int  (*built)(ceov_op *op);

	/* Checks the operands of a run, and takes the run's stream and floating addresses from
	 * them. */
	int  (*take)(struct cei_run *run);

	/* Queues the run's computation on its stream. If the engine launches the run's plans,
	 * all launches were made before. */
	int  (*job)(const struct cei_run *run);

	/* Frees what the kind allocated in the op, also if build() failed. The op's runs have
	 * ended, unless op->may_run. A kind that has nothing to free sets no function. */
	void (*fini)(ceov_op *op);

	/* NULL: ceov_op_tune() does not measure this kind, and the model's choice stays. */
	const struct cei_op_trial *trial;

	/* NULL: the kind computes no product. */
	const struct cei_product_kind *product;

	/* 1: pieces of the product may be ranges of columns (CEOV_CUT_COLUMNS). */
	int cuts_columns;
};

static inline int cei_kind_has_sm_lane(const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	return mode == CEOV_MODE_DIRECT && shape->kind->has_sm_lane &&
	       shape->kind->has_sm_lane(shape);
}

#endif /* CEI_KIND_H */
