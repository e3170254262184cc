/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests tuning on host ranks. ceov_op_tune() refuses these, so the test calls the part that all
 * kinds of ranks share. Which candidate is the fastest cannot be predicted here. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ops/core/op.h"
#include "ops/tuning/candidates.h"
#include "move_rig.h"
#include "op_rig.h"

#define SCRATCH       UINT64_C(200000)
#define RANKS         3u
#define RUNS_EACH     14u               /* runs of each candidate */
#define MACHINE       "test machine"
#define SHORT_NS      (300 * TESTING_MS)

static struct testing_log log_;

static void set_up(void)
{
	char folder[200];

	testing_log_init(&log_);
	testing_path("cache", folder, sizeof(folder));
	setenv("XDG_CACHE_HOME", folder, 1);
}

static void tear_down(void)
{
	char path[200];

	testing_path("cache/ceoverlap/tunings", path, sizeof(path));
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
}

static void name_machines(struct op_rig *rig)
{
	uint32_t i;

	for (i = 0; i < rig->n_ranks; i++)
		strcpy(rig->workspaces[i]->executor.machine, MACHINE);
}

/* Runs body at all ranks of a fresh group, whose tunings are stored. */
static void on_all_ranks(void (*body)(const struct op_part *part))
{
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	name_machines(&rig);
	op_rig_each(&rig, body, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}

static void add(struct cei_candidates *candidates, enum ceov_op_mode mode, uint32_t n_pieces,
		uint32_t tile)
{
	struct ceov_op_tuning *tuning = &candidates->tuning[candidates->n++];

	tuning->struct_bytes = sizeof(*tuning);
	tuning->mode = mode;
	tuning->n_pieces = n_pieces;
	tuning->tile_rows = tuning->tile_columns = tile;
}

static struct cei_candidates some(void)
{
	struct cei_candidates candidates;

	memset(&candidates, 0, sizeof(candidates));
	add(&candidates, CEOV_MODE_OVERLAP, 1, 32);
	add(&candidates, CEOV_MODE_OVERLAP, 3, 16);
	add(&candidates, CEOV_MODE_SEQUENCE, 1, 64);
	return candidates;
}

static struct op_case case_of(enum op_sort sort)
{
	int is_sum = op_is_sum(sort);
	struct op_case one = op_case_of(sort, RANKS, is_sum ? 800 : 70, is_sum ? 0 : 24,
					is_sum ? 0 : 40);

	one.rows[1] += 8;
	one.dtype = is_sum ? CEOV_FP32 : sort % 2 ? CEOV_FP16 : CEOV_BF16;
	return one;
}

static void expect_right(const struct op_part *part, const struct op_case *one, ceov_op *op)
{
	uint64_t seed = testing_seed() + (uint64_t)one->sort;
	struct op_data data;

	op_data_make(one, part->rank, seed, &data);
	ck_assert_int_eq(op_data_run(one, op, &data), 0);
	op_data_check(one, part->rank, seed, &data);
	op_data_free(&data);
}

/* --- results are stored ---------------------------------------------------- */

static int is_among(const struct cei_choice *choice, const struct cei_candidates *candidates,
		    int is_sum)
{
	uint32_t i;

	for (i = 0; i < candidates->n; i++)
		if (choice->mode == candidates->tuning[i].mode &&
		    choice->n_pieces == candidates->tuning[i].n_pieces &&
		    (is_sum || choice->shape.rows == candidates->tuning[i].tile_rows))
			return 1;
	return 0;
}

/* Asserts that rank 0 has stored the result, for machines like its own. */
static void expect_remembered(const ceov_op *op)
{
	struct ceov_op_tuning tuning;

	if (strcmp(op->workspace->executor.machine, MACHINE))
		return;
	ck_assert_int_eq(cei_op_recall(op->workspace, &op->shape, &tuning), 0);
	ck_assert_uint_eq(tuning.n_pieces, op->choice.n_pieces);
	ck_assert_int_eq(tuning.mode, op->choice.mode);
}

/* Tunes, and asserts whether candidates were measured. The op's results are right before and
 * after. */
static void tune(const struct op_part *part, const struct op_case *one, int measures)
{
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct cei_candidates candidates = some();
	uint64_t n_runs;
	ceov_op *op = NULL;

	ck_assert_int_eq(op_case_create(one, workspace, &op), 0);
	expect_right(part, one, op);
	n_runs = workspace->n_runs;
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), 0);
	ck_assert_uint_eq(workspace->n_runs - n_runs,
			  measures ? RUNS_EACH * candidates.n : 0);
	ck_assert(is_among(&op->choice, &candidates, !one->k));
	ck_assert_int_eq(!strstr(op->choice.text, "tuned: "), !measures);
	ck_assert_int_eq(!strstr(op->choice.text, "the model's choice"), !measures);
	ck_assert(op->is_tuned);
	expect_remembered(op);
	expect_right(part, one, op);
	expect_right(part, one, op);
	ceov_op_release(op);
}

