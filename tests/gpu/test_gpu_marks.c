/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * GEMM with marks on a GPU: results, rows that another stream takes as soon as their mark is
 * raised, graphs, SMs that other kernels hold, refusals. And what makes kernels that wait for peers
 * safe beside operators that do, too: a budget of SMs.
 */

#include "gpu_graph.h"
#include "gpu_op_rig.h"

#include <string.h>

#include "base/clock.h"
#include "ops/core/workspace.h"

#define SHAPES       24u
#define SHAPE_RUNS   3u
#define REPLAYS      20u
#define ATTEMPTS     20u                /* runs in which the first group may come early */
#define HELD_RESULT  4u                 /* result slot of the kernel that holds SMs */
#define HELD_THREADS 1024u              /* no block of a product fits beside one of these */
#define HELD_NS      (60 * TESTING_SECOND)
#define HELD_SMS     48u
#define BESIDE_SMS   16u                /* as many blocks as NCCL may use */
#define MANY_GROUPS  32u

static struct gpu_op_rig rig;
static uint32_t n_all;

/* --- one product ----------------------------------------------------------- */

/* The product of a group of one rank; its operands and results are those of an all-gather +
 * GEMM. `taken` receives rows of C from another stream. */
struct product {
	struct gpu_op_rank *rank;
	ceov_workspace     *workspace;
	struct op_case      one;
	struct gpu_op_data  data;
	struct gpu_op_data  taken;
	ceov_op            *op;
};

static int create(struct product *product)
{
	struct ceov_gemm_marks from = { .struct_bytes = sizeof(from) };
	const struct op_case *one = &product->one;

	from.dtype = one->dtype;
	from.m = one->rows[0];
	from.k = one->k;
	from.n = one->n[0];
	from.tuning = &one->tuning;
	from.b_is_k_by_n = one->b_is_k_by_n;
	return ceov_gemm_marks_create(product->workspace, &from, &product->op);
}

static void make(struct product *product, struct gpu_op_rank *rank, ceov_workspace *workspace,
		 const struct op_case *one)
{
	product->rank = rank;
	product->workspace = workspace;
	product->one = *one;
	product->op = NULL;
	rank->used_bytes = 0;
	gpu_op_data_make(rank, &product->one, &product->data);
	gpu_op_data_make(rank, &product->one, &product->taken);
	ck_assert_int_eq(create(product), 0);
}

static int start(const struct product *product, void *stream)
{
	struct ceov_gemm_marks_run run = { .struct_bytes = sizeof(run), .stream = stream };

	run.a = product->data.a;
	run.b = product->data.b[0];
	run.c = product->data.c[0];
	return ceov_gemm_marks_run(product->op, &run);
}

/* Has the other stream copy each group's rows when their mark is raised. */
static void take_groups(const struct product *product)
{
	struct cei_executor *executor = &product->workspace->executor;
	void *stream = product->rank->gpu.streams[GPU_CONSUME];
	uint64_t row_bytes = product->one.n[0] * 2, first, n_rows;
	uint32_t group;

	for (group = 0; group < ceov_gemm_marks_groups(product->op); group++) {
		ck_assert_int_eq(ceov_gemm_marks_wait(product->op, 0, group, stream), 0);
		ck_assert_int_eq(ceov_gemm_marks_rows(product->op, group, &first, &n_rows), 0);
		ck_assert_int_eq(executor->ops->copy(
			executor, stream, (char *)product->taken.c[0] + first * row_bytes,
			(char *)product->data.c[0] + first * row_bytes, n_rows * row_bytes), 0);
	}
}

/* Queues operands of that number, and data that no run makes in place of results. */
static void prepare(const struct product *product, uint64_t number)
{
	gpu_op_data_fill(&product->data, GPU_PRODUCE, number);
	gpu_op_data_spoil(&product->data, GPU_PRODUCE);
	gpu_op_data_spoil(&product->taken, GPU_PRODUCE);
	gpu_idle(&product->rank->gpu, GPU_PRODUCE);
}

