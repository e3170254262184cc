/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Direct modes on host ranks: sums and products of random shapes and types, the same bits in every
 * mode, runs between those of other operators on the same scratch, late and missing ranks; what is
 * refused and what is explained. Results of moves are in test_move.c. */

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/direct.h"
#include "ops/core/op.h"
#include "ops/kinds.h"
#include "move_rig.h"
#include "op_rig.h"

#define SCRATCH     UINT64_C(400000)
#define CASES       16u
#define RUNS        8u
#define LONG_RUNS   80u
#define OPS         6u
#define LATE_US     5000u
#define DEADLINE_NS TESTING_SECOND
#define END_NS      (4 * TESTING_SECOND)
#define MIB         (UINT64_C(1) << 20)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- cases ----------------------------------------------------------------- */

static enum ceov_op_mode pick_mode(uint64_t *random, enum op_sort sort)
{
	return sort == OP_ALL_REDUCE && testing_below(random, 2) ? CEOV_MODE_TWO_SHOT
		: CEOV_MODE_DIRECT;
}

/* Makes a sum of uneven parts, some of them empty, in a direct mode, or a product one after the
 * other with its transfers. */
static struct op_case random_direct(uint64_t *random, uint32_t n_ranks)
{
	struct ceov_op_tuning drawn;
	struct op_case one;

	do
		one = op_case_random(random, n_ranks);
	while (!op_is_sum(one.sort) && !op_case_can_be_whole(&one));
	drawn = one.tuning;
	memset(&one.tuning, 0, sizeof(one.tuning));
	one.tuning.struct_bytes = sizeof(one.tuning);
	one.tuning.mode = op_is_sum(one.sort) ? pick_mode(random, one.sort) : CEOV_MODE_TWO_SHOT;
	one.tuning.tile_rows = drawn.tile_rows;
	one.tuning.tile_columns = drawn.tile_columns;
	one.tuning.tile_order = drawn.tile_order;
	one.tuning.band_rows = drawn.band_rows;
	one.tuning.n_reduce_blocks = (uint32_t)testing_below(random, 40);
	return one;
}

static struct op_case plain(enum op_sort sort, uint32_t n_ranks, enum ceov_op_mode mode)
{
	struct op_case one = op_case_of(sort, n_ranks, 200, 0, 0);

	one.tuning.mode = mode;
	return one;
}

static void be_late(uint64_t *random, uint32_t one_in)
{
	if (testing_below(random, one_in) == 0)
		usleep((useconds_t)testing_below(random, LATE_US));
}

static void run_and_check(const struct op_case *one, uint32_t rank, uint64_t number, ceov_op *op)
{
	struct op_data data;

	op_data_make(one, rank, number, &data);
	ck_assert_int_eq(op_data_run(one, op, &data), 0);
	op_data_check(one, rank, number, &data);
	op_data_free(&data);
}

/* --- results --------------------------------------------------------------- */

/* Makes many runs of one op with different operands; ranks are late now and then. */
static void repeat(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	uint64_t random = testing_seed() + part->rank;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	uint32_t i;

	ck_assert_int_eq(op->choice.mode, one->tuning.mode);
	for (i = 0; i < RUNS; i++) {
		be_late(&random, 8);
		run_and_check(one, part->rank, i, op);
		ck_assert_uint_eq(op->workspace->n_flights, 0);
	}
	ck_assert_ptr_null(op->stages[0].plan[0]);      /* nothing for a copy engine */
	ceov_op_release(op);
}

