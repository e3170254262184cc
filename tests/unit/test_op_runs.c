/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how runs of operators begin and end on host ranks: the start mark, preloading, products
 * measured alone, closing contexts. */

#include <check.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "ops/core/run.h"
#include "ops/gemm/product.h"

#define SCRATCH UINT64_C(100000)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

/* --- the start mark -------------------------------------------------------- */

/* Launches the first stage of run 1 as a run does, and asserts that nothing is sent before the
 * start mark and everything after it. */
static void expect_start(struct op_rig *rig, ceov_op *op, const void *floating)
{
	ceov_workspace *workspace = rig->workspaces[0];
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket = { 0 };

	launch.floating = floating;
	ck_assert_int_eq(ceov_launch(op->stages[0].plan[1], &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(rig->context, ticket, 50 * TESTING_MS), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_wait(workspace->sent, 0, 1, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(workspace->ready, cei_workspace_start(workspace),
					   1), 0);
	ck_assert_int_eq(ceov_wait(rig->context, ticket, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_wait(workspace->sent, 0, 1, 0), 0);
}

START_TEST(test_sums_wait_for_the_start)
{
	struct op_case one = op_case_of(_i % 2 ? OP_ALL_REDUCE : OP_REDUCE_SCATTER, 3, 64, 0,
					0);
	_Alignas(16) uint16_t source[3 * 64] = { 0 };
	struct op_rig rig;
	ceov_op *op;

	one.tuning.n_pieces = 2;
	if (_i >= 2)                    /* sends nothing: it has only marks */
		one.rows[1] = one.rows[2] = 0;
	op_rig_open(&rig, 3, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	/* polled, on the lane that both stages use */
	ck_assert(op->stages[0].awaits_start && !op->stages[0].follows);
	ck_assert(!op->stages[1].follows);
	expect_start(&rig, op, op->stages[0].names_floating ? source : NULL);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* The start mark's counter is not used by any piece. */
START_TEST(test_the_start_has_a_counter_of_its_own)
{
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 64, 8, 8);
	const struct ceov_plan *plan;
	struct op_rig rig;
	uint32_t i, n = 0;
	ceov_op *op;

	one.tuning.mode = CEOV_MODE_OVERLAP;
	one.tuning.n_pieces = CEI_OP_PIECES_MAX;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	plan = op->stages[0].plan[0];
	for (i = 0; i < plan->program.n_transfers; i++) {
		if (plan->steps[i].source_ready.signal != rig.workspaces[0]->ready)
			continue;
		ck_assert_uint_lt(plan->steps[i].source_ready.index,
				  cei_workspace_start(rig.workspaces[0]));
		n++;
	}
	ck_assert_uint_ge(n, 1);
	ck_assert_uint_eq(rig.workspaces[0]->ready->n_counters,
			  cei_workspace_start(rig.workspaces[0]) + 1);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* How one rank's sums are cut into transfers, and their marks. */
struct sums {
	uint32_t n_legs;
	uint32_t n_marks;
	uint64_t n_bytes;
	uint32_t mark;                  /* counter of the last mark */
	uint32_t last_ready;            /* ready counter of the last transfer */
};

static struct sums sums_for(const ceov_op *op, const struct ceov_buffer *scratch)
{
	const struct ceov_plan *plan = op->stages[1].plan[0];
	struct sums sums = { .n_legs = 0 };
	const struct cei_step *step;
	uint64_t base = scratch->region->address[0], end = 0;
	uint32_t i;

	for (i = 0; i < plan->program.n_transfers; i++) {
		step = &plan->steps[i];
		if (!step->piece.n_rows || step->piece.target - base >= scratch->region->size_bytes)
			continue;
		if (end)                /* addresses ascend without gaps */
			ck_assert_uint_eq(step->piece.target, end);
		end = step->piece.target + step->piece.row_bytes;
		sums.n_legs++;
		sums.n_bytes += step->piece.row_bytes;
		sums.last_ready = step->source_ready.index;
		if (step->then.signal) {
			sums.n_marks++;
			sums.mark = step->then.index;
		}
	}
	return sums;
}

/* Rank 0 of 4 has 96 elements in 3 pieces: only the part for the last target is cut. */
START_TEST(test_how_sums_are_cut)
{
	struct op_case one = op_case_of(OP_ALL_REDUCE, 4, 96, 0, 0);
	uint32_t first = 4 * CEI_OP_PIECES_MAX, target;
	struct sums sums;
	struct op_rig rig;
	ceov_op *op;

	one.tuning.n_pieces = 3;
	op_rig_open(&rig, 4, SCRATCH, &log_);
	rig.workspaces[0]->capture = _i ? (struct cei_capture *)&rig : NULL;    /* never used */
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_int_eq(op->stages[0].awaits_start, !_i);
	for (target = 1; target < 4; target++) {
		sums = sums_for(op, rig.workspaces[0]->scratch[target]);
		ck_assert_uint_eq(sums.n_bytes, 96 * 2);
		ck_assert_uint_eq(sums.n_legs, target == 3 ? 3 : 1);
		ck_assert_uint_eq(sums.n_marks, target == 3 ? 3 : 1);
		ck_assert_uint_eq(sums.mark, target == 3 ? first + 2 : first);
		ck_assert_uint_eq(sums.last_ready, 2);
	}
	rig.workspaces[0]->capture = NULL;
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- preloading kernels ---------------------------------------------------- */

static struct cei_gemm_job loaded;      /* the job that was loaded last */
static uint32_t n_loaded;
static int load_result;

static int record_load(struct cei_executor *executor, const struct cei_gemm_job *job)
{
	(void)executor;
	loaded = *job;
	n_loaded++;
	return load_result;
}

static struct cei_executor_ops loading_ops(int result)
{
	struct cei_executor_ops ops = cei_executor_host;

	ops.load = record_load;
	n_loaded = 0;
	load_result = result;
	return ops;
}

START_TEST(test_products_are_loaded_at_creation)
{
	struct cei_executor_ops ops = loading_ops(0);
	struct op_case one = op_case_of(OP_GEMM_RS, 1, 16, 24, 40);
	struct op_rig rig;
	ceov_op *op;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	rig.workspaces[0]->executor.ops = &ops;
	one.b_is_k_by_n = 1;
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(n_loaded, 1);
	ck_assert_int_eq(loaded.b_is_k_by_n, 1);
	ck_assert_uint_eq(loaded.k, 24);
	ck_assert_uint_eq(loaded.c[0].columns, 40);
	ck_assert_uint_eq(loaded.c[CEI_GEMM_C_PARTIAL].columns, 40);
	ck_assert_ptr_eq(loaded.tiles, &op->product.all.tiles);
	ceov_op_release(op);
	one = op_case_of(OP_AG_GEMM, 1, 16, 24, 40);
	one.n_gemms = 2;
	one.n[1] = 8;
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(n_loaded, 2);
	ck_assert_uint_eq(loaded.c[1].columns, 8);
	ceov_op_release(op);
	one = op_case_of(OP_ALL_REDUCE, 1, 16, 0, 0);   /* an operator without a product */
	ceov_op_release(op_case_made(&one, rig.workspaces[0]));
	ck_assert_uint_eq(n_loaded, 2);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_what_cannot_be_loaded_is_not_made)
{
	struct cei_executor_ops ops = loading_ops(CEOV_ERR_CUDA);
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 16, 24, 40);
	ceov_op *op = NULL;
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	rig.workspaces[0]->executor.ops = &ops;
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), CEOV_ERR_CUDA);
	ck_assert_ptr_null(op);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	op_rig_release(&rig);           /* no op is left over */
	op_rig_close(&rig);
}
END_TEST

static int fit_nothing(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	(void)executor;
	(void)shape;
	return 0;
}

START_TEST(test_says_why_there_is_no_library)
{
	struct cei_executor_ops ops = cei_executor_host;
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 16, 24, 40);
	ceov_op *op = NULL;
	struct op_rig rig;

	ops.is_fit = fit_nothing;
	one.tuning.tile_rows = one.tuning.tile_columns = 8;
	op_rig_open(&rig, 1, SCRATCH, &log_);
	rig.workspaces[0]->executor.ops = &ops;
	rig.workspaces[0]->executor.lacks = "it cannot begin";
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), CEOV_ERR_INVALID);
	testing_log_has(&log_, "no kernel for tiles of that shape",
			"cuBLAS cannot be used: it cannot begin", NULL);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- runs in flight -------------------------------------------------------- */

/* Puts a launch in flight that waits for counter 0 of the signal, because on a GPU the launches of
 * a run may still be in flight after the run call has returned. */
static void put_in_flight(struct op_rig *rig, ceov_signal **ret_gate)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	struct cei_inflight flight = { .n = 1 };
	ceov_signal *gate = testing_signal(rig->context, 0, 1);
	ceov_plan *plan = testing_plan(rig->context, 0);

	transfer.source_ready = testing_mark(gate, 0, 1);
	transfer.then = testing_mark(testing_signal(rig->context, 0, 1), 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &flight.tickets[0]), 0);
	cei_workspace_add_flight(rig->workspaces[0], &flight);
	*ret_gate = gate;
}

