/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WHOLE_H
#define CEI_WHOLE_H

/*
 * CEOV_MODE_TWO_SHOT of products whose operand is gathered or exchanged, or whose results are
 * scattered or exchanged: the product and the transfers one after the other. All rows that the rank
 * computes are one product, by cuBLAS or by the library's kernels, and one direct kernel makes the
 * transfers (kernels/direct.h), before it or behind it:
 *
 *   all-gather, all-to-all + GEMM      peers' rows come to the half of scratch, or by mail; the
 *                                      kernel copies them and the own ones to one matrix, A
 *   GEMM + reduce-scatter, all-to-all  the product is one matrix; the kernel sends parts of it to
 *                                      peers, and adds up or copies what has come
 *
 * That matrix is memory of the op, and not of scratch: peers may store to scratch as soon as the
 * kernel has ended, and a captured run finds out only on the GPU which half it uses. Runs of a
 * workspace follow each other, so one matrix suffices.
 *
 * So small products lose nothing to doing one after the other: rows are not cut where ranks begin,
 * which would leave tiles half empty, and a copy engine would take longer to begin than the bytes
 * take to arrive.
 */

#include "ops/compute/direct.h"
#include "ops/core/op.h"
#include "ops/core/run.h"
#include "ops/gemm/product.h"
#include "ops/tuning/candidates.h"
#include "ops/tuning/selector.h"

struct cei_whole_ends {                 /* what the direct kernel of a run reads and writes */
	const void *source;
	void       *target;
};

/* What a kind defines that has this mode (struct cei_product_kind). scatters of that struct says
 * which comes first. */
struct cei_whole_kind {
	int is_sum;                     /* 1: what comes is added up; 0: it is copied */

	/* Returns how many rows the product of a rank has. */
	uint64_t (*rows)(const struct cei_op_shape *shape, uint32_t rank);

	/* Fills what two ranks exchange; all fields but those that struct cei_direct_span says to
	 * be unused. */
	void (*span)(const struct cei_op_shape *shape, uint32_t own, uint32_t rank,
		     struct cei_direct_span *span);

	/* Returns the memory at both ends of the transfers, of which one is op->product.whole, or
	 * memory of the caller's that has the same layout. operands: the public struct of the run
	 * call. */
	struct cei_whole_ends (*ends)(const ceov_op *op, const void *operands);

	/* Do in other modes what the functions of struct cei_op_kind do. */
	void (*choose)(const struct cei_choose_args *args, struct cei_choice *choice);
	void (*explain)(const struct cei_choose_args *args, struct cei_choice *choice);
	void (*candidates)(const struct cei_listing *listing);
};

/* Returns whether the op's mode is this one. */
static inline int cei_op_is_whole(const ceov_op *op)
{
	return op->choice.mode == CEOV_MODE_TWO_SHOT && op->kind->product->whole;
}

/* Returns why the shape is refused in a direct mode that has no lane of SMs, or NULL. */
const char *cei_whole_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode);

/* The functions choose() and explain() of a kind. This mode is chosen where the caller set it, or
 * left it open and this mode is predicted to take less time than what the kind chooses of the
 * others. */
void cei_whole_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_whole_explain(const struct cei_choose_args *args, struct cei_choice *choice);

/* Lists candidates of the kind's other modes, then those of this mode: by cuBLAS, if it is there,
 * and by each kernel. */
void cei_whole_candidates(const struct cei_listing *listing);

/* Sets the fields in which the list of tiles of a product of so many rows of one rank is different
 * from one of the shape's rows. memory: for one number. */
void cei_whole_ask(uint64_t n_rows, struct cei_tiles_args *args, uint64_t *memory);

/* Returns a job of such a list, as cei_product_job(). */
struct cei_gemm_job cei_whole_job(const ceov_op *op, const struct cei_tile_list *list);

/* The functions build() and job() of a kind for ops with this mode. */
int  cei_whole_build(ceov_op *op);
int  cei_whole_run(const struct cei_run *run);

#endif /* CEI_WHOLE_H */
