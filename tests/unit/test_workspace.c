/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Workspaces of operators on host ranks: what is refused, how they meet, how they are
 * let go of. */

#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "op_rig.h"

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
	expect_refusal(context, NULL, "no config");
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

/* A capturable workspace needs a GPU; here something has its name. */
START_TEST(test_peers_differ_in_mode)
{
	ceov_context *context = testing_open(2, &log_);
	ceov_workspace *first = op_workspace(context, 0, "w", SCRATCH, 0);
	ceov_buffer *other = testing_buffer(context, 1, 16);

	ck_assert_int_eq(ceov_buffer_share(other, "ws.w.c.scratch"), 0);
	ck_assert_int_eq(ceov_workspace_connect(first, 0), CEOV_ERR_INVALID);
	testing_log_has(&log_, "is_capturable 0 at rank 0", "1 at rank 1", NULL);
	ck_assert_int_eq(ceov_buffer_release(other), 0);
	ceov_close(context);
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
	ck_assert_int_eq(ceov_workspace_release(rig.workspaces[1]), 0);
	ck_assert_int_eq(ceov_workspace_release(rig.workspaces[0]), 0);
	op_rig_close(&rig);
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

static Suite *suite(void)
{
	Suite *made = suite_create("workspace");
	TCase *all = tcase_create("workspace");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_refused);
	tcase_add_test(all, test_refused_where_nobody_turns);
	tcase_add_test(all, test_names);
	tcase_add_test(all, test_connect_waits_for_peers);
	tcase_add_test(all, test_peers_differ_in_size);
	tcase_add_test(all, test_peers_differ_in_mode);
	tcase_add_test(all, test_released_after_its_ops_and_peers);
	tcase_add_test(all, test_close_releases_the_rest);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
