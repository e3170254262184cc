/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* All-gather and all-to-all on host ranks, through the engine and in the direct mode: even and
 * uneven blocks, pairs without bytes, in place, between other operators; how blocks are cut; what
 * is refused; and what happens when a rank is missing. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/plan.h"
#include "move_rig.h"
#include "ops/core/op.h"
#include "ops/gemm/product.h"
#include "ops/kinds.h"

#define SCRATCH     UINT64_C(400000)
#define LIMIT       UINT64_C(20000)     /* most bytes in a block */
#define CASES       6u
#define RUNS        12u
#define LONG_RUNS   60u
#define DEADLINE_NS TESTING_SECOND
#define SPARSE      7                   /* cases in which few pairs have bytes */

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

static void run_and_check(const struct move_case *one, uint32_t rank, uint64_t number,
			  ceov_op *op)
{
	struct move_data data = move_data_make(one, rank, number);

	ck_assert_int_eq(move_data_run(op, &data), 0);
	move_data_check(one, rank, number, &data);
	move_data_free(&data);
}

static ceov_op *create(const struct move_case *one, const struct op_part *part)
{
	ceov_op *op = NULL;

	ck_assert_int_eq(move_create(one, part->rig->workspaces[part->rank], &op), 0);
	return op;
}

/* --- results --------------------------------------------------------------- */

struct many {
	const struct move_case *one;
	uint32_t                n_runs;
	uint32_t                late;           /* of so many runs one is delayed */
};

/* Runs many times with different operands; some ranks are delayed now and then. */
static void repeat(const struct op_part *part)
{
	const struct many *many = part->arg;
	uint64_t random = testing_seed() + part->rank;
	ceov_op *op = create(many->one, part);
	uint32_t i;

	for (i = 0; i < many->n_runs; i++) {
		if (testing_below(&random, many->late) == 0)
			usleep((useconds_t)testing_below(&random, 10000));
		run_and_check(many->one, part->rank, i, op);
	}
	ceov_op_release(op);
}

static void try_case(struct op_rig *rig, const struct move_case *one, uint32_t n_runs)
{
	struct many many = { one, n_runs, 8 };

	ck_assert_uint_le(move_scratch(one), SCRATCH);
	op_rig_each(rig, repeat, &many);
}

