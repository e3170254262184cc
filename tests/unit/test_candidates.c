/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the list of candidates that a tuning measures. */

#include <check.h>
#include <string.h>

#include "ops/gemm/cost_sim.h"
#include "ops/kinds.h"
#include "ops/tuning/candidates.h"
#include "testing.h"

#define SHAPES 300u
#define MIB    (UINT64_C(1) << 20)

static struct cei_op_shape shape_of(const struct cei_op_kind *kind, uint64_t rows, uint64_t k,
				    uint64_t n)
{
	struct cei_op_shape shape = { .kind = kind, .dtype = CEOV_BF16, .n_ranks = 4 };
	uint32_t i;

	for (i = 0; i < shape.n_ranks; i++)
		shape.rows[i] = rows;
	shape.product.k = k;
	shape.product.n_products = n ? 1 : 0;
	shape.product.n[0] = n;
	return shape;
}

static struct cei_candidates list(const struct cei_op_shape *shape,
				  const struct ceov_op_tuning *given, int has_library)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates;

	rates.has_library = has_library;
	cei_candidates_list(shape, &rates, given, &candidates);
	return candidates;
}

static int is_same(const struct ceov_op_tuning *x, const struct ceov_op_tuning *y)
{
	return x->mode == y->mode && x->n_pieces == y->n_pieces &&
		x->tile_rows == y->tile_rows && x->tile_columns == y->tile_columns &&
		x->n_reduce_blocks == y->n_reduce_blocks && x->cut == y->cut &&
		x->chunk_bytes == y->chunk_bytes &&
		x->tile_order == y->tile_order && x->band_rows == y->band_rows &&
		x->n_gemm_blocks == y->n_gemm_blocks;
}

static int is_direct(const struct ceov_op_tuning *tuning)
{
	return tuning->mode == CEOV_MODE_DIRECT || tuning->mode == CEOV_MODE_TWO_SHOT;
}

static void check_list(const struct cei_candidates *candidates)
{
	const struct ceov_op_tuning *tuning;
	uint32_t i, k;

	ck_assert_uint_ge(candidates->n, 1);
	ck_assert_uint_le(candidates->n, CEI_CANDIDATES_MAX);
	for (i = 0; i < candidates->n; i++) {
		tuning = &candidates->tuning[i];
		ck_assert_ptr_null(cei_selector_fault(tuning));
		ck_assert_int_ne(tuning->mode, CEOV_MODE_CHOOSE);
		ck_assert_uint_ge(tuning->n_pieces, 1);
		ck_assert_uint_le(tuning->n_reduce_blocks, is_direct(tuning) ? 32 : 16);
		for (k = 0; k < i; k++)
			ck_assert(!is_same(tuning, &candidates->tuning[k]));
	}
}

static void check_is_models(const struct cei_op_shape *shape, const struct cei_rates *rates,
			    const struct cei_candidates *candidates)
{
	const struct ceov_op_tuning *first = &candidates->tuning[0];
	struct cei_choice choice;

	cei_selector_choose(shape, rates, NULL, &choice);
	ck_assert_int_eq(first->mode, choice.mode);
	ck_assert_uint_eq(first->n_pieces, choice.n_pieces);
	ck_assert_uint_eq(first->tile_rows, choice.shape.rows);
	ck_assert_uint_eq(first->tile_columns, choice.shape.columns);
}

static struct cei_op_shape random_shape(uint64_t *random)
{
	static const struct cei_op_kind *const kinds[] = {
		&cei_ag_gemm, &cei_gemm_rs, &cei_reduce_scatter, &cei_all_reduce
	};
	const struct cei_op_kind *kind = kinds[testing_below(random, 4)];
	int is_sum = kind == &cei_reduce_scatter || kind == &cei_all_reduce;
	struct cei_op_shape shape = shape_of(kind, 0, 0, 0);
	uint32_t i;

	shape.n_ranks = 1 + (uint32_t)testing_below(random, 4);
	for (i = 0; i < shape.n_ranks; i++)
		shape.rows[i] = 8 * testing_below(random, 1000);
	shape.rows[0] += 8;
	if (is_sum)
		return shape;
	shape.product.k = 8 + 8 * testing_below(random, 1000);
	shape.product.n_products = kind == &cei_gemm_rs ? 1
		: 1 + (uint32_t)testing_below(random, 3);
	for (i = 0; i < shape.product.n_products; i++)
		shape.product.n[i] = 8 + 8 * testing_below(random, 1000);
	return shape;
}

