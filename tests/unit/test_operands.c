/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests operands that runs of operators refuse, and invalid numbers in their structs. There is one
 * host rank, so an accepted run has ended on return. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "op_expect.h"
#include "ops/core/op.h"

#define SCRATCH  UINT64_C(400000)
#define ROWS     16u
#define K        24u
#define COLUMNS  8u
#define PLACES   8u                     /* more places than any run has operands */
#define BYTES    1024u                  /* larger than any operand here */

static struct testing_log log_;
static _Alignas(16) char memory[PLACES][BYTES];

static void set_up(void)
{
	testing_log_init(&log_);
}

/* an operand that tests move to different addresses */
struct place {
	const char *name;
	uint64_t    n_bytes;
	int         is_result;
};

struct trial {
	enum op_sort        sort;
	const struct place *places;
	uint32_t            n;
};

static const struct place ag_gemm[] = {
	{ "a", ROWS * K * 2, 0 },
	{ "b[0]", COLUMNS * K * 2, 0 },
	{ "b[1]", COLUMNS * K * 2, 0 },
	{ "c[0]", ROWS * COLUMNS * 2, 1 },
	{ "c[1]", ROWS * COLUMNS * 2, 1 },
	{ "gathered", ROWS * K * 2, 1 },
};

static const struct place product[] = {
	{ "a", ROWS * K * 2, 0 },
	{ "b", COLUMNS * K * 2, 0 },
	{ "c", ROWS * COLUMNS * 2, 1 },
};

static const struct place sum[] = {
	{ "source", ROWS * 2, 0 },
	{ "target", ROWS * 2, 1 },
};

static const struct trial trials[] = {
	{ OP_AG_GEMM, ag_gemm, 6 },
	{ OP_GEMM_RS, product, 3 },
	{ OP_GEMM_AR, product, 3 },
	{ OP_GEMM_A2A, product, 3 },
	{ OP_A2A_GEMM, product, 3 },
	{ OP_REDUCE_SCATTER, sum, 2 },
	{ OP_ALL_REDUCE, sum, 2 },
};

static int run(const struct trial *trial, ceov_op *op, char *const *at)
{
	struct ceov_ag_gemm_run gathers = { .struct_bytes = sizeof(gathers) };
	struct ceov_gemm_rs_run scatters = { .struct_bytes = sizeof(scatters) };
	struct ceov_gemm_ar_run gathers_sums = { .struct_bytes = sizeof(gathers_sums) };
	struct ceov_reduce_run adds = { .struct_bytes = sizeof(adds) };
	const struct op_data data = { .a = at[0], .b = { at[1] }, .c = { at[2] } };

	switch (trial->sort) {
	case OP_AG_GEMM:
		gathers.a = at[0];
		gathers.b[0] = at[1];
		gathers.b[1] = at[2];
		gathers.c[0] = at[3];
		gathers.c[1] = at[4];
		gathers.gathered = at[5];
		return ceov_ag_gemm_run(op, &gathers);
	case OP_GEMM_RS:
		scatters.a = at[0];
		scatters.b = at[1];
		scatters.c = at[2];
		return ceov_gemm_rs_run(op, &scatters);
	case OP_GEMM_AR:
		gathers_sums.a = at[0];
		gathers_sums.b = at[1];
		gathers_sums.c = at[2];
		return ceov_gemm_ar_run(op, &gathers_sums);
	case OP_GEMM_A2A:
	case OP_A2A_GEMM:
		return op_a2a_run(&(struct op_case){ .sort = trial->sort }, op, &data);
	default:
		adds.source = at[0];
		adds.target = at[1];
		return ceov_reduce_run(op, &adds);
	}
}

static void open_trial(const struct trial *trial, struct op_rig *rig, ceov_op **ret_op)
{
	struct op_case one = op_case_of(trial->sort, 1, ROWS, K, COLUMNS);

	one.n_gemms = trial->sort == OP_AG_GEMM ? 2 : 1;
	one.n[1] = COLUMNS;
	op_rig_open(rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig->workspaces[0], ret_op), 0);
}

