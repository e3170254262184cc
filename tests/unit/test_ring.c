/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the queue for many producers and one consumer. */

#include <check.h>
#include <pthread.h>
#include <sched.h>

#include "base/ring.h"
#include "testing.h"

#define PRODUCERS 4u
#define ITEMS     50000u

struct item {
	uint32_t producer;
	uint32_t number;
};

struct producer {
	struct cei_ring *ring;
	pthread_t        thread;
	struct item      items[ITEMS];
};

START_TEST(test_items_come_out_in_order_until_empty)
{
	struct cei_ring ring;
	int items[8];
	uint32_t round, i;

	ck_assert_int_eq(cei_ring_init(&ring, 8), 0);
	ck_assert_ptr_null(cei_ring_take(&ring));
	for (round = 0; round < 100; round++) {
		for (i = 0; i < 8; i++)
			ck_assert_int_eq(cei_ring_put(&ring, &items[i]), 0);
		ck_assert_int_eq(cei_ring_put(&ring, &items[0]), CEOV_FULL);
		ck_assert_ptr_eq(cei_ring_take(&ring), &items[0]);
		ck_assert_int_eq(cei_ring_put(&ring, &items[0]), 0);
		for (i = 1; i < 9; i++)
			ck_assert_ptr_eq(cei_ring_take(&ring), &items[i % 8]);
		ck_assert_ptr_null(cei_ring_take(&ring));
		for (i = 0; i < round % 8; i++) {       /* so that the ring wraps at different
							 * cells */
			ck_assert_int_eq(cei_ring_put(&ring, &items[i]), 0);
			ck_assert_ptr_eq(cei_ring_take(&ring), &items[i]);
		}
	}
	cei_ring_fini(&ring);
}
END_TEST

static void *produce(void *arg)
{
	struct producer *own = arg;
	uint32_t i;

	for (i = 0; i < ITEMS; i++)
		while (cei_ring_put(own->ring, &own->items[i]))
			sched_yield();
	return NULL;
}

START_TEST(test_many_producers_lose_nothing_and_keep_their_order)
{
	static struct producer producers[PRODUCERS];
	uint32_t i, k, n = 0, next[PRODUCERS] = { 0 };
	struct cei_ring ring;
	struct item *item;

	ck_assert_int_eq(cei_ring_init(&ring, 64), 0);
	for (i = 0; i < PRODUCERS; i++) {
		producers[i].ring = &ring;
		for (k = 0; k < ITEMS; k++)
			producers[i].items[k] = (struct item){ i, k };
		ck_assert_int_eq(pthread_create(&producers[i].thread, NULL, produce,
						&producers[i]), 0);
	}
	while (n < PRODUCERS * ITEMS) {
		item = cei_ring_take(&ring);
		if (!item) {
			sched_yield();
			continue;
		}
		ck_assert_uint_eq(item->number, next[item->producer]++);
		n++;
	}
	ck_assert_ptr_null(cei_ring_take(&ring));
	for (i = 0; i < PRODUCERS; i++)
		ck_assert_int_eq(pthread_join(producers[i].thread, NULL), 0);
	cei_ring_fini(&ring);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("ring");
	TCase *all = tcase_create("ring");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_items_come_out_in_order_until_empty);
	tcase_add_test(all, test_many_producers_lose_nothing_and_keep_their_order);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
