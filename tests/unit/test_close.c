/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Closing contexts and releasing handles while copies are in flight, were given up, or
 * could not start. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

#define N_BYTES UINT64_C(4096)

struct desk {
	struct testing_log log;
	ceov_context      *context;
	ceov_buffer       *source;
	ceov_buffer       *target;
	ceov_signal       *ready;
	ceov_signal       *arrived;
	ceov_plan         *plan;
};

/* Opens a context of two ranks whose copies start only after copy_delay_ns. */
static void desk_open_bare(struct desk *desk, uint64_t copy_delay_ns, uint64_t deadline_ns,
			   int progress_by_caller)
{
	struct ceov_member members[2];
	struct ceov_config config = testing_config(members, 2, &desk->log);
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)copy_delay_ns);
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_COPY_DELAY_NS", text, 1), 0);
	testing_log_init(&desk->log);
	config.deadline_ns = deadline_ns;
	config.progress_by_caller = progress_by_caller;
	ck_assert_int_eq(ceov_open(&config, &desk->context), 0);
	desk->source = testing_buffer(desk->context, 0, N_BYTES);
	desk->target = testing_buffer(desk->context, 0, N_BYTES);
	desk->ready = testing_signal(desk->context, 0, 1);
	desk->arrived = testing_signal(desk->context, 0, 2);
}

/* Commits the desk's plan: a copy by the rank, of whose marks either may be missing. */
static ceov_plan *desk_commit(struct desk *desk, uint32_t rank, const struct ceov_mark *ready,
			      uint32_t arrived)
{
	ceov_buffer *own = rank ? testing_buffer(desk->context, rank, N_BYTES) : desk->source;
	struct ceov_transfer transfer = testing_transfer(own, desk->target, N_BYTES);
	ceov_plan *plan = testing_plan(desk->context, rank);

	transfer.then = testing_mark(desk->arrived, arrived, 1);
	if (ready) {
		transfer.source_ready = *ready;
		ck_assert_int_eq(ceov_plan_expect(plan, ready), 0);
	}
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* Opens a desk with a plan that copies at once. */
static void desk_open(struct desk *desk, uint64_t copy_delay_ns, uint64_t deadline_ns)
{
	desk_open_bare(desk, copy_delay_ns, deadline_ns, 0);
	desk->plan = desk_commit(desk, 0, NULL, 0);
}

static ceov_ticket desk_launch(struct desk *desk, uint64_t deadline_ns)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket = { 0 };

	launch.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_launch(desk->plan, &launch, &ticket), 0);
	return ticket;
}

/* Sleeps long enough for the engine to hand the copy to its lane. */
static void pause_a_while(void)
{
	usleep(200000);
}

static int has_line(struct testing_log *log, const char *text)
{
	uint32_t i, n = 0;

	pthread_mutex_lock(&log->lock);
	for (i = 0; i < TESTING_LINES && i < log->n_lines; i++)
		n += strstr(log->lines[i], text) != NULL;
	pthread_mutex_unlock(&log->lock);
	return (int)n;
}

/* --- closing while copies are in flight ------------------------------------------ */

/* Opens a desk that keeps lines of the level info, too, by which a close tells what it aborts. */
static void desk_open_told(struct desk *desk, uint64_t copy_delay_ns, int progress_by_caller)
{
	ck_assert_int_eq(setenv("CEOVERLAP_LOG", "info", 1), 0);
	desk_open_bare(desk, copy_delay_ns, 0, progress_by_caller);
}

/* Has a launch of memory that outlives the context begun, and closes. */
static void close_while_it_moves(int progress_by_caller)
{
	uint8_t target[N_BYTES] = { 0 };
	struct desk desk;

	desk_open_told(&desk, 300 * TESTING_MS, progress_by_caller);
	ck_assert_int_eq(ceov_buffer_register(desk.context, 0, target, N_BYTES, &desk.target), 0);
	desk.plan = desk_commit(&desk, 0, NULL, 0);
	testing_fill(ceov_buffer_base(desk.source, 0), N_BYTES, 1);
	desk_launch(&desk, 0);
	if (progress_by_caller)
		ck_assert_int_eq(ceov_turn(desk.context), CEOV_PENDING);
	else
		pause_a_while();
	ceov_close(desk.context);
	ck_assert_uint_eq(testing_check(target, N_BYTES, 1), N_BYTES);
	ck_assert_int_eq(has_line(&desk.log, "abort"), 0);
	ck_assert_int_eq(has_line(&desk.log, "error"), 0);
}

