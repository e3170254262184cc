/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operators that ranks have created differently: every rank is told so before anything is sent, and
 * the workspace can be used further. */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ce_engine/objects/context.h"
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
	case 8: made.one = made.odd = plain(OP_GEMM_A2A); made.odd.rows[0] = 8;
		made.text = "blocks 8 "; break;
	case 9: made.one.tuning.n_pieces = made.odd.tuning.n_pieces = 3;
		made.odd.tuning.cut = CEOV_CUT_GROWING; made.text = ", cut "; break;
	default: made.one = plain(OP_ALL_REDUCE); made.one.tuning.mode = CEOV_MODE_DIRECT;
		made.odd = made.one; made.odd.tuning.n_reduce_blocks = 3;
		made.text = "SMs 3"; break;
	}
	return made;
}

#define DIFFERENCES 11

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
	testing_log_has(&log_, "rank 1 has not come to such a run", "ceov_reduce_run",
			"reduce_scatter of bf16");
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Two operators that all ranks have created before the first run. */
struct pair {
	struct op_case cases[2];
	ceov_op       *ops[OP_RANKS_MAX][2];
};

static struct pair pair_made(const struct op_rig *rig, struct op_case one, struct op_case other)
{
	struct pair made = { { one, other }, { { NULL } } };
	uint32_t rank, i;

	for (rank = 0; rank < rig->n_ranks; rank++)
		for (i = 0; i < 2; i++)
			made.ops[rank][i] = op_case_made(&made.cases[i], rig->workspaces[rank]);
	return made;
}

static void pair_release(const struct pair *pair, uint32_t n_ranks)
{
	uint32_t rank, i;

	for (rank = 0; rank < n_ranks; rank++)
		for (i = 0; i < 2; i++)
			ceov_op_release(pair->ops[rank][i]);
}

static void run_of_pair(const struct op_part *part, uint32_t i, int expected)
{
	const struct pair *pair = part->arg;
	struct op_data data;

	op_data_make(&pair->cases[i], part->rank, 1, &data);
	ck_assert_int_eq(op_data_run(&pair->cases[i], pair->ops[part->rank][i], &data), expected);
	if (!expected)
		op_data_check(&pair->cases[i], part->rank, 1, &data);
	op_data_free(&data);
}

/* One rank makes the runs of two operators the other way round. */
static void cross(const struct op_part *part)
{
	uint32_t first = part->rank == ODD_RANK;

	run_of_pair(part, first, CEOV_ERR_INVALID);
	run_of_pair(part, !first, CEOV_ERR_INVALID);
	run_of_pair(part, 0, 0);
	run_of_pair(part, 1, 0);
}

