/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Sums in steps on GPUs (kernels/direct.h), in both kinds of workspace: parts of sizes around the
 * borders of chunks and steps, the bits of other modes, runs queued between those of other forms,
 * graphs, a rank that does not come, and an abort. On a GPU without the kernels sums are made in
 * one step; then the suite tests that this is chosen.
 *
 *   CEOVERLAP_GPU_DIRECT_STEPS   shapes for each kind of workspace (default 16)
 */

#include "gpu_graph.h"
#include "gpu_op_rig.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/direct.h"
#include "ops/compute/dtype.h"
#include "ops/core/op.h"

#define SHAPES      16u
#define SHAPE_RUNS  4u
#define BLOCKS_MAX  3u                  /* all blocks of all ranks run at the same time, also where
					 * ranks share a GPU */
#define ROWS_MIN    16u                 /* of chunks in the largest part: enough for steps between
					 * two ranks, too */
#define ROWS_MAX    26u
#define FORMS       3u
#define QUEUED      30u
#define REPLAYS     40u
#define DEADLINE_NS TESTING_SECOND
#define END_NS      (2 * TESTING_SECOND)
#define ABORT_US    20000u

static struct gpu_op_rig rig;
static uint32_t n_all;

/* --- cases ------------------------------------------------------------------- */

/* Returns a number of elements of about n_rows rows of chunks: exactly as many, a step of 8
 * elements more or less, or any. */
static uint64_t part_of(const struct op_case *one, uint64_t n_rows, uint64_t *random)
{
	uint64_t row = (uint64_t)one->tuning.n_reduce_blocks * CEI_DIRECT_CHUNK /
		cei_dtype_bytes(one->dtype);
	uint64_t n = n_rows * row;

	switch (testing_below(random, 4)) {
	case 0:
		return n;
	case 1:
		return n + 8;
	case 2:
		return n ? n - 8 : 0;
	default:
		return n + 8 * testing_below(random, row / 8);
	}
}

/* Makes a sum of which one part is large, and others are any, or empty. */
static struct op_case pick(uint64_t *random, uint32_t n_ranks, int is_all)
{
	static const enum ceov_dtype dtypes[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };
	struct op_case one = op_case_of(is_all ? OP_ALL_REDUCE : OP_REDUCE_SCATTER, n_ranks, 0, 0,
					0);
	uint32_t i;

	one.dtype = dtypes[testing_below(random, 3)];
	one.tuning.mode = is_all ? CEOV_MODE_TWO_SHOT : CEOV_MODE_DIRECT;
	one.tuning.n_reduce_blocks = 1 + (uint32_t)testing_below(random, BLOCKS_MAX);
	for (i = 0; i < n_ranks; i++)
		one.rows[i] = testing_below(random, 5)
			? part_of(&one, testing_below(random, ROWS_MAX), random) : 0;
	i = (uint32_t)testing_below(random, n_ranks);
	one.rows[i] = 8 + part_of(&one, ROWS_MIN + testing_below(random, ROWS_MAX - ROWS_MIN),
				  random);
	op_case_pick_stride(&one, random);
	op_case_pick_scale(&one, random);
	return one;
}

static ceov_op *made_in_steps(const struct op_case *one, ceov_workspace *workspace)
{
	ceov_op *op = op_case_made(one, workspace);
	int has_kernels = cei_op_rates(workspace).has_tiles;

	ck_assert_int_eq(op->choice.mode, one->tuning.mode);
	ck_assert_msg(has_kernels == (op->choice.direct_steps > 1), "%u steps",
		      op->choice.direct_steps);
	return op;
}

/* Runs body with both kinds of workspace. */
static void each_mode(uint32_t n_ranks, const char *name,
		      void (*body)(struct gpu_op_rank *rank, const void *arg))
{
	struct gpu_op_mode mode = { name, 0, 0, 0 };

	gpu_op_open(&rig, n_ranks);
	gpu_op_each(&rig, body, &mode);
	gpu_op_close(&rig);
}

/* Delays one rank's next run now and then. All ranks draw the same numbers. */
static void be_late(struct gpu_op_rank *rank, uint64_t *random)
{
	uint64_t how = testing_random(random);

	if (testing_below(random, 3 * rank->rig->n_ranks) == rank->rank)
		gpu_op_be_late(rank, GPU_CONSUME, &how);
}

/* --- shapes ------------------------------------------------------------------ */

