/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Behaviour of the host backend alone: scripted faults, full batches, and progress by the
 * caller. */

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "backend/host.h"
#include "base/clock.h"
#include "conformance/backend_rig.h"

static void set_script(uint64_t delay_ns, uint64_t fail_at, uint64_t lose_at)
{
	struct cei_host_script script = { .copy_delay_ns = delay_ns, .copy_fail_at = fail_at,
					  .copy_lose_at = lose_at };

	cei_host_set_script(&rig.backend, &script);
}

#define N_COPIES 32u

/* Queues copy number k on lane 0, with its own mark and submit. */
static void copy_with_mark(uint32_t k)
{
	rig_copy(0, rig_at(1, k * 4096), rig_at(0, k * 4096), 4096);
	rig_post(0, k, 1);
	(void)rig_submit(0);
}

START_TEST(test_delayed_copies_take_longer_and_arrive)
{
	uint64_t before = cei_now_ns();

	set_script(30 * TESTING_MS, 0, 0);
	rig_fill(rig_at(0, 0), 8192, 1);
	copy_with_mark(0);
	copy_with_mark(1);
	rig_reap(0, 2);
	ck_assert_uint_ge(cei_now_ns() - before, 60 * TESTING_MS);
	rig_check(rig_at(1, 0), 8192, 1);
}
END_TEST

static int reap_until_it_fails(uint32_t lane)
{
	uint64_t n_done = 0, deadline = cei_deadline(TESTING_PATIENCE);
	int r = 0;

	while (!r && cei_now_ns() < deadline) {
		r = rig.ops->lanes->reap(&rig.lane[lane], &n_done);
		usleep(100);
	}
	return r;
}

START_TEST(test_a_place_that_is_lost_takes_all_its_lanes_along)
{
	const struct cei_host_script script = { .break_at = 2 };
	char text[CEI_LOST_BYTES] = "nothing";

	cei_host_set_script(&rig.backend, &script);
	rig_fill(rig_at(0, 0), 4 * 4096, 1);
	rig_fill(rig_at(1, 0), 4 * 4096, 2);
	copy_with_mark(0);
	rig_reap(0, 1);
	ck_assert_int_eq(rig.ops->lost(&rig.backend, text), 0);
	ck_assert_str_eq(text, "nothing");
	rig_copy(1, rig_at(1, 4096), rig_at(0, 4096), 4096);    /* the second of all */
	(void)rig_submit(1);
	ck_assert_int_eq(reap_until_it_fails(1), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(rig.ops->lost(&rig.backend, text), CEOV_ERR_SYSTEM);
	ck_assert_str_eq(text, "host memory 0 is lost, as its fault script says");
	rig_post(0, 2, 1);                      /* a lane that did not copy meanwhile */
	(void)rig_submit(0);
	ck_assert_int_eq(reap_until_it_fails(0), CEOV_ERR_SYSTEM);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[0], cei_deadline(TESTING_PATIENCE)), 0);
	rig_check(rig_at(1, 0), 4096, 1);
	ck_assert_int_ne(memcmp((const void *)(uintptr_t)rig_at(1, 4096),
				(const void *)(uintptr_t)rig_at(0, 4096), 4096), 0);
}
END_TEST

START_TEST(test_nothing_is_done_after_a_failed_copy)
{
	uint64_t n_done = 0, deadline = cei_deadline(TESTING_PATIENCE);
	int r = 0;

	set_script(0, 2, 0);
	rig_fill(rig_at(0, 0), 4 * 4096, 1);
	rig_fill(rig_at(1, 0), 4 * 4096, 2);
	copy_with_mark(0);
	copy_with_mark(1);
	copy_with_mark(2);
	while (!r && cei_now_ns() < deadline)
		r = rig.ops->lanes->reap(&rig.lane[0], &n_done);
	ck_assert_int_eq(r, CEOV_ERR_SYSTEM);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[0], deadline), 0);
	ck_assert_int_eq(rig.ops->lanes->reap(&rig.lane[0], &n_done), CEOV_ERR_SYSTEM);
	ck_assert_uint_eq(n_done, 1);
	ck_assert_uint_eq(rig_value(0), 1);
	ck_assert_uint_eq(rig_value(1), 0);
	ck_assert_uint_eq(rig_value(2), 0);
	rig_check(rig_at(1, 0), 4096, 1);
	rig_check(rig_at(1, 4096), 3 * 4096, 2 + 4096 / 8);
	rig_copy(1, rig_at(1, 8192), rig_at(0, 8192), 4096);
	rig_reap(1, rig_submit(1));     /* other lanes are not affected */
}
END_TEST

