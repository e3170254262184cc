/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of operators, random or plain, and the public calls made with them. */

#include "op_rig.h"

#include <check.h>
#include <string.h>

#include "ops/core/workspace.h"
#include "ops/kind.h"
#include "ops/kinds.h"

#define PIECES_MAX  32u

static uint64_t pick_rows(uint64_t *random, int is_sum)
{
	switch (testing_below(random, 4)) {
	case 0:  return 0;
	case 1:  return is_sum ? 8 : 1 + testing_below(random, 3);
	default: return is_sum ? 8 * testing_below(random, 40) : testing_below(random, 40);
	}
}

static void pick_tuning(uint64_t *random, struct op_case *one)
{
	static const uint32_t tiles[] = { 1, 7, 8, 16, 32, 33, 64 };

	one->tuning.struct_bytes = sizeof(one->tuning);
	if (testing_below(random, 4) == 0) {
		one->tuning.mode = CEOV_MODE_SEQUENCE;
	} else {
		one->tuning.mode = CEOV_MODE_OVERLAP;
		one->tuning.n_pieces = 1 + (uint32_t)testing_below(random, 6);
		if (testing_below(random, 8) == 0)
			one->tuning.n_pieces = PIECES_MAX;
	}
	op_case_pick_order(one, random, 1);
	if (testing_below(random, 3))
		return;
	one->tuning.tile_rows = tiles[testing_below(random, 7)];
	one->tuning.tile_columns = tiles[testing_below(random, 7)];
}

struct op_case op_case_of(enum op_sort sort, uint32_t n_ranks, uint64_t rows, uint64_t k,
			  uint64_t n)
{
	struct op_case one;
	uint32_t i;

	memset(&one, 0, sizeof(one));
	one.sort = sort;
	one.dtype = CEOV_BF16;
	one.n_ranks = n_ranks;
	for (i = 0; i < n_ranks; i++)
		one.rows[i] = rows;
	one.k = k;
	one.n_gemms = 1;
	one.n[0] = n;
	one.tuning.struct_bytes = sizeof(one.tuning);
	return one;
}

int op_is_sum(enum op_sort sort)
{
	return sort == OP_REDUCE_SCATTER || sort == OP_ALL_REDUCE;
}

void op_case_pick_stride(struct op_case *one, uint64_t *random)
{
	uint32_t i;

	if (one->sort != OP_REDUCE_SCATTER || testing_below(random, 2))
		return;
	for (i = 0; i < one->n_ranks; i++)
		if (one->rows[i] > one->stride)
			one->stride = one->rows[i];
	one->stride += 8 * testing_below(random, 20);
}

void op_case_pick_scale(struct op_case *one, uint64_t *random)
{
	static const float scales[] = { 0.25f, 1 / 3.0f, -0.7f, 5 };

	if (one->sort == OP_REDUCE_SCATTER && testing_below(random, 2))
		one->scale = scales[testing_below(random, 4)];
}

float op_case_scale(const struct op_case *one, uint32_t rank)
{
	return one->scale != 0 ? one->scale * (float)(1 + rank) : 1;
}

void op_case_pick_order(struct op_case *one, uint64_t *random, uint32_t step)
{
	if (op_is_sum(one->sort) || testing_below(random, 2))
		return;
	one->tuning.tile_order = (enum ceov_op_order)testing_below(random, CEOV_ORDER_TURNS + 1);
	if (one->tuning.tile_order != CEOV_ORDER_COLUMNS)
		one->tuning.band_rows = step * (uint32_t)testing_below(random, 50);
	one->tuning.n_gemm_blocks = 2 * step * (uint32_t)testing_below(random, 3);
}

/* Pieces of columns take no tiles but those that divide the step in which columns are cut: 64 on
 * the host, 768 where kernels have tiles of 128 rows. */
static int may_cut_columns(const struct op_case *one)
{
	const struct ceov_op_tuning *tuning = &one->tuning;
	uint32_t step = tuning->tile_rows == 128 ? 768 : 64;

	return (one->sort == OP_GEMM_RS || one->sort == OP_GEMM_AR) &&
		(!tuning->tile_columns || step % tuning->tile_columns == 0);
}

