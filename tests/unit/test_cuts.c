/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operators on host ranks whose rows are cut unequally, and whose copies have chunks of their own
 * size. */

#include <check.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "op_rig.h"
#include "ops/core/op.h"

#define RANKS   3u
#define SCRATCH UINT64_C(4000000)
#define SHAPES  250u

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- results --------------------------------------------------------------- */

static struct op_case random_product(uint64_t *random, enum op_sort sort)
{
	struct op_case one = op_case_of(sort, RANKS, 0, 8, 8 + 8 * testing_below(random, 6));
	uint32_t i;

	for (i = 0; i < RANKS; i++)
		if (testing_below(random, 6))
			one.rows[i] = testing_below(random, testing_below(random, 3) ? 90 : 400);
	if (op_is_a2a(sort))                    /* each rank has so many for every rank */
		for (i = 0; i < RANKS; i++)
			one.rows[i] /= RANKS;
	one.rows[0]++;
	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 1 + (uint32_t)testing_below(random, 7);
	if (testing_below(random, 9) == 0)
		one.tuning.n_pieces = CEI_OP_PIECES_MAX;
	one.tuning.cut = (enum ceov_op_cut)(1 + testing_below(random, CEOV_CUT_GROWING));
	one.tuning.chunk_bytes = testing_below(random, 2) ? 4096 : 0;
	op_case_pick_blocks(&one, random);
	return one;
}

static void run_shapes(const struct op_part *part)
{
	static const enum op_sort sorts[] = {
		OP_AG_GEMM, OP_GEMM_RS, OP_GEMM_AR, OP_GEMM_A2A, OP_A2A_GEMM
	};
	uint64_t random = *(const uint64_t *)part->arg;
	struct op_data data;
	struct op_case one;
	ceov_op *op;
	uint32_t i;

	for (i = 0; i < testing_share(SHAPES); i++) {
		one = random_product(&random, sorts[i % 5]);
		op = op_case_made(&one, part->rig->workspaces[part->rank]);
		ck_assert_int_eq(op->choice.cut.kind, one.tuning.cut);
		op_data_make(&one, part->rank, i, &data);
		ck_assert_int_eq(op_data_run(&one, op, &data), 0);
		op_data_check(&one, part->rank, i, &data);
		op_data_free(&data);
		ceov_op_release(op);
	}
}

START_TEST(test_every_cut_of_every_product)
{
	uint64_t random = testing_seed();
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, NULL);
	op_rig_each(&rig, run_shapes, &random);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Sends of the last piece are as small as the cut says: the plan has the sizes. */
START_TEST(test_plans_have_the_sizes)
{
	static const uint64_t shrinking[] = { 384, 320, 192, 128 };
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 1024, 8, 8);
	const struct cei_program *program;
	struct op_rig rig;
	uint32_t i, n = 0;
	ceov_op *op;

	one.tuning.n_pieces = 4;
	one.tuning.cut = _i ? CEOV_CUT_SHRINKING : CEOV_CUT_GROWING;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	program = &op->stages[0].plan[0]->program;
	for (i = 0; i < program->n_transfers; i++) {
		if (!program->transfers[i].row_bytes)
			continue;
		ck_assert_uint_lt(n, 4);
		ck_assert_uint_eq(program->transfers[i].row_bytes * program->transfers[i].n_rows,
				  16 * shrinking[_i ? n : 3 - n]);
		n++;
	}
	ck_assert_uint_eq(n, 4);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- chunks ---------------------------------------------------------------- */

static const struct cei_program *program_of(const ceov_op *op, uint32_t half)
{
	return &op->stages[0].plan[half]->program;
}

/* An op has as many marks as pieces, however small its chunks are. Its limit is at most the
 * context's. */
