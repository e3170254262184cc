/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of lanes that wait, of several lanes at once, of draining and of closing. */

#include "backend_rig.h"

#include "base/clock.h"

START_TEST(test_copy_waits_for_a_raised_counter)
{
	uint32_t k;

	if (!rig_has_gates())
		return;
	for (k = 1; k <= 10; k++) {
		rig_fill(rig_at(0, 0), BYTES, 100 + k);
		rig_fill(rig_at(1, 0), BYTES, 200 + k);
		rig_await(GATE, 0, k * 1000);
		rig_copy(GATE, rig_at(1, 0), rig_at(0, 0), BYTES);
		rig_post(GATE, 1, k);
		(void)rig_submit(GATE);
		rig_raise(0, k * 1000 - 1);
		rig_pause();
		ck_assert_uint_eq(rig_reaped(GATE), k - 1);
		ck_assert_uint_eq(rig_value(1), k - 1);
		rig_check(rig_at(1, 0), BYTES, 200 + k);
		rig_fill(rig_at(0, 0), BYTES, 300 + k); /* data that the mark publishes */
		rig_raise(0, k * 1000);
		rig_reach(1, k);
		rig_check(rig_at(1, 0), BYTES, 300 + k);
		rig_reap(GATE, k);
	}
}
END_TEST

START_TEST(test_a_counter_above_the_value_opens)
{
	if (!rig_has_gates())
		return;
	rig_raise(0, CEOV_VALUE_LIMIT - 1);
	rig_await(GATE, 0, 1);
	rig_await(GATE, 0, CEOV_VALUE_LIMIT - 1);
	rig_await(GATE, 1, 0);
	rig_post(GATE, 2, 1);
	rig_reap(GATE, rig_submit(GATE));
	ck_assert_uint_eq(rig_value(2), 1);
}
END_TEST

START_TEST(test_another_lanes_post_opens)
{
	uint32_t k;

	if (!rig_has_gates())
		return;
	for (k = 1; k <= 20; k++) {
		rig_await(GATE, 0, k);
		rig_copy(GATE, rig_at(0, BYTES / 2), rig_at(1, 0), BYTES / 2);
		rig_post(GATE, 1, k);
		(void)rig_submit(GATE);
		rig_fill(rig_at(0, 0), BYTES / 2, k);
		rig_copy(0, rig_at(1, 0), rig_at(0, 0), BYTES / 2);
		rig_post(0, 0, k);
		(void)rig_submit(0);
		rig_reach(1, k);
		rig_check(rig_at(0, BYTES / 2), BYTES / 2, k);
		rig_reap(GATE, k);
		rig_reap(0, k);
	}
}
END_TEST

START_TEST(test_a_waiting_lane_stops_no_other)
{
	uint32_t k;

	if (!rig_has_gates())
		return;
	rig_await(GATE, 0, 1);
	rig_post(GATE, 1, 1);
	(void)rig_submit(GATE);
	for (k = 1; k <= 100; k++) {
		rig_copy(0, rig_at(1, 0), rig_at(0, 0), 4096);
		rig_copy(1, rig_at(1, 8192), rig_at(0, 8192), 4096);
		rig_copy(OTHER, rig_at(1, 16384), rig_at(0, 16384), 4096);
		rig_post(OTHER, 2, k);
		(void)rig_submit(0);
		(void)rig_submit(1);
		(void)rig_submit(OTHER);
		rig_reap(0, k);
		rig_reap(1, k);
		rig_reap(OTHER, k);
	}
	ck_assert_uint_eq(rig_reaped(GATE), 0);
	ck_assert_uint_eq(rig_value(1), 0);
	rig_raise(0, 1);
	rig_reap(GATE, 1);
	ck_assert_uint_eq(rig_value(1), 1);
}
END_TEST

START_TEST(test_gates_open_in_any_order)
{
	uint32_t k;

	if (!rig_has_gates())
		return;
	for (k = 1; k <= 20; k++) {
		rig_await(GATE, 0, k);
		rig_post(GATE, 2, k);
		(void)rig_submit(GATE);
		rig_await(OTHER, 1, k);
		rig_post(OTHER, 3, k);
		(void)rig_submit(OTHER);
		rig_raise(k % 2, k);
		rig_reach(2 + k % 2, k);
		ck_assert_uint_eq(rig_value(3 - k % 2), k - 1);
		rig_raise(1 - k % 2, k);
		rig_reap(GATE, k);
		rig_reap(OTHER, k);
	}
}
END_TEST