static void *raise_soon(void *arg)
{
	usleep(100000);
	if (ceov_signal_raise(arg, 0, 1))
		ck_abort_msg("the gate cannot be raised");
	return NULL;
}

/* Bytes beyond the end of an older caller's struct are not read; fields that only newer headers
 * have must be 0. */
START_TEST(test_structs_of_other_headers)
{
	const uint64_t rows[1] = { 8 };
	struct ceov_ag_gemm ag_gemm = {
		.struct_bytes = offsetof(struct ceov_ag_gemm, b_is_k_by_n),
		.dtype = CEOV_BF16, .rows = rows, .k = 16, .n_gemms = 1, .n = { 8 },
		.b_is_k_by_n = 77,
	};
	struct ceov_gemm_rs gemm_rs = {
		.struct_bytes = offsetof(struct ceov_gemm_rs, b_is_k_by_n),
		.dtype = CEOV_BF16, .rows = rows, .k = 16, .n = 8, .b_is_k_by_n = 77,
	};
	struct ceov_reduce reduce = {
		.struct_bytes = offsetof(struct ceov_reduce, stride),
		.dtype = CEOV_BF16, .counts = rows, .stride = 77, .scale = 77,
	};
	struct { struct ceov_ag_gemm shape; uint64_t more; } later = { ag_gemm, 1 };
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(ceov_reduce_scatter_create(rig.workspaces[0], &reduce, &op), 0);
	ck_assert_uint_eq(op->shape.sum.stride, 0);
	ck_assert(op->shape.sum.scale == 1);
	ceov_op_release(op);
	reduce.struct_bytes = offsetof(struct ceov_reduce, scale);
	reduce.stride = 16;
	ck_assert_int_eq(ceov_reduce_scatter_create(rig.workspaces[0], &reduce, &op), 0);
	ck_assert_uint_eq(op->shape.sum.stride, 16);
	ck_assert(op->shape.sum.scale == 1);
	ceov_op_release(op);
	reduce.struct_bytes += 4;
	ck_assert_uint_eq(ceov_reduce_scatter_scratch_bytes(&reduce, 1), 0);
	reduce.struct_bytes = offsetof(struct ceov_reduce, stride) - 8;
	ck_assert_uint_eq(ceov_reduce_scatter_scratch_bytes(&reduce, 1), 0);
	ck_assert_uint_gt(ceov_ag_gemm_scratch_bytes(&ag_gemm, 1), 0);
	ck_assert_uint_gt(ceov_gemm_rs_scratch_bytes(&gemm_rs, 1), 0);
	ck_assert_int_eq(ceov_ag_gemm_create(rig.workspaces[0], &ag_gemm, &op), 0);
	ck_assert_int_eq(op->shape.product.b_is_k_by_n, 0);
	ceov_op_release(op);
	ck_assert_int_eq(ceov_gemm_rs_create(rig.workspaces[0], &gemm_rs, &op), 0);
	ck_assert_int_eq(op->shape.product.b_is_k_by_n, 0);
	ceov_op_release(op);
	ag_gemm.struct_bytes -= 8;
	gemm_rs.struct_bytes += 1;
	ck_assert_uint_eq(ceov_ag_gemm_scratch_bytes(&ag_gemm, 1), 0);
	ck_assert_uint_eq(ceov_gemm_rs_scratch_bytes(&gemm_rs, 1), 0);
	later.shape.struct_bytes = sizeof(later);
	later.shape.b_is_k_by_n = 1;
	ck_assert_uint_eq(ceov_ag_gemm_scratch_bytes(&later.shape, 1), 0);
	ck_assert_int_eq(ceov_ag_gemm_create(rig.workspaces[0], &later.shape, &op),
			 CEOV_ERR_INVALID);
	testing_log_has(&log_, "fields that this library does not know", NULL, NULL);
	later.more = 0;
	ck_assert_int_eq(ceov_ag_gemm_create(rig.workspaces[0], &later.shape, &op), 0);
	ck_assert_int_eq(op->shape.product.b_is_k_by_n, 1);
	ck_assert_ptr_nonnull(strstr(op->choice.text, "B is k x n"));
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static int never_idle(struct cei_executor *executor, uint64_t timeout_ns)
{
	(void)executor;
	(void)timeout_ns;
	return CEOV_PENDING;
}

static void fill_run(const struct op_data *data, struct ceov_ag_gemm_run *run)
{
	memset(run, 0, sizeof(*run));
	run->struct_bytes = sizeof(*run);
	run->a = data->a;
	run->b[0] = data->b[0];
	run->c[0] = data->c[0];
}

START_TEST(test_a_product_alone_comes_after_runs)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 20, 24, 16);
	struct cei_executor_ops ops = cei_executor_host;
	struct ceov_ag_gemm_run run;
	struct op_data data;
	struct op_rig rig;
	ceov_signal *gate;
	pthread_t thread;
	uint64_t begin;
	ceov_op *op;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	op_data_make(&one, 0, 5, &data);
	fill_run(&data, &run);
	put_in_flight(&rig, &gate);
	begin = cei_now_ns();
	ck_assert_int_eq(pthread_create(&thread, NULL, raise_soon, gate), 0);
	ck_assert_int_eq(cei_op_gemm_alone(op, &run), 0);
	ck_assert_uint_ge(cei_now_ns() - begin, 90 * TESTING_MS);
	ck_assert_uint_eq(rig.workspaces[0]->n_flights, 0);
	op_data_check(&one, 0, 5, &data);
	pthread_join(thread, NULL);
	ops.idle = never_idle;
	rig.workspaces[0]->executor.ops = &ops;
	ck_assert_int_eq(cei_op_gemm_alone(op, &run), CEOV_ERR_TIMEOUT);
	testing_log_has(&log_, "are not done within their deadline", NULL, NULL);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	cei_workspace_fail(rig.workspaces[0], CEOV_ERR_ABORTED);
	ck_assert_int_eq(cei_op_gemm_alone(op, &run), CEOV_ERR_ABORTED);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* --- ceov_close() ---------------------------------------------------------- */