START_TEST(test_random_cases)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	struct op_case one;
	struct op_rig rig;
	uint32_t i;

	op_rig_open(&rig, (uint32_t)_i, SCRATCH, NULL);
	for (i = 0; i < testing_share(CASES); i++) {
		one = random_direct(&random, rig.n_ranks);
		ck_assert_uint_le(op_case_scratch(&one), SCRATCH);
		op_rig_each(&rig, repeat, &one);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- many bytes -------------------------------------------------------------- */

#define LARGE_RUNS 2u                   /* one in each half of scratch */

struct large {
	struct op_case one;
	uint64_t       hashes[LARGE_RUNS][OP_RANKS_MAX];
};

/* Looks at all values of a reduce-scatter; of an all-reduce, whose result all ranks have, at those
 * of one rank in each run, since to compute what is expected takes long. */
static void run_large(const struct op_part *part)
{
	struct large *large = part->arg;
	const struct op_case *one = &large->one;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	uint32_t i;

	ck_assert_int_eq(op->choice.mode, one->tuning.mode);
	ck_assert_uint_eq(op->choice.n_reduce_blocks, 16);
	ck_assert_ptr_null(op->stages[0].plan[0]);
	for (i = 0; i < LARGE_RUNS; i++) {
		op_data_make(one, part->rank, i, &data);
		ck_assert_int_eq(op_data_run(one, op, &data), 0);
		large->hashes[i][part->rank] = op_data_hash(&data);
		if (one->sort == OP_REDUCE_SCATTER || part->rank == 2 * i)
			op_data_check(one, part->rank, i, &data);
		op_data_free(&data);
	}
	ceov_op_release(op);
}

/* Sums of more bytes than those for which direct modes were made: parts differ, one is empty, and
 * one begins behind 4 MiB. */
START_TEST(test_sums_of_many_bytes)
{
	int is_all = _i == 0;
	struct large large = { .one = plain(is_all ? OP_ALL_REDUCE : OP_REDUCE_SCATTER, 4,
					    is_all ? CEOV_MODE_TWO_SHOT : CEOV_MODE_DIRECT) };
	uint64_t value_bytes = is_all ? 4 : 2, random = testing_seed();
	struct op_rig rig;
	uint32_t i, rank;

	large.one.dtype = is_all ? CEOV_FP32 : CEOV_BF16;
	large.one.rows[0] = 4 * MIB / value_bytes + 8;
	large.one.rows[1] = 0;
	large.one.rows[2] = 8 * testing_below(&random, 4000);
	large.one.rows[3] = 8 + 8 * testing_below(&random, 4000);
	op_rig_open(&rig, 4, op_case_scratch(&large.one), &log_);
	op_rig_each(&rig, run_large, &large);
	for (i = 0; is_all && i < LARGE_RUNS; i++)
		for (rank = 1; rank < 4; rank++)
			ck_assert_uint_eq(large.hashes[i][rank], large.hashes[i][0]);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

#define MODES 3u

struct bits {
	struct op_case one;
	uint64_t       hashes[MODES][OP_RANKS_MAX];
};

static void run_each_mode(const struct op_part *part)
{
	static const enum ceov_op_mode modes[MODES] = {
		CEOV_MODE_OVERLAP, CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT
	};
	struct bits *bits = part->arg;
	struct op_case one = bits->one;
	struct op_data data;
	ceov_op *op;
	uint32_t i;

	for (i = 0; i < MODES; i++) {
		one.tuning.mode = modes[i];
		op = op_case_made(&one, part->rig->workspaces[part->rank]);
		op_data_make(&one, part->rank, 5, &data);
		ck_assert_int_eq(op_data_run(&one, op, &data), 0);
		bits->hashes[i][part->rank] = op_data_hash(&data);
		op_data_free(&data);
		ceov_op_release(op);
	}
}

START_TEST(test_all_modes_and_ranks_have_the_same_bits)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	struct bits bits = { .one = plain(OP_ALL_REDUCE, 4, CEOV_MODE_DIRECT) };
	struct op_rig rig;
	uint32_t mode, rank;

	bits.one.dtype = dtypes[_i];
	op_rig_open(&rig, 4, SCRATCH, NULL);
	op_rig_each(&rig, run_each_mode, &bits);
	for (mode = 0; mode < MODES; mode++)
		for (rank = 0; rank < 4; rank++)
			ck_assert_uint_eq(bits.hashes[mode][rank], bits.hashes[0][0]);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- in turn with other operators ------------------------------------------ */

/* Runs ops of all kinds in a random order that is the same at all ranks. They use the same scratch
 * and counters; some are direct, for others the engine makes launches. */
static void alternate(const struct op_part *part)
{
	uint64_t random = testing_seed(), late = random + part->rank;
	uint32_t n_ranks = part->rig->n_ranks, i, which;
	struct op_case cases[OPS];
	ceov_op *ops[OPS];

	for (i = 0; i < OPS; i++) {
		cases[i] = i < OPS / 2 ? random_direct(&random, n_ranks)
			: op_case_random(&random, n_ranks);
		ops[i] = op_case_made(&cases[i], part->rig->workspaces[part->rank]);
	}
	for (i = 0; i < testing_share(LONG_RUNS); i++) {
		which = (uint32_t)testing_below(&random, OPS);
		be_late(&late, 8);
		run_and_check(&cases[which], part->rank, i, ops[which]);
	}
	for (i = 0; i < OPS; i++)
		ceov_op_release(ops[i]);
}

START_TEST(test_between_other_operators)
{
	struct op_rig rig;

	op_rig_open(&rig, 2 + (uint32_t)_i, SCRATCH, NULL);
	op_rig_each(&rig, alternate, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------- */

struct failing {
	struct op_case one;
	int            aborts;          /* 1: rank 1 aborts in place of its second run, ... */
	_Atomic uint32_t n_ready;       /* ... when so many, all others, have made their first */
	int            results[OP_RANKS_MAX];
	uint64_t       took_ns[OP_RANKS_MAX];
};

/* Makes one good run, then one that rank 1 leaves out. */
static void run_without(const struct op_part *part)
{
	struct failing *failing = part->arg;
	ceov_op *op = op_case_made(&failing->one, part->rig->workspaces[part->rank]);
	uint64_t begin_ns;
	struct op_data data;

	run_and_check(&failing->one, part->rank, 1, op);
	op_data_make(&failing->one, part->rank, 2, &data);
	begin_ns = cei_now_ns();
	if (part->rank != 1) {
		atomic_fetch_add(&failing->n_ready, 1);
		failing->results[part->rank] = op_data_run(&failing->one, op, &data);
	} else if (failing->aborts) {
		while (atomic_load(&failing->n_ready) < failing->one.n_ranks - 1)
			usleep(100);    /* the case has a time limit */
		usleep(LATE_US);
		ck_assert_int_eq(ceov_workspace_abort(op->workspace), 0);
	}
	failing->took_ns[part->rank] = cei_now_ns() - begin_ns;
	op_data_free(&data);
	ceov_op_release(op);
}

static struct op_case case_of(int i)
{
	if (i == 2)
		return plain(OP_REDUCE_SCATTER, 4, CEOV_MODE_DIRECT);
	return plain(OP_ALL_REDUCE, 4, i ? CEOV_MODE_TWO_SHOT : CEOV_MODE_DIRECT);
}

/* Where nobody aborted, the ranks would wait for much longer than the test allows. */
START_TEST(test_an_abort_ends_runs)
{
	struct failing failing = { .one = case_of(_i), .aborts = 1 };
	struct op_rig rig;
	uint32_t i;

	op_rig_open(&rig, 4, SCRATCH, &log_);
	op_rig_each(&rig, run_without, &failing);
	for (i = 0; i < 4; i++) {
		if (i == 1)
			continue;
		ck_assert_int_eq(failing.results[i], CEOV_ERR_ABORTED);
		ck_assert_uint_le(failing.took_ns[i], END_NS);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_a_rank_that_does_not_come)
{
	struct failing failing = { .one = case_of(_i) };
	struct op_rig rig = { .n_ranks = 4 };
	uint32_t i;

	rig.context = testing_open(4, &log_);
	for (i = 0; i < 4; i++)
		rig.workspaces[i] = op_workspace(rig.context, i, "rig", SCRATCH, DEADLINE_NS);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(ceov_workspace_connect(rig.workspaces[i], TESTING_PATIENCE), 0);
	op_rig_each(&rig, run_without, &failing);
	for (i = 0; i < 4; i++) {
		if (i == 1)
			continue;
		ck_assert_int_eq(failing.results[i], CEOV_ERR_TIMEOUT);
		ck_assert_uint_le(failing.took_ns[i], END_NS);
		ck_assert_int_eq(ceov_workspace_status(rig.workspaces[i]), CEOV_ERR_TIMEOUT);
	}
	testing_log_has(&log_, "what peers store directly", "look at what its sender waits for",
			NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct op_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(op_case_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, "rank 0", NULL);
}

START_TEST(test_what_is_refused)
{
	struct op_case bad = op_case_of(OP_AG_GEMM, 2, 8, 8, 8);
	struct op_rig rig;

	op_rig_open(&rig, 2, 8 * MIB, &log_);
	bad.tuning.mode = CEOV_MODE_DIRECT;
	expect_no_op(&rig, &bad, "SMs make the transfers only on GPUs");
	bad.sort = OP_A2A_GEMM;
	expect_no_op(&rig, &bad, "take CEOV_MODE_TWO_SHOT");
	bad.tuning.mode = CEOV_MODE_TWO_SHOT;
	bad.by_columns = 1;
	expect_no_op(&rig, &bad, "columns are divided");
	bad = op_case_of(OP_GEMM_RS, 2, MIB / 8, 8, 32);
	bad.tuning.mode = CEOV_MODE_TWO_SHOT;
	expect_no_op(&rig, &bad, "more than 4 MiB from rank to rank");
	bad = plain(OP_REDUCE_SCATTER, 2, CEOV_MODE_TWO_SHOT);
	expect_no_op(&rig, &bad, "only an all-reduce has two steps");
	bad = op_case_of(OP_ALL_REDUCE, 2, MIB / 4 + 8, 0, 0);
	bad.tuning.mode = CEOV_MODE_DIRECT;
	expect_no_op(&rig, &bad, "more than 1 MiB");
	bad.tuning.mode = CEOV_MODE_TWO_SHOT;
	ceov_op_release(op_case_made(&bad, rig.workspaces[0]));
	bad = plain(OP_ALL_REDUCE, 2, CEOV_MODE_DIRECT);
	bad.tuning.n_pieces = 2;
	expect_no_op(&rig, &bad, "a direct mode of this operator has one piece");
	bad.tuning.n_pieces = 0;
	bad.tuning.mode = (enum ceov_op_mode)(CEOV_MODE_TWO_SHOT + 1);
	expect_no_op(&rig, &bad, "none of enum ceov_op_mode");
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_more_ranks_than_kernels_know)
{
	struct cei_op_shape shape = { .kind = &cei_all_reduce, .dtype = CEOV_FP32 };

	shape.n_ranks = CEI_DIRECT_RANKS_MAX;
	ck_assert_ptr_null(shape.kind->direct_fault(&shape, CEOV_MODE_DIRECT));
	shape.n_ranks++;
	ck_assert_ptr_nonnull(strstr(shape.kind->direct_fault(&shape, CEOV_MODE_TWO_SHOT),
				     "at most 32 ranks"));
}
END_TEST

/* --- choice and scratch ------------------------------------------------------ */

static void explain(const ceov_op *op, char *text, size_t n_bytes)
{
	ssize_t n;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), 0);
	n = read(ends[0], text, n_bytes - 1);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	close(ends[0]);
	close(ends[1]);
}

START_TEST(test_explained)
{
	struct op_case one = case_of(_i);
	struct op_rig rig;
	char text[1024];
	ceov_op *op;

	one.tuning.n_reduce_blocks = 5;
	op_rig_open(&rig, 4, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	explain(op, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, _i == 1 ? "mode: direct, two-shot (as given)"
				     : "mode: direct (as given)"));
	ck_assert_ptr_nonnull(strstr(text, "moved by: SMs, 5 of each GPU (as given)"));
	ck_assert_ptr_null(strstr(text, "copies"));
	ceov_op_release(op);
	one.tuning.mode = CEOV_MODE_CHOOSE;
	op = op_case_made(&one, rig.workspaces[0]);
	explain(op, text, sizeof(text));
	ck_assert_ptr_null(strstr(text, "SMs"));        /* never without being asked */
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_a_direct_move_is_explained)
{
	struct move_case one = move_case_of(_i, 4, 40000);
	struct op_rig rig;
	ceov_op *op = NULL;

	one.mode = CEOV_MODE_DIRECT;
	op_rig_open(&rig, 4, SCRATCH, &log_);
	ck_assert_int_eq(move_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_str_eq(op->choice.text, "mode: direct (as given)\n"
			 "moved by: SMs, 5 of each GPU (by the model); no copy engine\n");
	ck_assert_ptr_null(op->stages[0].plan[0]);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* One SM for each 8 KiB that a rank sends to another one, up to 16, and no more than ranks have. */
START_TEST(test_how_many_sms)
{
	static const uint64_t bytes[] = { 1024, 8192, 8208, 131072, 1048576 };
	static const uint32_t blocks[] = { 1, 1, 2, 16, 16 };
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	struct cei_op_shape shape = { .kind = &cei_all_reduce, .dtype = CEOV_BF16, .n_ranks = 2 };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;
	uint32_t i;

	shape.sum.scale = 1;
	given.mode = CEOV_MODE_DIRECT;
	for (i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		shape.rows[1] = bytes[i] / 2;
		cei_selector_choose(&shape, &rates, &given, &choice);
		ck_assert_uint_eq(choice.n_reduce_blocks, blocks[i]);
		ck_assert_uint_eq(choice.n_pieces, 1);
	}
	rates.n_sms = 3;
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.n_reduce_blocks, 3);
	rates.n_sms = 132;
	given.n_reduce_blocks = 100;
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.n_reduce_blocks, CEI_DIRECT_BLOCKS_MAX);
}
END_TEST

/* An all-reduce of up to 1 MiB has room for the operands of all ranks. */
START_TEST(test_scratch)
{
	struct op_case one = plain(OP_ALL_REDUCE, 4, CEOV_MODE_DIRECT);

	ck_assert_uint_eq(op_case_scratch(&one), 4 * 4 * 200 * 2);
	one = op_case_of(OP_ALL_REDUCE, 4, MIB / 8, 0, 0);
	ck_assert_uint_eq(op_case_scratch(&one), 4 * MIB);
	one = op_case_of(OP_ALL_REDUCE, 4, MIB / 8 + 8, 0, 0);
	ck_assert_uint_lt(op_case_scratch(&one), 3 * MIB);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("direct");
	TCase *all = tcase_create("direct");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_random_cases, 1, OP_RANKS_MAX + 1);
	tcase_add_loop_test(all, test_sums_of_many_bytes, 0, 2);
	tcase_add_loop_test(all, test_all_modes_and_ranks_have_the_same_bits, 0, 3);
	tcase_add_loop_test(all, test_between_other_operators, 0, 3);
	tcase_add_loop_test(all, test_a_rank_that_does_not_come, 0, 3);
	tcase_add_loop_test(all, test_an_abort_ends_runs, 0, 3);
	tcase_add_test(all, test_what_is_refused);
	tcase_add_test(all, test_more_ranks_than_kernels_know);
	tcase_add_loop_test(all, test_explained, 0, 3);
	tcase_add_loop_test(all, test_a_direct_move_is_explained, 0, 2);
	tcase_add_test(all, test_how_many_sms);
	tcase_add_test(all, test_scratch);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
