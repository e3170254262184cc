/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests workspaces of operators on host ranks: what is refused, how ranks connect, how workspaces
 * are released. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "op_rig.h"
#include "ops/core/workspace.h"
#include "ops/kinds.h"

#define SCRATCH UINT64_C(10000)

static struct testing_log log_;

static void set_up(void)
{
	testing_log_init(&log_);
}

static struct ceov_workspace_config config_of(uint32_t rank)
{
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config) };

	config.rank = rank;
	config.name = "w";
	config.scratch_bytes = SCRATCH;
	return config;
}

static void expect_refusal(ceov_context *context, const struct ceov_workspace_config *config,
			   const char *text)
{
	ceov_workspace *workspace = NULL;

	testing_log_clear(&log_);
	ck_assert_int_eq(ceov_workspace_create(context, config, &workspace),
			 CEOV_ERR_INVALID);
	ck_assert_ptr_null(workspace);
	testing_log_has(&log_, text, NULL, NULL);
}

START_TEST(test_refused)
{
	ceov_context *context = testing_open(2, &log_);
	struct ceov_workspace_config config = config_of(0);
	char name[64];

	ck_assert_int_eq(ceov_workspace_create(NULL, &config, NULL), CEOV_ERR_INVALID);
	expect_refusal(context, NULL, "config: there is no struct");
	config.struct_bytes = 4;
	expect_refusal(context, &config, "struct_bytes");
	config = config_of(2);
	expect_refusal(context, &config, "rank 2 is not one of this process");
	config = config_of(0);
	config.name = NULL;
	expect_refusal(context, &config, "1 to 40 bytes");
	memset(name, 'x', sizeof(name));
	name[41] = 0;
	config.name = name;
	expect_refusal(context, &config, "1 to 40 bytes");
	config = config_of(0);
	config.scratch_bytes = 0;
	expect_refusal(context, &config, "scratch_bytes");
	config = config_of(0);
	config.is_capturable = 1;
	expect_refusal(context, &config, "graphs are a GPU's");
	config = config_of(0);
	config.shares_sms = -1;
	expect_refusal(context, &config, "shares_sms must be 0 or 1");
	config.shares_sms = 2;
	expect_refusal(context, &config, "shares_sms must be 0 or 1");
	config = config_of(0);
	config.n_sms = 1;
	expect_refusal(context, &config, "n_sms must be 0 or at least 2");
	config = config_of(0);
	config.follows = op_workspace(context, 1, "other", SCRATCH, 0);
	expect_refusal(context, &config, "follows: workspace 'other' is another context's or "
		       "another rank's");
	ck_assert_int_eq(ceov_workspace_release(config.follows), 0);
	expect_refusal(context, &config, "ceov_workspace_create");
	config = config_of(0);
	context->site.n_ranks = 65;
	expect_refusal(context, &config, "at most 64 ranks");
	context->site.n_ranks = 2;
	ceov_close(context);
}
END_TEST