static void place_all(char **at)
{
	uint32_t i;

	for (i = 0; i < PLACES; i++)
		at[i] = memory[i];
}

static void expect_refusal(const struct trial *trial, ceov_op *op, char *const *at,
			   const char *text)
{
	ceov_context *context = op->workspace->object.context;
	uint64_t n_runs = op->workspace->n_runs;
	struct ceov_failure failure;

	/* Reads the failure instead of the log, which only counts repeated lines. */
	(void)ceov_last_failure(context, &failure);
	ck_assert_int_eq(run(trial, op, at), CEOV_ERR_INVALID);
	failure = testing_failure(context);
	ck_assert_msg(strstr(failure.text, text) && strstr(failure.text, "rank 0"),
		      "'%s': no '%s'", failure.text, text);
	ck_assert_uint_eq(op->workspace->n_runs, n_runs);
}

/* Moves an operand so that it overlaps the first 16 bytes of operand i, then the last 16, then ends
 * just before it. The message names a result before an input, and of two results the one that comes
 * first in its struct. */
static void try_overlap(const struct trial *trial, ceov_op *op, uint32_t i, uint32_t other)
{
	const struct place *one = &trial->places[i], *two = &trial->places[other];
	int is_first = one->is_result && (!two->is_result || i < other);
	char *at[PLACES], text[64];

	place_all(at);
	at[i] = memory[PLACES - 1];     /* memory without other operands near it */
	at[other] = at[i] - two->n_bytes + 16;
	snprintf(text, sizeof(text), "%s overlaps %s", is_first ? one->name : two->name,
		 is_first ? two->name : one->name);
	if (one->is_result || two->is_result)
		expect_refusal(trial, op, at, text);
	else
		ck_assert_int_eq(run(trial, op, at), 0);
	at[other] -= 16;
	ck_assert_int_eq(run(trial, op, at), 0);
}

START_TEST(test_results_overlap_nothing)
{
	const struct trial *trial = &trials[_i];
	char *at[PLACES];
	struct op_rig rig;
	ceov_op *op = NULL;
	uint32_t i, other;

	open_trial(trial, &rig, &op);
	place_all(at);
	ck_assert_int_eq(run(trial, op, at), 0);
	for (i = 0; i < trial->n; i++) {
		for (other = 0; other < trial->n; other++)
			if (other != i)
				try_overlap(trial, op, i, other);
	}
	place_all(at);
	at[trial->n - 1] = at[0];
	expect_refusal(trial, op, at, "overlaps");
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_addresses_that_are_refused)
{
	const struct trial *trial = &trials[_i];
	char *at[PLACES], text[64];
	struct op_rig rig;
	ceov_op *op = NULL;
	uint32_t i;

	open_trial(trial, &rig, &op);
	for (i = 0; i < trial->n; i++) {
		place_all(at);
		at[i] += 8;
		snprintf(text, sizeof(text), "%s is not aligned", trial->places[i].name);
		expect_refusal(trial, op, at, text);
		at[i] = (char *)(UINTPTR_MAX - 15);
		snprintf(text, sizeof(text), "%s has %u bytes from", trial->places[i].name,
			 (uint32_t)trial->places[i].n_bytes);
		expect_refusal(trial, op, at, text);
		if (!strcmp(trial->places[i].name, "gathered"))
			continue;       /* an optional operand that may be NULL */
		at[i] = NULL;
		snprintf(text, sizeof(text), "%s is NULL", trial->places[i].name);
		expect_refusal(trial, op, at, text);
	}
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- numbers ----------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, NULL, NULL);
	ck_assert_uint_eq(op_case_scratch(one), 0);
}

