/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests signals as host threads use them. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/signal.h"
#include "testing.h"

static struct testing_log log_of;
static ceov_context *context;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(2, &log_of);
}

static void tear_down(void)
{
	ceov_close(context);
}

static uint64_t value_of(ceov_signal *signal, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(signal, index, &value), 0);
	return value;
}

START_TEST(test_creation_refuses_what_makes_no_sense)
{
	struct ceov_place gpu = { CEOV_PLACE_GPU, 0 };
	ceov_signal *signal = NULL;

	ck_assert_int_eq(ceov_signal_create(context, 2, testing_host, 1, 0, &signal),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_create(context, 0, testing_host, 0, 0, &signal),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_create(context, 0, testing_host, 1 << 25, 0, &signal),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_create(context, 0, testing_host, 1, 2, &signal),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_create(context, 0, gpu, 1, 0, &signal),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_create(context, 0, testing_host, 1, 0, NULL),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_create(NULL, 0, testing_host, 1, 0, &signal),
			 CEOV_ERR_INVALID);
	ck_assert_ptr_null(signal);
}
END_TEST

START_TEST(test_counters_rise_and_never_fall)
{
	ceov_signal *signal = testing_signal(context, 1, 3);

	ck_assert_uint_eq(value_of(signal, 0), 0);
	ck_assert_int_eq(ceov_signal_raise(signal, 1, 5), 0);
	ck_assert_int_eq(ceov_signal_raise(signal, 1, 5), 0);
	ck_assert_int_eq(ceov_signal_raise(signal, 1, 4), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "holds 5 and cannot fall to 4", NULL, NULL);
	ck_assert_uint_eq(value_of(signal, 1), 5);
	ck_assert_uint_eq(value_of(signal, 0) | value_of(signal, 2), 0);
	ck_assert_int_eq(ceov_signal_raise(signal, 3, 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_raise(signal, 0, CEOV_VALUE_LIMIT), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_raise(signal, 0, CEOV_VALUE_LIMIT - 1), 0);
	ck_assert_int_eq(ceov_signal_raise(NULL, 0, 1), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_waits_end_in_time)
{
	ceov_signal *signal = testing_signal(context, 0, 1);
	uint64_t before = cei_now_ns();

	ck_assert_int_eq(ceov_signal_wait(signal, 0, 0, 0), 0);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 1, 0), CEOV_PENDING);
	ck_assert_uint_lt(cei_now_ns() - before, TESTING_SECOND);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 1, 50 * TESTING_MS), CEOV_PENDING);
	ck_assert_uint_ge(cei_now_ns() - before, 50 * TESTING_MS);
	ck_assert_int_eq(ceov_signal_raise(signal, 0, 7), 0);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 7, UINT64_MAX), 0);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 8, 1), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_wait(signal, 1, 0, 0), CEOV_ERR_INVALID);
}
END_TEST

/* --- arrivals ------------------------------------------------------------ */

#define THREADS 4u
#define ROUNDS  3000u

struct tiles {
	ceov_signal     *signal;
	_Atomic uint32_t taken[ROUNDS];         /* how many tiles of each round have been taken */
	_Atomic uint32_t data[ROUNDS];          /* data that each tile writes */
};

static uint32_t tiles_in(uint32_t round)
{
	return 1 + round * 7 % 13;
}

/* Thread function: takes tiles of a round, and goes on when the round's value is raised. */
static void *arrive(void *arg)
{
	struct tiles *tiles = arg;
	uint32_t round;

	for (round = 0; round < ROUNDS; round++) {
		while (atomic_fetch_add(&tiles->taken[round], 1) < tiles_in(round)) {
			atomic_fetch_add_explicit(&tiles->data[round], 1,
						  memory_order_relaxed);
			ck_assert_int_eq(ceov_signal_arrive(tiles->signal, 1,
							    tiles_in(round), round + 1), 0);
		}
		ck_assert_int_eq(ceov_signal_wait(tiles->signal, 1, round + 1,
						  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(atomic_load_explicit(&tiles->data[round],
						       memory_order_relaxed),
				  tiles_in(round));
	}
	return NULL;
}

START_TEST(test_the_last_arrival_of_each_round_raises)
{
	static struct tiles tiles;
	pthread_t threads[THREADS];
	uint32_t i;

	tiles.signal = testing_signal(context, 0, 2);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, arrive, &tiles), 0);
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(value_of(tiles.signal, 1), ROUNDS);
	ck_assert_uint_eq(value_of(tiles.signal, 0), 0);
}
END_TEST