START_TEST(test_lists_are_sound_and_repeat)
{
	const struct cei_rates rates = cei_rates_gpu();
	uint64_t random = testing_seed();
	struct cei_candidates first, second;
	struct cei_op_shape shape;
	uint32_t i;

	for (i = 0; i < SHAPES; i++) {
		shape = random_shape(&random);
		first = list(&shape, NULL, 0);
		check_list(&first);
		check_is_models(&shape, &rates, &first);
		second = list(&shape, NULL, 0);
		ck_assert_uint_eq(cei_candidates_hash(first.tuning, first.n),
				  cei_candidates_hash(second.tuning, second.n));
		first = list(&shape, NULL, 1);
		check_list(&first);
	}
}
END_TEST

/* All candidates but the sequence are close to the one that the model prefers. */
START_TEST(test_products)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 4096, 4096);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates = list(&shape, NULL, 0);
	struct cei_cost_sim_args args = { .shape = &shape, .rates = &rates };
	double ns, best_ns = -1;
	uint32_t i, n_sequences = 0;

	ck_assert_uint_ge(candidates.n, 3);
	for (i = 0; i < candidates.n; i++) {
		if (candidates.tuning[i].mode == CEOV_MODE_SEQUENCE) {
			n_sequences++;
			continue;
		}
		args.n_pieces = candidates.tuning[i].n_pieces;
		args.cut = candidates.tuning[i].cut;
		args.tile.rows = candidates.tuning[i].tile_rows;
		args.tile.columns = candidates.tuning[i].tile_columns;
		ns = cei_cost_sim_ns(&args);
		ck_assert(ns > 0);
		if (best_ns < 0 || ns < best_ns)
			best_ns = ns;
	}
	ck_assert_uint_eq(n_sequences, 1);
	for (args.n_pieces = 1; args.n_pieces <= 8; args.n_pieces *= 2) {
		for (i = 0; args.tile = cei_selector_shape(&rates, i), args.tile.rows; i++)
			ck_assert(cei_cost_sim_ns(&args) >= best_ns);
	}
}
END_TEST

static double simulated(const struct cei_op_shape *shape, const struct ceov_op_tuning *tuning)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_cost_sim_args args = {
		shape, &rates, { tuning->tile_rows, tuning->tile_columns }, tuning->n_pieces,
		tuning->cut, tuning->tile_order };

	return cei_cost_sim_ns(&args);
}

/* Two equal pieces of 1152 rows are 2.25 pairs of tiles each, of which the last ones are nearly
 * empty; pieces that end with waves have whole pairs. In the other shape copies take longer than
 * the product, so a small first piece lets them begin early. */
START_TEST(test_cuts_that_gain_are_candidates)
{
	struct cei_op_shape shape = shape_of(_i ? &cei_gemm_ar : &cei_gemm_rs, _i ? 4096 : 1152,
					     _i ? 1024 : 3072, _i ? 8192 : 13568);
	enum ceov_op_cut wanted = _i ? CEOV_CUT_GROWING : CEOV_CUT_WAVES;
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .cut = CEOV_CUT_EQUAL };
	struct cei_candidates candidates;
	double ns, equal_ns = -1;
	uint32_t i, n_wanted = 0;

	candidates = list(&shape, &given, 1);
	check_list(&candidates);
	for (i = 0; i < candidates.n; i++) {
		ck_assert_int_eq(candidates.tuning[i].cut, CEOV_CUT_EQUAL);
		ns = simulated(&shape, &candidates.tuning[i]);
		if (candidates.tuning[i].mode == CEOV_MODE_OVERLAP &&
		    candidates.tuning[i].tile_order == CEOV_ORDER_BANDS && ns > 0 &&
		    (equal_ns < 0 || ns < equal_ns))
			equal_ns = ns;
	}
	ck_assert_double_gt(equal_ns, 0);
	candidates = list(&shape, NULL, 1);
	check_list(&candidates);
	ck_assert_int_eq(candidates.tuning[0].cut, CEOV_CUT_EQUAL);
	for (i = 0; i < candidates.n; i++) {
		if (candidates.tuning[i].cut == CEOV_CUT_EQUAL)
			continue;
		ck_assert_double_lt(simulated(&shape, &candidates.tuning[i]), 0.99 * equal_ns);
		n_wanted += candidates.tuning[i].cut == wanted;
	}
	ck_assert_uint_eq(n_wanted, 1);
}
END_TEST