void op_case_pick_cut(struct op_case *one, uint64_t *random, uint64_t chunk_bytes)
{
	uint32_t n_cuts = may_cut_columns(one) ? CEOV_CUT_COLUMNS + 1 : CEOV_CUT_GROWING + 1;

	if (!op_is_sum(one->sort))
		one->tuning.cut = (enum ceov_op_cut)testing_below(random, n_cuts);
	if (testing_below(random, 2))
		one->tuning.chunk_bytes = chunk_bytes + testing_below(random, 2 * chunk_bytes);
}

struct op_case op_case_random(uint64_t *random, uint32_t n_ranks)
{
	enum op_sort sort = (enum op_sort)testing_below(random, OP_SORTS);
	int is_sum = op_is_sum(sort);
	struct op_case one = op_case_of(sort, n_ranks, 0, 8 + 8 * testing_below(random, 5), 0);
	uint64_t sum = 0;
	uint32_t i;

	one.dtype = testing_below(random, 2) ? CEOV_BF16 : CEOV_FP16;
	if (is_sum && testing_below(random, 2))
		one.dtype = CEOV_FP32;
	for (i = 0; i < n_ranks; i++)
		sum += one.rows[i] = pick_rows(random, is_sum);
	if (!sum)
		one.rows[testing_below(random, n_ranks)] = 16;
	one.n_gemms = sort == OP_AG_GEMM ? 1 + (uint32_t)testing_below(random, 4) : 1;
	for (i = 0; i < one.n_gemms; i++)
		one.n[i] = 8 + 8 * testing_below(random, 6);
	one.b_is_k_by_n = (int)testing_below(random, 2);
	one.wants_gathered = (int)testing_below(random, 2);
	pick_tuning(random, &one);
	op_case_pick_cut(&one, random, 4096);
	op_case_pick_blocks(&one, random);
	op_case_pick_stride(&one, random);
	op_case_pick_scale(&one, random);
	return one;
}

uint64_t op_case_before(const struct op_case *one, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += one->rows[i];
	return sum;
}

/* Returns a rank's stride; it differs from rank to rank. */
static uint64_t stride_of(const struct op_case *one, uint32_t rank)
{
	return one->stride ? one->stride + 8 * rank : 0;
}

uint64_t op_case_part_at(const struct op_case *one, uint32_t rank, uint32_t part)
{
	return one->stride ? part * stride_of(one, rank) : op_case_before(one, part);
}

uint64_t op_case_source(const struct op_case *one, uint32_t rank)
{
	uint64_t end, last = 0;
	uint32_t part;

	for (part = 0; part < one->n_ranks; part++) {
		end = op_case_part_at(one, rank, part) + one->rows[part];
		last = one->rows[part] ? end : last;
	}
	return last;
}

/* --- all-to-all ------------------------------------------------------------ */

int op_is_a2a(enum op_sort sort)
{
	return sort == OP_GEMM_A2A || sort == OP_A2A_GEMM;
}

int op_case_can_be_whole(const struct op_case *one)
{
	return one->sort == OP_AG_GEMM || one->sort == OP_GEMM_RS ||
		(op_is_a2a(one->sort) && !one->by_columns);
}

/* Deals the columns out, 8 at a time. */
uint64_t op_case_part(const struct op_case *one, uint32_t rank)
{
	uint64_t all = one->sort == OP_GEMM_A2A ? one->n[0] : one->k, column, sum = 0;

	for (column = 0; column < all / 8; column++)
		if ((column * (1 + one->spread % 4) + one->spread) % one->n_ranks == rank)
			sum += 8;
	return sum;
}

uint64_t op_case_parts_before(const struct op_case *one, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += op_case_part(one, i);
	return sum;
}

uint64_t op_case_block(const struct op_case *one, uint32_t source, uint32_t target)
{
	if (one->by_columns)
		return one->rows[one->sort == OP_GEMM_A2A ? source : target];
	switch (one->spread ? (source * 7 + target * 13 + one->spread) % 5 : 4) {
	case 0:  return 0;
	case 1:  return 1;
	case 2:  return one->rows[source];
	case 3:  return (one->rows[source] + one->rows[target]) / 2;
	default: return one->rows[target];
	}
}