static void check(const struct product *product, uint64_t number)
{
	gpu_idle(&product->rank->gpu, GPU_CONSUME);
	gpu_idle(&product->rank->gpu, GPU_PRODUCE);
	gpu_op_data_check(&product->data, GPU_PRODUCE, number);
	gpu_op_data_same(&product->data, GPU_PRODUCE, &product->taken);
	ck_assert_int_eq(ceov_workspace_status(product->workspace), 0);
}

static void turn(const struct product *product, uint64_t number)
{
	prepare(product, number);
	ck_assert_int_eq(start(product, product->rank->gpu.streams[GPU_PRODUCE]), 0);
	take_groups(product);
	check(product, number);
}

/* --- shapes ---------------------------------------------------------------- */

static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	int has_library = gpu_op_has_library(workspace);
	uint64_t random = testing_seed();
	struct product product;
	struct op_case one;
	uint32_t i, k;

	for (i = 0; i < SHAPES; i++) {
		one = op_case_large(&random, 1, OP_AG_GEMM, has_library);
		one.n_gemms = 1;
		one.wants_gathered = 0;
		if (i % 4 == 0) {
			one.tuning.mode = CEOV_MODE_OVERLAP;
			one.tuning.n_pieces = MANY_GROUPS;
		}
		make(&product, rank, workspace, &one);
		for (k = 0; k < SHAPE_RUNS; k++)
			turn(&product, 10 * i + k);
		ceov_op_release(product.op);
	}
	gpu_op_workspace_release(rank, workspace);
}

/* Tests tiles that are dealt out and tiles that are claimed. */
START_TEST(test_shapes)
{
	const struct gpu_op_mode mode = { "shapes", 0, _i, 0 };

	gpu_op_open(&rig, 1);
	gpu_op_each(&rig, try_shapes, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- time ------------------------------------------------------------------ */

static struct op_case large(void)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 4096, 4096, 8192);

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 8;
	return one;
}

/* Returns whether the stream that waits for the first group went on before the run's end. */
static int is_early(const struct product *product)
{
	struct gpu *gpu = &product->rank->gpu;
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	ck_assert_int_eq(start(product, gpu->streams[GPU_PRODUCE]), 0);
	ck_assert_int_eq(ceov_gemm_marks_wait(product->op, 0, 0, gpu->streams[GPU_CONSUME]), 0);
	while (!gpu_is_idle(gpu, GPU_CONSUME))
		ck_assert_uint_lt(cei_now_ns(), deadline);
	return !gpu_is_idle(gpu, GPU_PRODUCE);
}

