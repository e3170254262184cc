/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests the graphs of repeated runs over memory that goes back to the driver and comes again. The
 * driver is a model: it numbers allocations, and fails the launch of a graph one of whose copies
 * finds another allocation at its address than when the graph was made.
 */

#include <check.h>
#include <string.h>

#include "base/cuda_table.h"
#include "ops/core/graphs_cuda.h"
#include "ops/kinds.h"
#include "testing.h"

#define BLOCKS      4u                          /* places where memory may be allocated */
#define BLOCK_BYTES UINT64_C(0x10000)
#define BASE        UINT64_C(0x7000000000)
#define ROUNDS      3000u

struct fake_graph {
	CUdeviceptr        at[2];
	unsigned long long ids[2];
};

static struct cei_report report;
static struct cei_cuda cuda;
static struct cei_cuda_gpu gpu;
static struct cei_gpu_executor own;
static struct cei_graphs graphs;
static unsigned long long blocks[BLOCKS], n_ids;        /* 0: nothing is allocated there */
static struct fake_graph captured, made[2 * BLOCKS * BLOCKS];
static uint32_t n_launched, n_copied, n_failed, n_asked, n_alive;
static int is_captured, knows_none;             /* knows_none: no memory at all */

/* --- the driver ----------------------------------------------------------- */

static unsigned long long id_at(CUdeviceptr address)
{
	uint64_t block = (address - BASE) / BLOCK_BYTES;

	return address >= BASE && block < BLOCKS ? blocks[block] : 0;
}