uint64_t op_case_leaves(const struct op_case *one, uint32_t source, uint32_t target)
{
	uint64_t sum = 0;
	uint32_t i;

	if (one->by_columns && one->sort == OP_GEMM_A2A)        /* all targets get the same rows */
		return target == one->n_ranks ? one->rows[source] : 0;
	for (i = 0; i < target; i++)
		sum += op_case_block(one, source, i);
	return sum;
}

uint64_t op_case_arrives(const struct op_case *one, uint32_t source, uint32_t target)
{
	uint64_t sum = 0;
	uint32_t i;

	if (one->by_columns && one->sort == OP_A2A_GEMM)
		return source == one->n_ranks ? one->rows[target] : 0;
	for (i = 0; i < source; i++)
		sum += op_case_block(one, i, target);
	return sum;
}

void op_case_pick_blocks(struct op_case *one, uint64_t *random)
{
	uint32_t i;
	uint64_t sum = 0;

	if (one->sort == OP_GEMM_AR)
		one->by_columns = (int)testing_below(random, 2);
	if (!op_is_a2a(one->sort))
		return;
	one->by_columns = (int)testing_below(random, 2);
	one->spread = (uint32_t)testing_below(random, 10);
	while (!sum) {
		for (i = 0; i < one->n_ranks; i++)
			sum += op_case_leaves(one, i, one->n_ranks);
		one->spread += !sum;
	}
}

uint64_t op_case_a_elements(const struct op_case *one, uint32_t rank)
{
	if (op_is_sum(one->sort))
		return op_case_source(one, rank);
	if (one->sort == OP_AG_GEMM)
		return one->rows[rank] * one->k;
	if (one->sort == OP_GEMM_RS || one->sort == OP_GEMM_AR)
		return op_case_before(one, one->n_ranks) * one->k;
	return op_case_leaves(one, rank, one->n_ranks) *
		(one->by_columns && one->sort == OP_A2A_GEMM ? op_case_part(one, rank) : one->k);
}

uint64_t op_case_c_elements(const struct op_case *one, uint32_t rank, uint32_t i)
{
	uint64_t all = op_case_before(one, one->n_ranks);

	switch (one->sort) {
	case OP_AG_GEMM:
	case OP_GEMM_AR:    return all * one->n[i];
	case OP_GEMM_RS:    return one->rows[rank] * one->n[0];
	case OP_ALL_REDUCE: return all;
	case OP_A2A_GEMM:   return op_case_arrives(one, one->n_ranks, rank) * one->n[0];
	case OP_GEMM_A2A:
		return op_case_arrives(one, one->n_ranks, rank) *
			(one->by_columns ? op_case_part(one, rank) : one->n[0]);
	default:            return one->rows[rank];
	}
}

/* The arrays of the public structs, for as long as these are used. */
struct arrays {
	uint64_t rows_of[OP_RANKS_MAX * OP_RANKS_MAX];
	uint64_t columns[OP_RANKS_MAX];
};

static void fill_arrays(const struct op_case *one, struct arrays *arrays)
{
	uint32_t i, target;

	for (i = 0; op_is_a2a(one->sort) && i < one->n_ranks; i++) {
		arrays->columns[i] = op_case_part(one, i);
		for (target = 0; target < one->n_ranks; target++)
			arrays->rows_of[i * one->n_ranks + target] =
				op_case_block(one, i, target);
	}
}

static struct ceov_gemm_a2a gemm_a2a_of(const struct op_case *one, struct arrays *arrays)
{
	struct ceov_gemm_a2a shape = { .struct_bytes = sizeof(shape) };

	fill_arrays(one, arrays);
	shape.dtype = one->dtype;
	shape.rows_of = one->by_columns ? NULL : arrays->rows_of;
	shape.rows = one->by_columns ? one->rows : NULL;
	shape.columns = one->by_columns ? arrays->columns : NULL;
	shape.k = one->k;
	shape.n = one->n[0];
	shape.tuning = &one->tuning;
	shape.b_is_k_by_n = one->b_is_k_by_n;
	return shape;
}