static uint32_t n_of_order(const struct cei_candidates *candidates, enum ceov_op_order order,
			   uint32_t band_rows)
{
	uint32_t i, n = 0;

	for (i = 0; i < candidates->n; i++)
		n += candidates->tuning[i].tile_order == order &&
			candidates->tuning[i].band_rows == band_rows;
	return n;
}

/* Orders are tried where they differ from the usual one: turns between three ranks and more, higher
 * bands where pieces are higher than a band. */
START_TEST(test_orders_of_tiles)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 8192, 8192, 8192);
	struct cei_candidates candidates = list(&shape, NULL, 1);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };

	check_list(&candidates);
	ck_assert_int_eq(candidates.tuning[0].tile_order, CEOV_ORDER_BANDS);
	ck_assert_uint_eq(candidates.tuning[0].band_rows, 0);
	ck_assert_uint_eq(candidates.tuning[0].n_gemm_blocks, 0);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_TURNS, 0), 1);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_BANDS, 1024), 1);
	given.n_pieces = 1;
	candidates = list(&shape, &given, 1);
	check_list(&candidates);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_TURNS, 0), 0);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_BANDS, 1024), 1);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_BANDS, 4096), 1);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_COLUMNS, 0), 1);
	shape.n_ranks = 2;
	candidates = list(&shape, NULL, 1);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_TURNS, 0), 0);
	shape = shape_of(&cei_gemm_rs, 256, 4096, 4096);
	candidates = list(&shape, NULL, 1);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_BANDS, 0) +
			  n_of_order(&candidates, CEOV_ORDER_TURNS, 0), candidates.n);
}
END_TEST

/* Of a GEMM + all-reduce turns are more than another order, so they are tried between two ranks,
 * too, and cut unequally. Bands are tried beside them. */
START_TEST(test_turns_whose_sums_leave_earlier)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_ar, 28000 / 4, 4096, 7168);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	struct cei_candidates candidates = list(&shape, NULL, 1);
	uint32_t i, n_cuts = 0;

	check_list(&candidates);
	ck_assert_int_eq(candidates.tuning[0].tile_order, CEOV_ORDER_TURNS);
	ck_assert_uint_ge(n_of_order(&candidates, CEOV_ORDER_TURNS, 0), 2);
	ck_assert_uint_ge(n_of_order(&candidates, CEOV_ORDER_BANDS, 0), 1);
	for (i = 0; i < candidates.n; i++) {
		ck_assert(candidates.tuning[i].n_pieces > 1 ||
			  candidates.tuning[i].tile_order != CEOV_ORDER_TURNS);
		n_cuts += candidates.tuning[i].cut == CEOV_CUT_WAVES &&
			candidates.tuning[i].tile_order == CEOV_ORDER_TURNS;
	}
	ck_assert_uint_eq(n_cuts, 1);
	given.tile_order = CEOV_ORDER_BANDS;
	candidates = list(&shape, &given, 1);
	check_list(&candidates);
	ck_assert_uint_ge(candidates.n, 3);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_TURNS, 0), 0);
	shape.n_ranks = 2;
	candidates = list(&shape, NULL, 1);
	ck_assert_uint_ge(n_of_order(&candidates, CEOV_ORDER_TURNS, 0), 1);
}
END_TEST

/* 40 pairs of tiles or 66, one round of both is as long. */
START_TEST(test_a_budget_for_one_round)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 256, 4096, 10 * 256);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .n_pieces = 1,
					.tile_rows = 128, .tile_columns = 256 };
	struct cei_candidates candidates = list(&shape, &given, 1);
	uint32_t i, n = 0;

	check_list(&candidates);
	for (i = 0; i < candidates.n; i++) {
		if (!candidates.tuning[i].n_gemm_blocks)
			continue;
		ck_assert_uint_eq(candidates.tuning[i].n_gemm_blocks, 80);
		n++;
	}
	ck_assert_uint_eq(n, 1);
}
END_TEST