/* Each message names the limit that was exceeded, also for numbers whose low 32 bits are 0. */
START_TEST(test_sizes_above_their_limits)
{
	enum op_sort sort = _i ? OP_GEMM_RS : OP_AG_GEMM;
	struct op_case good = op_case_of(sort, 1, 8, 8, 8), bad = good;
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	bad.k = UINT64_C(1) << 32;
	expect_no_op(&rig, &bad, "k is above 2^31");
	bad.k = UINT64_MAX - 7;
	expect_no_op(&rig, &bad, "k is above 2^31");
	bad = good;
	bad.n[0] = UINT64_C(1) << 32;
	expect_no_op(&rig, &bad, "n is above 2^31");
	bad.k = 12;
	expect_no_op(&rig, &bad, "k must be a multiple of 8");
	bad = good;
	bad.rows[0] = UINT64_C(1) << 32;
	expect_no_op(&rig, &bad, "too many rows");
	bad.rows[0] = bad.k = UINT64_C(1) << 30;
	expect_no_op(&rig, &bad, "too many elements");
	bad = good;
	bad.dtype = (enum ceov_dtype)-1;
	expect_no_op(&rig, &bad, "dtype");
	bad = good;
	bad.b_is_k_by_n = -1;
	expect_no_op(&rig, &bad, "b_is_k_by_n must be 0 or 1");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* With the largest allowed sizes the computed scratch size does not wrap around. */
START_TEST(test_sizes_at_their_limits)
{
	struct op_case one = op_case_of(_i ? OP_GEMM_RS : OP_AG_GEMM, 8, 0, 8, 8);
	struct op_case many = op_case_of(OP_ALL_REDUCE, 8, 0, 0, 0);

	one.rows[7] = UINT64_C(1) << 17;
	one.k = one.n[0] = UINT64_C(1) << 31;
	ck_assert_uint_eq(op_case_scratch(&one),
			  (UINT64_C(1) << 49) + (_i ? UINT64_C(8) << 49 : 0));
	many.dtype = CEOV_FP32;
	many.rows[7] = UINT64_C(1) << 48;
	ck_assert_uint_eq(op_case_scratch(&many), (UINT64_C(8) << 50) + (UINT64_C(1) << 50));
	many.rows[6] = 8;
	ck_assert_uint_eq(op_case_scratch(&many), 0);
}
END_TEST

static void expect_no_tuning(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_lt(op_case_create(one, rig->workspaces[0], &op), 0);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, NULL, NULL);
}

START_TEST(test_tunings_that_mean_nothing)
{
	struct op_case bad = op_case_of(OP_AG_GEMM, 1, 64, 8, 8);
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	bad.tuning.mode = (enum ceov_op_mode)-1;
	expect_no_tuning(&rig, &bad, "tuning->mode is none of");
	bad.tuning.mode = CEOV_MODE_CHOOSE;
	bad.tuning.n_pieces = UINT32_MAX;
	expect_no_tuning(&rig, &bad, "n_pieces is above 32");
	bad.tuning.n_pieces = 0;
	bad.tuning.n_reduce_blocks = 129;
	expect_no_tuning(&rig, &bad, "n_reduce_blocks is above 128");
	bad.tuning.n_reduce_blocks = 0;
	bad.tuning.tile_columns = 8;
	expect_no_tuning(&rig, &bad, "tile_rows and tile_columns");
	bad.tuning.tile_rows = bad.tuning.tile_columns = UINT32_MAX;
	expect_no_tuning(&rig, &bad, "no tiles of 4294967295 x 4294967295 can be listed");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	int n_trials = (int)(sizeof(trials) / sizeof(trials[0]));
	Suite *made = suite_create("operands");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_results_overlap_nothing, 0, n_trials);
	tcase_add_loop_test(all, test_addresses_that_are_refused, 0, n_trials);
	tcase_add_loop_test(all, test_sizes_above_their_limits, 0, 2);
	tcase_add_loop_test(all, test_sizes_at_their_limits, 0, 2);
	tcase_add_test(all, test_tunings_that_mean_nothing);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