START_TEST(test_a_crossed_order_is_refused_at_all_ranks)
{
	struct op_rig rig;
	struct pair pair;
	uint32_t rank;
	char text[64];

	testing_log_init(&log_);
	op_rig_open(&rig, N_RANKS, SCRATCH, &log_);
	pair = pair_made(&rig, plain(OP_AG_GEMM), plain(OP_GEMM_RS));
	op_rig_each(&rig, cross, &pair);
	for (rank = 0; rank < N_RANKS; rank++) {
		snprintf(text, sizeof(text), "rank %u has ", rank);
		testing_log_has(&log_, text, "ag_gemm", "gemm_rs");
	}
	pair_release(&pair, N_RANKS);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- one thread for several ranks ------------------------------------------ */

/* Compares an op as a GPU rank does. */
static int compare_on_gpu(ceov_op *op)
{
	ceov_workspace *workspace = op->workspace;
	int r;

	workspace->is_host = 0;
	r = cei_agree_check(op);
	workspace->is_host = 1;
	return r;
}

/* One rank has created more operators than there are places for them, and runs some only. */
START_TEST(test_one_thread_runs_some_of_many_operators)
{
	static const uint32_t n = CEI_AGREE_SLOTS + 50;
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 2, 64, 0, 0);
	ceov_op *ops[CEI_AGREE_SLOTS + 50], *others[CEI_AGREE_SLOTS + 50] = { NULL };
	struct op_rig rig;
	uint32_t i;

	op_rig_open(&rig, 2, SCRATCH, NULL);
	for (i = 0; i < n; i++) {
		one.rows[0] = 8 * (1 + i);
		ops[i] = op_case_made(&one, rig.workspaces[0]);
		if (i % 97 == 0)
			others[i] = op_case_made(&one, rig.workspaces[1]);
	}
	for (i = 0; i < n; i += 97) {
		ck_assert_int_eq(compare_on_gpu(i % 2 ? ops[i] : others[i]), 0);
		ck_assert_int_eq(compare_on_gpu(i % 2 ? others[i] : ops[i]), 0);
	}
	for (i = 0; i < n; i++) {
		ceov_op_release(ops[i]);
		ceov_op_release(others[i]);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* What a peer has created does for a GPU rank of a process that holds several ranks; others wait
 * until the peer has come to its run. */
START_TEST(test_who_waits_for_the_peers_run)
{
	struct op_rig rig;
	struct pair pair;
	int is_host = _i == 1, expected = _i ? CEOV_ERR_TIMEOUT : 0;

	op_rig_open(&rig, 2, SCRATCH, NULL);
	pair = pair_made(&rig, op_case_of(OP_AG_GEMM, 2, 64, 64, 64),
			 op_case_of(OP_GEMM_RS, 2, 64, 64, 64));
	rig.workspaces[0]->deadline_ns = expected ? 50 * TESTING_MS : 10000 * TESTING_MS;
	rig.workspaces[0]->is_host = is_host;
	rig.context->site.n_members -= _i == 2;
	ck_assert_int_eq(cei_agree_check(pair.ops[0][0]), expected);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), expected);
	rig.workspaces[0]->is_host = 1;
	rig.context->site.n_members = 2;
	pair_release(&pair, 2);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* A peer that comes with another operator is refused. Then it will not run that one, nor one that
 * it has released. */
START_TEST(test_what_a_peer_will_not_run)
{
	struct op_rig rig;
	struct pair pair;

	testing_log_init(&log_);
	op_rig_open(&rig, 2, SCRATCH, &log_);
	pair = pair_made(&rig, op_case_of(OP_AG_GEMM, 2, 64, 64, 64),
			 op_case_of(OP_GEMM_RS, 2, 64, 64, 64));
	ck_assert_int_eq(compare_on_gpu(pair.ops[0][0]), 0);
	ck_assert_int_eq(compare_on_gpu(pair.ops[1][1]), CEOV_ERR_INVALID);
	testing_log_has(&log_, "rank 1 has gemm_rs", "rank 0 has ag_gemm", NULL);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[1]), 0);
	ceov_op_release(pair.ops[0][0]);
	ceov_op_release(pair.ops[1][0]);
	pair.ops[0][0] = op_case_made(&pair.cases[0], rig.workspaces[0]);
	pair.ops[1][0] = NULL;
	rig.workspaces[0]->deadline_ns = 50 * TESTING_MS;
	ck_assert_int_eq(compare_on_gpu(pair.ops[0][_i]), CEOV_ERR_TIMEOUT);
	pair_release(&pair, 2);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- long lists ------------------------------------------------------------ */

/* Makes pairs at all ranks of which the second ops differ in the last of many blocks. */
static struct pair pair_of_blocks(const struct op_rig *rig)
{
	const struct op_case one = op_case_of(OP_GEMM_A2A, rig->n_ranks, 8, 8, 8);
	uint32_t rank, i, at, n = rig->n_ranks * rig->n_ranks;
	struct pair pair = pair_made(rig, one, one);
	ceov_op *op;

	for (rank = 0; rank < rig->n_ranks; rank++) {
		for (i = 0; i < 2; i++) {
			op = pair.ops[rank][i];
			for (at = 0; at < n; at++)
				op->blocks[at] = 1000 + at + (i && at == n - 1);
			cei_agree_renew(op);
		}
	}
	return pair;
}