/* A fake job that ends when the watched workspace's signal was aborted. */
static const ceov_workspace *watched;
static uint32_t n_busy, n_done;

static int idle_when_aborted(struct cei_executor *executor, uint64_t timeout_ns)
{
	uint64_t deadline = cei_deadline(timeout_ns);
	const ceov_signal *arrived = watched->arrived[0][executor->rank];

	while (!cei_signal_aborted(arrived) && cei_now_ns() < deadline)
		usleep(1000);
	if (cei_signal_aborted(arrived) && cei_signal_aborted(watched->ready)) {
		n_done++;
		return 0;
	}
	n_busy++;
	return CEOV_PENDING;
}

static int was_said(const char *text)
{
	uint32_t i;

	for (i = 0; i < log_.n_lines && i < TESTING_LINES; i++)
		if (strstr(log_.lines[i], text))
			return 1;
	return 0;
}

START_TEST(test_close_ends_a_job)
{
	struct cei_executor_ops ops = cei_executor_host;
	uint64_t begin = cei_now_ns();
	struct op_rig rig;

	ck_assert_int_eq(setenv("CEOVERLAP_LOG", "info", 1), 0);  /* a close is no error */
	ops.idle = idle_when_aborted;
	n_busy = n_done = 0;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	watched = rig.workspaces[1];
	rig.workspaces[1]->executor.ops = &ops;
	op_rig_close(&rig);
	ck_assert_uint_eq(n_busy, 1);
	ck_assert_uint_eq(n_done, 1);
	testing_log_has(&log_, "ceov_close: workspace 'rig': rank 1", "are aborted", NULL);
	ck_assert(!was_said("workspace 'rig': rank 0"));
	ck_assert_uint_le(cei_now_ns() - begin, 2 * TESTING_SECOND);
}
END_TEST