static void try_shape(struct gpu_op_rank *rank, ceov_workspace *workspace,
		      const struct op_case *one, uint64_t *random)
{
	ceov_op *op = made_in_steps(one, workspace);
	struct gpu_op_data data;
	uint32_t i;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, one, &data);
	gpu_op_meet(rank);
	for (i = 0; i < SHAPE_RUNS; i++) {
		be_late(rank, random);
		gpu_op_data_turn(&data, op, GPU_CONSUME, i);
		if (i % 2 == 0)
			continue;
		gpu_op_data_check(&data, GPU_CONSUME, i);
	}
	gpu_op_meet(rank);
	ceov_op_release(op);
}

static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t random = testing_seed();
	uint32_t i, n = gpu_setting("CEOVERLAP_GPU_DIRECT_STEPS", SHAPES);
	struct op_case one;

	for (i = 0; i < n; i++) {
		one = pick(&random, rank->rig->n_ranks, (int)(i % 2));
		try_shape(rank, workspace, &one, &random);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_shapes)
{
	each_mode(_i ? n_all : 2, "shapes", try_shapes);
}
END_TEST

/* --- the same bits by copy engines --------------------------------------------- */

static void compare(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t random = testing_seed();
	struct gpu_op_data data, kept;
	struct op_case one;
	ceov_op *op;
	uint32_t i, is_direct;

	for (i = 0; i < 6; i++) {
		rank->used_bytes = 0;
		one = pick(&random, rank->rig->n_ranks, (int)(i % 2));
		gpu_op_data_make(rank, &one, &data);
		gpu_op_data_make(rank, &one, &kept);
		for (is_direct = 0; is_direct < 2; is_direct++) {
			one.tuning.mode = !is_direct ? CEOV_MODE_OVERLAP
				: i % 2 ? CEOV_MODE_TWO_SHOT : CEOV_MODE_DIRECT;
			op = is_direct ? made_in_steps(&one, workspace)
				: op_case_made(&one, workspace);
			gpu_op_meet(rank);
			gpu_op_data_turn(&data, op, GPU_CONSUME, i);
			gpu_op_data_check(&data, GPU_CONSUME, i);
			if (is_direct)
				gpu_op_data_same(&data, GPU_CONSUME, &kept);
			else
				gpu_op_data_keep(&data, GPU_CONSUME, &kept);
			gpu_op_meet(rank);
			ceov_op_release(op);
		}
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_bits_are_those_of_copy_engines)
{
	each_mode(n_all, "bits", compare);
}
END_TEST

/* --- between other forms --------------------------------------------------------- */

/* Sums of the three forms on one workspace: in steps, in one step, by copy engines. */
struct forms {
	struct op_case cases[FORMS];
	ceov_op       *ops[FORMS];
};

static void make_forms(struct forms *forms, ceov_workspace *workspace, uint32_t n_ranks,
		       uint64_t *random)
{
	uint32_t i;

	for (i = 0; i < FORMS; i++)
		forms->cases[i] = pick(random, n_ranks, (int)testing_below(random, 2));
	for (i = 0; i < n_ranks; i++)
		forms->cases[1].rows[i] = 8 * (1 + i);
	forms->cases[1].stride = 0;
	forms->cases[2].tuning.mode = CEOV_MODE_OVERLAP;
	forms->ops[0] = made_in_steps(&forms->cases[0], workspace);
	for (i = 1; i < FORMS; i++)
		forms->ops[i] = op_case_made(&forms->cases[i], workspace);
	ck_assert_uint_eq(forms->ops[1]->choice.direct_steps, 0);
}

static void release_forms(const struct forms *forms)
{
	uint32_t i;

	for (i = 0; i < FORMS; i++)
		ceov_op_release(forms->ops[i]);
}

/* Queues runs of all forms in a random order, each with memory of its own; checks them after all
 * were queued. */
static void queue_ahead(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t random = testing_seed();
	struct gpu_op_data data[QUEUED];
	uint32_t which[QUEUED], i;
	struct forms forms;

	rank->used_bytes = 0;
	make_forms(&forms, workspace, rank->rig->n_ranks, &random);
	for (i = 0; i < QUEUED; i++) {
		which[i] = (uint32_t)testing_below(&random, FORMS);
		gpu_op_data_make(rank, &forms.cases[which[i]], &data[i]);
	}
	gpu_op_meet(rank);
	for (i = 0; i < QUEUED; i++) {
		be_late(rank, &random);
		gpu_op_data_turn(&data[i], forms.ops[which[i]], GPU_CONSUME, i);
	}
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_op_status_check(rank, workspace);
	for (i = 0; i < QUEUED; i++)
		gpu_op_data_check(&data[i], GPU_CONSUME, i);
	gpu_op_meet(rank);
	release_forms(&forms);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_runs_queued_ahead)
{
	each_mode(n_all, "ahead", queue_ahead);
}
END_TEST

/* --- graphs ---------------------------------------------------------------------- */

/* Replays a graph with a run of each form, or of steps alone; runs outside it stand between. */
static void replay(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "graphs", 0, 0, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	uint32_t n = *(const uint32_t *)arg, k, i;
	uint64_t random = testing_seed();
	struct gpu_op_data data[FORMS];
	struct gpu_graph graph;
	struct forms forms;

	rank->used_bytes = 0;
	make_forms(&forms, workspace, rank->rig->n_ranks, &random);
	for (i = 0; i < FORMS; i++)
		gpu_op_data_make(rank, &forms.cases[i], &data[i]);
	gpu_op_meet(rank);
	gpu_graph_begin(&graph, &rank->gpu, GPU_CONSUME);
	for (i = 0; i < n; i++)
		ck_assert_int_eq(gpu_op_data_run(&data[i], forms.ops[i], GPU_CONSUME), 0);
	gpu_graph_end(&graph);
	gpu_op_meet(rank);
	for (k = 0; k < REPLAYS; k++) {
		be_late(rank, &random);
		for (i = 0; i < n; i++) {
			gpu_op_data_fill(&data[i], GPU_CONSUME, k);
			gpu_op_data_spoil(&data[i], GPU_CONSUME);
		}
		gpu_graph_launch(&graph);
		gpu_idle(&rank->gpu, GPU_CONSUME);
		gpu_op_status_check(rank, workspace);
		for (i = 0; k % 5 == 0 && i < n; i++)
			gpu_op_data_check(&data[i], GPU_CONSUME, k);
		if (k % 7 == 0)
			gpu_op_data_turn(&data[0], forms.ops[0], GPU_CONSUME, k);
	}
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_op_meet(rank);
	gpu_graph_free(&graph);
	release_forms(&forms);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_graphs_are_replayed)
{
	uint32_t n = _i ? FORMS : 1;

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, replay, &n);
	gpu_op_close(&rig);
}
END_TEST

