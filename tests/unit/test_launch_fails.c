/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Launches that do not end well: deadlines, aborts, copies that fail or are lost,
 * contexts that close. */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "way.h"

/* In this test's own process, before it opens. */
static void set_script(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	ck_assert_int_eq(setenv(name, text, 1), 0);
}

static ceov_ticket launch_for(struct way *way, uint64_t base, uint64_t deadline_ns)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket ticket = { 0 };

	launch.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_launch(way->plan, &launch, &ticket), 0);
	return ticket;
}

/* --- deadlines ----------------------------------------------------------- */

START_TEST(test_a_deadline_names_what_is_missing)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	uint64_t before;
	struct way way;

	way_open(&way, 4, 0);
	way_free(&way, 7);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 8), 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 1, 8), 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 2, 3), 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 3, 8), 0);
	before = cei_now_ns();
	ticket = launch_for(&way, 7, 100 * TESTING_MS);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - before, 100 * TESTING_MS);
	ck_assert_uint_lt(cei_now_ns() - before, 2 * TESTING_SECOND);
	failure = testing_failure(way.context);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(failure.rank, 0);
	ck_assert_uint_eq(failure.transfer, 2);
	ck_assert_uint_eq(failure.chunk, 0);
	ck_assert_uint_eq(failure.mark_value, 8);
	ck_assert_uint_eq(failure.seen_value, 3);
	testing_log_has(&way.log, "transfer 2", "chunk 0",
			"counter 2 of an unshared signal of rank 0 with 4 counters at 8, which "
			"holds 3; not let through");
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 2, 1, 0), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(way_try(&way, 8, 0, NULL), CEOV_ERR_TIMEOUT);
	way_close(&way);
}
END_TEST

START_TEST(test_a_deadline_names_who_does_not_free)
{
	struct ceov_failure failure;
	struct way way;

	way_open(&way, 2, 0);
	way_ready(&way, 10);
	ck_assert_int_eq(ceov_signal_raise(way.free, 0, 9), 0);
	ck_assert_int_eq(ceov_signal_raise(way.free, 1, 8), 0);
	ck_assert_int_eq(way_wait(&way, launch_for(&way, 9, 50 * TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	failure = testing_failure(way.context);
	ck_assert_uint_eq(failure.rank, 1);
	ck_assert_uint_eq(failure.transfer, 1);
	ck_assert_uint_eq(failure.mark_value, 9);
	ck_assert_uint_eq(failure.seen_value, 8);
	way_close(&way);
}
END_TEST

START_TEST(test_a_gated_launch_has_a_deadline)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket, later;
	struct way way;

	way_open(&way, 3, 0);
	launch.producer_stream = &way;
	launch.deadline_ns = 50 * TESTING_MS;
	ck_assert_int_eq(ceov_launch(way.plan, &launch, &ticket), 0);
	launch.deadline_ns = 0;
	ck_assert_int_eq(ceov_launch(way.plan, &launch, &later), 0);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(way_wait(&way, later), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, 1, 0), CEOV_ERR_TIMEOUT);
	way_close(&way);
}
END_TEST

/* A polled launch behind a gated one is held, and still has its own deadline. */
START_TEST(test_a_held_launch_has_a_deadline)
{
	ceov_ticket held;
	struct way way;

	way_open(&way, 1, 0);
	way_launch(&way, 0, 1);
	held = launch_for(&way, 0, 50 * TESTING_MS);
	ck_assert_int_eq(ceov_wait(way.context, held, 3 * TESTING_SECOND),
			 CEOV_ERR_TIMEOUT);
	way_close(&way);
}
END_TEST

START_TEST(test_a_deadline_names_a_shared_signal)
{
	struct way way;

	way_open(&way, 1, 0);
	ck_assert_int_eq(ceov_signal_share(way.ready, "source is ready"), 0);
	ck_assert_int_eq(way_wait(&way, launch_for(&way, 0, TESTING_MS)), CEOV_ERR_TIMEOUT);
	testing_log_has(&way.log, "deadline passed (to blame: rank 0); the mark is counter 0 of "
			"signal 'source is ready' of rank 0 at 1, which holds 0", NULL, NULL);
	way_close(&way);
}
END_TEST

/* Both marks are reached: no signal's owner is to blame, and no mark is named. */
START_TEST(test_a_deadline_of_a_copy_blames_its_own_rank)
{
	struct ceov_failure failure;
	struct way way;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 200 * TESTING_MS);
	way_open(&way, 1, 0);
	way_ready(&way, 1);
	ck_assert_int_eq(way_wait(&way, launch_for(&way, 0, 20 * TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	failure = testing_failure(way.context);
	ck_assert_uint_eq(failure.rank, 0);
	ck_assert_uint_eq(failure.mark_value, 0);
	ck_assert_ptr_null(strstr(failure.text, "the mark is"));
	ck_assert_ptr_nonnull(strstr(failure.text, "does not come back from its lane"));
	way_close(&way);
}
END_TEST

/* --- marks that would fall ------------------------------------------------ */

/* Of three transfers the one in the middle would lower its counter. */
START_TEST(test_a_mark_that_would_fall_fails_its_launch)
{
	struct ceov_failure failure;
	struct way way;

	way_open(&way, 3, 0);
	ck_assert_int_eq(ceov_signal_raise(way.arrived, 1, 7), 0);
	way_ready(&way, 1);
	way_free(&way, 0);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 0, _i)), CEOV_ERR_INVALID);
	failure = testing_failure(way.context);
	ck_assert_uint_eq(failure.transfer, 1);
	ck_assert_uint_eq(failure.mark_value, 1);
	ck_assert_uint_eq(failure.seen_value, 7);
	testing_log_has(&way.log, "its mark would fall", "counter 1 of", "which holds 7");
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 1, 1, 0), CEOV_ERR_INVALID);
	way_close(&way);
}
END_TEST