static struct ceov_a2a_gemm a2a_gemm_of(const struct op_case *one, struct arrays *arrays)
{
	struct ceov_a2a_gemm shape = { .struct_bytes = sizeof(shape) };

	fill_arrays(one, arrays);
	shape.dtype = one->dtype;
	shape.rows_of = one->by_columns ? NULL : arrays->rows_of;
	shape.rows = one->by_columns ? one->rows : NULL;
	shape.columns = one->by_columns ? arrays->columns : NULL;
	shape.k = one->k;
	shape.n = one->n[0];
	shape.tuning = &one->tuning;
	shape.b_is_k_by_n = one->b_is_k_by_n;
	return shape;
}

/* --- the public calls ------------------------------------------------------ */

static struct ceov_ag_gemm ag_gemm_of(const struct op_case *one)
{
	struct ceov_ag_gemm shape = { .struct_bytes = sizeof(shape) };

	shape.dtype = one->dtype;
	shape.rows = one->rows;
	shape.k = one->k;
	shape.n_gemms = one->n_gemms;
	memcpy(shape.n, one->n, sizeof(shape.n));
	shape.tuning = &one->tuning;
	shape.b_is_k_by_n = one->b_is_k_by_n;
	return shape;
}

static struct ceov_gemm_rs gemm_rs_of(const struct op_case *one)
{
	struct ceov_gemm_rs shape = { .struct_bytes = sizeof(shape) };

	shape.dtype = one->dtype;
	shape.rows = one->rows;
	shape.k = one->k;
	shape.n = one->n[0];
	shape.tuning = &one->tuning;
	shape.b_is_k_by_n = one->b_is_k_by_n;
	return shape;
}

static struct ceov_gemm_ar gemm_ar_of(const struct op_case *one)
{
	struct ceov_gemm_ar shape = { .struct_bytes = sizeof(shape) };

	shape.dtype = one->dtype;
	shape.m = op_case_before(one, one->n_ranks);
	shape.k = one->k;
	shape.n = one->n[0];
	shape.tuning = &one->tuning;
	shape.b_is_k_by_n = one->b_is_k_by_n;
	shape.by_rows = !one->by_columns;
	return shape;
}

static struct ceov_reduce reduce_of(const struct op_case *one, uint32_t rank)
{
	struct ceov_reduce shape = { .struct_bytes = sizeof(shape) };

	shape.dtype = one->dtype;
	shape.counts = one->rows;
	shape.tuning = &one->tuning;
	shape.stride = stride_of(one, rank);
	shape.scale = one->scale != 0 ? op_case_scale(one, rank) : 0;
	shape.by_node = one->node_of != NULL;
	return shape;
}

static const struct cei_op_kind *kind_of(enum op_sort sort)
{
	switch (sort) {
	case OP_AG_GEMM:    return &cei_ag_gemm;
	case OP_GEMM_RS:    return &cei_gemm_rs;
	case OP_GEMM_AR:    return &cei_gemm_ar;
	case OP_GEMM_A2A:   return &cei_gemm_a2a;
	case OP_A2A_GEMM:   return &cei_a2a_gemm;
	case OP_ALL_REDUCE: return &cei_all_reduce;
	default:            return &cei_reduce_scatter;
	}
}

void op_case_shape(const struct op_case *one, uint64_t blocks[OP_RANKS_MAX * OP_RANKS_MAX],
		   struct cei_op_shape *ret_shape)
{
	struct ceov_ag_gemm ag_gemm = ag_gemm_of(one);
	struct ceov_gemm_rs gemm_rs = gemm_rs_of(one);
	struct ceov_gemm_ar gemm_ar = gemm_ar_of(one);
	struct ceov_reduce reduce = reduce_of(one, 0);
	struct arrays arrays;
	struct ceov_gemm_a2a gemm_a2a = gemm_a2a_of(one, &arrays);
	struct ceov_a2a_gemm a2a_gemm = a2a_gemm_of(one, &arrays);
	const void *from = one->sort == OP_AG_GEMM ? (const void *)&ag_gemm
		: one->sort == OP_GEMM_RS ? (const void *)&gemm_rs
		: one->sort == OP_GEMM_AR ? (const void *)&gemm_ar
		: one->sort == OP_GEMM_A2A ? (const void *)&gemm_a2a
		: one->sort == OP_A2A_GEMM ? (const void *)&a2a_gemm : (const void *)&reduce;

