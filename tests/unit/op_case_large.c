/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Random cases of operators in the sizes that GPUs compute. */

#include "op_rig.h"

#define ROWS_MAX   UINT64_C(4096)       /* rows of all ranks together */
#define COUNTS_MAX (UINT64_C(1) << 21)
#define EXTENT_MAX UINT64_C(2048)       /* largest n and k */

static uint64_t pick_size(uint64_t *random)
{
	if (testing_below(random, 3) == 0)
		return 8 + 8 * testing_below(random, 16);
	return 8 + 8 * testing_below(random, EXTENT_MAX / 8);
}

/* Picks random numbers of rows, or of elements of sums in steps of 8. */
static uint64_t pick_rows(uint64_t *random, uint32_t n_ranks, int is_sum)
{
	uint64_t step = is_sum ? 8 : 1;
	uint64_t most = (is_sum ? COUNTS_MAX : ROWS_MAX) / n_ranks / step;

	switch (testing_below(random, 6)) {
	case 0:  return 0;
	case 1:  return step * (1 + testing_below(random, 130));
	case 2:  return is_sum ? step : 64 * (1 + testing_below(random, most / 64));
	default: return step * testing_below(random, most + 1);
	}
}

static void pick_tiles(uint64_t *random, struct op_case *one, int has_library)
{
	static const uint32_t columns[] = { 256, 192, 128 };
	uint64_t which = testing_below(random, has_library ? 6 : 5);

	if (which == 5) {
		one->tuning.tile_rows = OP_WIDE_ROWS;
		one->tuning.tile_columns = OP_WIDE_COLUMNS;
	} else if (which < 3) {
		one->tuning.tile_rows = 128;
		one->tuning.tile_columns = columns[which];
	}
}

static void pick_tuning(uint64_t *random, struct op_case *one, int has_library)
{
	static const uint32_t blocks[] = { 0, 1, 16, 64 };

	switch (testing_below(random, 8)) {
	case 0: break;
	case 1:
	case 2: one->tuning.mode = CEOV_MODE_SEQUENCE; break;
	default:
		one->tuning.mode = CEOV_MODE_OVERLAP;
		one->tuning.n_pieces = 1 + (uint32_t)testing_below(random, 8);
	}
	one->tuning.n_reduce_blocks = blocks[testing_below(random, 4)];
	if (one->k)
		pick_tiles(random, one, has_library);
	op_case_pick_cut(one, random, 1 << 18);
	op_case_pick_order(one, random, 24);
}

/* Leaves so few rows of a GEMM + all-reduce that columns are divided, if they may be. */
static void pick_few(struct op_case *one)
{
	uint32_t i;

	for (i = 0; one->sort == OP_GEMM_AR && one->by_columns && i < one->n_ranks; i++)
		one->rows[i] %= 128;
	if (!op_case_before(one, one->n_ranks))
		one->rows[0] = 1;
}

struct op_case op_case_large(uint64_t *random, uint32_t n_ranks, enum op_sort sort,
			     int has_library)
{
	int is_sum = op_is_sum(sort);
	struct op_case one = op_case_of(sort, n_ranks, 0, 0, 0);
	uint64_t sum = 0;
	uint32_t i;

	one.dtype = testing_below(random, 2) ? CEOV_BF16 : CEOV_FP16;
	if (is_sum && testing_below(random, 2))
		one.dtype = CEOV_FP32;
	for (i = 0; i < n_ranks; i++) {
		one.rows[i] = pick_rows(random, n_ranks, is_sum);
		if (op_is_a2a(sort))            /* each rank has so many for every rank */
			one.rows[i] /= n_ranks;
		sum += one.rows[i];
	}
	if (!sum)
		one.rows[testing_below(random, n_ranks)] = 64;
	one.n_gemms = sort == OP_AG_GEMM ? 1 + (uint32_t)testing_below(random, 3) : 1;
	for (i = 0; !is_sum && i < one.n_gemms; i++)
		one.n[i] = pick_size(random);
	one.k = is_sum ? 0 : pick_size(random);
	one.wants_gathered = (int)testing_below(random, 2);
	one.b_is_k_by_n = (int)testing_below(random, 2);
	op_case_pick_blocks(&one, random);
	pick_few(&one);
	pick_tuning(random, &one, has_library &&
		    !((sort == OP_GEMM_A2A || sort == OP_GEMM_AR) && one.by_columns));
	op_case_pick_stride(&one, random);
	op_case_pick_scale(&one, random);
	return one;
}
