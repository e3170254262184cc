/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PRODUCT_H
#define CEI_PRODUCT_H

/*
 * What operators with a product share: checks and costs (functions of struct cei_op_kind),
 * lists of tiles, and measuring the product alone.
 */

#include <stdint.h>

#include "ops/compute/executor.h"
#include "ops/shape.h"

struct cei_choice;                      /* selector.h */
struct cei_choose_args;
struct cei_rates;
struct cei_listing;                     /* candidates.h */
struct cei_play;                        /* cost_sim.h */
struct cei_cost_sim_args;               /* cost_sim.h */
struct cei_whole_kind;                  /* whole.h */

/* What a kind of operator with a product defines in addition to struct cei_op_kind. */
struct cei_product_kind {
	/* 0: rows of A are gathered; 1: the product, or partial sums of it, go to other ranks, and
	 * the tiles of what stays here come last, unless own_between moves them. */
	int    scatters;

	/* 1: in turns own pieces come between those of peers where a kernel of the library
	 * multiplies (tiles.h). As this lets bytes leave earlier, turns are chosen without a word
	 * where the model expects a gain. */
	int    own_between;

	/* Simulates a run of rank 0 with play->tile and play->n_pieces (cost_sim.h). Local kinds
	 * set no function: nothing is sent. */
	void (*play)(struct cei_play *play);

	/* Returns the job for one of the op's lists of tiles, without marks. operands: the public
	 * struct of the run call; scratch: the address of a half. */
	struct cei_gemm_job (*job)(const ceov_op *op, const void *operands, char *scratch,
				   const struct cei_tile_list *list);

	/* Sets the fields in which a list of the op's tiles is different from one of the shape's
	 * rows; rows is memory for args->rows. NULL: it is not different. */
	void (*ask)(const ceov_op *op, struct cei_tiles_args *args,
		    uint64_t rows[CEI_OP_RANKS_MAX]);

	/* NULL: in CEOV_MODE_TWO_SHOT, if the kind has that, jobs are as the kind itself says. */
	const struct cei_whole_kind *whole;
};

/* Takes what the caller says of a single product, except its rows, into the shape. */
void cei_product_take(struct cei_op_shape *shape, enum ceov_dtype dtype, uint64_t k, uint64_t n,
		      int b_is_k_by_n);

/* Functions that kinds with a product set in their struct cei_op_kind. Rows of row_bytes are
 * those of a single product. */
uint64_t    cei_product_row_bytes(const struct cei_op_shape *shape);
const char *cei_product_fault(const struct cei_op_shape *shape);
const char *cei_product_lacks(const ceov_workspace *workspace, const struct cei_op_shape *shape,
			      const struct ceov_op_tuning *tuning,
			      const struct cei_rates *rates);
uint32_t cei_product_pieces(const struct cei_op_shape *shape);
void cei_product_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_explain(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_candidates(const struct cei_listing *listing);

/* Counts the tiles that tiles.c would list. */
uint64_t cei_product_tiles(const struct cei_cost_sim_args *args);

/* Returns the rates of a product that may use only the SMs that the tuning says. cuBLAS does not
 * keep to a budget, so it is then no choice where there are kernels of our own. */
struct cei_rates cei_product_rates(const struct cei_rates *rates,
				   const struct ceov_op_tuning *given);

/* Returns what the caller sets at all ranks alike. The rest may differ between ranks, so nothing on
 * which they have to agree may depend on it. */
struct ceov_op_tuning cei_product_alike(const struct ceov_op_tuning *given);

/* Returns how long a run is predicted to take. Of a sequence the model knows the parts alone. */
double cei_product_run_ns(const struct cei_choose_args *args, const struct cei_choice *choice);

/* Appends lines to the explanation that say the shape of tiles, how many there are, and what the
 * next function says. */
void cei_product_say_tiles(const struct cei_choose_args *args, struct cei_choice *choice);

/* Appends lines to the explanation that say in which order tiles are computed, and how many SMs
 * they may use. */
void cei_product_say_order(const struct cei_choose_args *args, struct cei_choice *choice);

/* Returns the tile shape for cuBLAS: so many rows, and all columns. */
struct cei_tile_shape cei_product_whole_rows(uint64_t rows, uint64_t columns);

/* Lists the op's tiles, and loads the kernels that execute them. If the first run loaded them
 * instead, it could block, because its kernels wait for peers. cei_product_fini() frees the lists,
 * also after a failure. */
int  cei_product_prepare(ceov_op *op);

/* The two halves of it, for an op whose products are of other sizes than its shape says. The list
 * alone is product.all, or product.others and product.own. */
int  cei_product_list(ceov_op *op);
int  cei_product_load(ceov_op *op, const struct cei_gemm_job *job);
void cei_product_fini(ceov_op *op);

/* Divides the list of all tiles into product.pieces: for ops whose tiles all are of n_rows own
 * rows, after cei_product_prepare(). */
int  cei_product_cut(ceov_op *op, uint64_t n_rows);

/* Returns a job with the fields that jobs of all products share; the others are 0. */
struct cei_gemm_job cei_product_job(const ceov_op *op, const struct cei_tile_list *list);

/* Returns a matrix of this size. If it has no rows, its base is NULL. */
struct cei_matrix cei_product_matrix(const void *base, uint64_t rows, uint64_t columns);

/* Returns the matrix B of product i in the layout that the shape asks for: n[i] x k, or k x
 * n[i]. */
struct cei_matrix cei_product_b(const struct cei_op_shape *shape, uint32_t i,
				const void *base);

/* For measurements: runs only the op's GEMM, on the stream that `run` names, with tiles that
 * neither await nor raise marks. Nothing is sent, and scratch is read as it is. run: the public
 * struct of the op's run call. Before that it blocks until the workspace's runs have ended, except
 * for replays of graphs. CEOV_ERR_INVALID: the op has no product. CEOV_ERR_TIMEOUT: runs have not
 * ended within their deadline. Other errors: the error that ended a run. */
int  cei_op_gemm_alone(ceov_op *op, const void *run);

#endif /* CEI_PRODUCT_H */