/* A struct that ends before n_sms, as in older headers: bytes beyond are not read. */
START_TEST(test_an_older_config)
{
	ceov_context *context = testing_open(1, &log_);
	struct ceov_workspace_config config = config_of(0);
	ceov_workspace *workspace = NULL;

	config.struct_bytes = offsetof(struct ceov_workspace_config, n_sms);
	config.n_sms = 1;
	ck_assert_int_eq(ceov_workspace_create(context, &config, &workspace), 0);
	ck_assert_int_eq(ceov_workspace_release(workspace), 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_refused_where_nobody_turns)
{
	struct ceov_member members[2];
	struct ceov_config config = testing_config(members, 2, &log_);
	struct ceov_workspace_config workspace = config_of(0);
	ceov_context *context = NULL;

	config.progress_by_caller = 1;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	expect_refusal(context, &workspace, "progress_by_caller");
	ceov_close(context);
}
END_TEST

START_TEST(test_names)
{
	ceov_context *context = testing_open(1, &log_);
	struct ceov_workspace_config config = config_of(0);
	ceov_workspace *first, *second = NULL;
	char name[41];

	first = op_workspace(context, 0, "w", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_create(context, &config, &second), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_workspace_release(first), 0);
	ck_assert_int_eq(ceov_workspace_release(first), CEOV_ERR_INVALID);
	memset(name, 'x', 40);
	name[40] = 0;
	ck_assert_int_eq(ceov_workspace_release(op_workspace(context, 0, name, SCRATCH, 0)), 0);
	ck_assert_int_eq(ceov_workspace_release(op_workspace(context, 0, "w", SCRATCH, 0)), 0);
	ck_assert_int_eq(ceov_workspace_release(NULL), 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_connect_waits_for_peers)
{
	ceov_context *context = testing_open(2, &log_);
	ceov_workspace *first = op_workspace(context, 0, "w", SCRATCH, 0), *second;
	struct op_case one = op_case_of(OP_AG_GEMM, 2, 4, 8, 8);
	uint64_t begin = cei_now_ns();
	ceov_op *op = NULL;

	ck_assert_int_eq(ceov_workspace_connect(first, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_workspace_connect(first, 50 * TESTING_MS), CEOV_PENDING);
	ck_assert_uint_ge(cei_now_ns() - begin, 50 * TESTING_MS);
	ck_assert_int_eq(op_case_create(&one, first, &op), CEOV_ERR_STATE);
	testing_log_has(&log_, "'w' of rank 0 is not connected yet", NULL, NULL);
	second = op_workspace(context, 1, "w", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_connect(first, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_workspace_connect(first, 0), 0);
	ck_assert_int_eq(ceov_workspace_connect(second, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_workspace_status(second), 0);
	ceov_close(context);
}
END_TEST

/* Thread function: reads what connecting found of a peer. Only the workspace's connected state
 * orders this read. */
static void *await_connected(void *arg)
{
	ceov_workspace *workspace = arg;
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (cei_workspace_check_connected(workspace, "test") && cei_now_ns() < deadline)
		;
	return workspace->here[1];
}

START_TEST(test_another_thread_sees_it_connected)
{
	ceov_context *context = testing_open(2, NULL);
	ceov_workspace *first = op_workspace(context, 0, "w", SCRATCH, 0);
	pthread_t thread;
	void *seen = NULL;

	ck_assert_int_eq(pthread_create(&thread, NULL, await_connected, first), 0);
	(void)op_workspace(context, 1, "w", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_connect(first, TESTING_PATIENCE), 0);
	ck_assert_int_eq(pthread_join(thread, &seen), 0);
	ck_assert_ptr_nonnull(seen);
	ceov_close(context);
}
END_TEST

START_TEST(test_peers_differ_in_size)
{
	ceov_context *context = testing_open(2, &log_);
	ceov_workspace *first = op_workspace(context, 0, "w", SCRATCH, 0);
	ceov_workspace *second = op_workspace(context, 1, "w", 2 * SCRATCH, 0);

	ck_assert_int_eq(ceov_workspace_connect(first, 0), CEOV_ERR_INVALID);
	testing_log_has(&log_, "rank 0 has 2 x 12288 bytes", "rank 1 2 x 20480", NULL);
	ck_assert_int_eq(ceov_workspace_release(second), 0);
	op_workspace(context, 1, "w", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_connect(first, 0), 0);
	ceov_close(context);
}
END_TEST

/* A host rank plays a GPU whose peers are on GPUs, too. */
START_TEST(test_operators_of_experts_are_alone)
{
	struct ceov_workspace *workspace;
	struct op_rig rig;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	workspace = rig.workspaces[0];
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_moe_combine), 0);
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_all_gather), 0);
	ck_assert_int_eq(cei_workspace_is_capturable(workspace), 0);
	workspace->least[CEI_ALLREDUCE_QUEUES] = 1;
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_gemm_marks), 0);
	ck_assert_int_eq(cei_workspace_is_capturable(workspace), 1);
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_moe_dispatch), 0);
	ck_assert_int_eq(cei_workspace_is_capturable(workspace), 0);
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_gemm_marks), 0);
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_all_gather), CEOV_ERR_INVALID);
	testing_log_has(&log_, "ceov_all_gather_create", "has had operators of experts", NULL);
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_moe_combine), 0);
	workspace->is_counted = 0;
	workspace->capture = (struct cei_capture *)&rig;        /* never used */
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_all_gather), 0);
	ck_assert_int_eq(cei_workspace_is_capturable(workspace), 1);
	ck_assert_int_eq(cei_workspace_take_kind(workspace, &cei_moe_dispatch), CEOV_ERR_INVALID);
	testing_log_has(&log_, "ceov_moe_dispatch_create", "rows are counted by the engine", NULL);
	workspace->capture = NULL;
	op_rig_release(&rig);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_released_after_its_ops_and_peers)
{
	struct op_case one = op_case_of(OP_GEMM_RS, 2, 4, 8, 8);
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(ceov_workspace_release(rig.workspaces[0]), CEOV_ERR_STATE);
	testing_log_has(&log_, "'rig' of rank 0 still has ops", NULL, NULL);
	ceov_op_release(op);
	ck_assert_int_eq(ceov_workspace_release(rig.workspaces[0]), CEOV_PENDING);
	/* a half-released workspace is refused */
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_workspace_connect(rig.workspaces[0], 0), CEOV_ERR_STATE);
	testing_log_has(&log_, "is being released", NULL, NULL);
	ck_assert_int_eq(ceov_workspace_release(rig.workspaces[1]), 0);
	ck_assert_int_eq(ceov_workspace_release(rig.workspaces[0]), 0);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_released_before_what_it_follows)
{
	ceov_context *context = testing_open(1, &log_);
	struct ceov_workspace_config config = config_of(0);
	ceov_workspace *first = op_workspace(context, 0, "first", SCRATCH, 0);
	ceov_workspace *second = NULL, *third = NULL;

	config.name = "second";
	config.follows = first;
	ck_assert_int_eq(ceov_workspace_create(context, &config, &second), 0);
	config.name = "third";
	config.follows = second;                /* and so the first one */
	ck_assert_int_eq(ceov_workspace_create(context, &config, &third), 0);
	ck_assert_ptr_eq(third->leader, first);
	ck_assert_int_eq(ceov_workspace_release(second), 0);
	ck_assert_int_eq(ceov_workspace_release(first), CEOV_ERR_STATE);
	testing_log_has(&log_, "'first' of rank 0 still has ops, or workspaces that follow it",
			NULL, NULL);
	ck_assert_int_eq(ceov_workspace_release(third), 0);
	ck_assert_int_eq(ceov_workspace_release(first), 0);
	first = op_workspace(context, 0, "first", SCRATCH, 0);
	config.follows = first;
	ck_assert_int_eq(ceov_workspace_create(context, &config, &third), 0);
	ceov_close(context);                    /* releases both */
}
END_TEST

