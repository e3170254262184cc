/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the counting of streams that wait. The test writes the words that a GPU's stream would
 * write when its wait has ended. */

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "backend/waits.h"
#include "testing.h"

#define THREADS 4u
#define TURNS   20000u

/* Each test runs in a process of its own, so every GPU begins without waits. */
static struct cei_waits *waits;

static void set_up(void)
{
	waits = cei_waits_of(3);
	ck_assert_ptr_nonnull(waits);
	cei_waits_allow_marks(waits);
}

/* Returns a distinct address that stands for a stream. */
static const void *stream(uint32_t i)
{
	static const char names[CEI_WAITS_SLOTS + 8];

	return &names[i];
}

/* Writes the word as a stream does when its wait ends. */
static void go_on(const struct cei_wait *wait)
{
	uint64_t n_bytes;
	_Atomic uint64_t *words = cei_waits_words(waits, &n_bytes);

	ck_assert_uint_lt(wait->slot * sizeof(uint64_t), n_bytes);
	atomic_store_explicit(&words[wait->slot], wait->number, memory_order_relaxed);
}

START_TEST(test_streams_count_until_they_go_on)
{
	struct cei_wait wait[5];
	uint32_t i;

	for (i = 0; i < 5; i++) {
		wait[i] = cei_waits_enter(waits, stream(i));
		ck_assert_int_eq(wait[i].wants_mark, i >= CEI_WAITS_UNMARKED);
		ck_assert_uint_eq(cei_waits_count(waits), i + 1);
	}
	ck_assert_int_eq(cei_waits_is_below(waits, 5), 0);
	ck_assert_int_eq(cei_waits_is_below(waits, 6), 1);
	go_on(&wait[3]);
	ck_assert_int_eq(cei_waits_is_below(waits, 5), 1);
	ck_assert_uint_eq(cei_waits_count(waits), 4);
	cei_waits_leave(waits, &wait[0]);
	ck_assert_uint_eq(cei_waits_count(waits), 3);
}
END_TEST

START_TEST(test_a_stream_counts_once_and_by_its_last_wait)
{
	struct cei_wait first, second;

	(void)cei_waits_enter(waits, stream(0));
	(void)cei_waits_enter(waits, stream(1));
	first = cei_waits_enter(waits, stream(2));
	second = cei_waits_enter(waits, stream(2));
	ck_assert_int_eq(first.is_new, 1);
	ck_assert_int_eq(second.is_new, 0);
	ck_assert_uint_eq(first.slot, second.slot);
	ck_assert_uint_eq(cei_waits_count(waits), 3);
	go_on(&first);
	ck_assert_uint_eq(cei_waits_count(waits), 3);
	cei_waits_leave(waits, &first);
	ck_assert_uint_eq(cei_waits_count(waits), 3);
	go_on(&second);
	ck_assert_uint_eq(cei_waits_count(waits), 2);
}
END_TEST

/* Slots are reused; a word that an earlier stream wrote does not end a later wait. */
START_TEST(test_an_old_word_ends_no_new_wait)
{
	struct cei_wait old, new;

	(void)cei_waits_enter(waits, stream(0));
	(void)cei_waits_enter(waits, stream(1));
	old = cei_waits_enter(waits, stream(2));
	go_on(&old);
	new = cei_waits_enter(waits, stream(3));
	ck_assert_uint_eq(new.slot, old.slot);
	ck_assert_uint_eq(cei_waits_count(waits), 3);
	go_on(&new);
	ck_assert_uint_eq(cei_waits_count(waits), 2);
}
END_TEST

START_TEST(test_lanes_count_too)
{
	(void)cei_waits_enter(waits, stream(0));
	cei_waits_lane_begin(waits);
	cei_waits_lane_begin(waits);
	ck_assert_uint_eq(cei_waits_count(waits), 3);
	ck_assert_int_eq(cei_waits_is_below(waits, 3), 0);
	cei_waits_lane_end(waits);
	ck_assert_int_eq(cei_waits_is_below(waits, 3), 1);
	cei_waits_lane_end(waits);
	ck_assert_uint_eq(cei_waits_count(waits), 1);
}
END_TEST

/* Begins waits of n streams. */
static void let_wait(struct cei_wait *begun, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		begun[i] = cei_waits_enter(waits, stream(i));
}

START_TEST(test_many_streams_once_may_block_ever_after)
{
	struct cei_wait begun[CEI_WAITS_MANY];
	uint32_t i;

	ck_assert_int_eq(cei_waits_may_block(waits, 20), 0);
	let_wait(begun, CEI_WAITS_MANY - 1);
	ck_assert_int_eq(cei_waits_may_block(waits, 20), 0);
	cei_waits_lane_begin(waits);
	ck_assert_int_eq(cei_waits_may_block(waits, 20), 1);
	cei_waits_lane_end(waits);
	ck_assert_int_eq(cei_waits_may_block(waits, 20), 0);
	let_wait(begun, CEI_WAITS_MANY);
	for (i = 0; i < CEI_WAITS_MANY; i++)
		cei_waits_leave(waits, &begun[i]);
	ck_assert_uint_eq(cei_waits_count(waits), 0);
	ck_assert_int_eq(cei_waits_may_block(waits, 20), 1);
}
END_TEST