static void tune_each(const struct op_part *part)
{
	struct op_case one;
	uint32_t i;

	for (i = 0; i < 2 * OP_SORTS; i++) {
		one = case_of((enum op_sort)(i % OP_SORTS));
		tune(part, &one, i < OP_SORTS);
	}
}

START_TEST(test_tuned_once)
{
	on_all_ranks(tune_each);
}
END_TEST

/* --- direct modes ------------------------------------------------------------ */

static ceov_op *made_move(const struct op_part *part, const struct move_case *one)
{
	ceov_op *op = NULL;

	ck_assert_int_eq(move_create(one, part->rig->workspaces[part->rank], &op), 0);
	return op;
}

static void expect_moved(const struct op_part *part, const struct move_case *one, ceov_op *op)
{
	struct move_data data = move_data_make(one, part->rank, 1);

	ck_assert_int_eq(move_data_run(op, &data), 0);
	move_data_check(one, part->rank, 1, &data);
	move_data_free(&data);
}

/* A move takes the direct mode as the result of a measurement, a further op finds what was stored,
 * and creation alone does not take it. */
static void tune_move(const struct op_part *part)
{
	const struct move_case one = move_case_of(1, RANKS, 1600);
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct cei_candidates candidates = { .n = 0 };
	uint64_t n_runs;
	ceov_op *op;
	uint32_t i;

	add(&candidates, CEOV_MODE_DIRECT, 1, 0);
	candidates.tuning[0].n_reduce_blocks = 2;
	for (i = 0; i < 2; i++) {
		op = made_move(part, &one);
		ck_assert_int_eq(op->choice.mode, CEOV_MODE_OVERLAP);
		expect_moved(part, &one, op);
		n_runs = workspace->n_runs;
		ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), 0);
		ck_assert_uint_eq(workspace->n_runs - n_runs, i ? 0 : RUNS_EACH);
		ck_assert_int_eq(op->choice.mode, CEOV_MODE_DIRECT);
		ck_assert_uint_eq(op->choice.n_reduce_blocks, 2);
		expect_moved(part, &one, op);
		ceov_op_release(op);
	}
}

START_TEST(test_a_direct_mode_is_measured_and_found_again)
{
	on_all_ranks(tune_move);
}
END_TEST

/* Engines' and direct modes are measured one after the other on the same scratch. */
static void tune_sum(const struct op_part *part)
{
	struct op_case one = case_of(OP_ALL_REDUCE);
	struct cei_candidates candidates = { .n = 0 };
	ceov_op *op = op_case_made(&one, part->rig->workspaces[part->rank]);
	uint64_t n_runs = op->workspace->n_runs;

	add(&candidates, CEOV_MODE_OVERLAP, 2, 0);
	add(&candidates, CEOV_MODE_DIRECT, 1, 0);
	add(&candidates, CEOV_MODE_OVERLAP, 1, 0);
	add(&candidates, CEOV_MODE_TWO_SHOT, 1, 0);
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), 0);
	ck_assert_uint_eq(op->workspace->n_runs - n_runs, 4 * RUNS_EACH);
	ck_assert(is_among(&op->choice, &candidates, 1));
	expect_right(part, &one, op);
	ceov_op_release(op);
}

START_TEST(test_direct_modes_are_measured_beside_others)
{
	on_all_ranks(tune_sum);
}
END_TEST