static void look_early(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case one = large();
	struct product product;
	uint32_t i;
	int was_early = 0;

	make(&product, rank, workspace, &one);
	prepare(&product, 1);
	for (i = 0; i < ATTEMPTS && !was_early; i++) {
		was_early = is_early(&product);
		gpu_idle(&rank->gpu, GPU_PRODUCE);
	}
	ck_assert_msg(was_early, "in %u runs the first group's mark came with the run's end",
		      ATTEMPTS);
	ceov_op_release(product.op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_first_groups_come_before_the_end)
{
	const struct gpu_op_mode mode = { "early", 0, 0, 0 };

	gpu_op_open(&rig, 1);
	gpu_op_each(&rig, look_early, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- graphs ---------------------------------------------------------------- */

/* Waits for a captured run on streams that cannot wait for it. Each is refused, and the capture
 * goes on. */
static void refuse_in_capture(const struct product *product)
{
	void *legacy = (void *)(uintptr_t)1;    /* CU_STREAM_LEGACY */

	ck_assert_int_eq(ceov_gemm_marks_wait(product->op, 0, 0, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_gemm_marks_wait(product->op, 0, 0, legacy), CEOV_ERR_INVALID);
}

/* Captures two runs, each with a stream that takes its groups and is joined behind it. */
static void capture(struct product *product, struct gpu_graph *graph, void **fork)
{
	struct cei_executor *executor = &product->workspace->executor;
	struct gpu *gpu = &product->rank->gpu;
	uint32_t i;

	gpu_graph_begin(graph, gpu, GPU_PRODUCE);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(start(product, gpu->streams[GPU_PRODUCE]), 0);
		refuse_in_capture(product);
		take_groups(product);
		ck_assert_int_eq(executor->ops->fork(executor, gpu->streams[GPU_CONSUME], fork),
				 0);
		ck_assert_int_eq(executor->ops->join(executor, gpu->streams[GPU_PRODUCE], *fork),
				 0);
	}
	gpu_graph_end(graph);
}

static void play(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct cei_executor *executor = &workspace->executor;
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 1111, 512, 768);
	struct product product;
	struct gpu_graph graph;
	void *fork = NULL;
	uint32_t i;

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 4;
	make(&product, rank, workspace, &one);
	turn(&product, 1000);
	capture(&product, &graph, &fork);
	ck_assert_int_eq(ceov_gemm_marks_wait(product.op, 1, 0, rank->gpu.streams[GPU_CONSUME]),
			 CEOV_ERR_STATE);
	for (i = 0; i < REPLAYS; i++) {
		prepare(&product, i);
		gpu_graph_launch(&graph);
		check(&product, i);
		if (i % 5 == 0)
			turn(&product, 2000 + i);       /* outside of the graph */
	}
	gpu_graph_free(&graph);
	executor->ops->end_fork(executor, fork);
	ceov_op_release(product.op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_graphs)
{
	const struct gpu_op_mode mode = { "graphs", 0, 0, 0 };

	gpu_op_open(&rig, 1);
	gpu_op_each(&rig, play, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- SMs that others hold -------------------------------------------------- */

/* Queues a kernel that takes an SM for each of its blocks. */
static void hold_sms(struct gpu_op_rank *rank, uint32_t n_blocks)
{
	struct gpu_result *words = &rank->gpu.results[HELD_RESULT];
	const uint32_t *stop_word = &words->pad;
	uint32_t *n_started = &words->status;
	uint64_t timeout_ns = HELD_NS;
	void *arguments[] = { &stop_word, &timeout_ns, &n_started };
	const struct cei_module_launch launch = {
		.name = "cei_kernel_spin",
		.n_blocks = n_blocks,
		.n_threads = HELD_THREADS,
		.arguments = arguments,
	};

	gpu_reset(&rank->gpu, HELD_RESULT);
	gpu_launch_as(&rank->gpu, GPU_WAIT, &launch);
}

static void await_held(struct gpu_op_rank *rank, uint32_t n_blocks)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE / 2);

	while (gpu_result(&rank->gpu, HELD_RESULT).status < n_blocks)
		ck_assert_msg(cei_now_ns() < deadline, "rank %u: a kernel beside an operator "
			      "finds no SMs", rank->rank);
}

static void let_go(struct gpu_op_rank *rank)
{
	const uint32_t stop = 1;

	ck_assert_msg(!gpu_is_idle(&rank->gpu, GPU_WAIT), "the SMs were not held so long");
	gpu_move(&rank->gpu, &rank->gpu.results[HELD_RESULT].pad, &stop, sizeof(stop));
	gpu_idle(&rank->gpu, GPU_WAIT);
}

static void run_with_few_sms(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 1024, 512, 2048);
	struct product product;
	uint32_t i;

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 4;
	one.tuning.tile_rows = one.tuning.tile_columns = 128;
	make(&product, rank, workspace, &one);
	hold_sms(rank, HELD_SMS);
	await_held(rank, HELD_SMS);
	for (i = 0; i < SHAPE_RUNS; i++)
		turn(&product, i);
	let_go(rank);
	turn(&product, i);
	ceov_op_release(product.op);
	gpu_op_workspace_release(rank, workspace);
}

/* Where tiles are claimed, all marks are raised while other kernels hold most SMs for ever. */
START_TEST(test_few_sms)
{
	const struct gpu_op_mode mode = { "few", 0, 1, 0 };

	gpu_op_open(&rig, 1);
	gpu_op_each(&rig, run_with_few_sms, &mode);
	gpu_op_close(&rig);
}
END_TEST

/* --- a budget of SMs ------------------------------------------------------- */

/* Makes a workspace whose kernels leave two SMs for each block of the kernel beside it, since its
 * blocks may be placed so that each takes an SM from another pair. */
static ceov_workspace *budgeted(struct gpu_op_rank *rank)
{
	const struct gpu_op_mode mode = { "all", 0, 0, 0 };
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config) };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);

	config.rank = rank->rank;
	config.name = "budget";
	config.scratch_bytes = GPU_OP_SCRATCH;
	config.n_sms = workspace->executor.n_sms - 2 * BESIDE_SMS;
	gpu_op_workspace_release(rank, workspace);
	ck_assert_int_eq(ceov_workspace_create(rank->context, &config, &workspace), 0);
	gpu_op_meet(rank);
	ck_assert_int_eq(ceov_workspace_connect(workspace, TESTING_PATIENCE), 0);
	gpu_op_meet(rank);
	return workspace;
}