/* A fake job whose end releases a copy. */
static ceov_signal *copys_gate;

static int idle_and_raise(struct cei_executor *executor, uint64_t timeout_ns)
{
	(void)executor;
	(void)timeout_ns;
	return ceov_signal_raise(copys_gate, 0, 1);
}

/* Only copies are in flight when the context closes. They must not make peers' runs fail. */
START_TEST(test_close_lets_copies_end)
{
	struct cei_executor_ops ops = cei_executor_host;
	struct op_rig rig;

	ops.idle = idle_and_raise;
	op_rig_open(&rig, 2, SCRATCH, &log_);
	put_in_flight(&rig, &copys_gate);
	rig.workspaces[0]->executor.ops = &ops;
	op_rig_close(&rig);
	ck_assert(!was_said("aborted"));
}
END_TEST

START_TEST(test_close_aborts_copies_that_do_not_end)
{
	uint64_t begin = cei_now_ns();
	struct op_rig rig;
	ceov_signal *gate;

	ck_assert_int_eq(setenv("CEOVERLAP_LOG", "info", 1), 0);  /* a close is no error */
	op_rig_open(&rig, 2, SCRATCH, &log_);
	put_in_flight(&rig, &gate);
	op_rig_close(&rig);
	testing_log_has(&log_, "ceov_close: workspace 'rig': rank 0", "are aborted", NULL);
	ck_assert_uint_le(cei_now_ns() - begin, TESTING_PATIENCE);
}
END_TEST

