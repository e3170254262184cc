/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests the graphs of repeated runs over memory that goes back to the driver and comes again. The
 * driver is a model: it numbers allocations, and fails the launch of a graph one of whose copies
 * finds another allocation at its address than when the graph was made. It waits for the kernels
 * of the GPU when more graphs exist than ever before, which spare graphs are to prevent.
 */

#include <check.h>
#include <string.h>

#include "base/cuda_table.h"
#include "ops/core/graphs_cuda.h"
#include "ops/core/op.h"
#include "ops/kinds.h"
#include "testing.h"

#define BLOCKS      4u                          /* places where memory may be allocated */
#define BLOCK_BYTES UINT64_C(0x10000)
#define BASE        UINT64_C(0x7000000000)
#define ROUNDS      3000u
#define HALVES      11u                         /* with all ways between blocks more runs than the
						 * cache has room for */
#define MADE_MAX    (2 * CEI_GRAPH_CACHE_MAX)

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
static struct fake_graph captured, made[MADE_MAX];
static uint32_t n_launched, n_copied, n_failed, n_asked, n_alive;
static uint32_t n_most, n_waits;                /* most graphs at once; how often it grew */
static uint32_t n_left;                         /* so many graphs can be made */
static uint32_t n_captured;                     /* captured graphs that were not destroyed */
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
	n_captured++;
	*graph = (CUgraph)&captured;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	uint32_t i = 0;

	(void)flags;
	if (!n_left)
		return CUDA_ERROR_OUT_OF_MEMORY;
	n_left--;
	while (i + 1 < MADE_MAX && made[i].at[0])
		i++;
	ck_assert_uint_eq(made[i].at[0], 0);
	made[i] = *(const struct fake_graph *)graph;
	n_alive++;
	n_waits += n_alive > n_most;
	n_most = n_alive > n_most ? n_alive : n_most;
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
	ck_assert_uint_ne(((struct fake_graph *)exec)->at[0], 0);
	((struct fake_graph *)exec)->at[0] = 0;
	n_alive--;
	return CUDA_SUCCESS;
}

static CUresult drop_graph(CUgraph graph)
{
	(void)graph;
	n_captured--;
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
	n_left = UINT32_MAX;
}

static void tear_down(void)
{
	cei_graphs_close(&graphs);
	ck_assert_uint_eq(n_alive, 0);
	ck_assert_uint_eq(n_captured, 0);
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

static int queue_spare(void *arg, const struct cei_run *none)
{
	ck_assert_ptr_eq(arg, &graphs);
	return (int)cuda.calls.copy(BASE, BASE + BLOCK_BYTES, 16, none->stream);
}

static int queue_nothing(void *arg, const struct cei_run *none)
{
	(void)arg;
	(void)none;
	return CEOV_ERR_CUDA;
}

/* Makes spare graphs, of which so many can be made. */
static void reserve(uint32_t n)
{
	n_left = n;
	cei_graphs_reserve(&graphs, queue_spare);
	ck_assert_uint_eq(n_alive, n < CEI_GRAPH_CACHE_MAX ? n : CEI_GRAPH_CACHE_MAX);
	n_left = UINT32_MAX;
	n_waits = 0;
}

/* Makes all runs that the blocks allow. */
static void run_all(void)
{
	uint32_t half, from, to;

	for (half = 0; half < HALVES; half++)
		for (from = 0; from < BLOCKS; from++)
			for (to = 0; to < BLOCKS; to++)
				if (from != to)
					run(CEOV_MODE_OVERLAP, half, from, to);
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

/* Each graph takes the place of a spare one, until the cache is full. */
START_TEST(test_spares)
{
	uint32_t n;

	reserve(UINT32_MAX);
	run_all();
	ck_assert_uint_eq(cei_graphs_n(&graphs), 0);
	for (n = 1; n <= BLOCKS; n++) {
		run(CEOV_MODE_OVERLAP, 0, n - 1, n % BLOCKS);
		ck_assert_uint_eq(cei_graphs_n(&graphs), n);
		ck_assert_uint_eq(n_alive, CEI_GRAPH_CACHE_MAX);
	}
	run_all();
	ck_assert_uint_eq(cei_graphs_n(&graphs), CEI_GRAPH_CACHE_MAX);
	ck_assert_uint_eq(n_alive, CEI_GRAPH_CACHE_MAX);
	ck_assert_uint_eq(n_waits, 0);
}
END_TEST

/* Spare graphs that were not needed go with the workspace. */
START_TEST(test_spares_are_left)
{
	reserve(UINT32_MAX);
	run(CEOV_MODE_OVERLAP, 0, 0, 1);
	run(CEOV_MODE_OVERLAP, 0, 0, 1);
	ck_assert_uint_eq(cei_graphs_n(&graphs), 1);
	cei_graphs_forget(&graphs, NULL);
	ck_assert_uint_eq(n_alive, CEI_GRAPH_CACHE_MAX - 1);
}
END_TEST

/* Graphs go and come, and never need more memory than the spare ones had. */
START_TEST(test_spares_at_random)
{
	uint64_t random = testing_seed();
	uint32_t i;

	reserve(UINT32_MAX);
	for (i = 0; i < ROUNDS; i++) {
		run(CEOV_MODE_OVERLAP, (uint32_t)testing_below(&random, HALVES), 0,
		    1 + (uint32_t)testing_below(&random, BLOCKS - 1));
		if (!testing_below(&random, 40))
			blocks[testing_below(&random, BLOCKS)] = 0;
	}
	ck_assert_uint_gt(n_launched, ROUNDS / 4);
	ck_assert_uint_eq(n_waits, 0);
}
END_TEST

/* Where spare graphs could not be made, or not all of them, graphs are made all the same. */
START_TEST(test_fewer_spares)
{
	if (_i < 0)
		cei_graphs_reserve(&graphs, queue_nothing);
	else
		reserve((uint32_t)_i);
	ck_assert_uint_eq(n_captured, 0);
	run_all();
	run_all();
	ck_assert_uint_eq(cei_graphs_n(&graphs), CEI_GRAPH_CACHE_MAX);
	ck_assert_uint_eq(n_alive, CEI_GRAPH_CACHE_MAX);
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
	tcase_add_test(all, test_spares);
	tcase_add_test(all, test_spares_are_left);
	tcase_add_test(all, test_spares_at_random);
	tcase_add_loop_test(all, test_fewer_spares, -1, 3);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