START_TEST(test_close_lets_what_moves_end)
{
	close_while_it_moves(_i);
}
END_TEST

/* Whether the engine polls the mark, or the lane waits for it (a gated launch). */
START_TEST(test_close_ends_at_once_what_waits)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch),
				      .producer_stream = _i ? &launch : NULL };
	struct ceov_mark ready;
	ceov_ticket ticket;
	struct desk desk;
	uint64_t before;

	desk_open_told(&desk, 0, 0);
	ready = testing_mark(desk.ready, 0, 1);
	desk.plan = desk_commit(&desk, 0, &ready, 0);
	ck_assert_int_eq(ceov_launch(desk.plan, &launch, &ticket), 0);
	pause_a_while();
	before = cei_now_ns();
	ceov_close(desk.context);
	ck_assert_uint_lt(cei_now_ns() - before, 4 * TESTING_SECOND);
	testing_log_has(&desk.log, "info: closing", "aborted", NULL);
	ck_assert_int_eq(has_line(&desk.log, "error"), 0);
	ck_assert_int_eq(has_line(&desk.log, "warning"), 0);
}
END_TEST

/* Both ranks' plans name one signal, so the abort of one launch reaches the other one. */
START_TEST(test_close_is_quiet_where_one_rank_waits_and_one_moves)
{
	struct ceov_mark ready;
	struct desk desk;
	ceov_plan *waits;
	ceov_ticket ticket;

	desk_open_told(&desk, 300 * TESTING_MS, 0);
	ready = testing_mark(desk.ready, 0, 1);
	waits = desk_commit(&desk, 0, &ready, 0);
	desk.plan = desk_commit(&desk, 1, NULL, 1);
	ck_assert_int_eq(ceov_launch(waits, NULL, &ticket), 0);
	desk_launch(&desk, 0);
	pause_a_while();
	ceov_close(desk.context);
	testing_log_has(&desk.log, "info: closing", "rank 0", "aborted");
	ck_assert_int_eq(has_line(&desk.log, "error"), 0);
}
END_TEST

/* The launch is given up at half of the deadline, and its copy ends after that. */
START_TEST(test_close_waits_for_a_copy_that_ends_in_time)
{
	struct desk desk;
	uint64_t before;

	desk_open(&desk, 4 * TESTING_SECOND, 6 * TESTING_SECOND);
	desk_launch(&desk, 0);
	pause_a_while();
	before = cei_now_ns();
	ceov_close(desk.context);
	ck_assert_uint_ge(cei_now_ns() - before, 2 * TESTING_SECOND);
	testing_log_has(&desk.log, "uncertain", "takes no more", NULL);
	ck_assert_int_eq(has_line(&desk.log, "stay until the process"), 0);
}
END_TEST

/* Memory that a copy may still touch is not freed, and the closed context's log function is not
 * called. */
START_TEST(test_close_leaves_what_a_copy_may_touch_behind)
{
	volatile unsigned char *source, *target;
	struct desk desk;
	uint64_t before;
	uint32_t n_lines;

	desk_open(&desk, 6 * TESTING_SECOND, TESTING_SECOND);
	source = ceov_buffer_base(desk.source, 0);
	target = ceov_buffer_base(desk.target, 0);
	source[0] = 1;
	target[0] = 2;
	desk_launch(&desk, 0);
	pause_a_while();
	before = cei_now_ns();
	ceov_close(desk.context);
	ck_assert_uint_lt(cei_now_ns() - before, 5 * TESTING_SECOND);
	ck_assert_int_eq(has_line(&desk.log, "stay until the process"), 1);
	testing_log_has(&desk.log, "still moves bytes", NULL, NULL);
	n_lines = desk.log.n_lines;
	ck_assert_uint_eq(source[0], 1);
	ck_assert_uint_eq(target[0], 2);
	while (cei_now_ns() - before < 7 * TESTING_SECOND)
		usleep(100000);
	ck_assert_uint_eq(source[0], 1);
	ck_assert_uint_eq(target[0], 2);
	ck_assert_uint_eq(desk.log.n_lines, n_lines);
	/* the raw system call, because _exit() would run the sanitizer's leak check */
	syscall(SYS_exit_group, 0);
}
END_TEST