START_TEST(test_a_stopped_lane_begins_nothing_more)
{
	uint64_t n_done;
	uint32_t k;

	set_script(50 * TESTING_MS, 0, 0);
	for (k = 0; k < N_COPIES; k++)
		copy_with_mark(k);
	rig_reap(0, 1);
	ck_assert_int_eq(cei_lane_stop(&rig.lane[0], cei_deadline(TESTING_PATIENCE)), 0);
	n_done = rig_reaped(0);
	ck_assert_uint_lt(n_done, N_COPIES);
	rig_pause();
	ck_assert_uint_eq(rig_reaped(0), n_done);
	ck_assert_uint_eq(rig_value(N_COPIES - 1), 0);
}
END_TEST

/* After a failed copy the lane waits for no more marks, because they may never be raised. */
START_TEST(test_nothing_is_waited_for_after_a_failed_copy)
{
	set_script(0, 1, 0);
	rig_copy(GATE, rig_at(1, 0), rig_at(0, 0), 4096);
	rig_await(GATE, 0, 1);
	(void)rig_submit(GATE);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[GATE], cei_deadline(TESTING_PATIENCE / 2)),
			 0);
}
END_TEST

/* An abort sets all abort words, then lets one open gates, and then poisons the counters. */
START_TEST(test_an_abort_word_ends_a_wait)
{
	rig_await(GATE, 0, 1);
	rig_post(GATE, 1, 1);
	(void)rig_submit(GATE);
	atomic_store_explicit(&rig.abort_word, 1, memory_order_release);
	rig_pause();
	ck_assert_uint_eq(rig_value(1), 0);
	/* release: pairs with the acquire of the lane's worker */
	atomic_store_explicit(&rig.abort_word, 1 | CEI_ABORT_OPENS, memory_order_release);
	rig_reach(1, 1);
	ck_assert_uint_eq(rig_value(0), 0);
}
END_TEST

/* Operations that were appended are not executed. */
START_TEST(test_a_lane_whose_worker_cannot_be_started_is_idle)
{
	testing_refuse_threads(1);
	rig_copy(0, rig_at(1, 0), rig_at(0, 0), 4096);
	ck_assert_int_eq(rig.ops->lanes->submit(&rig.lane[0]), CEOV_ERR_SYSTEM);
	ck_assert(rig.ops->lanes->is_idle(&rig.lane[0]));
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[0], cei_deadline(TESTING_PATIENCE)), 0);
}
END_TEST

START_TEST(test_a_lane_whose_worker_could_not_be_started_can_be_mended)
{
	rig_fill(rig_at(0, 0), 4096, 1);
	rig_fill(rig_at(1, 0), 4096, 2);
	testing_refuse_threads(1);
	rig_copy(0, rig_at(1, 0), rig_at(0, 0), 4096);
	rig_post(0, 0, 7);
	ck_assert_int_eq(rig.ops->lanes->submit(&rig.lane[0]), CEOV_ERR_SYSTEM);
	rig.lane[0].n_submitted = ++rig.n_submitted[0];
	rig.ops->lanes->stop(&rig.lane[0]);
	testing_refuse_threads(0);
	ck_assert_int_eq(rig.ops->lanes->mend(&rig.lane[0]), 0);
	ck_assert_uint_eq(rig_reaped(0), 1);
	copy_with_mark(1);
	rig_reap(0, 2);
	ck_assert_uint_eq(rig_value(0), 0);     /* what was appended before is forgotten */
	ck_assert_uint_eq(rig_value(1), 1);
	/* a lane that has a worker is not mended: a copy may have failed halfway */
	ck_assert_int_lt(rig.ops->lanes->mend(&rig.lane[0]), 0);
}
END_TEST

