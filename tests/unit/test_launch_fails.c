/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests launches that fail: by deadlines, aborts, copies that fail or are lost, and closing
 * contexts. */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/signal.h"
#include "loopback.h"

/* Sets the host backend's fault script in this test's process, before the context opens. */
static void set_script(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	ck_assert_int_eq(setenv(name, text, 1), 0);
}

static ceov_ticket launch_for(struct loopback *loop, uint64_t base, uint64_t deadline_ns)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket ticket = { 0 };

	launch.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_launch(loop->plan, &launch, &ticket), 0);
	return ticket;
}

/* --- deadlines ----------------------------------------------------------- */

/* A deadline before which all transfers end whose marks are there, on a busy machine too. */
#define OTHERS_END TESTING_SECOND

START_TEST(test_a_deadline_names_what_is_missing)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	uint64_t before;
	struct loopback loop;

	loopback_open(&loop, 4, 0);
	loopback_free(&loop, 7);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 8), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 1, 8), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 2, 3), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 3, 8), 0);
	before = cei_now_ns();
	ticket = launch_for(&loop, 7, OTHERS_END);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - before, OTHERS_END);
	ck_assert_uint_lt(cei_now_ns() - before, OTHERS_END + 2 * TESTING_SECOND);
	failure = testing_failure(loop.context);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(failure.rank, 0);
	ck_assert_uint_eq(failure.transfer, 2);
	ck_assert_uint_eq(failure.chunk, 0);
	ck_assert_uint_eq(failure.mark_value, 8);
	ck_assert_uint_eq(failure.seen_value, 3);
	testing_log_has(&loop.log, "transfer 2", "chunk 0",
			"counter 2 of an unshared signal of rank 0 on the host with 4 counters "
			"at 8, which holds 3; its transfer has not begun");
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 2, 1, 0), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(loopback_try(&loop, 8, POLLED, NULL), CEOV_ERR_TIMEOUT);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_a_deadline_names_who_does_not_free)
{
	struct ceov_failure failure;
	struct loopback loop;

	loopback_open(&loop, 2, 0);
	loopback_ready(&loop, 10);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 0, 9), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 1, 8), 0);
	ck_assert_int_eq(loopback_wait(&loop, launch_for(&loop, 9, OTHERS_END)),
			 CEOV_ERR_TIMEOUT);
	failure = testing_failure(loop.context);
	ck_assert_uint_eq(failure.rank, 1);
	ck_assert_uint_eq(failure.transfer, 1);
	ck_assert_uint_eq(failure.mark_value, 9);
	ck_assert_uint_eq(failure.seen_value, 8);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_a_gated_launch_has_a_deadline)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket, later;
	struct loopback loop;

	loopback_open(&loop, 3, 0);
	launch.producer_stream = &loop;
	launch.deadline_ns = 50 * TESTING_MS;
	ck_assert_int_eq(ceov_launch(loop.plan, &launch, &ticket), 0);
	launch.deadline_ns = 0;
	ck_assert_int_eq(ceov_launch(loop.plan, &launch, &later), 0);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(loopback_wait(&loop, later), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 1, 0), CEOV_ERR_TIMEOUT);
	loopback_close(&loop);
}
END_TEST

/* A polled launch that is held behind a gated one still has its own deadline. */
START_TEST(test_a_held_launch_has_a_deadline)
{
	ceov_ticket held;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	loopback_launch(&loop, 0, GATED);
	held = launch_for(&loop, 0, 50 * TESTING_MS);
	ck_assert_int_eq(ceov_wait(loop.context, held, 3 * TESTING_SECOND),
			 CEOV_ERR_TIMEOUT);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_a_deadline_names_a_shared_signal)
{
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	ck_assert_int_eq(ceov_signal_share(loop.ready, "source is ready"), 0);
	ck_assert_int_eq(loopback_wait(&loop, launch_for(&loop, 0, TESTING_MS)), CEOV_ERR_TIMEOUT);
	testing_log_has(&loop.log, "deadline passed (to blame: rank 0); its mark source_ready is "
			"counter 0 of signal 'source is ready' of rank 0 at 1, which holds 0",
			NULL, NULL);
	loopback_close(&loop);
}
END_TEST