START_TEST(test_close_releases_the_rest)
{
	struct op_case one = op_case_of(OP_ALL_REDUCE, 3, 16, 0, 0);
	struct op_rig rig, other;
	ceov_op *op = NULL;

	op_rig_open(&rig, 3, SCRATCH, &log_);
	op_rig_open_beside(&other, &rig, "other", SCRATCH);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(op_case_create(&one, other.workspaces[2], &op), 0);
	op_workspace(rig.context, 1, "third", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_release(other.workspaces[1]), CEOV_PENDING);
	op_rig_close(&rig);
}
END_TEST

/* Makes a plan with one mark and no bytes, launches it once and waits for its end. */
static ceov_plan *plan_of(ceov_context *context)
{
	static const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	ceov_plan *plan = NULL;

	ck_assert_int_eq(ceov_signal_create(context, 0, host, 1, 0, &transfer.then.signal), 0);
	transfer.then.value = 1;
	ck_assert_int_eq(ceov_plan_create(context, 0, NULL, &plan), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static ceov_ticket launch(ceov_context *context, ceov_plan *plan)
{
	ceov_ticket ticket = { 0 };
	int r = ceov_launch(plan, NULL, &ticket);

	if (!r)
		r = ceov_wait(context, ticket, TESTING_PATIENCE);
	if (r)
		ck_abort_msg("launch: %s", ceov_strerror(r));
	return ticket;
}

/* On a GPU a run's launches are listed until the next check of results. Meanwhile so many other
 * launches have failed that their results are no longer kept. */
START_TEST(test_results_may_be_overtaken)
{
	struct cei_inflight inflight = { .n = 1 };
	struct op_rig rig;
	ceov_plan *plan;
	uint32_t i;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	plan = plan_of(rig.context);
	inflight.tickets[0] = launch(rig.context, plan);
	cei_workspace_add_flight(rig.workspaces[0], &inflight);
	for (i = 0; i < CEI_TICKETS; i++)       /* the launch's slot is reused */
		launch(rig.context, plan);
	rig.context->tickets.forgotten = inflight.tickets[0].number;
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), 0);
	ck_assert_uint_eq(rig.workspaces[0]->n_flights, 0);
	/* its failure is found all the same */
	inflight.n = 1;
	cei_workspace_add_flight(rig.workspaces[0], &inflight);
	cei_signal_raise_abort(rig.workspaces[0]->ready, CEOV_ERR_TIMEOUT, 1);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), CEOV_ERR_TIMEOUT);
	op_rig_close(&rig);
}
END_TEST

