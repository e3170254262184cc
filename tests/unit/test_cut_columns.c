/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Products on host ranks whose pieces are ranges of columns: results, the copies of a piece, what
 * ops say of it, and what is refused. */

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/plan.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/kinds.h"
#include "ops/tuning/candidates.h"

#define SCRATCH UINT64_C(2000000)
#define STEP    64u                     /* pieces begin at multiples of it on host ranks */
#define SHAPES  20u                     /* random shapes with each number of ranks */

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- results --------------------------------------------------------------- */

static struct op_case random_product(uint64_t *random, uint32_t n_ranks)
{
	enum op_sort sort = testing_below(random, 2) ? OP_GEMM_RS : OP_GEMM_AR;
	struct op_case one = op_case_of(sort, n_ranks, 0, 8 + 8 * testing_below(random, 4),
					8 + 8 * testing_below(random, 60));
	uint32_t i;

	for (i = 0; i < n_ranks; i++)
		if (testing_below(random, 5))
			one.rows[i] = testing_below(random, testing_below(random, 4) ? 20 : 70);
	one.rows[testing_below(random, n_ranks)]++;
	one.dtype = testing_below(random, 2) ? CEOV_BF16 : CEOV_FP16;
	one.b_is_k_by_n = (int)testing_below(random, 2);
	op_case_pick_blocks(&one, random);
	one.tuning.mode = testing_below(random, 8) ? CEOV_MODE_OVERLAP : CEOV_MODE_CHOOSE;
	one.tuning.n_pieces = 2 + (uint32_t)testing_below(random, 8);
	if (testing_below(random, 9) == 0)
		one.tuning.n_pieces = CEI_OP_PIECES_MAX;
	one.tuning.cut = CEOV_CUT_COLUMNS;
	one.tuning.chunk_bytes = testing_below(random, 2) ? 4096 : 0;
	op_case_pick_order(&one, random, 1);
	return one;
}

/* Ranks may differ in their tiles, as long as these divide the step, and in their order. */
static void pick_tile(struct op_case *one, uint64_t *random)
{
	static const uint32_t columns[] = { 4, 8, 16, 32, 64 };

	if (testing_below(random, 3) == 0) {
		one->tuning.tile_order = CEOV_ORDER_TURNS;
		return;
	}
	one->tuning.tile_rows = 1 + (uint32_t)testing_below(random, 40);
	one->tuning.tile_columns = columns[testing_below(random, 5)];
}

static void run_shapes(const struct op_part *part)
{
	uint64_t random = *(const uint64_t *)part->arg, own = random + part->rank;
	struct op_data data;
	struct op_case one;
	ceov_op *op;
	uint32_t i, run;

	for (i = 0; i < testing_share(SHAPES); i++) {
		one = random_product(&random, part->rig->n_ranks);
		pick_tile(&one, &own);
		op = op_case_made(&one, part->rig->workspaces[part->rank]);
		ck_assert_int_eq(op->choice.cut.kind, CEOV_CUT_COLUMNS);
		ck_assert_uint_eq(op->choice.n_pieces, one.tuning.n_pieces);
		op_data_make(&one, part->rank, i, &data);
		for (run = 0; run < 2; run++) { /* both halves of scratch */
			ck_assert_int_eq(op_data_run(&one, op, &data), 0);
			op_data_check(&one, part->rank, i, &data);
		}
		op_data_free(&data);
		ceov_op_release(op);
	}
}

