/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A child of the process that opened is told so, whatever it calls, and does no harm. */

#include <check.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "way.h"

/* In the child. Counts the calls that did not say CEOV_ERR_FORKED. */
static int n_wrong(struct way *way, ceov_ticket ticket)
{
	struct ceov_transfer transfer = testing_transfer(way->source, way->target, 8);
	struct ceov_mark mark = testing_mark(way->ready, 0, 1);
	struct ceov_failure failure;
	ceov_buffer *buffer = NULL;
	ceov_signal *signal = NULL;
	ceov_plan *plan = NULL;
	uint64_t value;
	uint32_t i, n = 0;
	int results[] = {
		ceov_turn(way->context),
		ceov_barrier(way->context, 0),
		ceov_last_failure(way->context, &failure),
		ceov_buffer_register(way->context, 0, &value, 8, &buffer),
		ceov_buffer_create(way->context, 0, 8, &buffer),
		ceov_buffer_share(way->source, "x"),
		ceov_buffer_find(way->context, 0, "x", &buffer),
		ceov_buffer_release(way->source),
		ceov_signal_create(way->context, 0, testing_host, 1, 0, &signal),
		ceov_signal_share(way->ready, "x"),
		ceov_signal_find(way->context, 0, "x", &signal),
		ceov_signal_raise(way->ready, 0, 1),
		ceov_signal_arrive(way->ready, 0, 1, 1),
		ceov_signal_value(way->ready, 0, &value),
		ceov_signal_wait(way->ready, 0, 1, 0),
		ceov_signal_renew(way->ready),
		ceov_signal_release(way->ready),
		ceov_stream_raise(way->context, 0, way, &mark, 1, 0),
		ceov_stream_wait(way->context, 0, way, &mark, 1, 0),
		ceov_plan_create(way->context, 0, NULL, &plan),
		ceov_plan_add(way->plan, &transfer),
		ceov_plan_expect(way->plan, &mark),
		ceov_plan_commit(way->plan),
		ceov_plan_explain(way->plan, 1),
		ceov_launch(way->plan, NULL, NULL),
		ceov_plan_queue(way->plan, way, 0),
		ceov_wait(way->context, ticket, 0),
		ceov_abort(way->context, ticket),
	};

	for (i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		n += results[i] != CEOV_ERR_FORKED;
	n += ceov_buffer_base(way->source, 0) != NULL;
	ceov_plan_release(way->plan);
	ceov_close(way->context);
	return (int)n;
}

START_TEST(test_a_forked_child_is_refused_and_does_no_harm)
{
	ceov_ticket ticket;
	struct way way;
	int status = -1;
	pid_t child;

	way_open(&way, 1, 0);
	ticket = way_launch(&way, 0, 1);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(n_wrong(&way, ticket));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status 0x%x", status);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_PENDING);
	way_ready(&way, 1);
	ck_assert_int_eq(way_wait(&way, ticket), 0);
	way_close(&way);
}
END_TEST

#ifndef __SANITIZE_THREAD__
/* Until the engine's thread sleeps: one that is inside a sanitizer's allocator when the
 * process forks leaves that allocator locked in the child. */
static void let_engine_sleep(ceov_context *context)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (!atomic_load(&context->engines[0].is_parked))
		ck_assert(cei_now_ns() < deadline);
}

START_TEST(test_a_forked_child_opens_its_own)
{
	ceov_context *context = testing_open(1, NULL), *own;
	int status = -1;
	pid_t child;

	let_engine_sleep(context);
	child = fork();

	ck_assert_int_ge(child, 0);
	if (!child) {
		ceov_close(context);
		own = testing_open(2, NULL);
		ceov_close(own);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ceov_close(context);
}
END_TEST
#endif

static Suite *suite(void)
{
	Suite *made = suite_create("fork");
	TCase *all = tcase_create("fork");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_forked_child_is_refused_and_does_no_harm);
#ifndef __SANITIZE_THREAD__             /* it allows no threads after such a fork */
	tcase_add_test(all, test_a_forked_child_opens_its_own);
#endif
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