START_TEST(test_a_lane_takes_all_submits_behind_a_gate)
{
	uint32_t i, round;

	if (!rig_has_gates())
		return;
	for (round = 1; round <= 3; round++) {
		rig_fill(rig_at(0, 0), CEI_LANE_SUBMITS * 512, round);
		for (i = 0; i < CEI_LANE_SUBMITS; i++) {
			rig_await(GATE, 0, round);
			rig_copy(GATE, rig_at(1, i * 512), rig_at(0, i * 512), 512);
			rig_post(GATE, 1 + i, round);
			(void)rig_submit(GATE);
		}
		ck_assert_uint_eq(rig_reaped(GATE), (round - 1) * CEI_LANE_SUBMITS);
		rig_raise(0, round);
		rig_reap(GATE, round * CEI_LANE_SUBMITS);
		rig_check(rig_at(1, 0), CEI_LANE_SUBMITS * 512, round);
		for (i = 0; i < CEI_LANE_SUBMITS; i++)
			ck_assert_uint_eq(rig_value(1 + i), round);
	}
}
END_TEST

/* Plays one side of a ping-pong: each round copies the data to the other side and wakes it. */
static void play(uint32_t lane, uint32_t round)
{
	uint32_t from = lane == GATE ? 0 : 1;

	rig_await(lane, from, round);
	rig_copy(lane, rig_at(1 - from, 0), rig_at(from, 0), 4096);
	rig_copy(lane, rig_at(from, 4096), rig_at(from, 0), 4096);
	rig_post(lane, 1 - from, lane == GATE ? round : round + 1);
	(void)rig_submit(lane);
}

START_TEST(test_two_lanes_play_ping_pong)
{
	uint32_t round, n = 1000, ahead = 16;

	if (!rig_has_gates())
		return;
	rig_fill(rig_at(0, 0), 4096, 77);
	rig_raise(0, 1);
	for (round = 1; round <= n; round++) {
		play(GATE, round);
		play(OTHER, round);
		if (round > ahead) {
			rig_reap(GATE, round - ahead);
			rig_reap(OTHER, round - ahead);
		}
	}
	rig_reap(OTHER, n);
	ck_assert_uint_eq(rig_value(0), n + 1);
	ck_assert_uint_eq(rig_value(1), n);
	rig_check(rig_at(0, 0), 4096, 77);
	rig_check(rig_at(1, 4096), 4096, 77);
}
END_TEST

START_TEST(test_poison_opens_and_drain_ends)
{
	uint32_t i;

	if (!rig_has_gates())
		return;
	for (i = 0; i < 8; i++) {
		rig_await(GATE, 0, 10 + i);
		rig_copy(GATE, rig_at(1, i * 4096), rig_at(0, i * 4096), 4096);
		rig_post(GATE, 1, 10 + i);
		(void)rig_submit(GATE);
	}
	rig_pause();
	ck_assert_uint_eq(rig_reaped(GATE), 0);
	/* release: pairs with the lanes' acquire */
	atomic_store_explicit(&rig.abort_word, 9, memory_order_release);
	rig_raise(0, CEOV_VALUE_LIMIT);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[GATE], cei_deadline(TESTING_PATIENCE)), 0);
	rig_reap(GATE, 8);
}
END_TEST

START_TEST(test_a_lane_works_again_after_an_abort)
{
	uint32_t k;

	if (!rig_has_gates())
		return;
	for (k = 1; k <= 5; k++) {
		rig_await(GATE, 0, 1);
		rig_post(GATE, 1, 1);
		(void)rig_submit(GATE);
		/* release: pairs with the lanes' acquire */
		atomic_store_explicit(&rig.abort_word, 9, memory_order_release);
		rig_raise(0, CEOV_VALUE_LIMIT);
		rig_reap(GATE, 2 * k - 1);
		atomic_store_explicit(&rig.abort_word, 0, memory_order_release);
		rig_raise(0, 0);
		rig_raise(1, 0);
		rig_await(GATE, 0, 1);
		rig_post(GATE, 1, 1);
		(void)rig_submit(GATE);
		rig_pause();
		ck_assert_uint_eq(rig_value(1), 0);
		rig_raise(0, 1);
		rig_reap(GATE, 2 * k);
		ck_assert_uint_eq(rig_value(1), 1);
		rig_raise(0, 0);
		rig_raise(1, 0);
	}
}
END_TEST

START_TEST(test_drain_of_an_idle_lane_is_done)
{
	uint32_t i;

	rig_reap(0, rig_submit(0));
	for (i = 0; i < LANES; i++)
		ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[i],
						cei_deadline(TESTING_PATIENCE)), 0);
}
END_TEST