/* Rank 0 begins a kernel that holds SMs, and then an operator; the others the other way round, so
 * that the operator, which waits for rank 0 in its kernel, is there first. All get their SMs. */
static void run_both(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = budgeted(rank);
	struct op_case one = op_case_of(*(const enum op_sort *)arg, rank->rig->n_ranks, 1024, 512,
					2048);
	struct gpu_op_data data;
	ceov_op *op = NULL;

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = 4;
	rank->used_bytes = 0;
	gpu_op_data_make(rank, &one, &data);
	ck_assert_int_eq(op_case_create(&one, workspace, &op), 0);
	gpu_op_meet(rank);
	if (rank->rank)
		gpu_op_data_turn(&data, op, GPU_CONSUME, 1);
	hold_sms(rank, BESIDE_SMS);
	await_held(rank, BESIDE_SMS);
	gpu_op_meet(rank);
	if (!rank->rank)
		gpu_op_data_turn(&data, op, GPU_CONSUME, 1);
	gpu_op_data_check(&data, GPU_CONSUME, 1);
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	let_go(rank);
	gpu_op_meet(rank);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_budget_leaves_sms_to_others)
{
	static const enum op_sort sorts[] = { OP_AG_GEMM, OP_GEMM_RS, OP_GEMM_AR };

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, run_both, &sorts[_i]);
	gpu_op_close(&rig);
}
END_TEST

/* --- refusals -------------------------------------------------------------- */

static void refuse(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 256, 64, 128);
	void *legacy = (void *)(uintptr_t)1;    /* CU_STREAM_LEGACY */
	void *stream = rank->gpu.streams[GPU_CONSUME];
	struct product product;

	make(&product, rank, workspace, &one);
	ck_assert_int_eq(start(&product, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(start(&product, legacy), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_gemm_marks_wait(product.op, 0, 0, stream), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_gemm_marks_wait(product.op, 1, 0, stream), CEOV_ERR_STATE);
	turn(&product, 1);
	ck_assert_int_eq(ceov_gemm_marks_wait(product.op, 2, 0, stream), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_gemm_marks_wait(product.op, 1, 0, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_gemm_marks_wait(product.op, 1, 0, stream), 0);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	ceov_op_release(product.op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_calls_that_are_refused)
{
	const struct gpu_op_mode mode = { "refuse", 0, 0, 0 };

	gpu_op_open(&rig, 1);
	gpu_op_each(&rig, refuse, &mode);
	gpu_op_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu_marks");
	TCase *all = tcase_create("gpu_marks");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(all, 120);
	tcase_add_loop_test(all, test_shapes, 0, 2);
	tcase_add_test(all, test_first_groups_come_before_the_end);
	tcase_add_test(all, test_graphs);
	tcase_add_test(all, test_few_sms);
	tcase_add_loop_test(all, test_a_budget_leaves_sms_to_others, 0, 3);
	tcase_add_test(all, test_calls_that_are_refused);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
