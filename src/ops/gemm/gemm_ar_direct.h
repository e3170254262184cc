/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_AR_DIRECT_H
#define CEI_GEMM_AR_DIRECT_H

/*
 * GEMM + all-reduce of few bytes, without copy engines: the product of all rows and columns goes
 * to the caller's C, and a small all-reduce by SMs adds up the Cs of all ranks in place
 * (kernels/direct.h). With few rows a copy engine would take longer to begin than the sums take,
 * and the product takes as long as reading B does, which cuBLAS spreads over all SMs.
 */

#include "ops/core/op.h"
#include "ops/core/run.h"
#include "ops/tuning/candidates.h"
#include "ops/tuning/selector.h"

/* m x n, the size of C; the same at all ranks. */
struct cei_gemm_ar_size {
	uint64_t m;
	uint64_t n;
};

/* The function direct_fault of the kind. */
const char *cei_gemm_ar_direct_fault(struct cei_gemm_ar_size size,
				     const struct cei_op_shape *shape, enum ceov_op_mode mode);

/* Returns how many bytes of a half of scratch the direct modes need. */
uint64_t cei_gemm_ar_direct_scratch(struct cei_gemm_ar_size size, uint32_t n_ranks);

/* Returns the direct mode that the library chooses for the shape on one node; CEOV_MODE_CHOOSE:
 * none, the model chooses another mode. */
enum ceov_op_mode cei_gemm_ar_direct_mode(struct cei_gemm_ar_size size, uint32_t n_ranks);

/* Returns the most bytes that a rank sends to another one in a step. */
uint64_t cei_gemm_ar_direct_span(struct cei_gemm_ar_size size, uint32_t n_ranks,
				 enum ceov_op_mode mode);

/* Completes a choice whose mode is direct, but for the shape of tiles. */
void cei_gemm_ar_direct_choose(const struct cei_choose_args *args, struct cei_gemm_ar_size size,
			       struct cei_choice *choice);

/* Sets the fields in which the list of tiles of the whole product is different from one of the
 * shape's rows; memory: for two numbers. */
void cei_gemm_ar_direct_ask(struct cei_gemm_ar_size size, struct cei_tiles_args *args,
			    uint64_t *memory);

/* Returns the job of the whole product, without marks. */
struct cei_gemm_job cei_gemm_ar_direct_product(const ceov_op *op, struct cei_gemm_ar_size size,
					       const struct ceov_gemm_ar_run *operands,
					       const struct cei_tile_list *list);

/* Parts of the functions build() and job() of the kind. */
int  cei_gemm_ar_direct_build(ceov_op *op, struct cei_gemm_ar_size size);
int  cei_gemm_ar_direct_job(const struct cei_run *run, struct cei_gemm_ar_size size);

#endif /* CEI_GEMM_AR_DIRECT_H */