/* An unequal cut that was measured is stored and found again; creation alone does not take it. */
static void tune_cut(const struct op_part *part)
{
	const struct op_case one = case_of(OP_GEMM_AR);
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct cei_candidates candidates = { .n = 0 };
	struct ceov_op_tuning stored;
	uint64_t n_runs;
	ceov_op *op;
	uint32_t i;

	add(&candidates, CEOV_MODE_OVERLAP, 3, 16);
	candidates.tuning[0].cut = CEOV_CUT_SHRINKING;
	for (i = 0; i < 2; i++) {
		op = op_case_made(&one, workspace);
		ck_assert_int_eq(op->choice.cut.kind, CEOV_CUT_EQUAL);
		ck_assert(!op->is_tuned);
		n_runs = workspace->n_runs;
		ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), 0);
		ck_assert_uint_eq(workspace->n_runs - n_runs, i ? 0 : RUNS_EACH);
		ck_assert_int_eq(op->choice.cut.kind, CEOV_CUT_SHRINKING);
		ck_assert_int_eq(cei_op_recall(workspace, &op->shape, &stored), 0);
		ck_assert_int_eq(stored.cut, CEOV_CUT_SHRINKING);
		expect_right(part, &one, op);
		ceov_op_release(op);
	}
}

START_TEST(test_an_unequal_cut_is_measured_and_found_again)
{
	on_all_ranks(tune_cut);
}
END_TEST

/* Ranks have stored different results, so all of them measure. */
static void tune_apart(const struct op_part *part)
{
	struct op_case one = case_of(OP_AG_GEMM);

	if (part->rank == 1)
		strcpy(part->rig->workspaces[1]->executor.machine, "another machine");
	tune(part, &one, 1);
}

