/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KIND_H
#define CEI_KIND_H

/*
 * One kind of operator: what the rest of the library asks of it. An operator is a constant
 * of this type in a file of its own and a line in kinds.h; nothing else tests for kinds.
 *
 * Functions of shapes are pure, and called only for shapes without a fault.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

struct cei_choice;                      /* chooser.h */
struct cei_choose_args;
struct cei_rates;
struct cei_listing;                     /* candidates.h */
struct cei_op_shape;                    /* shape.h */
struct cei_product_kind;                /* product.h */
struct cei_run;                         /* run.h */

/* Operands to measure with, in numbers of the shape's dtype; 0: there is none. Memory of
 * the same structure holds one pointer for each. */
struct cei_trial_sizes {
	uint32_t n;                     /* of b and c; at most CEOV_OP_GEMMS_MAX */
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

/* How an operator's tunings are measured. */
struct cei_op_trial {
	/* Adds the tunings that are worth measuring, behind the model's own. */
	void (*candidates)(const struct cei_listing *listing);

	void (*sizes)(const ceov_op *op, struct cei_trial_sizes *ret_sizes);

	/* The public run with these operands. */
	int  (*run)(ceov_op *op, const struct cei_trial_operands *operands);
};

struct cei_op_kind {
	const char *name;               /* the public noun, for messages */
	const char *key;                /* in keys of remembered tunings: no two kinds' are
					 * equal, and they never change */
	const char *run_call;           /* the public call that runs it; kinds may share one */
	uint32_t    run_bytes;          /* of that call's struct */
	uint32_t    n_phases;           /* launches of a run */

	/* Fills a shape that has its kind from the struct of the caller, which may be NULL or
	 * have a size that we do not know: then the shape has a fault. Returns the tuning
	 * that the caller has set, or NULL. */
	const struct ceov_op_tuning *(*shape)(struct cei_op_shape *shape, const void *from,
					      uint32_t n_ranks);

	/* What is refused of a shape that has ranks, or NULL. */
	const char *(*fault)(const struct cei_op_shape *shape);

	/* Why the workspace's executor cannot do it, or NULL. tuning may be NULL. The function
	 * is NULL where every executor can. */
	const char *(*lacks)(const ceov_workspace *workspace,
			     const struct ceov_op_tuning *tuning,
			     const struct cei_rates *rates);

	/* Bytes of one row, or element, of what moves. */
	uint64_t (*row_bytes)(const struct cei_op_shape *shape);

	/* Of one half. */
	uint64_t (*scratch_bytes)(const struct cei_op_shape *shape);

	/* Into how many pieces the model cuts. */
	uint32_t (*pieces)(const struct cei_op_shape *shape);

	/* Completes a choice that has the cut and what the caller has told of the way; a way
	 * that it leaves open becomes CEOV_WAY_OVERLAP. Sets nothing that the kind has no
	 * use for. */
	void (*choose)(const struct cei_choose_args *args, struct cei_choice *choice);

	/* Says what was chosen, line by line (cei_choice_say()). */
	void (*explain)(const struct cei_choose_args *args, struct cei_choice *choice);

	/* Adds the phases' transfers. Phases are zeroed. */
	int  (*build)(ceov_op *op);

	/* Checks the operands of a run, and sets its stream and what its phases send. */
	int  (*take)(struct cei_run *run);

	/* Queues what computes, after the launches. */
	int  (*job)(const struct cei_run *run);

	/* Releases what the op has of its own, also where that is half made. Runs have ended.
	 * NULL: it has nothing. */
	void (*fini)(ceov_op *op);

	/* NULL: nothing is measured, the model's choice stands. */
	const struct cei_op_trial *trial;

	/* NULL: it has no product. */
	const struct cei_product_kind *product;
};

#endif /* CEI_KIND_H */