/* Both marks were reached, so the message blames no signal's owner and names no mark. */
START_TEST(test_a_deadline_of_a_copy_blames_its_own_rank)
{
	struct ceov_failure failure;
	struct loopback loop;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 200 * TESTING_MS);
	loopback_open(&loop, 1, 0);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(loopback_wait(&loop, launch_for(&loop, 0, 20 * TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	failure = testing_failure(loop.context);
	ck_assert_uint_eq(failure.rank, 0);
	ck_assert_uint_eq(failure.mark_value, 0);
	ck_assert_ptr_null(strstr(failure.text, "its mark"));
	ck_assert_ptr_nonnull(strstr(failure.text, "does not come back from its lane"));
	loopback_close(&loop);
}
END_TEST

/* --- marks that would lower their counter --------------------------------- */

/* The second of three transfers would lower its counter. */
START_TEST(test_a_mark_that_would_fall_fails_its_launch)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	struct loopback loop;

	loopback_open(&loop, 3, 0);
	ck_assert_int_eq(ceov_signal_raise(loop.arrived, 1, 7), 0);
	loopback_ready(&loop, 1);
	loopback_free(&loop, 0);
	ticket = loopback_launch(&loop, 0, (enum loopback_gate)_i);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_INVALID);
	failure = testing_failure(loop.context);
	ck_assert_uint_eq(failure.transfer, 1);
	ck_assert_uint_eq(failure.mark_value, 1);
	ck_assert_uint_eq(failure.seen_value, 7);
	testing_log_has(&loop.log, "its mark would fall", "counter 1 of", "which holds 7");
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 1, 1, 0), CEOV_ERR_INVALID);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_a_mark_that_was_raised_already_may_be_raised_again)
{
	struct loopback loop;

	loopback_open(&loop, 2, 0);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(ceov_signal_raise(loop.arrived, 1, 1), 0);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 0, POLLED)), 0);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 0, POLLED)), 0);
	loopback_close(&loop);
}
END_TEST

/* --- aborts -------------------------------------------------------------- */

static void *await_arrival(void *arg)
{
	struct loopback *loop = arg;

	return (void *)(intptr_t)ceov_signal_wait(loop->arrived, 0, 1, TESTING_PATIENCE);
}

static void abort_one(enum loopback_gate gate)
{
	ceov_ticket ticket, later;
	pthread_t thread;
	struct loopback loop;
	void *result;

	loopback_open(&loop, 4, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, await_arrival, &loop), 0);
	ticket = loopback_launch(&loop, 0, gate);
	later = loopback_launch(&loop, 0, gate);
	usleep(20000);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_abort(loop.context, ticket), 0);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(loopback_wait(&loop, later), CEOV_ERR_ABORTED);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_int_eq((int)(intptr_t)result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(loop.ready, 0, 0, 0), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_arrive(loop.ready, 0, 1, 1), CEOV_ERR_ABORTED);
	ck_assert_int_eq(loopback_try(&loop, 0, POLLED, NULL), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_abort(loop.context, ticket), CEOV_NONE);
	loopback_close(&loop);
}

START_TEST(test_abort_ends_polled_launches_and_waits)
{
	abort_one(POLLED);
}
END_TEST

START_TEST(test_abort_ends_gated_launches_and_waits)
{
	abort_one(GATED);
}
END_TEST

/* The first abort word of an abort is set, and those of other signals are not yet. A lane that went
 * on would raise the next mark, and who waits for that would take the bytes for good. */
START_TEST(test_a_gate_stays_closed_until_all_abort_words_are_set)
{
	struct loopback loop;
	ceov_ticket ticket;
	uint32_t i;
	int r;

	for (i = 0; i < 200; i++) {
		loopback_open(&loop, 1, 0);
		ticket = loopback_launch(&loop, 0, GATED);
		usleep(500);
		(void)cei_signal_raise_abort(loop.ready, CEOV_ERR_ABORTED, 0);
		r = ceov_signal_wait(loop.arrived, 0, 1, TESTING_PATIENCE);
		if (r != CEOV_ERR_ABORTED)
			ck_abort_msg("round %u: %s", i, ceov_strerror(r));
		ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
		loopback_close(&loop);
	}
}
END_TEST

START_TEST(test_abort_of_a_copy_under_way)
{
	ceov_ticket ticket;
	struct loopback loop;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 100 * TESTING_MS);
	loopback_open(&loop, 1, 0);
	loopback_ready(&loop, 1);
	ticket = loopback_launch(&loop, 0, POLLED);
	usleep(30000);
	ck_assert_int_eq(ceov_abort(loop.context, ticket), 0);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 1, 0), CEOV_ERR_ABORTED);
	loopback_close(&loop);
}
END_TEST