START_TEST(test_a_low_bound_counts_before_many)
{
	struct cei_wait begun[2];

	let_wait(begun, 1);
	ck_assert_int_eq(cei_waits_may_block(waits, 2), 0);
	let_wait(begun, 2);
	ck_assert_int_eq(cei_waits_may_block(waits, 2), 1);
	ck_assert_int_eq(cei_waits_may_block(NULL, 0), 0);
}
END_TEST

START_TEST(test_more_streams_than_slots)
{
	struct cei_wait wait = { 0, 0, 0, 0 };
	uint32_t i;

	for (i = 0; i < CEI_WAITS_SLOTS + 4; i++)
		wait = cei_waits_enter(waits, stream(i));
	ck_assert_uint_eq(wait.slot, CEI_WAITS_SLOTS);
	ck_assert_int_eq(wait.wants_mark, 0);
	cei_waits_leave(waits, &wait);
	ck_assert_uint_eq(cei_waits_count(waits), CEI_WAITS_SLOTS);
}
END_TEST

START_TEST(test_gpus_are_counted_apart)
{
	struct cei_waits *other = cei_waits_of(4);

	(void)cei_waits_enter(waits, stream(0));
	ck_assert_uint_eq(cei_waits_count(other), 0);
	ck_assert_ptr_null(cei_waits_of(CEI_WAITS_GPUS_MAX));
	ck_assert_int_eq(cei_waits_is_below(NULL, 0), 1);
	ck_assert_uint_eq(cei_waits_enter(NULL, stream(0)).slot, CEI_WAITS_SLOTS);
}
END_TEST

/* If the GPU cannot write the words, none are used, and streams stay counted. */
START_TEST(test_without_marks)
{
	struct cei_waits *other = cei_waits_of(5);
	struct cei_wait wait = { 0, 0, 0, 0 };
	uint32_t i;

	for (i = 0; i < 4; i++)
		wait = cei_waits_enter(other, stream(i));
	ck_assert_int_eq(wait.wants_mark, 0);
	ck_assert_uint_eq(cei_waits_count(other), 4);
}
END_TEST

START_TEST(test_bounds)
{
	ck_assert_int_eq(unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), 0);
	ck_assert_uint_eq(cei_waits_n_queues(), 8);
	ck_assert_int_eq(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "12", 1), 0);
	ck_assert_uint_eq(cei_waits_n_queues(), 12);
	ck_assert_int_eq(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "100", 1), 0);
	ck_assert_uint_eq(cei_waits_n_queues(), 32);
	ck_assert_uint_eq(cei_waits_bound(8, 2), 6);
	ck_assert_uint_eq(cei_waits_bound(8, 7), 1);
	ck_assert_uint_eq(cei_waits_bound(8, 20), 1);
	ck_assert_uint_eq(cei_waits_bound(1, 0), 1);
}
END_TEST

static void *churn(void *arg)
{
	uint32_t own = (uint32_t)(uintptr_t)arg, i;
	struct cei_wait wait;

	for (i = 0; i < TURNS; i++) {
		wait = cei_waits_enter(waits, stream(own * 8 + i % 8));
		(void)cei_waits_is_below(waits, 4);
		if (wait.wants_mark && i % 2)
			go_on(&wait);
		else
			cei_waits_leave(waits, &wait);
		cei_waits_lane_begin(waits);
		cei_waits_lane_end(waits);
	}
	return NULL;
}

/* Threads begin and end waits at the same time: at the end no stream is counted. */
START_TEST(test_threads)
{
	pthread_t threads[THREADS];
	uint32_t i;

	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, churn,
						(void *)(uintptr_t)i), 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(cei_waits_count(waits), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("waits");
	TCase *all = tcase_create("waits");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_test(all, test_streams_count_until_they_go_on);
	tcase_add_test(all, test_a_stream_counts_once_and_by_its_last_wait);
	tcase_add_test(all, test_an_old_word_ends_no_new_wait);
	tcase_add_test(all, test_lanes_count_too);
	tcase_add_test(all, test_many_streams_once_may_block_ever_after);
	tcase_add_test(all, test_a_low_bound_counts_before_many);
	tcase_add_test(all, test_more_streams_than_slots);
	tcase_add_test(all, test_gpus_are_counted_apart);
	tcase_add_test(all, test_without_marks);
	tcase_add_test(all, test_bounds);
	tcase_add_test(all, test_threads);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