START_TEST(test_results)
{
	uint64_t random = testing_seed();
	struct op_rig rig;

	op_rig_open(&rig, (uint32_t)_i, SCRATCH, NULL);
	op_rig_each(&rig, run_shapes, &random);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* The results are those of rows as pieces, bit by bit. */
static void run_both(const struct op_part *part)
{
	struct op_case one = op_case_of(OP_GEMM_RS, 3, 20, 24, 5 * STEP + 8);
	uint64_t hash[2];
	struct op_data data;
	ceov_op *op;
	int i;

	one.tuning.n_pieces = 3;
	for (i = 0; i < 2; i++) {
		one.tuning.cut = i ? CEOV_CUT_COLUMNS : CEOV_CUT_EQUAL;
		op = op_case_made(&one, part->rig->workspaces[part->rank]);
		op_data_make(&one, part->rank, 5, &data);
		ck_assert_int_eq(op_data_run(&one, op, &data), 0);
		hash[i] = op_data_hash(&data);
		op_data_free(&data);
		ceov_op_release(op);
	}
	ck_assert_uint_eq(hash[0], hash[1]);
}

START_TEST(test_bits_are_those_of_other_pieces)
{
	struct op_rig rig;

	op_rig_open(&rig, 3, SCRATCH, NULL);
	op_rig_each(&rig, run_both, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- copies ---------------------------------------------------------------- */

/* Each piece is one transfer of all the target's rows, with gaps between them, from the place of
 * its columns to the same place in the staging. */
START_TEST(test_a_piece_is_one_copy_with_gaps)
{
	static const uint64_t columns[] = { 2 * STEP, STEP, 40 };
	const uint64_t n = 3 * STEP + 40;
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 10, 8, n);
	const struct cei_program_transfer *at;
	const struct cei_program *program;
	uint64_t column = 0, source_at = 0, target_at = 0;
	struct op_rig rig;
	uint32_t i, found = 0;
	ceov_op *op;

	one.tuning.n_pieces = 3;
	one.tuning.cut = CEOV_CUT_COLUMNS;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	program = &op->stages[0].plan[0]->program;
	for (i = 0; i < program->n_transfers; i++) {
		at = &program->transfers[i];
		if (!at->row_bytes)
			continue;
		ck_assert_uint_lt(found, 3);
		ck_assert_uint_eq(at->n_rows, 10);
		ck_assert_uint_eq(at->row_bytes, 2 * columns[found]);
		ck_assert_uint_eq(at->source.pitch_bytes, 2 * n);
		ck_assert_uint_eq(at->target.pitch_bytes, 2 * n);
		if (!found) {
			source_at = at->source.offset_bytes;
			target_at = at->target.offset_bytes;
		}
		ck_assert_uint_eq(at->source.offset_bytes, source_at + 2 * column);
		ck_assert_uint_eq(at->target.offset_bytes, target_at + 2 * column);
		column += columns[found++];
	}
	ck_assert_uint_eq(found, 3);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* An all-reduce sends partial sums and sums, each piece of columns as one copy, to both peers. */
START_TEST(test_sums_leave_by_columns)
{
	struct op_case one = op_case_of(OP_GEMM_AR, 3, 10, 8, 3 * STEP);
	const struct cei_program *program;
	struct op_rig rig;
	uint32_t i, n = 0;
	ceov_op *op;

	one.tuning.n_pieces = 3;
	one.tuning.cut = CEOV_CUT_COLUMNS;
	one.tuning.tile_order = _i ? CEOV_ORDER_TURNS : CEOV_ORDER_BANDS;
	op_rig_open(&rig, 3, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[1]);
	program = &op->stages[!_i].plan[1]->program;    /* in turns one stage sends both */
	for (i = 0; i < program->n_transfers; i++) {
		if (!program->transfers[i].row_bytes)
			continue;
		ck_assert_uint_eq(program->transfers[i].row_bytes, 2 * STEP);
		ck_assert_uint_eq(program->transfers[i].n_rows, 10);
		n++;
	}
	ck_assert_uint_eq(n, _i ? 12 : 6);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A direct mode has one piece, so the cut has no effect there. */
static void run_direct(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;

	ck_assert_int_eq(op->choice.mode, one->tuning.mode);
	op_data_make(one, part->rank, 3, &data);
	ck_assert_int_eq(op_data_run(one, op, &data), 0);
	op_data_check(one, part->rank, 3, &data);
	op_data_free(&data);
	ceov_op_release(op);
}

START_TEST(test_direct_modes)
{
	struct op_case one = op_case_of(OP_GEMM_AR, 3, 10, 8, 3 * STEP);
	struct op_rig rig;

	one.tuning.mode = (enum ceov_op_mode)_i;
	one.tuning.cut = CEOV_CUT_COLUMNS;
	op_rig_open(&rig, 3, SCRATCH, NULL);
	op_rig_each(&rig, run_direct, &one);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- explanations ---------------------------------------------------------- */

static void explain(const ceov_op *op, char *text, size_t n_bytes)
{
	int ends[2];
	ssize_t n;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), 0);
	close(ends[1]);
	n = read(ends[0], text, n_bytes - 1);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	close(ends[0]);
}

START_TEST(test_columns_are_explained)
{
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 10, 8, 3 * STEP + 40);
	char text[1024];
	struct op_rig rig;
	ceov_op *op;

	one.rows[1] = 7;
	one.tuning.n_pieces = 3;
	one.tuning.cut = CEOV_CUT_COLUMNS;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	explain(op, text, sizeof(text));
	ck_assert_msg(strstr(text, "pieces: 3 of at most 2560 bytes (as given)\n"
			     "cut: columns (as given), all rows, columns 128 64 40\n"), "%s", text);
	ceov_op_release(op);
	one.tuning.n_pieces = 0;                /* a sequence has one piece */
	one.tuning.mode = CEOV_MODE_SEQUENCE;
	op = op_case_made(&one, rig.workspaces[0]);
	explain(op, text, sizeof(text));
	ck_assert_msg(!strstr(text, "cut:"), "%s", text);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- the model, and candidates --------------------------------------------- */

/* Each of 4 ranks has so many rows. */
static struct cei_op_shape shape_of(const struct cei_op_kind *kind, uint64_t rows)
{
	struct cei_op_shape shape = { .kind = kind, .dtype = CEOV_BF16, .n_ranks = 4 };
	uint32_t i;

	for (i = 0; i < shape.n_ranks; i++)
		shape.rows[i] = rows;
	shape.product.k = 4096;
	shape.product.n_products = 1;
	shape.product.n[0] = 28672;
	return shape;
}

/* Without a word rows are cut, however much columns would gain. */
START_TEST(test_the_model_does_not_choose_them)
{
	const struct cei_op_shape shape = shape_of(&cei_gemm_rs, 256);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .cut = CEOV_CUT_COLUMNS };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice usual, choice;

	cei_selector_choose(&shape, &rates, NULL, &usual);
	ck_assert_int_eq(usual.cut.kind, CEOV_CUT_EQUAL);
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_int_eq(choice.cut.kind, CEOV_CUT_COLUMNS);
	ck_assert_uint_ge(choice.n_pieces, 2);
	ck_assert_double_lt(choice.run_ns, 0.95 * usual.run_ns);
	ck_assert_ptr_nonnull(strstr(choice.text, "cut: columns (as given), all rows, columns "
				     "14592 14080\n"));
	given.mode = CEOV_MODE_SEQUENCE;
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.n_pieces, 1);
	ck_assert_ptr_null(strstr(choice.text, "cut:"));
}
END_TEST

static uint32_t n_by_columns(const struct cei_op_kind *kind, uint64_t rows)
{
	const struct cei_op_shape shape = shape_of(kind, rows);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates list;
	uint32_t i, n = 0;

	rates.has_library = 1;
	cei_candidates_list(&shape, &rates, NULL, &list);
	ck_assert_int_eq(list.tuning[0].cut, CEOV_CUT_EQUAL);
	for (i = 0; i < list.n; i++) {
		if (list.tuning[i].cut != CEOV_CUT_COLUMNS)
			continue;
		ck_assert_int_eq(list.tuning[i].mode, CEOV_MODE_OVERLAP);
		ck_assert_uint_ge(list.tuning[i].n_pieces, 2);
		n++;
	}
	return n;
}

START_TEST(test_candidates_for_few_rows)
{
	ck_assert_uint_eq(n_by_columns(&cei_gemm_rs, 256), 1);
	ck_assert_uint_eq(n_by_columns(&cei_gemm_rs, 8192), 0); /* rows are as good */
	ck_assert_uint_eq(n_by_columns(&cei_ag_gemm, 256), 0);
	ck_assert_uint_eq(n_by_columns(&cei_gemm_ar, 256), 1);
}
END_TEST

/* Where SMs may make the transfers they are measured with such pieces, too, if these gain. */
START_TEST(test_candidates_sent_by_sms)
{
	static const struct cei_op_kind *const kinds[] = {
		&cei_gemm_rs, &cei_gemm_ar, &cei_ag_gemm
	};
	const struct cei_op_shape shape = shape_of(kinds[_i], 256);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates list;
	uint32_t i, n = 0, n_direct = 0;

	rates.has_direct = rates.has_lanes = 1;
	cei_candidates_list(&shape, &rates, NULL, &list);
	for (i = 0; i < list.n; i++) {
		n_direct += list.tuning[i].mode == CEOV_MODE_DIRECT;
		if (list.tuning[i].mode != CEOV_MODE_DIRECT ||
		    list.tuning[i].cut != CEOV_CUT_COLUMNS)
			continue;
		ck_assert_uint_ge(list.tuning[i].n_pieces, 2);
		n++;
	}
	ck_assert_uint_ge(n_direct, 2 + n);
	ck_assert_uint_le(n, 2);
	ck_assert_int_eq(n > 0, _i < 2);
}
END_TEST

/* A lane's candidate has the order with which it was predicted to gain: in bands these pieces of an
 * all-reduce would lose. */
START_TEST(test_candidates_have_the_order_of_their_prediction)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_ar, 512);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates list;
	struct cei_choice choice;
	double rows_ns = 0;
	uint32_t i, n = 0;

	shape.product.k = 5120;
	shape.product.n[0] = 8192;
	rates.has_direct = rates.has_lanes = 1;
	cei_candidates_list(&shape, &rates, NULL, &list);
	for (i = 0; i < list.n; i++) {
		if (list.tuning[i].mode != CEOV_MODE_DIRECT)
			continue;
		cei_selector_choose(&shape, &rates, &list.tuning[i], &choice);
		if (list.tuning[i].cut == CEOV_CUT_COLUMNS) {
			ck_assert_double_lt(choice.run_ns, 0.991 * rows_ns);
			n++;
		} else {
			rows_ns = choice.run_ns;
		}
	}
	ck_assert_uint_ge(n, 1);
}
END_TEST

