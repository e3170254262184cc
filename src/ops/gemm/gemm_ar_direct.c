/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Chooses between the direct modes of a GEMM + all-reduce, and queues their runs. */

#include "ops/gemm/gemm_ar_direct.h"

#include <string.h>

#include "ops/compute/dtype.h"
#include "ops/core/direct.h"
#include "ops/gemm/product.h"
#include "ops/gemm/whole.h"
#include "ops/tuning/direct_choice.h"

/* In two steps. Larger products take long enough to hide copies behind them. */
#define TWO_SHOT_BYTES_MAX (UINT64_C(4) << 20)

/* Up to so many rows the product is done as soon as B is read, which leaves little to overlap: with
 * 128 and 256 rows copy engines took twice to three times as long (same results). */
#define ROWS_MAX 256u

#define VECTOR_BYTES 16u                /* parts begin at multiples of it, as direct.h asks */

static uint64_t bytes_of(struct cei_gemm_ar_size size)
{
	return size.m * size.n * CEI_DTYPE16_BYTES;
}

/* Returns how many bytes a rank's part has in two steps, but for the last ranks, whose parts may be
 * shorter or empty. */
static uint64_t part_bytes(struct cei_gemm_ar_size size, uint32_t n_ranks)
{
	return cei_ceiling(bytes_of(size), (uint64_t)VECTOR_BYTES * n_ranks) * VECTOR_BYTES;
}

const char *cei_gemm_ar_direct_fault(struct cei_gemm_ar_size size,
				     const struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	if (mode == CEOV_MODE_DIRECT && bytes_of(size) > CEI_DIRECT_ONE_SHOT_MAX)
		return "tuning->mode: a result of more than 1 MiB is not summed in one step; take "
			"CEOV_MODE_TWO_SHOT";
	if (mode == CEOV_MODE_TWO_SHOT && bytes_of(size) > TWO_SHOT_BYTES_MAX)
		return "tuning->mode: a result of more than 4 MiB is not summed directly";
	return cei_direct_ranks_fault(shape);
}

uint64_t cei_gemm_ar_direct_scratch(struct cei_gemm_ar_size size, uint32_t n_ranks)
{
	uint64_t n_bytes = bytes_of(size), whole, parts;

	if (n_ranks == 1 || n_bytes > TWO_SHOT_BYTES_MAX)
		return 0;
	whole = n_bytes <= CEI_DIRECT_ONE_SHOT_MAX ? n_ranks * n_bytes : 0;
	parts = 2 * n_ranks * part_bytes(size, n_ranks);
	return whole > parts ? whole : parts;
}

enum ceov_op_mode cei_gemm_ar_direct_mode(struct cei_gemm_ar_size size, uint32_t n_ranks)
{
	if (n_ranks == 1 || n_ranks > CEI_DIRECT_RANKS_MAX || size.m > ROWS_MAX ||
	    bytes_of(size) > TWO_SHOT_BYTES_MAX)
		return CEOV_MODE_CHOOSE;
	return cei_direct_all_reduce_mode(bytes_of(size), n_ranks);
}

uint64_t cei_gemm_ar_direct_span(struct cei_gemm_ar_size size, uint32_t n_ranks,
				 enum ceov_op_mode mode)
{
	return mode == CEOV_MODE_DIRECT ? bytes_of(size) : part_bytes(size, n_ranks);
}

void cei_gemm_ar_direct_choose(const struct cei_choose_args *args, struct cei_gemm_ar_size size,
			       struct cei_choice *choice)
{
	uint64_t span_bytes = cei_gemm_ar_direct_span(size, args->shape->n_ranks, choice->mode);

	cei_direct_choose(args, span_bytes, choice);
	cei_direct_choose_ll(args, 1, span_bytes, choice);
}

/* --- the product ------------------------------------------------------------ */

void cei_gemm_ar_direct_ask(struct cei_gemm_ar_size size, struct cei_tiles_args *args,
			    uint64_t *memory)
{
	cei_whole_ask(size.m, args, &memory[0]);
	memory[1] = size.n;
	args->columns = &memory[1];
}

struct cei_gemm_job cei_gemm_ar_direct_product(const ceov_op *op, struct cei_gemm_ar_size size,
					       const struct ceov_gemm_ar_run *operands,
					       const struct cei_tile_list *list)
{
	struct cei_gemm_job job = cei_whole_job(op, list);
	uint64_t k = op->shape.product.k;

	job.a[CEI_GEMM_A_OWN] = cei_product_matrix(operands->a, size.m, k);
	job.b[0] = op->shape.product.b_is_k_by_n ? cei_product_matrix(operands->b, k, size.n)
		: cei_product_matrix(operands->b, size.n, k);
	job.c[0] = cei_product_matrix(operands->c, size.m, size.n);
	return job;
}

int cei_gemm_ar_direct_build(ceov_op *op, struct cei_gemm_ar_size size)
{
	static const struct ceov_gemm_ar_run none;
	struct cei_gemm_job job;
	int r = cei_direct_build(op);

	if (!r)
		r = cei_product_list(op);
	if (r)
		return r;
	job = cei_gemm_ar_direct_product(op, size, &none, &op->product.all);
	return cei_product_load(op, &job);
}

/* --- runs ------------------------------------------------------------------- */

/* Returns the bytes of a rank's part, and sets where it begins in C. */
static uint64_t part_of(struct cei_gemm_ar_size size, uint32_t n_ranks, uint32_t rank,
			uint64_t *ret_at)
{
	uint64_t all = bytes_of(size), part = part_bytes(size, n_ranks);
	uint64_t at = rank * part < all ? rank * part : all;

	*ret_at = at;
	return all - at < part ? all - at : part;
}

/* Fills what this rank and another one exchange if each sends to another one that one's part of
 * C. */
static void fill_part(const struct cei_direct_job *job, struct cei_gemm_ar_size size,
		      uint32_t rank, struct cei_direct_span *span)
{
	uint64_t part = part_bytes(size, job->n_ranks), at;

	span->n_here = part_of(size, job->n_ranks, job->own, &at);
	span->n_leaves = part_of(size, job->n_ranks, rank, &at);
	span->leaves = span->place = at;
	span->there = job->own * part;
	span->here = rank * part;
}

static int sum_up(const struct cei_run *run, struct cei_gemm_ar_size size)
{
	const struct ceov_gemm_ar_run *operands = run->operands;
	const ceov_op *op = run->op;
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_direct_job job;
	uint32_t rank;

	memset(&job, 0, sizeof(job));
	cei_direct_job(run, &job);
	job.is_sum = 1;
	job.dtype = op->shape.dtype;
	job.scale = 1;
	job.source = job.target = operands->c;
	job.gathers = op->choice.mode == CEOV_MODE_TWO_SHOT;
	job.gather_at = job.n_ranks * part_bytes(size, job.n_ranks);
	for (rank = 0; rank < job.n_ranks; rank++)
		if (job.gathers)
			fill_part(&job, size, rank, &job.spans[rank]);
		else
			cei_direct_span_whole(bytes_of(size), job.own, rank, &job.spans[rank]);
	return executor->ops->direct(executor, run->stream, &job);
}

int cei_gemm_ar_direct_job(const struct cei_run *run, struct cei_gemm_ar_size size)
{
	struct cei_executor *executor = &run->op->workspace->executor;
	struct cei_gemm_job job = cei_gemm_ar_direct_product(run->op, size, run->operands,
							     &run->op->product.all);
	int r = executor->ops->gemm(executor, run->stream, &job);

	return r ? r : sum_up(run, size);
}