START_TEST(test_even_blocks)
{
	struct move_case one;
	struct op_rig rig;
	uint32_t i;

	op_rig_open(&rig, (uint32_t)_i, SCRATCH, NULL);
	for (i = 0; i < 4; i++) {
		one = move_case_of(i % 2, rig.n_ranks, 4096);
		one.n_pieces = i < 2 ? 0 : 3;
		try_case(&rig, &one, RUNS);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static struct move_case directly(struct move_case one)
{
	one.mode = CEOV_MODE_DIRECT;
	one.n_pieces = 0;
	return one;
}

START_TEST(test_random_blocks)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	struct move_case one;
	struct op_rig rig;
	uint32_t i;

	op_rig_open(&rig, (uint32_t)_i, SCRATCH, NULL);
	for (i = 0; i < CASES; i++) {
		one = move_case_random(&random, rig.n_ranks, LIMIT);
		try_case(&rig, &one, RUNS);
	}
	for (i = 0; i < testing_share(CASES); i++) {
		one = directly(move_case_random(&random, rig.n_ranks, LIMIT));
		one.n_sms = (uint32_t)testing_below(&random, 40);
		try_case(&rig, &one, RUNS);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Few pairs have bytes: a rank that sends or receives nothing must not run ahead, or it
 * would overwrite what a late rank has yet to copy. */
static struct move_case sparse(uint32_t i)
{
	struct move_case one = move_case_of(i >= 5, 4, 0);

	switch (i) {
	case 0:                         /* one pair of ranks */
		one.bytes[0 * 4 + 1] = 8000;
		break;
	case 1:                         /* each rank to the next */
		one.bytes[0 * 4 + 1] = one.bytes[1 * 4 + 2] = 8000;
		one.bytes[2 * 4 + 3] = one.bytes[3 * 4 + 0] = 16;
		break;
	case 2:                         /* each rank to itself */
		one.bytes[0 * 4 + 0] = one.bytes[2 * 4 + 2] = 8000;
		break;
	case 3:                         /* from one rank to all */
		one.bytes[2 * 4 + 0] = one.bytes[2 * 4 + 1] = one.bytes[2 * 4 + 3] = 8000;
		break;
	case 4:                         /* from all ranks to one */
		one.bytes[0 * 4 + 2] = one.bytes[1 * 4 + 2] = one.bytes[3 * 4 + 2] = 8000;
		break;
	default:                        /* an all-gather of one shard, in place or not */
		one.bytes[1] = 8000;
		one.is_in_place = i == 6;
	}
	one.n_pieces = 3;
	return one;
}

START_TEST(test_pairs_without_bytes)
{
	struct move_case one = _i < SPARSE ? sparse((uint32_t)_i)
		: directly(sparse((uint32_t)_i - SPARSE));
	struct many many = { &one, LONG_RUNS, 4 };
	struct op_rig rig;

	op_rig_open(&rig, 4, SCRATCH, NULL);
	op_rig_each(&rig, repeat, &many);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- in turn with other operators ------------------------------------------ */

#define MOVES 6u

/* Operators of other kinds, cut differently, use the same scratch slots and counters. */
static void alternate(const struct op_part *part)
{
	struct op_case cases[2] = {
		op_case_of(OP_GEMM_RS, part->rig->n_ranks, 24, 40, 32),
		op_case_of(OP_ALL_REDUCE, part->rig->n_ranks, 200, 0, 0),
	};
	ceov_op *others[2] = { NULL, NULL }, *ops[MOVES];
	uint64_t random = testing_seed(), late = random + part->rank;
	struct move_case moves[MOVES];
	struct op_data data;
	uint32_t i, which;

	for (i = 0; i < 2; i++)
		ck_assert_int_eq(op_case_create(&cases[i], part->rig->workspaces[part->rank],
						&others[i]), 0);
	for (i = 0; i < MOVES; i++) {
		moves[i] = i ? move_case_random(&random, part->rig->n_ranks, LIMIT) : sparse(1);
		if (i >= MOVES / 2)
			moves[i] = directly(moves[i]);
		ops[i] = create(&moves[i], part);
	}
	for (i = 0; i < LONG_RUNS; i++) {
		which = (uint32_t)testing_below(&random, 2 + MOVES);
		if (testing_below(&late, 8) == 0)
			usleep((useconds_t)testing_below(&late, 5000));
		if (which >= 2) {
			run_and_check(&moves[which - 2], part->rank, i, ops[which - 2]);
			continue;
		}
		op_data_make(&cases[which], part->rank, i, &data);
		ck_assert_int_eq(op_data_run(&cases[which], others[which], &data), 0);
		op_data_check(&cases[which], part->rank, i, &data);
		op_data_free(&data);
	}
	for (i = 0; i < MOVES; i++)
		ceov_op_release(ops[i]);
	ceov_op_release(others[0]);
	ceov_op_release(others[1]);
}

START_TEST(test_between_other_operators)
{
	struct op_rig rig;

	op_rig_open(&rig, 4, SCRATCH, NULL);
	op_rig_each(&rig, alternate, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- how blocks are cut ---------------------------------------------------- */

/* Returns how many transfers a rank's plan has to the target. */
static uint32_t legs_to(const ceov_op *op, uint32_t target)
{
	const struct ceov_plan *plan = op->stages[0].plan[0];
	const struct ceov_buffer *scratch = op->workspace->scratch[target];
	uint64_t base = scratch->region->address[0];
	uint32_t i, n = 0;

	for (i = 0; i < plan->program.n_transfers; i++)
		n += plan->steps[i].piece.n_rows &&
			plan->steps[i].piece.target - base < scratch->region->size_bytes;
	return n;
}

/* The plan of rank 0 of 4 sends to rank 3 last. */
START_TEST(test_the_last_block_is_cut)
{
	struct move_case one = move_case_of(_i, 4, 160);
	struct op_rig rig;
	ceov_op *op = NULL;

	one.n_pieces = 5;
	op_rig_open(&rig, 4, SCRATCH, &log_);
	ck_assert_int_eq(move_create(&one, rig.workspaces[0], &op), 0);
	ck_assert(op->stages[0].follows);
	ck_assert_uint_eq(legs_to(op, 1), 1);
	ck_assert_uint_eq(legs_to(op, 2), 1);
	ck_assert_uint_eq(legs_to(op, 3), 5);
	ceov_op_release(op);
	if (!_i) {                      /* the last block with bytes is short */
		one.bytes[3] = 0;
		one.bytes[2] = 48;
		ck_assert_int_eq(move_create(&one, rig.workspaces[0], &op), 0);
		ck_assert_uint_eq(legs_to(op, 1), 1);
		ck_assert_uint_eq(legs_to(op, 2), 2);   /* one of 32 bytes, one of the rest */
		ck_assert_uint_eq(legs_to(op, 3), 0);
		ceov_op_release(op);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_pieces_that_are_chosen)
{
	static const uint64_t mib[] = { 1, 31, 32, 100, 4096 };
	static const uint32_t pieces[] = { 1, 1, 2, 6, CEI_OP_PIECES_MAX };
	struct cei_op_shape shape = { .kind = &cei_all_to_all, .n_ranks = 2 };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;
	uint32_t i;

	for (i = 0; i < sizeof(mib) / sizeof(mib[0]); i++) {
		shape.rows[0] = mib[i] << 20;
		cei_selector_choose(&shape, &rates, NULL, &choice);
		ck_assert_uint_eq(choice.n_pieces, pieces[i]);
	}
}
END_TEST

START_TEST(test_scratch_is_what_arrives)
{
	struct move_case one = move_case_of(1, 3, 160);

	ck_assert_uint_eq(move_scratch(&one), 3 * 160);
	one = move_case_of(0, 3, 160);
	one.bytes[0 * 3 + 2] = 1600;    /* the largest block goes to rank 2 */
	ck_assert_uint_eq(move_scratch(&one), 1600 + 2 * 160);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void expect_no_op(struct op_rig *rig, const struct move_case *one, const char *text)
{
	ceov_op *op = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(move_create(one, rig->workspaces[0], &op), CEOV_ERR_INVALID);
	ck_assert_ptr_null(op);
	testing_log_has(&log_, text, one->is_gather ? "ceov_all_gather_create"
			: "ceov_all_to_all_create", "rank 0");
}

static void expect_no_shape(struct op_rig *rig, const struct move_case *one,
			    const char *text)
{
	expect_no_op(rig, one, text);
	ck_assert_uint_eq(move_scratch(one), 0);
}

START_TEST(test_shapes_that_are_refused)
{
	struct move_case good = move_case_of(_i, 2, 160), bad;
	struct ceov_move shape = { .struct_bytes = 8 };
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	bad = good;
	bad.bytes[1] = 24;
	expect_no_shape(&rig, &bad, "multiples of 16");
	bad = good;
	bad.bytes[1] = UINT64_MAX - 15;
	expect_no_shape(&rig, &bad, "too many bytes");
	bad = move_case_of(_i, 2, 0);
	expect_no_shape(&rig, &bad, "no bytes");
	bad = good;
	bad.n_pieces = 33;
	expect_no_op(&rig, &bad, "n_pieces");
	bad.mode = CEOV_MODE_DIRECT;
	bad.n_pieces = 2;
	expect_no_op(&rig, &bad, "a direct mode of this operator has one piece");
	bad.n_pieces = 0;
	bad.mode = CEOV_MODE_TWO_SHOT;
	expect_no_op(&rig, &bad, "only an all-reduce has two steps");
	bad = move_case_of(_i, 2, SCRATCH);
	expect_no_op(&rig, &bad, "needs scratch of 800000 bytes");
	ck_assert_int_eq(ceov_all_gather_create(rig.workspaces[0], NULL, &op),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_all_to_all_create(rig.workspaces[0], &shape, &op),
			 CEOV_ERR_INVALID);
	shape.struct_bytes = sizeof(shape);     /* this struct has no bytes */
	ck_assert_int_eq(ceov_all_to_all_create(rig.workspaces[0], &shape, &op),
			 CEOV_ERR_INVALID);
	shape.bytes = good.bytes;
	ck_assert_int_eq(ceov_all_to_all_create(rig.workspaces[0], &shape, NULL),
			 CEOV_ERR_INVALID);
	ck_assert_uint_eq(ceov_all_to_all_scratch_bytes(&shape, 0), 0);
	ck_assert_uint_eq(ceov_all_to_all_scratch_bytes(&shape, CEI_RANKS_MAX + 1), 0);
	ck_assert_uint_eq(ceov_all_gather_scratch_bytes(NULL, 2), 0);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Asserts that the call fails with this text and makes no run. */
static void expect_no_run(ceov_op *op, const void *source, void *target, const char *text)
{
	struct ceov_move_run run = { .struct_bytes = sizeof(run) };
	uint64_t n_runs = op->workspace->n_runs;

	run.source = source;
	run.target = target;
	testing_log_clear(&log_);
	ck_assert_int_eq(ceov_move_run(op, &run), CEOV_ERR_INVALID);
	testing_log_has(&log_, text, "rank 0", NULL);
	ck_assert_uint_eq(op->workspace->n_runs, n_runs);
}

START_TEST(test_runs_that_are_refused)
{
	struct move_case one = move_case_of(_i, 1, 64);
	struct op_case sum = op_case_of(OP_ALL_REDUCE, 1, 16, 0, 0);
	struct ceov_move_run run = { .struct_bytes = 8 };
	struct ceov_reduce_run reduce = { .struct_bytes = sizeof(reduce) };
	_Alignas(16) char memory[256] = { 0 };
	ceov_op *op = NULL, *other = NULL;
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(move_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(op_case_create(&sum, rig.workspaces[0], &other), 0);
	ck_assert_int_eq(ceov_move_run(op, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_move_run(op, &run), CEOV_ERR_INVALID);
	testing_log_has(&log_, "struct_bytes is too small", NULL, NULL);
	run.struct_bytes = sizeof(run);
	ck_assert_int_eq(ceov_move_run(NULL, &run), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_move_run(other, &run), CEOV_ERR_INVALID);
	testing_log_has(&log_, "the op is a ceov_all_reduce", NULL, NULL);
	ck_assert_int_eq(ceov_reduce_run(op, &reduce), CEOV_ERR_INVALID);
	testing_log_has(&log_, _i ? "the op is a ceov_all_gather" : "the op is a "
			"ceov_all_to_all", NULL, NULL);
	expect_no_run(op, NULL, memory, "source is NULL");
	expect_no_run(op, memory, NULL, "target is NULL");
	expect_no_run(op, memory + 8, memory + 128, "source is not aligned");
	expect_no_run(op, memory, memory + 136, "target is not aligned");
	expect_no_run(op, memory, memory + 48, "target overlaps source");
	expect_no_run(op, memory + 48, memory, "target overlaps source");
	run.source = run.target = memory;
	ck_assert_int_eq(ceov_move_run(op, &run), _i ? 0 : CEOV_ERR_INVALID);
	run.target = memory + 64;
	ck_assert_int_eq(ceov_move_run(op, &run), 0);
	ceov_op_release(other);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------- */

struct failing {
	struct move_case one;
	uint32_t         absent;        /* the rank that makes no run */
	int              results[OP_RANKS_MAX];
	uint64_t         took_ns[OP_RANKS_MAX];
};

/* Makes one good run, then one that one rank leaves out. */
static void run_without(const struct op_part *part)
{
	struct failing *failing = part->arg;
	ceov_op *op = create(&failing->one, part);
	struct move_data data = move_data_make(&failing->one, part->rank, 1);
	uint64_t begin;

	ck_assert_int_eq(move_data_run(op, &data), 0);
	begin = cei_now_ns();
	if (part->rank != failing->absent)
		failing->results[part->rank] = move_data_run(op, &data);
	failing->took_ns[part->rank] = cei_now_ns() - begin;
	move_data_free(&data);
	ceov_op_release(op);
}

static void open_failing(struct op_rig *rig, uint32_t n_ranks)
{
	uint32_t i;

	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = n_ranks;
	rig->context = testing_open(n_ranks, &log_);
	for (i = 0; i < n_ranks; i++)
		rig->workspaces[i] = op_workspace(rig->context, i, "rig", SCRATCH, DEADLINE_NS);
	for (i = 0; i < n_ranks; i++)
		ck_assert_int_eq(ceov_workspace_connect(rig->workspaces[i],
							TESTING_PATIENCE), 0);
}

/* Tests also blocks without bytes for other ranks. */
START_TEST(test_a_rank_that_does_not_come)
{
	struct failing failing = { .absent = 1 };
	struct op_rig rig;
	uint32_t i;

	failing.one = _i < 2 ? move_case_of(_i, 4, 160) : _i < 8 ? sparse((uint32_t)_i - 2)
		: directly(_i < 10 ? move_case_of(_i - 8, 4, 160) : sparse((uint32_t)_i - 10));
	open_failing(&rig, 4);
	op_rig_each(&rig, run_without, &failing);
	for (i = 0; i < 4; i++) {
		if (i == failing.absent)
			continue;
		ck_assert_int_eq(failing.results[i], CEOV_ERR_TIMEOUT);
		ck_assert_uint_le(failing.took_ns[i], 4 * TESTING_SECOND);
		ck_assert_int_eq(ceov_workspace_status(rig.workspaces[i]), CEOV_ERR_TIMEOUT);
	}
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- other properties ------------------------------------------------------ */

START_TEST(test_explained)
{
	struct move_case one = move_case_of(_i, 1, 160);
	struct op_rig rig;
	ceov_op *op = NULL;
	char text[1024];
	ssize_t n;
	int ends[2];

	one.n_pieces = 3;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(move_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(ceov_op_explain(op, ends[1]), 0);
	n = read(ends[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	ck_assert_ptr_nonnull(strstr(text, _i ? "ceov_all_gather" : "ceov_all_to_all"));
	ck_assert_ptr_nonnull(strstr(text, "pieces: 3 of at most 54 bytes (as given)"));
	ck_assert_ptr_null(strstr(text, "mode:"));
	ck_assert_ptr_null(strstr(text, "sum"));
	ck_assert_ptr_null(strstr(text, "SMs"));
	ck_assert_int_eq(cei_op_gemm_alone(op, &one), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_op_tune(op, NULL), CEOV_ERR_INVALID);
	testing_log_has(&log_, "on the host, where nothing is tuned", NULL, NULL);
	close(ends[0]);
	close(ends[1]);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("move");
	TCase *all = tcase_create("move");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_even_blocks, 1, OP_RANKS_MAX + 1);
	tcase_add_loop_test(all, test_random_blocks, 1, OP_RANKS_MAX + 1);
	tcase_add_loop_test(all, test_pairs_without_bytes, 0, 2 * SPARSE);
	tcase_add_test(all, test_between_other_operators);
	tcase_add_loop_test(all, test_the_last_block_is_cut, 0, 2);
	tcase_add_test(all, test_pieces_that_are_chosen);
	tcase_add_test(all, test_scratch_is_what_arrives);
	tcase_add_loop_test(all, test_shapes_that_are_refused, 0, 2);
	tcase_add_loop_test(all, test_runs_that_are_refused, 0, 2);
	tcase_add_loop_test(all, test_a_rank_that_does_not_come, 0, 13);
	tcase_add_loop_test(all, test_explained, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