START_TEST(test_drain_of_a_lane_that_waits_is_bounded)
{
	uint64_t before = cei_now_ns();

	if (!rig_has_gates())
		return;
	rig_await(GATE, 0, 1);
	(void)rig_submit(GATE);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[GATE], cei_deadline(50 * TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns() - before, 50 * TESTING_MS);
	ck_assert_uint_lt(cei_now_ns() - before, 5 * TESTING_SECOND);
	ck_assert(!rig.ops->lanes->is_idle(&rig.lane[GATE]));
	rig_raise(0, 1);
	ck_assert_int_eq(rig.ops->lanes->drain(&rig.lane[GATE], cei_deadline(TESTING_PATIENCE)), 0);
	ck_assert(rig.ops->lanes->is_idle(&rig.lane[GATE]));
	rig_reap(GATE, 1);
}
END_TEST

START_TEST(test_close_of_a_lane_ends_its_work_first)
{
	uint32_t i;

	rig_fill(rig_at(0, 0), BYTES, 31);
	for (i = 0; i < 16; i++) {
		rig_copy(0, rig_at(1, i * BYTES / 16), rig_at(0, i * BYTES / 16),
			 BYTES / 16);
		rig_post(0, 0, i + 1);
		(void)rig_submit(0);
	}
	cei_lane_close(&rig.lane[0]);
	ck_assert_uint_eq(rig_value(0), 16);
	rig_check(rig_at(1, 0), BYTES, 31);
}
END_TEST

START_TEST(test_lanes_open_and_close)
{
	static const enum cei_direction directions[] = {
		CEI_DIRECTION_PEER, CEI_DIRECTION_IN, CEI_DIRECTION_OUT, CEI_DIRECTION_ANY
	};
	struct cei_lane lane;
	uint64_t n_done = 7;
	uint32_t i;

	for (i = 0; i < 40; i++) {
		ck_assert_int_eq(cei_lane_open(&lane, &rig.backend, directions[i % 4],
					       CEOV_NOBODY, 9), 0);
		ck_assert_int_eq(rig.ops->lanes->reap(&lane, &n_done), 0);
		ck_assert_uint_eq(n_done, 0);
		if (i % 3)
			ck_assert_int_eq(rig.ops->lanes->submit(&lane), 0);
		cei_lane_close(&lane);
		ck_assert_ptr_null(lane.private);
	}
	cei_lane_close(&lane);
}
END_TEST

START_TEST(test_warming_leaves_all_in_order)
{
	if (!rig.ops->warm)
		return;
	ck_assert_int_eq(rig.ops->warm(&rig.backend, rig_at(1, 0)), 0);
	rig_fill(rig_at(0, 0), 4096, 41);
	rig_copy(0, rig_at(1, 0), rig_at(0, 0), 4096);
	rig_post(0, 0, 1);
	rig_reap(0, rig_submit(0));
	rig_check(rig_at(1, 0), 4096, 41);
	ck_assert_int_eq(rig.ops->warm(&rig.backend, rig_at(1, 4096)), 0);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
	TCase *made = tcase_create(name);

	tcase_add_checked_fixture(made, rig_open, rig_close);
	tcase_set_timeout(made, 60);
	suite_add_tcase(suite, made);
	return made;
}

void rig_add_gate_cases(Suite *suite)
{
	TCase *gates = add_case(suite, "gates");
	TCase *ends = add_case(suite, "ends");

	tcase_add_test(gates, test_copy_waits_for_a_raised_counter);
	tcase_add_test(gates, test_a_counter_above_the_value_opens);
	tcase_add_test(gates, test_another_lanes_post_opens);
	tcase_add_test(gates, test_a_waiting_lane_stops_no_other);
	tcase_add_test(gates, test_gates_open_in_any_order);
	tcase_add_test(gates, test_a_lane_takes_all_submits_behind_a_gate);
	tcase_add_test(gates, test_two_lanes_play_ping_pong);
	tcase_add_test(ends, test_poison_opens_and_drain_ends);
	tcase_add_test(ends, test_a_lane_works_again_after_an_abort);
	tcase_add_test(ends, test_drain_of_an_idle_lane_is_done);
	tcase_add_test(ends, test_drain_of_a_lane_that_waits_is_bounded);
	tcase_add_test(ends, test_close_of_a_lane_ends_its_work_first);
	tcase_add_test(ends, test_lanes_open_and_close);
	tcase_add_test(ends, test_warming_leaves_all_in_order);
}