/* Aborting a launch that waits for nothing aborts only the signal that its transfer raises. */
START_TEST(test_abort_of_a_launch_that_waits_for_nothing)
{
	struct ceov_transfer transfer;
	ceov_ticket ticket, later;
	struct loopback loop;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 50 * TESTING_MS);
	loopback_open(&loop, 1, 0);
	ceov_plan_release(loop.plan);
	loop.plan = testing_plan(loop.context, 0);
	transfer = testing_transfer(loop.source, loop.target, 64);
	transfer.then = testing_mark(loop.arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(loop.plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(loop.plan), 0);
	ticket = loopback_launch(&loop, 0, POLLED);
	later = loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(ceov_abort(loop.context, ticket), 0);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(loopback_wait(&loop, later), CEOV_ERR_ABORTED);
	ck_assert_int_eq(loopback_try(&loop, 0, POLLED, NULL), CEOV_ERR_ABORTED);
	loopback_close(&loop);
}
END_TEST

/* The transfer waits for another signal than the aborted one. */
START_TEST(test_an_abort_ends_launches_that_wait_for_something_else)
{
	struct ceov_transfer transfer;
	struct loopback loop, other;
	ceov_ticket ticket;
	uint64_t before;

	loopback_open(&loop, 2, 0);
	loopback_open_beside(&other, &loop);
	ticket = loopback_launch(&loop, 0, POLLED); /* ready is never raised */
	ceov_plan_release(other.plan);
	other.plan = testing_plan(loop.context, 1);
	transfer = testing_transfer(NULL, NULL, 0);
	transfer.source_ready = testing_mark(other.ready, 0, 1);
	transfer.then = testing_mark(loop.arrived, 1, 9);
	testing_add(other.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(other.plan), 0);
	before = cei_now_ns();
	ck_assert_int_eq(ceov_abort(loop.context, launch_for(&other, 0, 0)), 0);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_SECOND);
	loopback_close(&loop);
}
END_TEST

static void renew_all(struct loopback *loop)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (ceov_signal_renew(loop->ready) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(ceov_signal_renew(loop->ready), 0);
	ck_assert_int_eq(ceov_signal_renew(loop->arrived), 0);
	ck_assert_int_eq(ceov_signal_renew(loop->free), 0);
}

START_TEST(test_renewed_signals_start_afresh)
{
	ceov_ticket ticket;
	struct loopback loop;
	uint64_t seen;
	uint32_t round, k;

	loopback_open(&loop, 3, 0);
	for (round = 0; round < 30; round++) {
		for (k = 0; k < 5; k++) {
			testing_fill(ceov_buffer_base(loop.source, 0), LOOPBACK_BYTES, k);
			ticket = loopback_launch(&loop, k, (round + k) % 2);
			loopback_ready(&loop, k + 1);
			ck_assert_int_eq(loopback_wait(&loop, ticket), 0);
			ck_assert_uint_eq(testing_check(ceov_buffer_base(loop.target, 1),
							LOOPBACK_BYTES, k), LOOPBACK_BYTES);
			loopback_free(&loop, k + 1);
		}
		ticket = loopback_launch(&loop, 5, round % 2);
		ck_assert_int_eq(ceov_signal_renew(loop.ready), CEOV_PENDING);
		ck_assert_int_eq(ceov_abort(loop.context, ticket), 0);
		ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
		renew_all(&loop);
		ck_assert_int_eq(ceov_signal_value(loop.arrived, 0, &seen), 0);
		ck_assert_uint_eq(seen, 0);
	}
	loopback_close(&loop);
}
END_TEST

/* Aborts at random moments, while others raise, launch and end. */
static void *abort_at_random(void *arg)
{
	struct loopback *loop = arg;
	uint64_t random = testing_seed() + 1;
	ceov_ticket ticket = { 0 };

	for (ticket.number = 1; ticket.number < 4000; ticket.number++) {
		(void)ceov_abort(loop->context, ticket);
		usleep((useconds_t)testing_below(&random, 200));
	}
	return NULL;
}

START_TEST(test_aborts_at_any_moment_end_launches)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE * 2);
	ceov_ticket ticket;
	pthread_t thread;
	struct loopback loop;
	uint32_t k, n_done = 0;
	int r;

	loopback_open(&loop, 2, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, abort_at_random, &loop), 0);
	for (k = 0; k < 1500 && cei_now_ns() < deadline; k++) {
		r = loopback_try(&loop, 0, k % 2, &ticket);
		if (!r)
			(void)ceov_signal_raise(loop.ready, 0, 1);
		if (!r)
			(void)ceov_signal_raise(loop.ready, 1, 1);
		if (!r)
			r = loopback_wait(&loop, ticket);
		ck_assert_msg(!r || r == CEOV_ERR_ABORTED, "%s", ceov_strerror(r));
		n_done += !r;
		if (r)
			renew_all(&loop);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_gt(n_done, 0);
	loopback_close(&loop);
}
END_TEST

/* --- copies that fail or are lost ---------------------------------------- */