START_TEST(test_a_mark_that_was_raised_already_may_be_raised_again)
{
	struct way way;

	way_open(&way, 2, 0);
	way_ready(&way, 1);
	ck_assert_int_eq(ceov_signal_raise(way.arrived, 1, 1), 0);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 0, 0)), 0);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 0, 0)), 0);
	way_close(&way);
}
END_TEST

/* --- aborts -------------------------------------------------------------- */

static void *await_arrival(void *arg)
{
	struct way *way = arg;

	return (void *)(intptr_t)ceov_signal_wait(way->arrived, 0, 1, TESTING_PATIENCE);
}

static void abort_one(int is_gated)
{
	ceov_ticket ticket, later;
	pthread_t thread;
	struct way way;
	void *result;

	way_open(&way, 4, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, await_arrival, &way), 0);
	ticket = way_launch(&way, 0, is_gated);
	later = way_launch(&way, 0, is_gated);
	usleep(20000);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_abort(way.context, ticket), 0);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(way_wait(&way, later), CEOV_ERR_ABORTED);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_int_eq((int)(intptr_t)result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(way.ready, 0, 0, 0), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_arrive(way.ready, 0, 1, 1), CEOV_ERR_ABORTED);
	ck_assert_int_eq(way_try(&way, 0, 0, NULL), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_abort(way.context, ticket), CEOV_NONE);
	way_close(&way);
}

START_TEST(test_abort_ends_polled_launches_and_waits)
{
	abort_one(0);
}
END_TEST

START_TEST(test_abort_ends_gated_launches_and_waits)
{
	abort_one(1);
}
END_TEST

START_TEST(test_abort_of_a_copy_under_way)
{
	ceov_ticket ticket;
	struct way way;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 100 * TESTING_MS);
	way_open(&way, 1, 0);
	way_ready(&way, 1);
	ticket = way_launch(&way, 0, 0);
	usleep(30000);
	ck_assert_int_eq(ceov_abort(way.context, ticket), 0);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, 1, 0), CEOV_ERR_ABORTED);
	way_close(&way);
}
END_TEST

/* What is aborted is the signal that a transfer raises, and nothing else. */
START_TEST(test_abort_of_a_launch_that_waits_for_nothing)
{
	struct ceov_transfer transfer;
	ceov_ticket ticket, later;
	struct way way;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 50 * TESTING_MS);
	way_open(&way, 1, 0);
	ceov_plan_release(way.plan);
	way.plan = testing_plan(way.context, 0);
	transfer = testing_transfer(way.source, way.target, 64);
	transfer.then = testing_mark(way.arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(way.plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(way.plan), 0);
	ticket = way_launch(&way, 0, 0);
	later = way_launch(&way, 0, 0);
	ck_assert_int_eq(ceov_abort(way.context, ticket), 0);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(way_wait(&way, later), CEOV_ERR_ABORTED);
	ck_assert_int_eq(way_try(&way, 0, 0, NULL), CEOV_ERR_ABORTED);
	way_close(&way);
}
END_TEST

