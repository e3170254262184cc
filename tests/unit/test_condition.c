/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests waits for condition variables until a time: they end then and not before, and earlier if
 * somebody wakes them. */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static int is_changed;

static void set_up(void)
{
	ck_assert_int_eq(cei_condition_init(&changed), 0);
	is_changed = 0;
}

static void tear_down(void)
{
	ck_assert_int_eq(pthread_cond_destroy(&changed), 0);
}

/* Returns what the last wait has. */
static int await_change(uint64_t until_ns)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	while (!is_changed && !r)
		r = cei_condition_wait(&changed, &lock, until_ns);
	pthread_mutex_unlock(&lock);
	return r;
}

START_TEST(test_a_wait_ends_at_its_time_and_not_before)
{
	uint64_t until_ns;
	uint32_t i;

	for (i = 0; i < 5; i++) {
		until_ns = cei_deadline(i * 10 * TESTING_MS + 7);
		ck_assert_int_eq(await_change(until_ns), ETIMEDOUT);
		ck_assert_uint_ge(cei_now_ns(), until_ns);
		ck_assert_uint_lt(cei_now_ns(), until_ns + TESTING_PATIENCE);
	}
	ck_assert_int_eq(await_change(0), ETIMEDOUT);
	ck_assert_int_eq(await_change(cei_now_ns() - 1), ETIMEDOUT);
}
END_TEST

static void *change(void *arg)
{
	(void)arg;
	usleep(20000);
	pthread_mutex_lock(&lock);
	is_changed = 1;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	return NULL;
}

START_TEST(test_a_wait_ends_when_it_is_woken)
{
	uint64_t times_ns[] = { CEI_FOREVER, CEI_FOREVER - 1, cei_deadline(TESTING_PATIENCE) };
	pthread_t thread;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		is_changed = 0;
		ck_assert_int_eq(pthread_create(&thread, NULL, change, NULL), 0);
		ck_assert_int_eq(await_change(times_ns[i]), 0);
		ck_assert_int_eq(is_changed, 1);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("condition");
	TCase *cases = tcase_create("condition");

	tcase_add_checked_fixture(cases, set_up, tear_down);
	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, test_a_wait_ends_at_its_time_and_not_before);
	tcase_add_test(cases, test_a_wait_ends_when_it_is_woken);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
