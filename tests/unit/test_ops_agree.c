/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operators that ranks have created differently: every rank is told so before anything is sent, and
 * the workspace can be used further. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/core/agreed.h"

#define SCRATCH  (UINT64_C(1) << 20)
#define N_RANKS  3u
#define ODD_RANK 1u

static struct testing_log log_;

static struct op_case plain(enum op_sort sort)
{
	return op_case_of(sort, N_RANKS, 64, 64, 64);
}

struct difference {
	struct op_case one;             /* of all ranks but one */
	struct op_case odd;
	const char    *text;            /* that error messages have: what differs */
};

/* The kinds of difference: of sizes, types, kinds and modes. */
static struct difference difference_of(int which)
{
	struct difference made = { .one = plain(OP_AG_GEMM), .text = "k 128" };

	made.odd = made.one;
	switch (which) {
	case 0: made.odd.k = 128; break;
	case 1: made.odd.rows[2] = 128; made.text = "rows 64 64 128"; break;
	case 2: made.odd.dtype = CEOV_FP16; made.text = "ag_gemm of fp16"; break;
	case 3: made.odd.sort = OP_GEMM_RS; made.text = "gemm_rs of bf16"; break;
	case 4: made.odd.tuning.n_pieces = 3; made.text = "pieces 3"; break;
	case 5: made.odd.tuning.mode = CEOV_MODE_SEQUENCE; made.text = "sequence"; break;
	case 6: made.one.sort = made.odd.sort = OP_GEMM_RS; made.odd.n[0] = 72;
		made.text = "n 72"; break;
	case 7: made.one = plain(OP_ALL_REDUCE); made.odd = plain(OP_REDUCE_SCATTER);
		made.text = "reduce_scatter"; break;
	default: made.one = made.odd = plain(OP_GEMM_A2A); made.odd.rows[0] = 8;
		made.text = "blocks 8 "; break;
	}
	return made;
}

#define DIFFERENCES 9

static void run_once(const struct op_part *part, const struct op_case *one, int expected)
{
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	int i;

	op_data_make(one, part->rank, 1, &data);
	for (i = 0; i < 2; i++)         /* it stays refused */
		ck_assert_int_eq(op_data_run(one, op, &data), expected);
	if (!expected)
		op_data_check(one, part->rank, 1, &data);
	op_data_free(&data);
	ceov_op_release(op);
}

static void differ(const struct op_part *part)
{
	const struct difference *between = part->arg;
	ceov_workspace *workspace = part->rig->workspaces[part->rank];

	run_once(part, &between->one, 0);
	run_once(part, part->rank == ODD_RANK ? &between->odd : &between->one,
		 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	run_once(part, &between->one, 0);
}

START_TEST(test_every_rank_is_told)
{
	struct difference between = difference_of(_i);
	struct op_rig rig;
	uint32_t rank;
	char text[64];

	testing_log_init(&log_);
	op_rig_open(&rig, N_RANKS, SCRATCH, &log_);
	op_rig_each(&rig, differ, &between);
	for (rank = 0; rank < N_RANKS; rank++) {
		snprintf(text, sizeof(text), "rank %u has ", rank);
		testing_log_has(&log_, text, between.text, "in the same order");
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Sizes that stay at a rank may differ, if what is chosen by them does not. */
static void differ_at_home(const struct op_part *part)
{
	struct op_case gather = plain(OP_AG_GEMM);

	gather.tuning.n_pieces = 1;
	gather.tuning.mode = CEOV_MODE_OVERLAP;
	gather.n[0] += 8 * part->rank;
	gather.b_is_k_by_n = (int)(part->rank % 2);
	run_once(part, &gather, 0);
}

START_TEST(test_what_may_differ)
{
	struct op_rig rig;

	op_rig_open(&rig, N_RANKS, SCRATCH, NULL);
	op_rig_each(&rig, differ_at_home, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* One rank has created more operators than there are places for them, and runs some only. */
static void run_some(const struct op_part *part)
{
	static const uint32_t n = CEI_AGREE_SLOTS + 50;
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 2, 64, 0, 0);
	ceov_op *ops[CEI_AGREE_SLOTS + 50];
	struct op_data data;
	uint32_t i, step = part->rank ? 97 : 1;

	for (i = 0; i < n; i += step) {
		one.rows[0] = 8 * (1 + i);
		ops[i] = op_case_made(&one, workspace);
	}
	for (i = 0; i < n; i += 97) {
		one.rows[0] = 8 * (1 + i);
		op_data_make(&one, part->rank, 1, &data);
		ck_assert_int_eq(op_data_run(&one, ops[i], &data), 0);
		op_data_check(&one, part->rank, 1, &data);
		op_data_free(&data);
	}
	for (i = 0; i < n; i += step)
		ceov_op_release(ops[i]);
}

START_TEST(test_many_operators)
{
	struct op_rig rig;

	op_rig_open(&rig, 2, SCRATCH, NULL);
	op_rig_each(&rig, run_some, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A peer that has created nothing is waited for until the deadline, which ends the runs. */
START_TEST(test_a_rank_creates_nothing)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 2, 64, 0, 0);
	struct op_data data;
	struct op_rig rig;
	ceov_op *op;

	testing_log_init(&log_);
	op_rig_open(&rig, 2, SCRATCH, &log_);
	rig.workspaces[0]->deadline_ns = UINT64_C(100000000);
	op = op_case_made(&one, rig.workspaces[0]);
	op_data_make(&one, 0, 1, &data);
	ck_assert_int_eq(op_data_run(&one, op, &data), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), CEOV_ERR_TIMEOUT);
	testing_log_has(&log_, "rank 1 has not created such an operator", "ceov_reduce_run", NULL);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ops_agree");
	TCase *tcase = tcase_create("ops_agree");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_every_rank_is_told, 0, DIFFERENCES);
	tcase_add_test(tcase, test_what_may_differ);
	tcase_add_test(tcase, test_many_operators);
	tcase_add_test(tcase, test_a_rank_creates_nothing);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