static struct pair pair_of_rows(const struct op_rig *rig, uint64_t shift)
{
	struct op_case one = op_case_of(OP_AG_GEMM, rig->n_ranks, 8, 8, 8), other;
	uint32_t i, last = rig->n_ranks - 1;

	for (i = 0; i < rig->n_ranks; i++)
		one.rows[i] = shift ? 8 + 8 * (i / 4) : 1000 + 8 * i;
	other = one;
	other.rows[shift ? 4 : last] = shift ? 8 : 1064;
	return pair_made(rig, one, other);
}

/* Lists differ at their end, in text or behind it, or only in how often a number is there. */
START_TEST(test_the_end_of_a_list_counts)
{
	static const char *const texts[] = { "and more (", " 1064, ", "8x5 16x3, " };
	struct op_rig rig;
	struct pair pair;

	testing_log_init(&log_);
	op_rig_open(&rig, OP_RANKS_MAX, SCRATCH, &log_);
	pair = _i ? pair_of_rows(&rig, (uint64_t)_i - 1) : pair_of_blocks(&rig);
	ck_assert_int_eq(compare_on_gpu(pair.ops[0][0]), 0);
	ck_assert_int_eq(compare_on_gpu(pair.ops[1][1]), CEOV_ERR_INVALID);
	testing_log_has(&log_, "rank 1 has ", "rank 0 has ", texts[_i]);
	pair_release(&pair, OP_RANKS_MAX);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- waits and refusals of one rank ---------------------------------------- */

/* Returns the counter by which a rank says what its first run of this number is. */
static uint32_t said_index(uint64_t number)
{
	return CEI_ALLREDUCE_COUNTERS + CEI_AGREE_SLOTS +
		(uint32_t)(number % CEI_AGREE_RUNS) * (1 + CEI_AGREE_TEXT_WORDS);
}

static void await_said(const struct op_rig *rig, uint32_t rank, uint64_t number)
{
	ck_assert_int_eq(ceov_signal_wait(rig->workspaces[rank]->allreduce.signals[rank],
					  said_index(number), number << 32,
					  20000 * TESTING_MS), 0);
}

struct waiting {
	struct op_part part;
	int            expected;
	pthread_t      thread;
};

static void *run_second(void *arg)
{
	const struct waiting *waiting = arg;

	run_of_pair(&waiting->part, 1, waiting->expected);
	return NULL;
}

static void wait_for_second(struct waiting *waiting)
{
	ck_assert_int_eq(pthread_create(&waiting->thread, NULL, run_second, waiting), 0);
	await_said(waiting->part.rig, waiting->part.rank, 2);
	ck_assert_int_eq(ceov_workspace_idle(waiting->part.rig->workspaces[0]), CEOV_PENDING);
}

/* While a thread of rank 0 waits for the first run of one operator, another one runs another
 * operator. */
static void run_beside(const struct op_part *part)
{
	struct waiting waiting = { .part = *part };

	run_of_pair(part, 0, 0);
	if (part->rank)
		await_said(part->rig, 0, 2);
	else
		wait_for_second(&waiting);
	run_of_pair(part, 0, 0);
	if (part->rank)
		run_of_pair(part, 1, 0);
	else
		pthread_join(waiting.thread, NULL);
}

START_TEST(test_other_runs_go_on_while_ranks_compare)
{
	struct op_rig rig;
	struct pair pair;

	op_rig_open(&rig, 2, SCRATCH, NULL);
	pair = pair_made(&rig, op_case_of(OP_AG_GEMM, 2, 64, 64, 64),
			 op_case_of(OP_GEMM_RS, 2, 64, 64, 64));
	op_rig_each(&rig, run_beside, &pair);
	pair_release(&pair, 2);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* What ceov_close() calls ends the wait of a thread that compares. */
static void end_beside(const struct op_part *part)
{
	struct waiting waiting = { .part = *part, .expected = CEOV_ERR_ABORTED };

	run_of_pair(part, 0, 0);
	if (part->rank)
		return;
	wait_for_second(&waiting);
	cei_workspace_end(part->rig->workspaces[0]);
	pthread_join(waiting.thread, NULL);
}

START_TEST(test_a_close_ends_the_wait)
{
	struct op_rig rig;
	struct pair pair;

	testing_log_init(&log_);
	op_rig_open(&rig, 2, SCRATCH, &log_);
	pair = pair_made(&rig, op_case_of(OP_AG_GEMM, 2, 64, 64, 64),
			 op_case_of(OP_GEMM_RS, 2, 64, 64, 64));
	op_rig_each(&rig, end_beside, &pair);
	testing_log_has(&log_, "ceov_close", "are aborted", NULL);
	pair_release(&pair, 2);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static void run_both(const struct op_part *part)
{
	run_of_pair(part, 0, 0);
	run_of_pair(part, 1, 0);
}

static int refuse_to_follow(struct cei_executor *executor, void *stream)
{
	(void)executor;
	(void)stream;
	return CEOV_ERR_STATE;
}

/* A run that its rank refuses by itself tells peers nothing, and can be made later. */
START_TEST(test_a_refusal_comes_before_ranks_compare)
{
	struct cei_executor_ops refusing = cei_executor_host;
	struct op_rig rig;
	struct pair pair;
	uint64_t value = 1;

	refusing.follow_mark = refuse_to_follow;
	op_rig_open(&rig, 2, SCRATCH, NULL);
	pair = pair_made(&rig, op_case_of(OP_AG_GEMM, 2, 64, 64, 64),
			 op_case_of(OP_GEMM_RS, 2, 64, 64, 64));
	rig.workspaces[0]->executor.ops = &refusing;
	run_of_pair(&(struct op_part){ &rig, 0, &pair }, 0, CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_signal_value(rig.workspaces[0]->allreduce.signals[0],
					   said_index(1), &value), 0);
	ck_assert_uint_eq(value, 0);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), 0);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	op_rig_each(&rig, run_both, &pair);
	pair_release(&pair, 2);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- ops that were tuned --------------------------------------------------- */

/* Gives the pair's first op what its second one has, at all ranks; then back again at all but
 * one. */
static void swap(const struct op_part *part)
{
	const struct pair *pair = part->arg;
	ceov_op *const *ops = pair->ops[part->rank];

	run_of_pair(part, 0, 0);
	cei_op_swap(ops[0], ops[1]);
	run_of_pair(part, 0, 0);
	cei_op_swap(ops[0], ops[1]);
	if (part->rank == ODD_RANK)
		cei_op_swap(ops[0], ops[1]);
	run_of_pair(part, 0, CEOV_ERR_INVALID);
}

START_TEST(test_a_tuned_op_is_compared_again)
{
	struct op_case one = plain(OP_AG_GEMM), other;
	struct op_rig rig;
	struct pair pair;

	one.tuning.n_pieces = 1;
	other = one;
	other.tuning.n_pieces = 3;
	testing_log_init(&log_);
	op_rig_open(&rig, N_RANKS, SCRATCH, &log_);
	pair = pair_made(&rig, one, other);
	op_rig_each(&rig, swap, &pair);
	testing_log_has(&log_, "pieces 3", "pieces 1", NULL);
	pair_release(&pair, N_RANKS);
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
	tcase_add_test(tcase, test_a_rank_creates_nothing);
	tcase_add_test(tcase, test_a_crossed_order_is_refused_at_all_ranks);
	tcase_add_test(tcase, test_one_thread_runs_some_of_many_operators);
	tcase_add_loop_test(tcase, test_who_waits_for_the_peers_run, 0, 3);
	tcase_add_loop_test(tcase, test_what_a_peer_will_not_run, 0, 2);
	tcase_add_loop_test(tcase, test_the_end_of_a_list_counts, 0, 3);
	tcase_add_test(tcase, test_other_runs_go_on_while_ranks_compare);
	tcase_add_test(tcase, test_a_close_ends_the_wait);
	tcase_add_test(tcase, test_a_refusal_comes_before_ranks_compare);
	tcase_add_test(tcase, test_a_tuned_op_is_compared_again);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