static int has_whole_rows(const struct cei_candidates *candidates, uint32_t columns)
{
	uint32_t i;

	for (i = 0; i < candidates->n; i++)
		if (candidates->tuning[i].mode == CEOV_MODE_OVERLAP &&
		    candidates->tuning[i].tile_columns == columns)
			return 1;
	return 0;
}

START_TEST(test_a_library_has_whole_rows)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 2048, 4096, 4096);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates = list(&shape, NULL, 0);
	uint32_t i;

	ck_assert(!has_whole_rows(&candidates, 4096));
	candidates = list(&shape, NULL, 1);
	ck_assert(has_whole_rows(&candidates, 4096));
	rates.has_library = 1;
	rates.has_tiles = 0;
	cei_candidates_list(&shape, &rates, NULL, &candidates);
	check_list(&candidates);
	ck_assert_uint_ge(candidates.n, 4);
	for (i = 0; i < candidates.n; i++)
		ck_assert_uint_eq(candidates.tuning[i].tile_columns, 4096);
}
END_TEST

START_TEST(test_sums)
{
	struct cei_op_shape shape = shape_of(&cei_all_reduce, 16 << 20, 0, 0);
	struct cei_candidates candidates = list(&shape, NULL, 1);
	uint32_t i, n[2] = { 0, 0 };

	check_list(&candidates);
	for (i = 0; i < candidates.n; i++) {
		ck_assert(candidates.tuning[i].n_reduce_blocks == 8 ||
			  candidates.tuning[i].n_reduce_blocks == 16);
		ck_assert_uint_eq(candidates.tuning[i].tile_rows, 0);
		n[candidates.tuning[i].n_reduce_blocks == 16]++;
	}
	ck_assert_uint_ge(n[0], 4);
	ck_assert_uint_ge(n[1], 4);
}
END_TEST

/* Lists the candidates of a small shape where ranks may reach each other's memory. Returns how many
 * have this mode. */
static uint32_t n_of_mode(const struct cei_op_shape *shape, int has_direct, enum ceov_op_mode mode)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates;
	uint32_t i, n = 0;

	rates.has_direct = has_direct;
	cei_candidates_list(shape, &rates, NULL, &candidates);
	check_list(&candidates);
	check_is_models(shape, &rates, &candidates);
	for (i = 0; i < candidates.n; i++)
		n += candidates.tuning[i].mode == mode;
	return n;
}

START_TEST(test_direct_modes)
{
	static const struct cei_op_kind *const kinds[] = {
		&cei_all_reduce, &cei_reduce_scatter, &cei_all_gather
	};
	const struct cei_op_kind *kind = kinds[_i];
	struct cei_op_shape small = shape_of(kind, 64 << 10, 0, 0), large, single;
	int is_all = kind == &cei_all_reduce;

	small.sum.scale = 1;
	ck_assert_uint_ge(n_of_mode(&small, 1, CEOV_MODE_DIRECT), 1);
	ck_assert_uint_eq(n_of_mode(&small, 1, CEOV_MODE_TWO_SHOT) > 0, is_all);
	ck_assert_uint_eq(n_of_mode(&small, 0, CEOV_MODE_DIRECT), 0);   /* several nodes */
	large = single = small;
	large.rows[2] = UINT64_C(129) << 20;    /* more than are measured, even of sums */
	single.n_ranks = 1;
	ck_assert_uint_eq(n_of_mode(&large, 1, CEOV_MODE_DIRECT), 0);
	ck_assert_uint_eq(n_of_mode(&large, 1, CEOV_MODE_TWO_SHOT), 0);
	ck_assert_uint_eq(n_of_mode(&single, 1, CEOV_MODE_DIRECT), 0);
	small.rows[2] = UINT64_C(1) << 20;      /* too large for one step, not for two */
	ck_assert_uint_eq(n_of_mode(&small, 1, CEOV_MODE_DIRECT) > 0, !is_all);
	ck_assert_uint_eq(n_of_mode(&small, 1, CEOV_MODE_TWO_SHOT) > 0, is_all);
}
END_TEST

