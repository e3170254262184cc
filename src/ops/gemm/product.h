/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PRODUCT_H
#define CEI_PRODUCT_H

/*
 * What operators with a product share: what is refused and what it costs (the functions of
 * struct cei_op_kind), their lists of tiles, and the product alone.
 */

#include <stdint.h>

#include "ops/compute/executor.h"
#include "ops/shape.h"

struct cei_choice;                      /* chooser.h */
struct cei_choose_args;
struct cei_rates;
struct cei_listing;                     /* candidates.h */
struct cei_play;                        /* forecast.h */

/* Of a kind with a product, besides. */
struct cei_product_kind {
	/* 0: rows are gathered; 1: partial sums are scattered, the own rows come last */
	int    scatters;

	/* Plays the run of rank 0 with a cut: see forecast.h. */
	void (*play)(struct cei_play *play);

	/* The job of a list of the op's, but for its marks; operands is the struct of the
	 * run call, scratch a half's base. */
	struct cei_gemm_job (*job)(const ceov_op *op, const void *operands, char *scratch,
				   const struct cei_tile_list *list);
};

/* For struct cei_op_kind. */
const char *cei_product_fault(const struct cei_op_shape *shape);
const char *cei_product_lacks(const ceov_workspace *workspace,
			      const struct ceov_op_tuning *tuning,
			      const struct cei_rates *rates);
uint32_t cei_product_pieces(const struct cei_op_shape *shape);
void cei_product_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_explain(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_candidates(const struct cei_listing *listing);

/* Lists the op's tiles and loads what executes them: here, and not by the first run, whose
 * kernels wait for peers. cei_product_fini() accepts what is half done. */
int  cei_product_prepare(ceov_op *op);
void cei_product_fini(ceov_op *op);

/* What the jobs of all products have: the rest is zeros. */
struct cei_gemm_job cei_product_job(const ceov_op *op, const struct cei_tile_list *list);

/* One without rows has no base. */
struct cei_matrix cei_product_matrix(const void *base, uint64_t rows, uint64_t columns);

/* B of product i as the shape has it: n[i] x k, or k x n[i]. */
struct cei_matrix cei_product_b(const struct cei_op_shape *shape, uint32_t i,
				const void *base);

/* For measuring: only the op's GEMM, on the run's stream, with a list that waits for
 * nothing and arrives nowhere; nothing is sent, scratch is read as it is. run is the
 * struct of the op's kind. Blocks until the workspace's runs are done, replays of graphs
 * excepted. INVALID: sums. TIMEOUT: runs are not done; else the error that ended one. */
int  cei_op_gemm_alone(ceov_op *op, const void *run);

#endif /* CEI_PRODUCT_H */
