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
	ceov_signal       *arrived;
	ceov_plan         *plan;
};

/* Opens a desk whose copies start only after copy_delay_ns. */
static void desk_open(struct desk *desk, uint64_t copy_delay_ns, uint64_t deadline_ns)
{
	struct ceov_member members[1];
	struct ceov_config config = testing_config(members, 1, &desk->log);
	struct ceov_transfer transfer;
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)copy_delay_ns);
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_COPY_DELAY_NS", text, 1), 0);
	testing_log_init(&desk->log);
	config.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_open(&config, &desk->context), 0);
	desk->source = testing_buffer(desk->context, 0, N_BYTES);
	desk->target = testing_buffer(desk->context, 0, N_BYTES);
	desk->arrived = testing_signal(desk->context, 0, 1);
	desk->plan = testing_plan(desk->context, 0);
	transfer = testing_transfer(desk->source, desk->target, N_BYTES);
	transfer.then = testing_mark(desk->arrived, 0, 1);
	testing_add(desk->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(desk->plan), 0);
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