/* Lists what is measured for a sum of so many bf16 values at the last of 4 ranks, and none at the
 * others. Returns how many candidates have the mode; *ret_most is the most SMs of one of them. */
static uint32_t n_of_sum(const struct cei_op_kind *kind, uint64_t n_values,
			 enum ceov_op_mode mode, uint32_t *ret_most)
{
	struct cei_op_shape shape = shape_of(kind, 0, 0, 0);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates;
	uint32_t i, n = 0, n_by_engines = 0;

	shape.rows[3] = n_values;
	shape.sum.scale = 1;
	rates.has_direct = 1;
	cei_candidates_list(&shape, &rates, NULL, &candidates);
	check_list(&candidates);
	check_is_models(&shape, &rates, &candidates);
	for (i = 0; i < candidates.n; i++)
		n_by_engines += candidates.tuning[i].mode == CEOV_MODE_OVERLAP;
	ck_assert_uint_gt(n_by_engines, 0);
	for (*ret_most = i = 0; i < candidates.n; i++) {
		if (candidates.tuning[i].mode != mode)
			continue;
		n++;
		if (candidates.tuning[i].n_reduce_blocks > *ret_most)
			*ret_most = candidates.tuning[i].n_reduce_blocks;
	}
	return n;
}

/* Sums of up to 256 MiB may be faster by SMs, of which those of more than 4 MiB take 16 at most.
 * Copy engines are among the candidates at all sizes. */
START_TEST(test_sums_of_many_bytes)
{
	static const struct {
		uint64_t n_bytes;
		uint32_t n;
		uint32_t most;
	} sizes[] = {
		{ MIB, 3, 32 }, { 4 * MIB, 3, 32 }, { 4 * MIB + 16, 2, 16 }, { 16 * MIB, 2, 16 },
		{ 256 * MIB, 2, 16 }, { 256 * MIB + 16, 0, 0 }
	};
	uint32_t most, i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_uint_eq(n_of_sum(&cei_all_reduce, sizes[i].n_bytes / 2,
					   CEOV_MODE_TWO_SHOT, &most), sizes[i].n);
		ck_assert_uint_eq(most, sizes[i].most);
		ck_assert_uint_eq(n_of_sum(&cei_reduce_scatter, sizes[i].n_bytes / 2,
					   CEOV_MODE_DIRECT, &most), sizes[i].n);
		ck_assert_uint_eq(most, sizes[i].most);
		ck_assert_uint_eq(n_of_sum(&cei_all_reduce, sizes[i].n_bytes / 2,
					   CEOV_MODE_DIRECT, &most) > 0, i == 0);
	}
}
END_TEST

/* Every candidate keeps what the caller's tuning sets. */
START_TEST(test_what_is_given_is_kept)
{
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 4096, 4096);
	struct cei_candidates candidates;
	uint32_t i;

	given.n_pieces = 7;
	candidates = list(&shape, &given, 1);
	check_list(&candidates);
	for (i = 0; i < candidates.n; i++)
		ck_assert_uint_eq(candidates.tuning[i].n_pieces, 7);
	given = (struct ceov_op_tuning){ .struct_bytes = sizeof(given) };
	given.cut = CEOV_CUT_GROWING;
	given.chunk_bytes = 1 << 20;
	candidates = list(&shape, &given, 1);
	check_list(&candidates);
	ck_assert_uint_ge(candidates.n, 4);
	for (i = 0; i < candidates.n; i++) {
		ck_assert_int_eq(candidates.tuning[i].cut, CEOV_CUT_GROWING);
		ck_assert_uint_eq(candidates.tuning[i].chunk_bytes, 1 << 20);
	}
	given = (struct ceov_op_tuning){ .struct_bytes = sizeof(given) };
	given.mode = CEOV_MODE_SEQUENCE;
	candidates = list(&shape, &given, 1);
	for (i = 0; i < candidates.n; i++)
		ck_assert_int_eq(candidates.tuning[i].mode, CEOV_MODE_SEQUENCE);
	given = (struct ceov_op_tuning){ .struct_bytes = sizeof(given) };
	given.tile_rows = 128;
	given.tile_columns = 192;
	candidates = list(&shape, &given, 1);
	for (i = 0; i < candidates.n; i++)
		ck_assert_uint_eq(candidates.tuning[i].tile_columns, 192);
	ck_assert_uint_ge(candidates.n, 2);
	given = (struct ceov_op_tuning){ .struct_bytes = sizeof(given) };
	given.tile_order = CEOV_ORDER_TURNS;
	given.band_rows = 512;
	given.n_gemm_blocks = 100;
	candidates = list(&shape, &given, 1);
	check_list(&candidates);
	ck_assert_uint_ge(candidates.n, 3);
	ck_assert_uint_eq(n_of_order(&candidates, CEOV_ORDER_TURNS, 512), candidates.n);
	for (i = 0; i < candidates.n; i++) {
		ck_assert_uint_eq(candidates.tuning[i].n_gemm_blocks, 100);
		ck_assert_uint_le(candidates.tuning[i].tile_columns, 256);      /* not cuBLAS */
	}
	given = (struct ceov_op_tuning){ .struct_bytes = sizeof(given) };
	given.n_reduce_blocks = 12;
	shape = shape_of(&cei_reduce_scatter, 16 << 20, 0, 0);
	candidates = list(&shape, &given, 1);
	ck_assert_uint_ge(candidates.n, 4);
	for (i = 0; i < candidates.n; i++)
		ck_assert_uint_eq(candidates.tuning[i].n_reduce_blocks, 12);
}
END_TEST