static int idle_becomes(ceov_workspace *workspace, int wanted)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_workspace_idle(workspace)) != wanted && cei_now_ns() < deadline)
		sched_yield();
	return r;
}

static void *run_alone(void *arg)
{
	struct op_data data;
	struct op_case one = op_case_of(OP_ALL_REDUCE, 2, 8, 8, 8);
	ceov_op *op = arg;
	int r;

	op_data_make(&one, 0, 1, &data);
	r = op_data_run(&one, op, &data);       /* the other rank makes no run */
	op_data_free(&data);
	return (void *)(intptr_t)r;
}

/* One rank has begun a run that the other one never makes. */
START_TEST(test_abort_ends_a_run_that_waits)
{
	struct op_case one = op_case_of(OP_ALL_REDUCE, 2, 8, 8, 8);
	ceov_workspace *lone;
	struct op_rig rig;
	pthread_t thread;
	ceov_op *op = NULL;
	void *result;

	op_rig_open(&rig, 2, SCRATCH, &log_);
	lone = op_workspace(rig.context, 0, "lone", SCRATCH, 0);
	ck_assert_int_eq(ceov_workspace_abort(lone), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_workspace_abort(NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_workspace_idle(NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	ck_assert_int_eq(ceov_workspace_idle(rig.workspaces[0]), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, run_alone, op), 0);
	ck_assert_int_eq(idle_becomes(rig.workspaces[0], CEOV_PENDING), CEOV_PENDING);
	ck_assert_int_eq(ceov_workspace_abort(rig.workspaces[0]), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_int_eq((intptr_t)result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), CEOV_ERR_ABORTED);
	ck_assert_int_eq(idle_becomes(rig.workspaces[0], 0), 0);
	ceov_op_release(op);
	op_rig_close(&rig);
}
END_TEST

static int say_captured(struct cei_executor *executor, void *stream, int *ret_is)
{
	(void)executor;
	(void)stream;
	*ret_is = 1;
	return 0;
}

/* The refusal comes before peers count on the run, so the workspace can still be used. */
START_TEST(test_a_capture_is_refused)
{
	struct op_case one = op_case_of(OP_AG_GEMM, 1, 4, 8, 8);
	struct cei_executor_ops ops = cei_executor_host;
	struct op_data data;
	struct op_rig rig;
	ceov_op *op = NULL;

	op_rig_open(&rig, 1, SCRATCH, &log_);
	ck_assert_int_eq(op_case_create(&one, rig.workspaces[0], &op), 0);
	op_data_make(&one, 0, 1, &data);
	ops.is_capturing = say_captured;
	rig.workspaces[0]->executor.ops = &ops;
	testing_log_clear(&log_);
	ck_assert_int_eq(op_data_run(&one, op, &data), CEOV_ERR_INVALID);
	testing_log_has(&log_, "is_capturable", NULL, NULL);
	ck_assert_int_eq(ceov_workspace_status(rig.workspaces[0]), 0);
	rig.workspaces[0]->executor.ops = &cei_executor_host;
	ck_assert_int_eq(op_data_run(&one, op, &data), 0);
	op_data_free(&data);
	ceov_op_release(op);
	op_rig_close(&rig);
}
END_TEST

START_TEST(test_too_large_is_refused)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	uint64_t rows[1] = { UINT64_C(1) << 31 };
	uint64_t many[4] = { 600000000, 8, 8, 8 };
	struct ceov_gemm_rs shape = { .struct_bytes = sizeof(shape), .dtype = CEOV_BF16 };
	ceov_context *context = testing_open(1, &log_);
	ceov_workspace *workspace = op_workspace(context, 0, "w", SCRATCH, 0);
	ceov_op *op = NULL;

	shape.rows = rows;
	shape.k = 8;
	shape.n = UINT64_C(1) << 31;
	shape.tuning = &tuning;
	tuning.tile_rows = 65528;
	tuning.tile_columns = UINT32_C(1) << 31;
	ck_assert_int_eq(ceov_workspace_connect(workspace, 0), 0);
	ck_assert_uint_eq(ceov_gemm_rs_scratch_bytes(&shape, 1), 0);
	ck_assert_int_eq(ceov_gemm_rs_create(workspace, &shape, &op), CEOV_ERR_INVALID);
	testing_log_has(&log_, "too many elements", NULL, NULL);
	ceov_close(context);
	shape.n = 8;
	shape.rows = many;
	ck_assert_uint_eq(ceov_gemm_rs_scratch_bytes(&shape, 4), 0);
}
END_TEST

/* Its signals count from 0 afterwards, which no run of it would survive. */
START_TEST(test_a_workspace_with_an_aborted_signal_fails_at_a_reopening)
{
	ceov_context *context = testing_open(2, &log_);
	struct ceov_workspace_config config = config_of(0);
	ceov_workspace *struck = NULL, *other = NULL;

	ck_assert_int_eq(ceov_workspace_create(context, &config, &struck), 0);
	config.name = "other";
	ck_assert_int_eq(ceov_workspace_create(context, &config, &other), 0);
	cei_abort_unlocked(&struck->ready, 1, CEOV_ERR_DAEMON_LOST, CEOV_NOBODY);
	ck_assert_int_eq(ceov_reopen(context, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_workspace_status(struck), CEOV_ERR_DAEMON_LOST);
	ck_assert_int_eq(ceov_workspace_status(other), 0);
	ck_assert_int_eq(cei_signal_aborted(other->ready), 0);
	ceov_close(context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("workspace");
	TCase *all = tcase_create("workspace");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_refused);
	tcase_add_test(all, test_an_older_config);
	tcase_add_test(all, test_refused_where_nobody_turns);
	tcase_add_test(all, test_names);
	tcase_add_test(all, test_connect_waits_for_peers);
	tcase_add_test(all, test_another_thread_sees_it_connected);
	tcase_add_test(all, test_peers_differ_in_size);
	tcase_add_test(all, test_operators_of_experts_are_alone);
	tcase_add_test(all, test_released_after_its_ops_and_peers);
	tcase_add_test(all, test_released_before_what_it_follows);
	tcase_add_test(all, test_close_releases_the_rest);
	tcase_add_test(all, test_results_may_be_overtaken);
	tcase_add_test(all, test_abort_ends_a_run_that_waits);
	tcase_add_test(all, test_a_workspace_with_an_aborted_signal_fails_at_a_reopening);
	tcase_add_test(all, test_a_capture_is_refused);
	tcase_add_test(all, test_too_large_is_refused);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