/* All candidates are then cut like that, none of them by cuBLAS but the sequence. */
START_TEST(test_candidates_where_it_is_given)
{
	const struct cei_op_shape shape = shape_of(&cei_gemm_rs, 256);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .cut = CEOV_CUT_COLUMNS };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates list;
	struct cei_tile_shape tile;
	uint32_t i, n_sequences = 0;

	rates.has_library = 1;
	cei_candidates_list(&shape, &rates, &given, &list);
	ck_assert_uint_ge(list.n, 4);
	for (i = 0; i < list.n; i++) {
		ck_assert_int_eq(list.tuning[i].cut, CEOV_CUT_COLUMNS);
		tile.rows = list.tuning[i].tile_rows;
		tile.columns = list.tuning[i].tile_columns;
		if (list.tuning[i].mode == CEOV_MODE_SEQUENCE)
			n_sequences++;
		else
			ck_assert(cei_selector_has_kernel(&rates, tile));
	}
	ck_assert_uint_eq(n_sequences, 1);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, NULL, NULL);
}

START_TEST(test_other_operators_refuse_it)
{
	static const enum op_sort sorts[] = {
		OP_AG_GEMM, OP_GEMM_A2A, OP_A2A_GEMM, OP_REDUCE_SCATTER, OP_ALL_REDUCE
	};
	struct op_case one = op_case_of(sorts[_i], 2, 16, 8, 256);
	struct op_rig rig;
	int mode;

	one.tuning.cut = CEOV_CUT_COLUMNS;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	for (mode = CEOV_MODE_CHOOSE; mode <= CEOV_MODE_SEQUENCE; mode++) {
		one.tuning.mode = (enum ceov_op_mode)mode;
		expect_no_op(&rig, &one, "this operator has no pieces of columns");
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A tile that reaches into the next piece is refused where there is a next piece. */
START_TEST(test_tiles_that_do_not_divide_the_step)
{
	static const uint32_t columns[] = { 24, 128 };
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 8, 8, 256);
	struct op_rig rig;

	one.tuning.cut = CEOV_CUT_COLUMNS;
	one.tuning.tile_rows = 8;
	one.tuning.tile_columns = columns[_i];
	op_rig_open(&rig, 2, SCRATCH, &log_);
	expect_no_op(&rig, &one, "tile_columns must divide 64");
	one.tuning.n_pieces = 2;
	expect_no_op(&rig, &one, "tile_columns must divide 64");
	one.tuning.n_pieces = 1;
	ceov_op_release(op_case_made(&one, rig.workspaces[0]));
	one.tuning.n_pieces = 0;
	one.tuning.mode = CEOV_MODE_SEQUENCE;
	ceov_op_release(op_case_made(&one, rig.workspaces[0]));
	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.tile_rows = one.tuning.tile_columns = 0;
	one.n[0] = UINT64_C(1) << 30;
	expect_no_op(&rig, &one, "n is too large for CEOV_CUT_COLUMNS");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* cuBLAS computes whole rows, so it is no choice with several pieces. */
START_TEST(test_a_library_does_not_take_them)
{
	const struct cei_op_shape shape = shape_of(&cei_gemm_rs, 256);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning), .cut = CEOV_CUT_COLUMNS };
	struct cei_rates rates = cei_rates_gpu();
	struct op_rig rig;

	rates.has_library = 1;
	rates.pair = 1;                         /* as the executor at hand, which is the host's */
	op_rig_open(&rig, 2, SCRATCH, &log_);
	ck_assert_ptr_null(cei_gemm_rs.lacks(rig.workspaces[0], &shape, &tuning, &rates));
	tuning.tile_rows = 128;
	tuning.tile_columns = 192;
	ck_assert_ptr_null(cei_gemm_rs.lacks(rig.workspaces[0], &shape, &tuning, &rates));
	rates.pair = 2;                         /* such a tile is then no kernel's */
	ck_assert_ptr_nonnull(strstr(cei_gemm_rs.lacks(rig.workspaces[0], &shape, &tuning, &rates),
				     "there is none for tiles of that shape"));
	rates.has_tiles = 0;
	ck_assert_ptr_nonnull(strstr(cei_gemm_rs.lacks(rig.workspaces[0], &shape, &tuning, &rates),
				     "needs kernels of this library"));
	tuning.n_pieces = 1;
	ck_assert_ptr_null(cei_gemm_rs.lacks(rig.workspaces[0], &shape, &tuning, &rates));
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("cut_columns");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 120);
	tcase_add_loop_test(all, test_results, 2, 9);
	tcase_add_test(all, test_bits_are_those_of_other_pieces);
	tcase_add_test(all, test_a_piece_is_one_copy_with_gaps);
	tcase_add_loop_test(all, test_sums_leave_by_columns, 0, 2);
	tcase_add_loop_test(all, test_direct_modes, CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT + 1);
	tcase_add_test(all, test_columns_are_explained);
	tcase_add_test(all, test_the_model_does_not_choose_them);
	tcase_add_test(all, test_candidates_for_few_rows);
	tcase_add_loop_test(all, test_candidates_sent_by_sms, 0, 3);
	tcase_add_test(all, test_candidates_have_the_order_of_their_prediction);
	tcase_add_test(all, test_candidates_where_it_is_given);
	tcase_add_loop_test(all, test_other_operators_refuse_it, 0, 5);
	tcase_add_loop_test(all, test_tiles_that_do_not_divide_the_step, 0, 2);
	tcase_add_test(all, test_a_library_does_not_take_them);
	suite_add_tcase(made, all);
	return testing_run(made);
}