/* Nobody looks at the aborted signal: its transfer waits for another one. */
START_TEST(test_an_abort_ends_launches_that_wait_for_something_else)
{
	struct ceov_transfer transfer;
	struct way way, other;
	ceov_ticket ticket;
	uint64_t before;

	way_open(&way, 2, 0);
	way_open_beside(&other, &way);
	ticket = way_launch(&way, 0, 0);        /* ready: never */
	ceov_plan_release(other.plan);
	other.plan = testing_plan(way.context, 1);
	transfer = testing_transfer(NULL, NULL, 0);
	transfer.source_ready = testing_mark(other.ready, 0, 1);
	transfer.then = testing_mark(way.arrived, 1, 9);
	testing_add(other.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(other.plan), 0);
	before = cei_now_ns();
	ck_assert_int_eq(ceov_abort(way.context, launch_for(&other, 0, 0)), 0);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_ABORTED);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_SECOND);
	way_close(&way);
}
END_TEST

static void renew_all(struct way *way)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (ceov_signal_renew(way->ready) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(ceov_signal_renew(way->ready), 0);
	ck_assert_int_eq(ceov_signal_renew(way->arrived), 0);
	ck_assert_int_eq(ceov_signal_renew(way->free), 0);
}

START_TEST(test_renewed_signals_start_afresh)
{
	ceov_ticket ticket;
	struct way way;
	uint64_t seen;
	uint32_t round, k;

	way_open(&way, 3, 0);
	for (round = 0; round < 30; round++) {
		for (k = 0; k < 5; k++) {
			testing_fill(ceov_buffer_base(way.source, 0), WAY_BYTES, k);
			ticket = way_launch(&way, k, (round + k) % 2);
			way_ready(&way, k + 1);
			ck_assert_int_eq(way_wait(&way, ticket), 0);
			ck_assert_uint_eq(testing_check(ceov_buffer_base(way.target, 1),
							WAY_BYTES, k), WAY_BYTES);
			way_free(&way, k + 1);
		}
		ticket = way_launch(&way, 5, round % 2);
		ck_assert_int_eq(ceov_signal_renew(way.ready), CEOV_PENDING);
		ck_assert_int_eq(ceov_abort(way.context, ticket), 0);
		ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_ABORTED);
		renew_all(&way);
		ck_assert_int_eq(ceov_signal_value(way.arrived, 0, &seen), 0);
		ck_assert_uint_eq(seen, 0);
	}
	way_close(&way);
}
END_TEST

/* Aborts against raises, launches and ends, at random moments. */
static void *abort_at_random(void *arg)
{
	struct way *way = arg;
	uint64_t random = testing_seed() + 1;
	ceov_ticket ticket = { 0 };

	for (ticket.number = 1; ticket.number < 4000; ticket.number++) {
		(void)ceov_abort(way->context, ticket);
		usleep((useconds_t)testing_below(&random, 200));
	}
	return NULL;
}

START_TEST(test_aborts_at_any_moment_end_launches)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE * 2);
	ceov_ticket ticket;
	pthread_t thread;
	struct way way;
	uint32_t k, n_done = 0;
	int r;

	way_open(&way, 2, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_at_random, &way), 0);
	for (k = 0; k < 1500 && cei_now_ns() < deadline; k++) {
		r = way_try(&way, 0, k % 2, &ticket);
		if (!r)
			(void)ceov_signal_raise(way.ready, 0, 1);
		if (!r)
			(void)ceov_signal_raise(way.ready, 1, 1);
		if (!r)
			r = way_wait(&way, ticket);
		ck_assert_msg(!r || r == CEOV_ERR_ABORTED, "%s", ceov_strerror(r));
		n_done += !r;
		if (r)
			renew_all(&way);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_gt(n_done, 0);
	way_close(&way);
}
END_TEST

/* --- copies that fail or are lost ---------------------------------------- */

START_TEST(test_a_failed_copy_fails_its_launch)
{
	struct ceov_failure failure;
	ceov_ticket first, second;
	struct way way;

	set_script("CEOVERLAP_HOST_COPY_FAIL_AT", 3);
	way_open(&way, 2, 0);
	way_ready(&way, 1);
	first = way_launch(&way, 0, 0);
	ck_assert_int_eq(way_wait(&way, first), 0);
	second = way_launch(&way, 0, 0);
	ck_assert_int_eq(way_wait(&way, second), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, 1, 0), CEOV_ERR_SYSTEM);
	failure = testing_failure(way.context);
	ck_assert_int_eq(failure.error, CEOV_ERR_SYSTEM);
	testing_log_has(&way.log, "launch 2", "transfer 0", NULL);
	ck_assert_int_eq(ceov_wait(way.context, first, 0), 0);
	way_close(&way);
}
END_TEST