	memset(ret_shape, 0, sizeof(*ret_shape));
	ret_shape->kind = kind_of(one->sort);
	ret_shape->n_ranks = one->n_ranks;
	(void)ret_shape->kind->shape(ret_shape, from, one->n_ranks);
	if (!ret_shape->blocks)
		return;
	memcpy(blocks, ret_shape->blocks, sizeof(*blocks) * one->n_ranks * one->n_ranks);
	ret_shape->blocks = blocks;
}

uint64_t op_case_scratch(const struct op_case *one)
{
	struct ceov_ag_gemm ag_gemm = ag_gemm_of(one);
	struct ceov_gemm_rs gemm_rs = gemm_rs_of(one);
	struct ceov_gemm_ar gemm_ar = gemm_ar_of(one);
	struct ceov_reduce reduce = reduce_of(one, 0);
	struct arrays arrays;
	struct ceov_gemm_a2a gemm_a2a = gemm_a2a_of(one, &arrays);
	struct ceov_a2a_gemm a2a_gemm = a2a_gemm_of(one, &arrays);

	switch (one->sort) {
	case OP_GEMM_A2A: return ceov_gemm_a2a_scratch_bytes(&gemm_a2a, one->n_ranks);
	case OP_A2A_GEMM: return ceov_a2a_gemm_scratch_bytes(&a2a_gemm, one->n_ranks);
	case OP_AG_GEMM: return ceov_ag_gemm_scratch_bytes(&ag_gemm, one->n_ranks);
	case OP_GEMM_RS: return ceov_gemm_rs_scratch_bytes(&gemm_rs, one->n_ranks);
	case OP_GEMM_AR: return ceov_gemm_ar_scratch_bytes(&gemm_ar, one->n_ranks);
	case OP_ALL_REDUCE: return ceov_all_reduce_scratch_bytes(&reduce, one->n_ranks);
	default: return ceov_reduce_scatter_scratch_bytes(&reduce, one->n_ranks);
	}
}

int op_case_create(const struct op_case *one, ceov_workspace *workspace, ceov_op **ret_op)
{
	struct ceov_ag_gemm ag_gemm = ag_gemm_of(one);
	struct ceov_gemm_rs gemm_rs = gemm_rs_of(one);
	struct ceov_gemm_ar gemm_ar = gemm_ar_of(one);
	struct ceov_reduce reduce = reduce_of(one, workspace->rank);
	struct arrays arrays;
	struct ceov_gemm_a2a gemm_a2a = gemm_a2a_of(one, &arrays);
	struct ceov_a2a_gemm a2a_gemm = a2a_gemm_of(one, &arrays);

	switch (one->sort) {
	case OP_GEMM_A2A: return ceov_gemm_a2a_create(workspace, &gemm_a2a, ret_op);
	case OP_A2A_GEMM: return ceov_a2a_gemm_create(workspace, &a2a_gemm, ret_op);
	case OP_AG_GEMM: return ceov_ag_gemm_create(workspace, &ag_gemm, ret_op);
	case OP_GEMM_RS: return ceov_gemm_rs_create(workspace, &gemm_rs, ret_op);
	case OP_GEMM_AR: return ceov_gemm_ar_create(workspace, &gemm_ar, ret_op);
	case OP_ALL_REDUCE: return ceov_all_reduce_create(workspace, &reduce, ret_op);
	default: return ceov_reduce_scatter_create(workspace, &reduce, ret_op);
	}
}

ceov_op *op_case_made(const struct op_case *one, ceov_workspace *workspace)
{
	ceov_op *op = NULL;

	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	return op;
}
