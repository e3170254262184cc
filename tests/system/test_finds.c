/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how long rank 0 waits for exports of ranks that are stopped or have died. The other
 * processes only exist. */

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ceoverlap/ops.h>

#include "base/clock.h"
#include "testing.h"

#define RANKS_MAX 3u

static uint32_t n_ranks;
static pid_t others[RANKS_MAX];

static ceov_context *open_rank(uint32_t rank, uint64_t deadline_ns)
{
	struct ceov_member member = { rank, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	ceov_context *context = NULL;
	char path[200];

	testing_path("group", path, sizeof(path));
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = n_ranks;
	config.group = path;
	config.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	return context;
}

/* Starts the other processes, and opens rank 0. */
static ceov_context *open_group(uint32_t n)
{
	uint32_t i;

	n_ranks = n;
	for (i = 1; i < n; i++) {
		others[i] = fork();
		ck_assert_int_ge(others[i], 0);
		if (others[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)open_rank(i, TESTING_PATIENCE);
		for (;;)
			pause();
	}
	return open_rank(0, 2 * TESTING_SECOND);
}

static void kill_other(uint32_t rank)
{
	int status;

	ck_assert_int_eq(kill(others[rank], SIGKILL), 0);
	ck_assert_int_eq(waitpid(others[rank], &status, 0), others[rank]);
}

START_TEST(test_a_find_at_a_stopped_rank_has_the_contexts_deadline)
{
	ceov_context *context = open_group(2);
	ceov_buffer *buffer;
	ceov_signal *signal;
	uint64_t before;

	ck_assert_int_eq(ceov_buffer_find(context, 1, "x", &buffer), CEOV_NONE);
	testing_stop(others[1]);
	before = cei_now_ns();
	ck_assert_int_eq(ceov_buffer_find(context, 1, "x", &buffer), CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - before, 2 * TESTING_SECOND);
	ck_assert_uint_lt(cei_now_ns() - before, 7 * TESTING_SECOND);
	ck_assert_uint_eq(testing_failure(context).rank, 1);
	before = cei_now_ns();
	ck_assert_int_eq(ceov_signal_find(context, 1, "x", &signal), CEOV_ERR_TIMEOUT);
	ck_assert_uint_lt(cei_now_ns() - before, 7 * TESTING_SECOND);
	kill_other(1);
	ceov_close(context);
}
END_TEST

static ceov_workspace *make_workspace(ceov_context *context)
{
	struct ceov_workspace_config config;
	ceov_workspace *workspace = NULL;

	memset(&config, 0, sizeof(config));
	config.struct_bytes = sizeof(config);
	config.rank = 0;
	config.name = "w";
	config.scratch_bytes = 4096;
	ck_assert_int_eq(ceov_workspace_create(context, &config, &workspace), 0);
	return workspace;
}

START_TEST(test_a_connect_at_a_stopped_rank_has_its_own_timeout)
{
	ceov_context *context = open_group(2);
	ceov_workspace *workspace = make_workspace(context);
	uint64_t before;

	ck_assert_int_eq(ceov_workspace_connect(workspace, 0), CEOV_PENDING);
	testing_stop(others[1]);
	before = cei_now_ns();
	ck_assert_int_eq(ceov_workspace_connect(workspace, 0), CEOV_ERR_TIMEOUT);
	ck_assert_uint_lt(cei_now_ns() - before, 6 * TESTING_SECOND);
	kill_other(1);
	ceov_close(context);
}
END_TEST

/* Rank 1 never exports anything; rank 0 must ask rank 2 nevertheless. */
START_TEST(test_a_connect_sees_a_dead_rank_behind_one_that_is_late)
{
	ceov_context *context = open_group(3);
	ceov_workspace *workspace = make_workspace(context);
	uint64_t before;

	ck_assert_int_eq(ceov_workspace_connect(workspace, 0), CEOV_PENDING);
	kill_other(2);
	before = cei_now_ns();
	ck_assert_int_eq(ceov_workspace_connect(workspace, TESTING_PATIENCE),
			 CEOV_ERR_PEER_LOST);
	ck_assert_uint_lt(cei_now_ns() - before, 5 * TESTING_SECOND);
	kill_other(1);
	ceov_close(context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("finds");
	TCase *all = tcase_create("finds");

	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_a_find_at_a_stopped_rank_has_the_contexts_deadline);
	tcase_add_test(all, test_a_connect_at_a_stopped_rank_has_its_own_timeout);
	tcase_add_test(all, test_a_connect_sees_a_dead_rank_behind_one_that_is_late);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