START_TEST(test_a_failed_copy_fails_its_launch)
{
	struct ceov_failure failure;
	ceov_ticket first, second;
	struct loopback loop;

	set_script("CEOVERLAP_HOST_COPY_FAIL_AT", 3);
	loopback_open(&loop, 2, 0);
	loopback_ready(&loop, 1);
	first = loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(loopback_wait(&loop, first), 0);
	second = loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(loopback_wait(&loop, second), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(ceov_signal_wait(loop.arrived, 0, 1, 0), CEOV_ERR_SYSTEM);
	failure = testing_failure(loop.context);
	ck_assert_int_eq(failure.error, CEOV_ERR_SYSTEM);
	testing_log_has(&loop.log, "launch 2", "transfer 0", NULL);
	ck_assert_int_eq(ceov_wait(loop.context, first, 0), 0);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_marks_behind_a_failed_copy_are_not_raised)
{
	ceov_signal *other;
	struct ceov_transfer transfer;
	struct loopback loop;

	set_script("CEOVERLAP_HOST_COPY_FAIL_AT", 1);
	loopback_open(&loop, 1, 0);
	other = testing_signal(loop.context, 1, 1);
	ceov_plan_release(loop.plan);
	loop.plan = testing_plan(loop.context, 0);
	transfer = testing_transfer(loop.source, loop.target, 64);
	transfer.then = testing_mark(other, 0, 1);
	ck_assert_int_eq(ceov_plan_add(loop.plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(loop.plan), 0);
	ck_assert_int_eq(loopback_wait(&loop, loopback_launch(&loop, 0, POLLED)), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(ceov_signal_wait(other, 0, 1, 0), CEOV_ERR_SYSTEM);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_a_lost_copy_leaves_its_target_uncertain)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	uint64_t before;
	struct loopback loop;

	set_script("CEOVERLAP_HOST_COPY_LOSE_AT", 1);
	loopback_open(&loop, 2, 0);
	loopback_ready(&loop, 1);
	before = cei_now_ns();
	ticket = launch_for(&loop, 0, 50 * TESTING_MS);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_UNCERTAIN);
	ck_assert_uint_lt(cei_now_ns() - before, 10 * TESTING_SECOND);
	failure = testing_failure(loop.context);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	testing_log_has(&loop.log, "uncertain", "takes no more", NULL);
	renew_all(&loop);               /* nothing is in flight, but the lane cannot be used any
					 * more */
	loopback_ready(&loop, 1);
	ck_assert_int_lt(loopback_wait(&loop, loopback_launch(&loop, 0, POLLED)), 0);
	loopback_close(&loop);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_PATIENCE);
}
END_TEST

/* --- closing ------------------------------------------------------------- */

START_TEST(test_close_ends_what_is_in_flight)
{
	uint32_t i, k;
	struct loopback loop;

	for (i = 0; i < 20; i++) {
		loopback_open(&loop, 5, 0);
		if (i % 3 == 2)         /* some launches are in a lane's queue already */
			loopback_ready(&loop, 1);
		for (k = 0; k < 8; k++)
			loopback_launch(&loop, 0, i % 2 ? 1 : (int)(k % 2));
		loopback_close(&loop);
	}
}
END_TEST

START_TEST(test_close_ends_copies_first)
{
	static unsigned char source[LOOPBACK_BYTES], target[LOOPBACK_BYTES];
	struct ceov_transfer transfer;
	ceov_buffer *from, *to;
	ceov_plan *plan;
	ceov_context *context;

	set_script("CEOVERLAP_HOST_COPY_DELAY_NS", 50 * TESTING_MS);
	testing_fill(source, LOOPBACK_BYTES, 1);
	context = testing_open(1, NULL);
	ck_assert_int_eq(ceov_buffer_register(context, 0, source, LOOPBACK_BYTES, &from), 0);
	ck_assert_int_eq(ceov_buffer_register(context, 0, target, LOOPBACK_BYTES, &to), 0);
	plan = testing_plan(context, 0);
	transfer = testing_transfer(from, to, LOOPBACK_BYTES);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, NULL), 0);
	ck_assert_int_eq(ceov_buffer_release(from), CEOV_PENDING);
	usleep(20000);
	ceov_close(context);
	testing_fill(source, LOOPBACK_BYTES, 2); /* the copy was abandoned before it read its
						  * source, so the source may change */
	memset(target, 0, sizeof(target));
	usleep(80000);
	ck_assert_uint_eq(target[0] | target[LOOPBACK_BYTES - 1], 0);
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
	tcase_add_test(all, test_a_gate_stays_closed_until_all_abort_words_are_set);
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