static CUresult push(CUcontext context)
{
	return context == (CUcontext)&gpu ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult pop(CUcontext *context)
{
	*context = (CUcontext)&gpu;
	return CUDA_SUCCESS;
}

static CUresult context_of(CUstream stream, CUcontext *context)
{
	(void)stream;
	return pop(context);
}

static CUresult mode_of(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

static CUresult capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult attribute(void *data, CUpointer_attribute wanted, CUdeviceptr address)
{
	n_asked++;
	ck_assert_int_eq(wanted, CU_POINTER_ATTRIBUTE_BUFFER_ID);
	if (knows_none || !id_at(address))
		return CUDA_ERROR_INVALID_VALUE;
	*(unsigned long long *)data = id_at(address);
	return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t n_bytes, CUstream stream)
{
	const struct fake_graph node = { { to, from }, { id_at(to), id_at(from) } };

	(void)n_bytes;
	ck_assert_int_eq(stream == graphs.beside, is_captured);
	if (is_captured)
		captured = node;
	else
		n_copied++;
	return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
	(void)mode;
	ck_assert_ptr_eq(stream, graphs.beside);
	is_captured = 1;
	return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph *graph)
{
	(void)stream;
	is_captured = 0;
	*graph = (CUgraph)&captured;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	uint32_t i = 0;

	(void)flags;
	while (i + 1 < sizeof(made) / sizeof(made[0]) && made[i].at[0])
		i++;
	ck_assert_uint_eq(made[i].at[0], 0);
	made[i] = *(const struct fake_graph *)graph;
	n_alive++;
	*exec = (CUgraphExec)&made[i];
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	const struct fake_graph *graph = (const struct fake_graph *)exec;
	uint32_t i;

	(void)stream;
	for (i = 0; i < 2; i++)
		n_failed += graph->ids[i] != id_at(graph->at[i]);
	n_launched++;
	return CUDA_SUCCESS;
}

static CUresult drop_exec(CUgraphExec exec)
{
	((struct fake_graph *)exec)->at[0] = 0;
	n_alive--;
	return CUDA_SUCCESS;
}

static CUresult drop_graph(CUgraph graph)
{
	(void)graph;
	return CUDA_SUCCESS;
}

/* --- the rig -------------------------------------------------------------- */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

static int queue(void *arg, const struct cei_run *run)
{
	const struct ceov_move_run *operands = run->operands;

	ck_assert_ptr_eq(arg, &graphs);
	return (int)cuda.calls.copy((CUdeviceptr)(uintptr_t)operands->target,
				    (CUdeviceptr)(uintptr_t)operands->source, 16, run->stream);
}

static void fill_calls(struct cei_cuda_calls *calls)
{
	calls->ctx_push = push;
	calls->ctx_pop = calls->ctx_get = pop;
	calls->capture_mode = mode_of;
	calls->stream_ctx = context_of;
	calls->stream_is_capturing = capturing;
	calls->pointer_attribute = attribute;
	calls->copy = copy;
	calls->capture_begin = begin;
	calls->capture_end = end;
	calls->graph_instantiate = instantiate;
	calls->graph_launch = launch;
	calls->graph_exec_destroy = drop_exec;
	calls->graph_destroy = drop_graph;
}

static void set_up(void)
{
	cei_report_init(&report, drop_line, NULL);
	fill_calls(&cuda.calls);
	cuda.report = &report;
	cuda.n_gpus = 1;
	cuda.gpus = &gpu;
	gpu.context = (CUcontext)&gpu;
	ck_assert_int_eq(pthread_mutex_init(&cuda.lock, NULL), 0);
	own.cuda = &cuda;
	graphs.gpu = &own;
	graphs.beside = (CUstream)&graphs;
	graphs.queue = queue;
	graphs.queue_arg = &graphs;
}

static void tear_down(void)
{
	cei_graphs_forget(&graphs, NULL);
	ck_assert_uint_eq(n_alive, 0);
	ck_assert_uint_eq(n_failed, 0);
	pthread_mutex_destroy(&cuda.lock);
	cei_report_fini(&report);
}

static void *block(uint32_t i)
{
	if (!blocks[i])
		blocks[i] = ++n_ids;
	return (void *)(uintptr_t)(BASE + i * BLOCK_BYTES);
}

/* Makes a run that copies from one block to another; memory is allocated where there is none. */
static void run(enum ceov_op_mode mode, uint32_t half, uint32_t from, uint32_t to)
{
	static ceov_op op;
	struct ceov_move_run operands = { .struct_bytes = sizeof(operands) };
	struct cei_run one = { .op = &op, .stream = &op, .half = half, .n_memory = 2 };
	int is_queued;
	void *dropped;

	op.kind = op.shape.kind = &cei_all_gather;
	op.choice.mode = mode;
	operands.source = one.memory[0] = block(from);
	operands.target = block(to);
	one.memory[1] = operands.target;
	one.operands = &operands;
	one.operands_bytes = sizeof(operands);
	ck_assert_int_eq(cei_graphs_run(&graphs, &one, &dropped, &is_queued), 0);
	if (!is_queued)
		ck_assert_int_eq(queue(&graphs, &one), 0);
	cei_graphs_drop(&graphs, dropped);
}

/* --- cases ---------------------------------------------------------------- */

START_TEST(test_the_same_memory)
{
	uint32_t i;

	for (i = 0; i < 10; i++)
		run(CEOV_MODE_OVERLAP, 0, 0, 1);
	ck_assert_uint_eq(n_copied, 1);
	ck_assert_uint_eq(n_launched, 9);
	ck_assert_uint_eq(cei_graphs_n(&graphs), 1);
}
END_TEST

/* Source or target go back, and the same address holds another allocation in the next run. */
START_TEST(test_memory_comes_again)
{
	uint32_t i;

	for (i = 0; i < 4; i++)
		run(CEOV_MODE_OVERLAP, 0, 0, 1);
	blocks[_i] = 0;
	run(CEOV_MODE_OVERLAP, 0, 0, 1);
	ck_assert_uint_eq(cei_graphs_n(&graphs), 0);
	ck_assert_uint_eq(n_copied, 2);
	run(CEOV_MODE_OVERLAP, 0, 0, 1);
	ck_assert_uint_eq(cei_graphs_n(&graphs), 1);
	ck_assert_uint_eq(n_launched, 4);
}
END_TEST

START_TEST(test_memory_that_the_driver_does_not_know)
{
	uint32_t i;

	knows_none = 1;
	for (i = 0; i < 4; i++)
		run(CEOV_MODE_OVERLAP, 0, 0, 1);
	ck_assert_uint_eq(n_copied, 4);
	ck_assert_uint_eq(cei_graphs_n(&graphs), 0);
}
END_TEST

/* One kernel's graph is not bound to memory, and its calls do not pay for the question. */
START_TEST(test_one_kernel_asks_nothing)
{
	uint32_t i;

	for (i = 0; i < 4; i++)
		run(CEOV_MODE_DIRECT, 0, 0, 1);
	ck_assert_uint_eq(n_launched, 3);
	ck_assert_uint_eq(n_asked, 0);
}
END_TEST

START_TEST(test_at_random)
{
	uint64_t random = testing_seed();
	uint32_t i, from, to;

	for (i = 0; i < ROUNDS; i++) {
		from = (uint32_t)testing_below(&random, BLOCKS);
		to = (from + 1 + (uint32_t)testing_below(&random, BLOCKS - 1)) % BLOCKS;
		run(CEOV_MODE_OVERLAP, i % 2, from, to);
		if (!testing_below(&random, 40))
			blocks[testing_below(&random, BLOCKS)] = 0;
	}
	ck_assert_uint_gt(n_launched, ROUNDS / 4);
	ck_assert_uint_eq(n_copied + n_launched, ROUNDS);
	ck_assert_uint_eq(n_asked, 2 * ROUNDS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("graphs");
	TCase *all = tcase_create("graphs");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_the_same_memory);
	tcase_add_loop_test(all, test_memory_comes_again, 0, 2);
	tcase_add_test(all, test_memory_that_the_driver_does_not_know);
	tcase_add_test(all, test_one_kernel_asks_nothing);
	tcase_add_test(all, test_at_random);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