/* Which streams operators on a GPU accept. A host rank plays a GPU whose workspace is not
 * capturable. */
static void *release(void *op)
{
	ceov_op_release(op);
	return NULL;
}

/* A rank's run waits for other ranks with its workspace's lock. A thread of such a rank that
 * releases another op of this workspace, as collectors of garbage do, must not wait for the run. */
START_TEST(test_a_release_does_not_wait_for_a_run_of_another_op)
{
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 2, 64, 0, 0);
	struct timespec until;
	struct op_rig rig;
	pthread_t thread;
	ceov_op *op;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	pthread_mutex_lock(&rig.workspaces[0]->lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, release, op), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += TESTING_PATIENCE / TESTING_SECOND;
	ck_assert_int_eq(pthread_timedjoin_np(thread, NULL, &until), 0);
	pthread_mutex_unlock(&rig.workspaces[0]->lock);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_streams_that_are_refused)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 20, 24, 16);
	const void *streams[] = { NULL, (const void *)1, (const void *)64 };
	const int wanted[2][3] = { { CEOV_ERR_INVALID, CEOV_ERR_INVALID, 0 },
				   { CEOV_ERR_INVALID, 0, 0 } };
	struct op_rig rig;
	uint32_t i, k;
	ceov_op *op;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	op = op_case_made(&one, rig.workspaces[0]);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(cei_op_check_stream(op, streams[i]), 0);
	rig.workspaces[0]->is_host = 0;
	for (k = 0; k < 2; k++) {
		rig.workspaces[0]->capture = k ? (struct cei_capture *)&rig : NULL;
		for (i = 0; i < 3; i++)
			ck_assert_int_eq(cei_op_check_stream(op, streams[i]), wanted[k][i]);
	}
	rig.workspaces[0]->is_host = 1;
	rig.workspaces[0]->capture = NULL;
	ceov_op_release(op);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("op_runs");
	TCase *all = tcase_create("op_runs");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_sums_wait_for_the_start, 0, 4);
	tcase_add_test(all, test_the_start_has_a_counter_of_its_own);
	tcase_add_loop_test(all, test_how_sums_are_cut, 0, 2);
	tcase_add_test(all, test_products_are_loaded_at_creation);
	tcase_add_test(all, test_what_cannot_be_loaded_is_not_made);
	tcase_add_test(all, test_says_why_there_is_no_library);
	tcase_add_test(all, test_structs_of_other_headers);
	tcase_add_test(all, test_a_product_alone_comes_after_runs);
	tcase_add_test(all, test_a_release_does_not_wait_for_a_run_of_another_op);
	tcase_add_test(all, test_streams_that_are_refused);
	tcase_add_test(all, test_close_ends_a_job);
	tcase_add_test(all, test_close_lets_copies_end);
	tcase_add_test(all, test_close_aborts_copies_that_do_not_end);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