START_TEST(test_marks_behind_a_failed_copy_are_not_raised)
{
	ceov_signal *other;
	struct ceov_transfer transfer;
	struct way way;

	set_script("CEOVERLAP_HOST_COPY_FAIL_AT", 1);
	way_open(&way, 1, 0);
	other = testing_signal(way.context, 1, 1);
	ceov_plan_release(way.plan);
	way.plan = testing_plan(way.context, 0);
	transfer = testing_transfer(way.source, way.target, 64);
	transfer.then = testing_mark(other, 0, 1);
	ck_assert_int_eq(ceov_plan_add(way.plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(way.plan), 0);
	ck_assert_int_eq(way_wait(&way, way_launch(&way, 0, 0)), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(ceov_signal_wait(other, 0, 1, 0), CEOV_ERR_SYSTEM);
	way_close(&way);
}
END_TEST

START_TEST(test_a_lost_copy_leaves_its_target_uncertain)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	uint64_t before;
	struct way way;

	set_script("CEOVERLAP_HOST_COPY_LOSE_AT", 1);
	way_open(&way, 2, 0);
	way_ready(&way, 1);
	before = cei_now_ns();
	ticket = launch_for(&way, 0, 50 * TESTING_MS);
	ck_assert_int_eq(way_wait(&way, ticket), CEOV_ERR_UNCERTAIN);
	ck_assert_uint_lt(cei_now_ns() - before, 10 * TESTING_SECOND);
	failure = testing_failure(way.context);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	testing_log_has(&way.log, "uncertain", "takes no more", NULL);
	renew_all(&way);                /* nothing is in flight, but the lane is gone */
	way_ready(&way, 1);
	ck_assert_int_lt(way_wait(&way, way_launch(&way, 0, 0)), 0);
	way_close(&way);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_PATIENCE);
}
END_TEST

/* --- closing ------------------------------------------------------------- */

START_TEST(test_close_ends_what_is_in_flight)
{
	uint32_t i, k;
	struct way way;

	for (i = 0; i < 20; i++) {
		way_open(&way, 5, 0);
		if (i % 3 == 2)         /* some are on the way to their lane */
			way_ready(&way, 1);
		for (k = 0; k < 8; k++)
			way_launch(&way, 0, i % 2 ? 1 : (int)(k % 2));
		way_close(&way);
	}
}
END_TEST

START_TEST(test_close_ends_copies_first)
{
	static unsigned char source[WAY_BYTES], target[WAY_BYTES];
	struct ceov_transfer transfer;
	ceov_buffer *from, *to;
	ceov_plan *plan;
	ceov_context *context;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 50 * TESTING_MS);
	testing_fill(source, WAY_BYTES, 1);
	context = testing_open(1, NULL);
	ck_assert_int_eq(ceov_buffer_register(context, 0, source, WAY_BYTES, &from), 0);
	ck_assert_int_eq(ceov_buffer_register(context, 0, target, WAY_BYTES, &to), 0);
	plan = testing_plan(context, 0);
	transfer = testing_transfer(from, to, WAY_BYTES);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, NULL), 0);
	ck_assert_int_eq(ceov_buffer_release(from), CEOV_PENDING);
	usleep(20000);
	ceov_close(context);
	testing_fill(source, WAY_BYTES, 2);     /* ours again: nobody reads it now */
	memset(target, 0, sizeof(target));
	usleep(80000);
	ck_assert_uint_eq(target[0] | target[WAY_BYTES - 1], 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("launch_fails");
	TCase *all = tcase_create("launch_fails");

	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_a_deadline_names_what_is_missing);
	tcase_add_test(all, test_a_deadline_names_who_does_not_free);
	tcase_add_test(all, test_a_gated_launch_has_a_deadline);
	tcase_add_test(all, test_a_held_launch_has_a_deadline);
	tcase_add_test(all, test_a_deadline_names_a_shared_signal);
	tcase_add_test(all, test_a_deadline_of_a_copy_blames_its_own_rank);
	tcase_add_loop_test(all, test_a_mark_that_would_fall_fails_its_launch, 0, 2);
	tcase_add_test(all, test_a_mark_that_was_raised_already_may_be_raised_again);
	tcase_add_test(all, test_abort_ends_polled_launches_and_waits);
	tcase_add_test(all, test_abort_ends_gated_launches_and_waits);
	tcase_add_test(all, test_abort_of_a_copy_under_way);
	tcase_add_test(all, test_abort_of_a_launch_that_waits_for_nothing);
	tcase_add_test(all, test_an_abort_ends_launches_that_wait_for_something_else);
	tcase_add_test(all, test_renewed_signals_start_afresh);
	tcase_add_test(all, test_aborts_at_any_moment_end_launches);
	tcase_add_test(all, test_a_failed_copy_fails_its_launch);
	tcase_add_test(all, test_marks_behind_a_failed_copy_are_not_raised);
	tcase_add_test(all, test_a_lost_copy_leaves_its_target_uncertain);
	tcase_add_test(all, test_close_ends_what_is_in_flight);
	tcase_add_test(all, test_close_ends_copies_first);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