/* No memory is left for a stack, so the thread of a lane cannot be started. */
START_TEST(test_a_lane_without_a_worker_fails_and_closes)
{
	static const size_t huge_bytes = (size_t)1 << 46;
	pthread_attr_t attributes;
	struct desk desk;

	desk_open(&desk, 0, 0);
	ck_assert_int_eq(pthread_attr_init(&attributes), 0);
	ck_assert_int_eq(pthread_attr_setstacksize(&attributes, huge_bytes), 0);
	ck_assert_int_eq(pthread_setattr_default_np(&attributes), 0);
	ck_assert_int_eq(pthread_attr_destroy(&attributes), 0);
	ck_assert_int_eq(ceov_wait(desk.context, desk_launch(&desk, 0), TESTING_PATIENCE),
			 CEOV_ERR_SYSTEM);
	testing_log_has(&desk.log, "cannot start its worker", NULL, NULL);
	ck_assert_uint_eq(*(volatile unsigned char *)ceov_buffer_base(desk.target, 0), 0);
	ceov_close(desk.context);
	ck_assert_int_eq(has_line(&desk.log, "stay until the process"), 0);
}
END_TEST

/* --- releasing while copies that were given up may still run -------------------------- */

/* Makes a launch fail whose copy outlasts both the deadline and the time that the engine waits for
 * such copies. */
static void give_up(struct desk *desk)
{
	ck_assert_int_eq(ceov_wait(desk->context, desk_launch(desk, 50 * TESTING_MS),
				   TESTING_PATIENCE), CEOV_ERR_UNCERTAIN);
}

START_TEST(test_what_an_uncertain_copy_may_touch_is_not_released)
{
	uint64_t deadline = cei_deadline(2 * TESTING_PATIENCE);
	struct desk desk;
	int r;

	desk_open(&desk, 9 * TESTING_SECOND, 0);
	give_up(&desk);
	ck_assert_int_eq(ceov_signal_renew(desk.arrived), CEOV_PENDING);
	ceov_plan_release(desk.plan);
	ck_assert_int_eq(ceov_buffer_release(desk.source), CEOV_PENDING);
	ck_assert_int_eq(ceov_buffer_release(desk.target), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_release(desk.arrived), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_renew(desk.arrived), CEOV_PENDING);
	ck_assert_ptr_nonnull(ceov_buffer_base(desk.target, 0));
	while ((r = ceov_buffer_release(desk.target)) == CEOV_PENDING &&
	       cei_now_ns() < deadline)
		sched_yield();
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(ceov_buffer_release(desk.source), 0);
	ck_assert_int_eq(ceov_signal_renew(desk.arrived), 0);
	ck_assert_int_eq(ceov_signal_release(desk.arrived), 0);
	ceov_close(desk.context);
}
END_TEST

START_TEST(test_close_takes_plans_that_were_released_while_stuck)
{
	struct desk desk;

	desk_open(&desk, 9 * TESTING_SECOND, 0);
	give_up(&desk);
	ceov_plan_release(desk.plan);
	ck_assert_int_eq(ceov_buffer_release(desk.target), CEOV_PENDING);
	ceov_close(desk.context);
	ck_assert_int_eq(has_line(&desk.log, "stay until the process"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("close");
	TCase *copies = tcase_create("close against copies");
	TCase *releases = tcase_create("releases beside copies that were given up");

	tcase_set_timeout(copies, 60);
	tcase_add_loop_test(copies, test_close_lets_what_moves_end, 0, 2);
	tcase_add_loop_test(copies, test_close_ends_at_once_what_waits, 0, 2);
	tcase_add_test(copies, test_close_is_quiet_where_one_rank_waits_and_one_moves);
	tcase_add_test(copies, test_close_waits_for_a_copy_that_ends_in_time);
	tcase_add_exit_test(copies, test_close_leaves_what_a_copy_may_touch_behind, 0);
	tcase_add_test(copies, test_a_lane_without_a_worker_fails_and_closes);
	suite_add_tcase(suite, copies);
	tcase_set_timeout(releases, 60);
	tcase_add_test(releases, test_what_an_uncertain_copy_may_touch_is_not_released);
	tcase_add_test(releases, test_close_takes_plans_that_were_released_while_stuck);
	suite_add_tcase(suite, releases);
	return testing_run(suite);
}
