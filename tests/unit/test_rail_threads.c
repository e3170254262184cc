/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests rails with their threads, over a simulated network in real time, and the bell that wakes
 * them. A thread sanitizer sees here what hands bytes over. */

#include <check.h>
#include <poll.h>
#include <sched.h>

#include "base/clock.h"
#include "net/bell.h"
#include "testing.h"
#include "unit/loop_transport.h"
#include "unit/rail_pair.h"

#define N_RINGS 20000u

struct sleeper {
	struct cei_bell  bell;
	_Atomic uint32_t given;         /* by the ringing thread */
	_Atomic uint32_t taken;         /* by the sleeping thread */
};

/* Sleeps without a timeout: a lost ring would hold it up for ever. */
static void *sleep_and_take(void *arg)
{
	struct sleeper *own = arg;
	struct pollfd poller = { .fd = own->bell.fd, .events = POLLIN };
	uint64_t state = testing_seed() + 1, pause;
	uint32_t seen, given;

	do {
		seen = cei_bell_count(&own->bell);
		/* relaxed, both ways: the bell alone orders this test's work */
		given = atomic_load_explicit(&own->given, memory_order_relaxed);
		if (given != atomic_load_explicit(&own->taken, memory_order_relaxed)) {
			atomic_store_explicit(&own->taken, given, memory_order_relaxed);
			continue;
		}
		for (pause = testing_below(&state, 300); pause; pause--)
			cei_relax();            /* rings come here as well */
		if (cei_bell_may_sleep(&own->bell, seen)) {
			ck_assert_int_ge(poll(&poller, 1, -1), 0);
			cei_bell_awake(&own->bell);
		}
	} while (given != N_RINGS);
	return NULL;
}

START_TEST(test_no_ring_is_lost)
{
	uint64_t state = testing_seed();
	struct cei_report report;
	static struct sleeper own;
	pthread_t thread;
	uint64_t pause;
	uint32_t i;

	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_bell_init(&own.bell, &report), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_and_take, &own), 0);
	for (i = 1; i <= N_RINGS; i++) {
		atomic_store_explicit(&own.given, i, memory_order_relaxed);
		cei_bell_ring(&own.bell);
		while (atomic_load_explicit(&own.taken, memory_order_relaxed) != i)
			sched_yield();
		for (pause = testing_below(&state, 300); pause; pause--)
			cei_relax();            /* the thread is just about to sleep */
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	cei_bell_fini(&own.bell);
	cei_report_fini(&report);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rail_threads");
	TCase *all = tcase_create("bell");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_no_ring_is_lost);
	suite_add_tcase(made, all);
	rail_pair_add_cases(made, &loop_transport, NULL);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
