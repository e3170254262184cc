/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PRODUCT_H
#define CEI_PRODUCT_H

/* What operators with a product share: their lists of tiles, and the product alone. */

#include <stdint.h>

#include "ops/executor.h"
#include "ops/shape.h"

/* A list of tiles and the executor's copy of it. */
struct cei_tile_list {
	struct cei_tiles tiles;
	void            *held;
};

struct cei_product {
	struct cei_tile_list all;
	struct cei_tile_list others;    /* in a sequence: what is sent, and ... */
	struct cei_tile_list own;       /* ... what is not; parts of all */
	struct cei_tile_list alone;     /* waits for nothing and arrives nowhere: made when
					 * first wanted; lock of the workspace */
};

/* Lists the op's tiles and loads what executes them: here, and not by the first run, whose
 * kernels wait for peers. */
int  cei_product_prepare(ceov_op *op);

/* Accepts what is half done. Runs have ended. */
void cei_product_fini(ceov_op *op);

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

/* The list that gemm_alone executes, with the workspace's lock held. */
int  cei_product_list_alone(ceov_op *op, const struct cei_tile_list **ret_list);

/* ag_gemm.c and gemm_rs.c: the job of gemm_alone. */
int  cei_ag_gemm_alone(ceov_op *op, const struct ceov_ag_gemm_run *run);
int  cei_gemm_rs_alone(ceov_op *op, const struct ceov_gemm_rs_run *run);

#endif /* CEI_PRODUCT_H */