START_TEST(test_arrivals_are_counted_apart)
{
	ceov_signal *signal = testing_signal(context, 0, 2);

	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 0, 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 1, CEOV_VALUE_LIMIT),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 2, 9), 0);
	ck_assert_int_eq(ceov_signal_arrive(signal, 1, 3, 4), 0);
	ck_assert_int_eq(ceov_signal_arrive(signal, 1, 3, 4), 0);
	ck_assert_uint_eq(value_of(signal, 0) | value_of(signal, 1), 0);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 2, 9), 0);
	ck_assert_uint_eq(value_of(signal, 0), 9);
	ck_assert_int_eq(ceov_signal_arrive(signal, 1, 3, 4), 0);
	ck_assert_uint_eq(value_of(signal, 1), 4);
	ck_assert_int_eq(ceov_signal_arrive(signal, 1, 1, 5), 0);
	ck_assert_uint_eq(value_of(signal, 1), 5);
}
END_TEST

START_TEST(test_arrivals_do_not_lower_a_counter)
{
	ceov_signal *signal = testing_signal(context, 0, 1);

	ck_assert_int_eq(ceov_signal_raise(signal, 0, 5), 0);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 1, 4), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "ceov_signal_arrive: counter 0 of an unshared signal of rank",
			NULL, NULL);
	ck_assert_uint_eq(value_of(signal, 0), 5);
	/* the refused call was not counted */
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 2, 4), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 2, 6), 0);
	ck_assert_uint_eq(value_of(signal, 0), 5);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 2, 6), 0);
	ck_assert_uint_eq(value_of(signal, 0), 6);
}
END_TEST

