/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* In a forked child every call returns CEOV_ERR_FORKED and does no harm. */

#include <check.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "loopback.h"

/* Runs in the child: counts calls that did not return CEOV_ERR_FORKED. */
static int n_wrong(struct loopback *loop, ceov_ticket ticket)
{
	struct ceov_transfer transfer = testing_transfer(loop->source, loop->target, 8);
	struct ceov_mark mark = testing_mark(loop->ready, 0, 1);
	struct ceov_failure failure;
	ceov_buffer *buffer = NULL;
	ceov_signal *signal = NULL;
	ceov_plan *plan = NULL;
	uint64_t value;
	uint32_t i, n = 0;
	int results[] = {
		ceov_turn(loop->context),
		ceov_barrier(loop->context, 0),
		ceov_last_failure(loop->context, &failure),
		ceov_buffer_register(loop->context, 0, &value, 8, &buffer),
		ceov_buffer_create(loop->context, 0, 8, &buffer),
		ceov_buffer_share(loop->source, "x"),
		ceov_buffer_find(loop->context, 0, "x", &buffer),
		ceov_buffer_release(loop->source),
		ceov_signal_create(loop->context, 0, testing_host, 1, 0, &signal),
		ceov_signal_share(loop->ready, "x"),
		ceov_signal_find(loop->context, 0, "x", &signal),
		ceov_signal_raise(loop->ready, 0, 1),
		ceov_signal_arrive(loop->ready, 0, 1, 1),
		ceov_signal_value(loop->ready, 0, &value),
		ceov_signal_wait(loop->ready, 0, 1, 0),
		ceov_signal_renew(loop->ready),
		ceov_signal_release(loop->ready),
		ceov_stream_raise(loop->context, 0, loop, &mark, 1, 0),
		ceov_stream_wait(loop->context, 0, loop, &mark, 1, 0),
		ceov_plan_create(loop->context, 0, NULL, &plan),
		ceov_plan_add(loop->plan, &transfer),
		ceov_plan_expect(loop->plan, &mark),
		ceov_plan_commit(loop->plan),
		ceov_plan_explain(loop->plan, 1),
		ceov_launch(loop->plan, NULL, NULL),
		ceov_plan_queue(loop->plan, loop, 0),
		ceov_wait(loop->context, ticket, 0),
		ceov_abort(loop->context, ticket),
	};

	for (i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		n += results[i] != CEOV_ERR_FORKED;
	n += ceov_buffer_base(loop->source, 0) != NULL;
	n += ceov_last_failure(NULL, &failure) || failure.error != CEOV_ERR_FORKED ||
		!strstr(failure.text, "ceov_buffer_base");
	ceov_plan_release(loop->plan);
	ceov_close(loop->context);
	return (int)n;
}

START_TEST(test_a_forked_child_is_refused_and_does_no_harm)
{
	ceov_ticket ticket;
	struct loopback loop;
	int status = -1;
	pid_t child;

	loopback_open(&loop, 1, 0);
	ticket = loopback_launch(&loop, 0, GATED);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(n_wrong(&loop, ticket));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status 0x%x", status);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_PENDING);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(loopback_wait(&loop, ticket), 0);
	loopback_close(&loop);
}
END_TEST

#ifndef __SANITIZE_THREAD__
/* Waits until the engine's thread sleeps. If it were inside a sanitizer's allocator during the
 * fork, that allocator would stay locked in the child. */
static void let_engine_sleep(ceov_context *context)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (!atomic_load(&context->engines[0]->is_parked))
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
#ifndef __SANITIZE_THREAD__             /* ThreadSanitizer allows no threads after such a fork */
	tcase_add_test(all, test_a_forked_child_opens_its_own);
#endif
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