START_TEST(test_what_one_rank_does_not_know_is_measured)
{
	static const struct ceov_op_tuning known = {
		.struct_bytes = sizeof(known), .mode = CEOV_MODE_OVERLAP, .n_pieces = 3,
		.tile_rows = 16, .tile_columns = 16
	};
	struct op_case one = case_of(OP_AG_GEMM);
	char key[CEI_TUNING_KEY_BYTES];
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	name_machines(&rig);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	cei_tuning_key("another machine", &op->shape, key);
	ck_assert_int_eq(cei_tunings_remember(&rig.context->report, key, &known), 0);
	ceov_op_release(op);
	op_rig_each(&rig, tune_apart, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- the file -------------------------------------------------------------- */

static const struct ceov_op_tuning kept = {
	.struct_bytes = sizeof(kept), .mode = CEOV_MODE_OVERLAP, .n_pieces = 3, .tile_rows = 16,
	.tile_columns = 24
};

/* A pipe in place of the file must not block; it is replaced when there is a result to
 * store. */
START_TEST(test_a_pipe_instead_of_tunings)
{
	struct ceov_op_tuning seen;
	struct cei_report report;
	char path[200];

	cei_report_init(&report, testing_log_line, &log_);
	ck_assert_int_eq(cei_tunings_remember(&report, "one", &kept), 0);
	ck_assert_int_eq(cei_tunings_recall("one", &seen), 0);
	ck_assert_int_eq(cei_tunings_path(path, sizeof(path)), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(cei_tunings_recall("one", &seen), CEOV_NONE);
	ck_assert_int_eq(cei_tunings_remember(&report, "two", &kept), 0);
	ck_assert_int_eq(cei_tunings_recall("two", &seen), 0);
	ck_assert_uint_eq(seen.tile_columns, 24);
	cei_report_fini(&report);
}
END_TEST

/* Lines that are too long, have no end, or make no sense are skipped. */
START_TEST(test_odd_lines_of_tunings)
{
	struct ceov_op_tuning seen;
	struct cei_report report;
	char path[200];
	FILE *file;
	uint32_t i;

	cei_report_init(&report, testing_log_line, &log_);
	ck_assert_int_eq(cei_tunings_remember(&report, "one", &kept), 0);
	ck_assert_int_eq(cei_tunings_path(path, sizeof(path)), 0);
	file = fopen(path, "a");
	ck_assert_ptr_nonnull(file);
	for (i = 0; i < 5000; i++)
		fputc('x', file);
	fputs(" 2 1 3 16 24 0 1 0 0 0 0\nnonsense\n\ntwo 2 1 3 16 24 0 1 0 0 0 0\n"
	      "three 2 1 3 16 24 0 1 0 0 0 0", file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(cei_tunings_recall("one", &seen), 0);
	ck_assert_int_eq(cei_tunings_recall("two", &seen), 0);
	ck_assert_int_eq(cei_tunings_recall("three", &seen), CEOV_NONE);
	ck_assert_int_eq(cei_tunings_remember(&report, "four", &kept), 0);
	ck_assert_int_eq(cei_tunings_recall("one", &seen), 0);
	ck_assert_int_eq(cei_tunings_recall("two", &seen), 0);
	ck_assert_int_eq(cei_tunings_recall("four", &seen), 0);
	cei_report_fini(&report);
}
END_TEST

/* --- choices when an operator is created ----------------------------------- */

/* At creation only tiles are taken from stored results, and only if the model's number of
 * pieces matches; pieces and mode are always the model's. */
START_TEST(test_creation_takes_tiles_alone)
{
	struct ceov_op_tuning known = {
		.struct_bytes = sizeof(known), .mode = CEOV_MODE_OVERLAP, .tile_rows = 16,
		.tile_columns = 24, .cut = CEOV_CUT_EQUAL, .tile_order = CEOV_ORDER_TURNS };
	struct op_case one = case_of(OP_GEMM_RS);
	char key[CEI_TUNING_KEY_BYTES];
	struct cei_choice model;
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	name_machines(&rig);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	model = op->choice;
	ck_assert(!op->is_tuned);
	ck_assert_int_eq(cei_op_key(rig.workspaces[0], &op->shape, key), 0);
	ceov_op_release(op);
	known.mode = model.mode;
	known.n_pieces = model.n_pieces;
	ck_assert_int_eq(cei_tunings_remember(&rig.context->report, key, &known), 0);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_uint_eq(op->choice.shape.columns, 24);
	ck_assert_int_eq(op->choice.order, CEOV_ORDER_TURNS);
	ck_assert_uint_eq(op->choice.n_pieces, model.n_pieces);
	ck_assert(op->is_tuned);
	ceov_op_release(op);
	known.mode = CEOV_MODE_OVERLAP;
	known.n_pieces = model.n_pieces + 1;
	ck_assert_int_eq(cei_tunings_remember(&rig.context->report, key, &known), 0);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_uint_eq(op->choice.shape.columns, model.shape.columns);
	ck_assert_uint_eq(op->choice.n_pieces, model.n_pieces);
	ck_assert_int_eq(op->choice.mode, model.mode);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- failures -------------------------------------------------------------- */

/* One candidate is so large that no rank can list its tiles: every rank skips it. */
static void tune_with_a_misfit(const struct op_part *part)
{
	struct op_case one = case_of(OP_AG_GEMM);
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct cei_candidates candidates = some();
	uint64_t n_runs = workspace->n_runs;
	ceov_op *op = NULL;

	candidates.tuning[0].tile_rows = 100000;
	ck_assert_int_eq(op_case_create(&one, workspace, &op), 0);
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), 0);
	ck_assert_uint_eq(workspace->n_runs - n_runs, 2 * RUNS_EACH);
	ck_assert_ptr_nonnull(strstr(op->choice.text, "tuned: "));
	ck_assert_ptr_null(strstr(op->choice.text, "the model's choice"));
	candidates.n = 1;
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), CEOV_ERR_STATE);
	expect_right(part, &one, op);
	ceov_op_release(op);
}

/* One rank has other candidates: no rank measures, and the op is unchanged. */
static void tune_others(const struct op_part *part)
{
	struct op_case one = case_of(OP_GEMM_RS);
	struct cei_candidates candidates = some();
	ceov_op *op = NULL;

	candidates.n -= part->rank == 1;
	ck_assert_int_eq(op_case_create(&one, part->rig->workspaces[part->rank], &op), 0);
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), CEOV_ERR_INVALID);
	expect_right(part, &one, op);
	ceov_op_release(op);
}

