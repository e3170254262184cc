/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Workspaces of a group with one rank on a GPU and one on the host. */

#include <string.h>

#include "gpu_rig.h"
#include "testing.h"

#define RANKS 2u

static struct testing_log log_;
static ceov_context *context;
static ceov_workspace *workspaces[RANKS];

static void open_ranks(void)
{
	const struct ceov_member members[RANKS] = {
		{ 0, { CEOV_PLACE_GPU, 0 } }, { 1, { CEOV_PLACE_HOST, 0 } }
	};
	struct ceov_config config = CEOV_CONFIG_INIT;

	testing_log_init(&log_);
	config.members = members;
	config.n_members = config.n_ranks = RANKS;
	config.log = testing_log_line;
	config.log_arg = &log_;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
}

static void create(uint32_t rank, uint64_t scratch_bytes)
{
	struct ceov_workspace_config config = { .struct_bytes = sizeof(config), .rank = rank };

	config.name = "mixed";
	config.scratch_bytes = scratch_bytes;
	ck_assert_int_eq(ceov_workspace_create(context, &config, &workspaces[rank]), 0);
}

/* GPUs have mail behind their scratch, and the host has none. */
START_TEST(test_they_connect)
{
	const struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning),
					       .mode = CEOV_MODE_DIRECT };
	const uint64_t bytes[RANKS] = { 1024, 1024 };
	const struct ceov_move move = { sizeof(move), bytes, &tuning };
	ceov_op *op = NULL;
	uint32_t i;

	open_ranks();
	for (i = 0; i < RANKS; i++)
		create(i, 4096);
	for (i = 0; i < RANKS; i++)
		ck_assert_int_eq(ceov_workspace_connect(workspaces[i], TESTING_PATIENCE), 0);
	for (i = 0; i < RANKS; i++) {
		ck_assert_int_eq(ceov_all_gather_create(workspaces[i], &move, &op),
				 CEOV_ERR_INVALID);
		testing_log_has(&log_, "only one of them is on a GPU", NULL, NULL);
	}
	ceov_close(context);
}
END_TEST

START_TEST(test_sizes_that_differ)
{
	open_ranks();
	create(0, 4096);
	create(1, 8192);
	ck_assert_int_eq(ceov_workspace_connect(workspaces[0], TESTING_PATIENCE),
			 CEOV_ERR_INVALID);
	testing_log_has(&log_, "scratch of rank 0 has 2 x 4096 bytes, that of rank 1 2 x 8192",
			NULL, NULL);
	ceov_close(context);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu mixed");
	TCase *all = tcase_create("workspaces");

	(void)n_gpus;
	tcase_set_timeout(all, 30);
	tcase_add_test(all, test_they_connect);
	tcase_add_test(all, test_sizes_that_differ);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