START_TEST(test_chunks_of_an_op)
{
	struct op_case one = op_case_of(_i ? OP_ALL_REDUCE : OP_GEMM_RS, 2, 16384, 8, 8);
	uint32_t n_transfers, half;
	struct op_rig rig;
	uint64_t most;
	ceov_op *op;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	most = rig.context->max_chunk_bytes;
	op = op_case_made(&one, rig.workspaces[0]);
	n_transfers = program_of(op, 0)->n_transfers;
	ck_assert_uint_eq(program_of(op, 0)->max_chunk_bytes, most);
	ceov_op_release(op);
	one.tuning.chunk_bytes = 5000;
	op = op_case_made(&one, rig.workspaces[0]);
	for (half = 0; half < 2; half++) {
		ck_assert_uint_eq(program_of(op, half)->max_chunk_bytes, 5000);
		ck_assert_uint_eq(program_of(op, half)->n_transfers, n_transfers);
		ck_assert_uint_ge(program_of(op, half)->n_chunks, 4 * n_transfers);
	}
	ceov_op_release(op);
	one.tuning.chunk_bytes = most + 1;
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(program_of(op, 1)->max_chunk_bytes, most);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- explanations ---------------------------------------------------------- */

static void expect_text(const ceov_op *op, const char *wanted)
{
	char text[1024];
	int ends[2];
	ssize_t n;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), 0);
	close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	close(ends[0]);
	ck_assert_msg(strstr(text, wanted) != NULL, "not there: %s in %s", wanted, text);
}

START_TEST(test_cuts_and_chunks_are_explained)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 2, 1024, 8, 8);
	struct op_case sum = op_case_of(OP_GEMM_AR, 2, 1024, 8, 8);
	struct op_rig rig;
	ceov_op *op;

	one.tuning.n_pieces = 4;
	one.tuning.cut = CEOV_CUT_GROWING;
	one.tuning.chunk_bytes = 5000;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	expect_text(op, "pieces: 4 of at most 6144 bytes (as given)\n"
		    "cut: growing (as given), rows 128 192 320 384\n");
	expect_text(op, "chunks: at most 5000 bytes (as given)\n");
	ceov_op_release(op);
	sum.tuning = one.tuning;
	op = op_case_made(&sum, rig.workspaces[0]);
	expect_text(op, "cut: growing (as given), rows 128 192 320 384\n");
	ceov_op_release(op);
	one.tuning.chunk_bytes = UINT64_MAX;
	op = op_case_made(&one, rig.workspaces[0]);
	expect_text(op, "bytes (the context's limit)\n");
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- refusals, and older structs ------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, NULL, NULL);
}

START_TEST(test_what_is_refused)
{
	struct op_case good = op_case_of(OP_GEMM_RS, 2, 8, 8, 8), bad = good;
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	bad.tuning.cut = (enum ceov_op_cut)6;
	expect_no_op(&rig, &bad, "cut is none of");
	bad.tuning.cut = (enum ceov_op_cut)-1;
	expect_no_op(&rig, &bad, "cut is none of");
	bad = good;
	bad.tuning.chunk_bytes = 4095;
	expect_no_op(&rig, &bad, "chunk_bytes is neither");
	bad = op_case_of(OP_REDUCE_SCATTER, 2, 8, 0, 0);
	bad.tuning.cut = CEOV_CUT_EQUAL;
	op = op_case_made(&bad, rig.workspaces[0]);
	ceov_op_release(op);
	bad.tuning.cut = CEOV_CUT_GROWING;
	expect_no_op(&rig, &bad, "this operator cuts into equal pieces");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* What lies behind the struct of a caller that knows neither field is not read. */
START_TEST(test_an_older_struct)
{
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 256, 8, 8);
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	one.tuning.struct_bytes = offsetof(struct ceov_op_tuning, chunk_bytes);
	one.tuning.n_pieces = 2;
	one.tuning.chunk_bytes = 7;
	one.tuning.cut = (enum ceov_op_cut)77;
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_int_eq(op->choice.cut.kind, CEOV_CUT_EQUAL);
	ck_assert_uint_eq(op->choice.chunk_bytes, 0);
	ck_assert_uint_eq(op->choice.n_pieces, 2);
	ceov_op_release(op);
	one.tuning.struct_bytes--;
	expect_no_op(&rig, &one, "struct_bytes is not the size");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *made = suite_create("cuts");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_every_cut_of_every_product);
	tcase_add_loop_test(all, test_plans_have_the_sizes, 0, 2);
	tcase_add_loop_test(all, test_chunks_of_an_op, 0, 2);
	tcase_add_test(all, test_cuts_and_chunks_are_explained);
	tcase_add_test(all, test_what_is_refused);
	tcase_add_test(all, test_an_older_struct);
	suite_add_tcase(made, all);
	return testing_run(made);
}
