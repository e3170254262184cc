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

/* What a kind with a product defines in addition. */
struct cei_product_kind {
	/* 0: rows are gathered; 1: partial sums are scattered, and own rows come last */
	int    scatters;

	/* Simulates the run of rank 0 with a cut: see cost_sim.h. */
	void (*play)(struct cei_play *play);

	/* The job of one of the op's lists, without its marks. operands: the run call's
	 * struct; scratch: a half's address. */
	struct cei_gemm_job (*job)(const ceov_op *op, const void *operands, char *scratch,
				   const struct cei_tile_list *list);
};

/* Functions for struct cei_op_kind. */
const char *cei_product_fault(const struct cei_op_shape *shape);
const char *cei_product_lacks(const ceov_workspace *workspace,
			      const struct ceov_op_tuning *tuning,
			      const struct cei_rates *rates);
uint32_t cei_product_pieces(const struct cei_op_shape *shape);
void cei_product_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_explain(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_candidates(const struct cei_listing *listing);

/* Lists the op's tiles and loads what executes them, because the first run must not: its
 * kernels wait for peers. cei_product_fini() also cleans up after a failure. */
int  cei_product_prepare(ceov_op *op);
void cei_product_fini(ceov_op *op);

/* The fields that jobs of all products share; the others are 0. */
struct cei_gemm_job cei_product_job(const ceov_op *op, const struct cei_tile_list *list);

/* A matrix; without rows its base is NULL. */
struct cei_matrix cei_product_matrix(const void *base, uint64_t rows, uint64_t columns);

/* B of product i in the shape's layout: n[i] x k, or k x n[i]. */
struct cei_matrix cei_product_b(const struct cei_op_shape *shape, uint32_t i,
				const void *base);

/* For measurements: runs only the op's GEMM on the run's stream, with a list without waits
 * and arrivals; nothing is sent, and scratch is read as it is. run: the struct of the op's
 * kind. Blocks until the workspace's runs have ended, except replays of graphs. INVALID:
 * the op is a sum. TIMEOUT: runs have not ended; else the error that ended one. */
int  cei_op_gemm_alone(ceov_op *op, const void *run);

#endif /* CEI_PRODUCT_H */
