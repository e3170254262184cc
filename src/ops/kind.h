/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KIND_H
#define CEI_KIND_H

/*
 * The interface of one kind of operator. An operator is a constant of this type in a file
 * of its own and a line in kinds.h; nothing else tests for kinds.
 *
 * Functions of shapes are pure, and are called only for valid shapes.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

struct cei_choice;                      /* selector.h */
struct cei_choose_args;
struct cei_rates;
struct cei_listing;                     /* candidates.h */
struct cei_op_shape;                    /* shape.h */
struct cei_product_kind;                /* product.h */
struct cei_run;                         /* run.h */

/* Numbers of elements of the operands for a measurement, of the shape's dtype; 0: not used.
 * A struct of pointers has the same layout. */
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

/* How a kind's tunings are measured. */
struct cei_op_trial {
	/* Adds candidates behind the model's own choice. */
	void (*candidates)(const struct cei_listing *listing);

	void (*sizes)(const ceov_op *op, struct cei_trial_sizes *ret_sizes);

	/* The public run call with these operands. */
	int  (*run)(ceov_op *op, const struct cei_trial_operands *operands);
};

struct cei_op_kind {
	const char *name;               /* the public noun, for messages */
	const char *key;                /* part of the keys of stored tunings: unique, and never
					 * changed */
	const char *run_call;           /* name of the public run call; kinds may share one */
	uint32_t    run_bytes;          /* size of that call's struct */
	uint32_t    n_stages;           /* launches of a run */

	/* Fills a shape, whose kind is set, from the caller's struct. Where that is NULL or
	 * has an unknown size, the shape gets a fault. Returns the caller's tuning, or
	 * NULL. */
	const struct ceov_op_tuning *(*shape)(struct cei_op_shape *shape, const void *from,
					      uint32_t n_ranks);

	/* Why the shape is refused, or NULL. The shape has valid ranks. */
	const char *(*fault)(const struct cei_op_shape *shape);

	/* Why the workspace's executor does not support it, or NULL. tuning may be NULL.
	 * The function is NULL where every executor does. */
	const char *(*lacks)(const ceov_workspace *workspace,
			     const struct ceov_op_tuning *tuning,
			     const struct cei_rates *rates);

	/* Bytes of one row, or element, that is moved. */
	uint64_t (*row_bytes)(const struct cei_op_shape *shape);

	/* The scratch of one half. */
	uint64_t (*scratch_bytes)(const struct cei_op_shape *shape);

	/* The model's number of pieces. */
	uint32_t (*pieces)(const struct cei_op_shape *shape);

	/* Completes a choice that has the number of pieces and the mode that the caller
	 * set; CEOV_WAY_OVERLAP where the caller leaves it open. Sets only what the kind
	 * uses. */
	void (*choose)(const struct cei_choose_args *args, struct cei_choice *choice);

	/* Adds an explanation of the choice, line by line (cei_choice_say()). */
	void (*explain)(const struct cei_choose_args *args, struct cei_choice *choice);

	/* Adds the transfers of all stages, which are zeroed. */
	int  (*build)(ceov_op *op);

	/* Checks the operands of a run; sets its stream, and what its stages send. */
	int  (*take)(struct cei_run *run);

	/* Queues the computation, after the launches. */
	int  (*job)(const struct cei_run *run);

	/* Frees what the kind allocated in the op, also partly. Runs have ended. NULL:
	 * nothing to free. */
	void (*fini)(ceov_op *op);

	/* NULL: not measured; the model's choice stands. */
	const struct cei_op_trial *trial;

	/* NULL: without a product. */
	const struct cei_product_kind *product;
};

#endif /* CEI_KIND_H */
