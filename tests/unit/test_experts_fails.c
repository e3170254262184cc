/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Dispatch and combine on ranks whose executor does as a GPU's after a failure: its kernels have
 * found an error before the engine does, and may still run when their op is released. */

#include <check.h>
#include <stdint.h>

#include "ops/compute/experts.h"
#include "ops/core/op.h"
#include "unit/op_rig.h"

#define HIDDEN 16u
#define TOKENS 4u

static int kernel_error;                /* what kernels will have found */
static int found;                       /* what they have found so far */
static int idle_result;

/* As kernels do that run behind one that has failed: a number of rows that no block has. */
static int leave_wrong_numbers(struct cei_executor *executor, void *stream,
			       const struct cei_experts_job *job)
{
	uint32_t i;

	(void)executor;
	(void)stream;
	found = kernel_error;
	for (i = 0; i < job->n_ranks; i++)
		job->n_rows[i] = UINT64_MAX;
	return 0;
}

static int do_nothing(struct cei_executor *executor, void *stream,
		      const struct cei_experts_job *job)
{
	(void)executor;
	(void)stream;
	(void)job;
	return 0;
}

static int queue_await(struct cei_executor *executor, void *stream,
		       const struct cei_job_marks *marks, const struct cei_counters *counters)
{
	(void)executor;
	(void)stream;
	(void)marks;
	(void)counters;
	return 0;
}

static int status(struct cei_executor *executor)
{
	(void)executor;
	return found;
}

static int idle(struct cei_executor *executor, uint64_t timeout_ns)
{
	(void)executor;
	(void)timeout_ns;
	return idle_result;
}

static const struct cei_experts_ops experts = {
	.place = leave_wrong_numbers,
	.place_again = leave_wrong_numbers,
	.pack = do_nothing,
	.receive = do_nothing,
	.sort = do_nothing,
	.give_back = leave_wrong_numbers,
	.add_up = do_nothing,
};

static struct cei_executor_ops gpu_like(void)
{
	struct cei_executor_ops ops = cei_executor_host;

	found = 0;
	ops.experts = &experts;
	ops.await = queue_await;
	ops.status = status;
	ops.idle = idle;
	return ops;
}

static struct ceov_moe shape_of(void)
{
	struct ceov_moe shape = { .struct_bytes = sizeof(shape), .dtype = CEOV_BF16 };

	shape.n_tokens = TOKENS;
	shape.hidden = HIDDEN;
	shape.n_experts = 2;
	shape.top_k = 1;
	return shape;
}

static int combine(ceov_op *op)
{
	static _Alignas(16) char rows[2 * TOKENS * HIDDEN * 2], sums[TOKENS * HIDDEN * 2];
	static _Alignas(16) int32_t slots[TOKENS];
	static _Alignas(16) uint32_t arrived[4];
	struct ceov_moe_combine_run run = { .struct_bytes = sizeof(run), .n_tokens = TOKENS };

	run.rows = rows;
	run.routing.slots = slots;
	run.routing.arrived = arrived;
	run.sums = sums;
	return ceov_moe_combine_run(op, &run);
}

/* The engine refuses the numbers that kernels leave behind a failure. What the kernels found is
 * the cause. */
START_TEST(test_the_cause_is_told)
{
	static const int causes[] = { CEOV_ERR_TIMEOUT, 0 };
	struct cei_executor_ops ops = gpu_like();
	struct ceov_moe shape = shape_of();
	int expected = causes[_i] ? causes[_i] : CEOV_ERR_INVALID;
	ceov_op *op = NULL, *other = NULL;
	struct op_rig rig;

	kernel_error = causes[_i];
	op_rig_open(&rig, 2, ceov_moe_combine_scratch_bytes(&shape, 2), NULL);
	ck_assert_int_eq(ceov_moe_combine_create(rig.workspaces[0], &shape, &op), 0);
	ck_assert_int_eq(ceov_moe_combine_create(rig.workspaces[1], &shape, &other), 0);
	rig.workspaces[0]->executor.ops = &ops;
	op->is_agreed = 1;              /* or the run would wait for the other rank's */
	(void)combine(op);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), expected);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	ceov_op_release(op);
	ceov_op_release(other);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

/* Kernels that have not ended by the deadline may still write their numbers of rows. */
START_TEST(test_release_while_kernels_run)
{
	struct cei_executor_ops ops = gpu_like();
	struct ceov_moe shape = shape_of();
	struct testing_log log;
	ceov_buffer *counts;
	ceov_op *op = NULL;
	struct op_rig rig;

	testing_log_init(&log);
	idle_result = _i ? CEOV_PENDING : 0;
	op_rig_open(&rig, 2, ceov_moe_combine_scratch_bytes(&shape, 2), &log);
	ck_assert_int_eq(ceov_moe_combine_create(rig.workspaces[0], &shape, &op), 0);
	counts = op->counts_buffer;
	rig.workspaces[0]->executor.ops = &ops;
	rig.workspaces[0]->is_host = 0;
	ceov_op_release(op);
	rig.workspaces[0]->is_host = 1;
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	ck_assert_int_eq(ceov_buffer_release(counts), _i ? 0 : CEOV_ERR_INVALID);
	if (_i)
		testing_log_has(&log, "ceov_op_release", "have not ended", NULL);
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("experts_fails");
	TCase *tcase = tcase_create("experts_fails");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_the_cause_is_told, 0, 2);
	tcase_add_loop_test(tcase, test_release_while_kernels_run, 0, 2);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