START_TEST(test_results_need_a_place)
{
	ceov_signal *signal = testing_signal(context, 0, 1);

	ck_assert_int_eq(ceov_signal_value(signal, 0, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_for_device(signal, 0, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_find(context, 0, "s", NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_create(context, 0, 64, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_float(context, 0, 64, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "b", NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_create(context, 0, NULL, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(context, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_open(NULL, NULL), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_renewal_forgets_half_a_round)
{
	ceov_signal *signal = testing_signal(context, 0, 1);

	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 3, 9), 0);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 3, 9), 0);
	ck_assert_int_eq(ceov_signal_renew(signal), 0);
	ck_assert_int_eq(ceov_signal_arrive(signal, 0, 3, 9), 0);
	ck_assert_uint_eq(value_of(signal, 0), 0);
	ck_assert_int_eq(ceov_signal_raise(signal, 0, 3), 0);
	ck_assert_int_eq(ceov_signal_renew(signal), 0);
	ck_assert_int_eq(ceov_signal_raise(signal, 0, 1), 0);
}
END_TEST

/* --- handles ------------------------------------------------------------- */

START_TEST(test_ranks_of_one_process_find_each_others_signals)
{
	ceov_signal *signal = testing_signal(context, 1, 4), *found = NULL, *again = NULL;

	ck_assert_int_eq(ceov_signal_find(context, 1, "s", &found), CEOV_NONE);
	ck_assert_int_eq(ceov_signal_share(signal, "s"), 0);
	ck_assert_int_eq(ceov_signal_find(context, 0, "s", &found), CEOV_NONE);
	ck_assert_int_eq(ceov_signal_find(context, 2, "s", &found), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_find(context, 1, "s", &found), 0);
	ck_assert_int_eq(ceov_signal_find(context, 1, "s", &again), 0);
	ck_assert_int_eq(ceov_signal_share(found, "t"), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_raise(found, 3, 8), 0);
	ck_assert_uint_eq(value_of(signal, 3), 8);
	ck_assert_int_eq(ceov_signal_raise(signal, 3, 9), 0);
	ck_assert_uint_eq(value_of(again, 3), 9);
	ck_assert_int_eq(ceov_signal_release(signal), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_release(found), 0);
	ck_assert_int_eq(ceov_signal_release(signal), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_release(again), 0);
	ck_assert_int_eq(ceov_signal_release(signal), 0);
	ck_assert_int_eq(ceov_signal_find(context, 1, "s", &found), CEOV_NONE);
}
END_TEST

START_TEST(test_a_closed_context_takes_found_handles_along)
{
	ceov_signal *signal = testing_signal(context, 1, 4), *found = NULL;
	ceov_buffer *buffer = testing_buffer(context, 0, 100), *buffer_found = NULL;

	ck_assert_int_eq(ceov_signal_share(signal, "s"), 0);
	ck_assert_int_eq(ceov_signal_find(context, 1, "s", &found), 0);
	ck_assert_int_eq(ceov_buffer_share(buffer, "b"), 0);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "b", &buffer_found), 0);
	ck_assert_int_eq(ceov_buffer_find(context, 0, "b", &buffer_found), 0);
}
END_TEST

START_TEST(test_streams_and_kernels_need_a_gpu)
{
	ceov_signal *signal = testing_signal(context, 0, 1);
	struct ceov_mark mark = testing_mark(signal, 0, 1);
	struct ceov_device_signal view;

	ck_assert_int_eq(ceov_stream_raise(context, 0, &mark, &mark, 1, 0),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_stream_wait(context, 0, &mark, &mark, 1, 0),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_for_device(signal, 0, &view), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_turn(context), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_barrier(context, 0), 0);
}
END_TEST

static atomic_int has_begun, is_over;

/* Thread function: returns NULL, or the signal that could not be renewed. */
static void *renew_often(void *signal)
{
	atomic_store(&has_begun, 1);
	while (!atomic_load(&is_over))
		if (ceov_signal_renew(signal))
			return signal;
	return NULL;
}

/* Another thread renews a signal that the plans do not name, as after an abort. */
START_TEST(test_renewal_while_plans_are_committed)
{
	struct ceov_transfer transfer = testing_transfer(testing_buffer(context, 0, 64),
							 testing_buffer(context, 1, 64), 64);
	ceov_plan *plan;
	void *failed = NULL;
	pthread_t thread;
	uint32_t i;

	transfer.then = testing_mark(testing_signal(context, 0, 1), 0, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, renew_often,
					testing_signal(context, 0, 1)), 0);
	while (!atomic_load(&has_begun))
		sched_yield();
	for (i = 0; i < 1000; i++) {
		plan = testing_plan(context, 0);
		testing_add(plan, &transfer);
		ck_assert_int_eq(ceov_plan_commit(plan), 0);
		ceov_plan_release(plan);
	}
	atomic_store(&is_over, 1);
	ck_assert_int_eq(pthread_join(thread, &failed), 0);
	ck_assert_ptr_null(failed);
}
END_TEST

/* The message after a lost peer does not advise a renewal, because that could not bring the peer
 * back. */
START_TEST(test_the_advice_fits_the_loss)
{
	ceov_signal *signal = testing_signal(context, 0, 1);

	cei_abort_unlocked(&signal, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 1, 0), CEOV_ERR_PEER_LOST);
	testing_log_has(&log_of, "a peer was lost", "open a group without that rank", NULL);
	signal = testing_signal(context, 0, 1);
	cei_abort_unlocked(&signal, 1, CEOV_ERR_ABORTED, 1);
	ck_assert_int_eq(ceov_signal_wait(signal, 0, 1, 0), CEOV_ERR_ABORTED);
	testing_log_has(&log_of, "aborted", "renew it", NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("signal");
	TCase *all = tcase_create("signal");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_creation_refuses_what_makes_no_sense);
	tcase_add_test(all, test_counters_rise_and_never_fall);
	tcase_add_test(all, test_waits_end_in_time);
	tcase_add_test(all, test_the_last_arrival_of_each_round_raises);
	tcase_add_test(all, test_arrivals_are_counted_apart);
	tcase_add_test(all, test_arrivals_do_not_lower_a_counter);
	tcase_add_test(all, test_the_advice_fits_the_loss);
	tcase_add_test(all, test_results_need_a_place);
	tcase_add_test(all, test_renewal_forgets_half_a_round);
	tcase_add_test(all, test_ranks_of_one_process_find_each_others_signals);
	tcase_add_test(all, test_a_closed_context_takes_found_handles_along);
	tcase_add_test(all, test_streams_and_kernels_need_a_gpu);
	tcase_add_test(all, test_renewal_while_plans_are_committed);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