START_TEST(test_a_lost_copy_never_ends)
{
	set_script(0, 0, 2);
	rig_fill(rig_at(0, 0), 3 * 4096, 1);
	rig_fill(rig_at(1, 0), 3 * 4096, 2);
	copy_with_mark(0);
	copy_with_mark(1);
	copy_with_mark(2);
	rig_reap(0, 1);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[0], cei_deadline(100 * TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(rig_reaped(0), 1);
	ck_assert_uint_eq(rig_value(1), 0);
	ck_assert_uint_eq(rig_value(2), 0);
	rig_check(rig_at(1, 4096), 2 * 4096, 2 + 4096 / 8);
}
END_TEST

/* As many operations as the contract allows are appended while nothing is executed. */
START_TEST(test_full_batches_of_all_submits_have_room)
{
	struct cei_post posts[CEI_LANE_BATCH - 2];
	uint32_t i, k;

	for (k = 0; k < CEI_LANE_BATCH - 2; k++)
		posts[k] = (struct cei_post){ rig_counter_at(2 + k), 0, 1 };
	for (i = 0; i < CEI_LANE_SUBMITS; i++) {
		rig_await(GATE, 0, 1);
		rig_copy(GATE, rig_at(1, i * 512), rig_at(0, i * 512), 512);
		ck_assert_int_eq(rig.ops->lanes->post(&rig.lane[GATE], posts,
					       CEI_LANE_BATCH - 2), 0);
		(void)rig_submit(GATE);
	}
	rig_raise(0, 1);
	rig_reap(GATE, CEI_LANE_SUBMITS);
	ck_assert_uint_eq(rig_value(2), 1);
}
END_TEST

START_TEST(test_a_lane_without_room_refuses_whole_calls)
{
	struct cei_post posts[CEI_LANE_BATCH];
	uint32_t i, n_taken = 0;

	for (i = 0; i < CEI_LANE_BATCH; i++)
		posts[i] = (struct cei_post){ rig_counter_at(2), 0, 1 };
	rig_await(GATE, 0, 1);
	(void)rig_submit(GATE);
	while (!rig.ops->lanes->post(&rig.lane[GATE], posts, CEI_LANE_BATCH))
		n_taken++;
	ck_assert_uint_ge(n_taken, CEI_LANE_SUBMITS);
	ck_assert_int_eq(rig.ops->lanes->post(&rig.lane[GATE], posts, CEI_LANE_BATCH), CEOV_FULL);
	rig_raise(0, 1);
	rig_reap(GATE, 1);
	rig_reap(GATE, rig_submit(GATE));
	ck_assert_int_eq(rig.ops->lanes->post(&rig.lane[GATE], posts, CEI_LANE_BATCH), 0);
	rig_reap(GATE, rig_submit(GATE));
}
END_TEST

START_TEST(test_a_caller_turns_the_lane)
{
	uint32_t i;

	rig.site.progress_by_caller = 1;
	rig_fill(rig_at(0, 0), 8192, 3);
	copy_with_mark(0);
	copy_with_mark(1);
	rig_pause();
	ck_assert_uint_eq(rig_reaped(0), 0);
	for (i = 0; i < 6; i++)
		ck_assert_int_eq(rig.ops->lanes->turn(&rig.lane[0]), CEOV_PENDING);
	ck_assert_int_eq(rig.ops->lanes->turn(&rig.lane[0]), 0);
	ck_assert_uint_eq(rig_reaped(0), 2);
	rig_check(rig_at(1, 0), 8192, 3);
	rig_await(GATE, 5, 1);
	(void)rig_submit(GATE);
	ck_assert_int_eq(rig.ops->lanes->turn(&rig.lane[GATE]), 0);
	rig_raise(5, 1);
	ck_assert_int_eq(rig.ops->lanes->turn(&rig.lane[GATE]), CEOV_PENDING);
}
END_TEST

/* Nothing is reaped here, so an operation's room becomes free only if it has been executed. */
START_TEST(test_room_is_used_again)
{
	struct cei_post posts[CEI_LANE_BATCH];
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	uint32_t i, k, n = 4 * CEI_LANE_SUBMITS;

	for (k = 0; k < n; k++) {
		for (i = 0; i < CEI_LANE_BATCH; i++)
			posts[i] = (struct cei_post){ rig_counter_at(2), 0, k + 1 };
		while (rig.ops->lanes->post(&rig.lane[0], posts, CEI_LANE_BATCH) == CEOV_FULL)
			ck_assert_uint_lt(cei_now_ns(), deadline);
		while (rig.ops->lanes->submit(&rig.lane[0]) == CEOV_FULL)
			ck_assert_uint_lt(cei_now_ns(), deadline);
		rig.n_submitted[0]++;
	}
	rig_reap(0, n);
	ck_assert_uint_eq(rig_value(2), n);
}
END_TEST

/* The lane gets the copy long before the thread writes the data. */
START_TEST(test_a_gate_hands_over_what_was_written_before)
{
	rig_await(GATE, 0, 1);
	rig_copy(GATE, rig_at(1, 0), rig_at(0, 0), 8192);
	(void)rig_submit(GATE);
	rig_pause();
	rig_fill(rig_at(0, 0), 8192, 4);
	rig_raise(0, 1);
	rig_reap(GATE, 1);
	rig_check(rig_at(1, 0), 8192, 4);
}
END_TEST

/* Lanes become idle because all copies are done, because the second copy failed, or because the
 * lane was stopped between copies. The test reads nothing meanwhile, because reading would also
 * order the bytes. */
START_TEST(test_an_idle_lane_has_done_with_memory)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	uint32_t k, n = _i == 2 ? 20 : 2;

	set_script(2 * TESTING_MS, _i == 1 ? 2 : 0, 0);
	rig_fill(rig_at(0, 0), 8192, 5);
	for (k = 0; k < n; k++)
		copy_with_mark(k % 2);
	usleep(10000);
	if (_i == 2)
		rig.ops->lanes->stop(&rig.lane[0]);
	usleep(100000);
	while (!rig.ops->lanes->is_idle(&rig.lane[0]))
		ck_assert_uint_lt(cei_now_ns(), deadline);
	rig_fill(rig_at(0, 0), 8192, 6);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("host");
	TCase *all = tcase_create("host");

	tcase_add_checked_fixture(all, rig_open, rig_close);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_delayed_copies_take_longer_and_arrive);
	tcase_add_test(all, test_a_place_that_is_lost_takes_all_its_lanes_along);
	tcase_add_test(all, test_nothing_is_done_after_a_failed_copy);
	tcase_add_test(all, test_nothing_is_waited_for_after_a_failed_copy);
	tcase_add_test(all, test_an_abort_word_ends_a_wait);
	tcase_add_test(all, test_a_lost_copy_never_ends);
	tcase_add_test(all, test_a_stopped_lane_begins_nothing_more);
	tcase_add_test(all, test_a_lane_whose_worker_cannot_be_started_is_idle);
	tcase_add_test(all, test_a_lane_whose_worker_could_not_be_started_can_be_mended);
	tcase_add_test(all, test_full_batches_of_all_submits_have_room);
	tcase_add_test(all, test_a_lane_without_room_refuses_whole_calls);
	tcase_add_test(all, test_a_caller_turns_the_lane);
	tcase_add_test(all, test_room_is_used_again);
	tcase_add_loop_test(all, test_an_idle_lane_has_done_with_memory, 0, 3);
	tcase_add_test(all, test_a_gate_hands_over_what_was_written_before);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	rig.ops = cei_backend_named("host");    /* rig.kind is 0: members on the host */
	return testing_run(suite());
}