static int take_nothing(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
			uint64_t n, void **ret_memory)
{
	(void)executor;
	(void)stream;
	(void)dtype;
	(void)n;
	(void)ret_memory;
	return CEOV_ERR_NO_MEMORY;
}

/* One rank cannot allocate operands. */
static void tune_without_memory(const struct op_part *part)
{
	struct op_case one = case_of(OP_ALL_REDUCE);
	struct cei_executor *executor = &part->rig->workspaces[part->rank]->executor;
	struct cei_executor_ops poor = cei_executor_host;
	struct cei_candidates candidates = some();
	ceov_op *op = NULL;

	poor.take = take_nothing;
	ck_assert_int_eq(op_case_create(&one, part->rig->workspaces[part->rank], &op), 0);
	if (part->rank == 2)
		executor->ops = &poor;
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), CEOV_ERR_NO_MEMORY);
	executor->ops = &cei_executor_host;
	expect_right(part, &one, op);
	ceov_op_release(op);
}

START_TEST(test_what_cannot_be_had)
{
	static void (*const bodies[])(const struct op_part *part) = {
		tune_with_a_misfit, tune_others, tune_without_memory
	};
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	op_rig_each(&rig, bodies[_i], NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Rank 0 does not take part: the other ranks' waits end in time, and their workspaces fail. */
static void tune_alone(const struct op_part *part)
{
	struct op_case one = case_of(OP_AG_GEMM);
	ceov_workspace *workspace = part->rig->workspaces[part->rank];
	struct cei_candidates candidates = some();
	ceov_op *op = NULL;
	int r;

	ck_assert_int_eq(op_case_create(&one, workspace, &op), 0);
	if (part->rank) {
		workspace->deadline_ns = SHORT_NS;
		r = cei_op_tune(op, NULL, &candidates);
		ck_assert(r == CEOV_ERR_TIMEOUT || r == CEOV_ERR_ABORTED);
		ck_assert_int_lt(ceov_workspace_status(workspace), 0);
	}
	ceov_op_release(op);
}

START_TEST(test_a_rank_that_does_not_tune)
{
	uint64_t begin = cei_now_ns();
	struct op_rig rig;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	op_rig_each(&rig, tune_alone, NULL);
	ck_assert_uint_lt(cei_now_ns() - begin, TESTING_PATIENCE / 2);
	testing_log_has(&log_, "waits for rank 0 to tune", NULL, NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static int refuse_to_begin(struct cei_executor *executor, void *stream)
{
	(void)stream;
	return cei_raise(&executor->context->report, CEOV_ERR_INVALID, 0, "captured");
}

/* No rank waits for a rank whose call was refused, and that rank waits for none. */
START_TEST(test_what_is_refused_harms_nothing)
{
	struct op_case one = case_of(OP_AG_GEMM);
	struct cei_executor_ops ops = cei_executor_host;
	struct cei_candidates candidates = some();
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, RANKS, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ops.time_begin = refuse_to_begin;
	rig.workspaces[0]->executor.ops = &ops;
	rig.workspaces[0]->deadline_ns = SHORT_NS;
	ck_assert_int_eq(cei_op_tune(op, NULL, &candidates), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), 0);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("tune");
	TCase *all = tcase_create("tune");

	tcase_set_timeout(all, 120);
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_tuned_once);
	tcase_add_test(all, test_a_direct_mode_is_measured_and_found_again);
	tcase_add_test(all, test_direct_modes_are_measured_beside_others);
	tcase_add_test(all, test_an_unequal_cut_is_measured_and_found_again);
	tcase_add_test(all, test_what_one_rank_does_not_know_is_measured);
	tcase_add_test(all, test_a_pipe_instead_of_tunings);
	tcase_add_test(all, test_odd_lines_of_tunings);
	tcase_add_test(all, test_creation_takes_tiles_alone);
	tcase_add_loop_test(all, test_what_cannot_be_had, 0, 3);
	tcase_add_test(all, test_a_rank_that_does_not_tune);
	tcase_add_test(all, test_what_is_refused_harms_nothing);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
