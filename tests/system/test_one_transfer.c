/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests one transfer from end to end: a mark is raised, bytes move, another mark is raised. One
 * process holds both ranks, on host memory. */

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "testing.h"

#define BYTES UINT64_C(100000)

struct pair {
	ceov_context *context;
	ceov_buffer  *source;
	ceov_buffer  *target;
	ceov_signal  *ready;
	ceov_signal  *arrived;
	ceov_signal  *free;
	ceov_plan    *plan;
};

static ceov_context *open_two(int by_caller)
{
	struct ceov_member members[2];
	struct ceov_config config = testing_config(members, 2, NULL);
	ceov_context *context = NULL;

	config.progress_by_caller = by_caller;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	return context;
}

static void build(struct pair *pair, int by_caller)
{
	struct ceov_transfer transfer;

	pair->context = open_two(by_caller);
	pair->source = testing_buffer(pair->context, 0, BYTES);
	pair->target = testing_buffer(pair->context, 1, BYTES);
	pair->ready = testing_signal(pair->context, 0, 1);
	pair->arrived = testing_signal(pair->context, 1, 1);
	pair->free = testing_signal(pair->context, 1, 1);
	pair->plan = testing_plan(pair->context, 0);
	transfer = testing_transfer(pair->source, pair->target, BYTES);
	transfer.source_ready = testing_mark(pair->ready, 0, 1);
	transfer.target_free = testing_mark(pair->free, 0, 0);
	transfer.then = testing_mark(pair->arrived, 0, 1);
	testing_add(pair->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(pair->plan), 0);
}

static void fill(struct pair *pair, uint64_t seed)
{
	memset(ceov_buffer_base(pair->target, 1), 0xee, BYTES);
	testing_fill(ceov_buffer_base(pair->source, 0), BYTES, seed);
}

static void check_arrived(struct pair *pair, uint64_t seed)
{
	ck_assert_uint_eq(testing_check(ceov_buffer_base(pair->target, 1), BYTES, seed),
			  BYTES);
}

START_TEST(test_bytes_arrive_after_mark_and_before_mark)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket;
	struct pair pair;
	uint64_t seen;

	build(&pair, 0);
	for (launch.base = 0; launch.base < 100; launch.base++) {
		launch.producer_stream = launch.base % 2 ? &pair : NULL; /* both triggers in turn */
		fill(&pair, launch.base);
		ck_assert_int_eq(ceov_launch(pair.plan, &launch, &ticket), 0);
		ck_assert_int_eq(ceov_wait(pair.context, ticket, 0), CEOV_PENDING);
		ck_assert_int_eq(ceov_signal_value(pair.arrived, 0, &seen), 0);
		ck_assert_uint_eq(seen, launch.base);
		ck_assert_int_eq(ceov_signal_raise(pair.ready, 0, launch.base + 1), 0);
		ck_assert_int_eq(ceov_signal_wait(pair.arrived, 0, launch.base + 1,
						  TESTING_PATIENCE), 0);
		check_arrived(&pair, launch.base);
		ck_assert_int_eq(ceov_wait(pair.context, ticket, TESTING_PATIENCE), 0);
		ck_assert_int_eq(ceov_signal_raise(pair.free, 0, launch.base + 1), 0);
	}
	ceov_close(pair.context);
}
END_TEST

START_TEST(test_target_is_not_overwritten_before_it_is_free)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket;
	struct pair pair;

	build(&pair, 0);
	fill(&pair, 1);
	ck_assert_int_eq(ceov_signal_raise(pair.ready, 0, 2), 0);
	ck_assert_int_eq(ceov_launch(pair.plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, TESTING_PATIENCE), 0);
	launch.base = 1;
	ck_assert_int_eq(ceov_launch(pair.plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, 50 * TESTING_MS), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(pair.free, 0, 1), 0);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, TESTING_PATIENCE), 0);
	ceov_close(pair.context);
}
END_TEST

START_TEST(test_nothing_moves_but_in_turn)
{
	ceov_ticket ticket;
	struct pair pair;

	build(&pair, 1);
	fill(&pair, 7);
	ck_assert_int_eq(ceov_launch(pair.plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_turn(pair.context), CEOV_PENDING);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(pair.ready, 0, 1), 0);
	while (ceov_turn(pair.context) == CEOV_PENDING)
		;
	ck_assert_int_eq(ceov_wait(pair.context, ticket, 0), 0);
	check_arrived(&pair, 7);
	ceov_close(pair.context);
}
END_TEST

/* Whether a library of UCX is mapped into this process. */
static int has_ucx(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int n_lines = 0, has = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps)) {
		n_lines++;
		has |= strstr(line, "/libucp.") || strstr(line, "/libuct.") ||
			strstr(line, "/libucs.");
	}
	fclose(maps);
	ck_assert_int_gt(n_lines, 0);
	return has;
}

/* Only groups that ask for other nodes use UCX. */
START_TEST(test_one_node_loads_no_ucx)
{
	struct pair pair;
	ceov_ticket ticket;

	build(&pair, 0);
	fill(&pair, 3);
	ck_assert_int_eq(ceov_signal_raise(pair.ready, 0, 1), 0);
	ck_assert_int_eq(ceov_launch(pair.plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, TESTING_PATIENCE), 0);
	ck_assert(!has_ucx());
	ceov_close(pair.context);
	ck_assert(!has_ucx());
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("one_transfer");
	TCase *all = tcase_create("host");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_bytes_arrive_after_mark_and_before_mark);
	tcase_add_test(all, test_target_is_not_overwritten_before_it_is_free);
	tcase_add_test(all, test_nothing_moves_but_in_turn);
	tcase_add_test(all, test_one_node_loads_no_ucx);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