/* --- failures ---------------------------------------------------------------------- */

struct missing {
	struct gpu_op_mode mode;
	int                is_all;
	int                aborts;      /* 1: rank 0 aborts in place of its second run */
};

static void expect_end(struct gpu_op_rank *rank, ceov_workspace *workspace, int r)
{
	if (!r) {
		gpu_idle(&rank->gpu, GPU_CONSUME);
		r = gpu_op_error(rank, workspace);
	}
	ck_assert_msg(r == CEOV_ERR_TIMEOUT || r == CEOV_ERR_ABORTED, "rank %u: %s",
		      rank->rank, ceov_strerror(r));
}

/* Rank 0 makes only one run: the second run of the other ranks fails, and their streams go on. Then
 * rank 0 comes too late, and fails, too. */
static void miss_one(struct gpu_op_rank *rank, const void *arg)
{
	const struct missing *missing = arg;
	ceov_workspace *workspace = gpu_op_workspace(rank, &missing->mode);
	uint64_t random = testing_seed(), begin_ns;
	struct op_case one = pick(&random, rank->rig->n_ranks, missing->is_all);
	ceov_op *op = made_in_steps(&one, workspace);
	struct gpu_op_data data;

	rank->used_bytes = 0;
	gpu_op_data_make(rank, &one, &data);
	gpu_op_meet(rank);
	gpu_op_data_turn(&data, op, GPU_CONSUME, 1);
	gpu_op_data_check(&data, GPU_CONSUME, 1);
	gpu_op_meet(rank);
	begin_ns = cei_now_ns();
	if (rank->rank)
		expect_end(rank, workspace, gpu_op_data_run(&data, op, GPU_CONSUME));
	else if (missing->aborts && !usleep(ABORT_US))
		ck_assert_int_eq(ceov_workspace_abort(workspace), 0);
	ck_assert_uint_lt(cei_now_ns() - begin_ns, DEADLINE_NS + END_NS);
	gpu_op_meet(rank);
	expect_end(rank, workspace, gpu_op_data_run(&data, op, GPU_CONSUME));
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

/* With an abort the deadline is the context's, which is longer than the test waits. */
START_TEST(test_a_rank_does_not_come)
{
	struct missing missing = { { "ends", _i < 2 ? DEADLINE_NS : 0, 0, 0 }, _i % 2, _i >= 2 };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, miss_one, &missing);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu direct steps");
	TCase *all = tcase_create("steps");

	n_all = n_ranks < CEI_DIRECT_STEP_RANKS_MAX ? n_ranks : CEI_DIRECT_STEP_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_shapes, n_all == 2, 2);
	tcase_add_test(all, test_bits_are_those_of_copy_engines);
	tcase_add_test(all, test_runs_queued_ahead);
	tcase_add_loop_test(all, test_graphs_are_replayed, 0, 2);
	tcase_add_loop_test(all, test_a_rank_does_not_come, 0, 4);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