START_TEST(test_alone_nothing_is_cut)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 4096, 4096);
	struct cei_candidates candidates;
	uint32_t i;

	shape.n_ranks = 1;
	candidates = list(&shape, NULL, 1);
	check_list(&candidates);
	for (i = 1; i < candidates.n; i++)
		ck_assert_uint_eq(candidates.tuning[i].n_pieces, 1);
}
END_TEST

START_TEST(test_hashes)
{
	const struct ceov_op_tuning plain = {
		.struct_bytes = sizeof(plain), .mode = CEOV_MODE_OVERLAP, .n_pieces = 2,
		.tile_rows = 128, .tile_columns = 256, .n_reduce_blocks = 16,
		.tile_order = CEOV_ORDER_BANDS, .band_rows = 512, .n_gemm_blocks = 64,
	};
	struct ceov_op_tuning other[11], both[2];
	uint64_t hash = cei_candidates_hash(&plain, 1);
	uint32_t i;

	for (i = 0; i < 11; i++)
		other[i] = plain;
	other[0].mode = CEOV_MODE_SEQUENCE;
	other[1].n_pieces = 4;
	other[2].tile_rows = 256;
	other[3].tile_columns = 128;
	other[4].n_reduce_blocks = 8;
	other[5].tile_order = CEOV_ORDER_TURNS;
	other[6].band_rows = 256;
	other[7].n_gemm_blocks = 66;
	other[8].cut = CEOV_CUT_GROWING;
	other[9].chunk_bytes = 4096;
	ck_assert_uint_ne(hash, 0);
	ck_assert_uint_eq(hash >> 40, 0);
	for (i = 0; i < 10; i++)
		ck_assert_uint_ne(cei_candidates_hash(&other[i], 1), hash);
	ck_assert_uint_eq(cei_candidates_hash(&other[10], 1), hash);
	both[0] = plain;
	both[1] = other[1];
	hash = cei_candidates_hash(both, 2);
	both[0] = other[1];
	both[1] = plain;
	ck_assert_uint_ne(cei_candidates_hash(both, 2), hash);
	ck_assert_uint_ne(cei_candidates_hash(&plain, 0), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("candidates");
	TCase *all = tcase_create("list");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_lists_are_sound_and_repeat);
	tcase_add_test(all, test_products);
	tcase_add_loop_test(all, test_cuts_that_gain_are_candidates, 0, 2);
	tcase_add_test(all, test_orders_of_tiles);
	tcase_add_test(all, test_turns_whose_sums_leave_earlier);
	tcase_add_test(all, test_a_budget_for_one_round);
	tcase_add_test(all, test_a_library_has_whole_rows);
	tcase_add_test(all, test_sums);
	tcase_add_test(all, test_what_is_given_is_kept);
	tcase_add_loop_test(all, test_direct_modes, 0, 3);
	tcase_add_test(all, test_sums_of_many_bytes);
	tcase_add_test(all, test_alone_nothing_is_cut);
	tcase_add_test(all, test_hashes);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
