/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests many armed transfers: they start when their marks are reached, in any order, and those that
 * wait cost little time per turn. The test makes the turns itself, so that it can inspect and
 * count. */

#include <check.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/sched/launch.h"
#include "testing.h"

#define MANY UINT32_C(3000)

static struct testing_log log_of;
static ceov_context *context;
static ceov_buffer *source, *target;
static ceov_signal *outside, *links;
static ceov_plan *plan;
static uint64_t random_state;

static struct cei_engine *engine(void)
{
	return context->engines[0];
}

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open_turned(1, &log_of);
	source = testing_buffer(context, 0, MANY);
	target = testing_buffer(context, 0, MANY);
	outside = testing_signal(context, 0, MANY);
	links = testing_signal(context, 0, MANY);
	plan = testing_plan(context, 0);
	random_state = testing_seed();
	testing_fill(ceov_buffer_base(source, 0), MANY, random_state);
}

static void tear_down(void)
{
	ceov_close(context);
}

static struct ceov_transfer byte_at(uint32_t i)
{
	struct ceov_transfer made = testing_transfer(source, target, 1);

	made.source.offset_bytes = made.target.offset_bytes = i;
	return made;
}

static ceov_ticket launch(ceov_plan *what, uint64_t deadline_ns)
{
	struct ceov_launch how = { .struct_bytes = sizeof(how), .deadline_ns = deadline_ns };
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(ceov_launch(what, &how, &ticket), 0);
	return ticket;
}

static ceov_ticket commit_and_launch(void)
{
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return launch(plan, 10 * TESTING_SECOND);
}

static void turns(uint32_t n)
{
	while (n-- > 0)
		ck_assert_int_ge(ceov_turn(context), 0);
}

/* Waits for the launch and returns how many turns it took. */
static uint32_t finish(ceov_ticket ticket, int result)
{
	uint32_t n = 0;
	int r;

	for (r = CEOV_PENDING; r == CEOV_PENDING; n++) {
		turns(1);
		r = ceov_wait(context, ticket, 0);
	}
	ck_assert_int_eq(r, result);
	return n;
}

static void check_bytes(void)
{
	ck_assert_uint_eq(testing_check(ceov_buffer_base(target, 0), MANY, testing_seed()),
			  MANY);
}

/* Asserts that nothing is armed or parked. */
static void check_idle(void)
{
	ck_assert_uint_eq(engine()->doorbell.n_armed, 0);
	ck_assert_uint_eq(engine()->doorbell.parking.n_awake, 0);
	ck_assert(cei_list_is_empty(&engine()->doorbell.parking.armed));
	ck_assert(cei_list_is_empty(&engine()->doorbell.parking.watched));
}

/* Asserts that the doorbell checks only a few transfers per turn while no mark is reached; the
 * others are parked. */
static void check_parked(uint32_t n_armed)
{
	turns(20);
	ck_assert_uint_eq(engine()->doorbell.n_armed, n_armed);
	ck_assert_uint_le(engine()->doorbell.parking.n_awake, CEI_PARKING_AWAKE);
}

static void shuffle(uint32_t *numbers, uint32_t n)
{
	uint32_t i, k, kept;

	for (i = 0; i < n; i++)
		numbers[i] = i;
	for (i = n; i > 1; i--) {
		k = (uint32_t)testing_below(&random_state, i);
		kept = numbers[k];
		numbers[k] = numbers[i - 1];
		numbers[i - 1] = kept;
	}
}

/* Arms transfers that each wait at a counter, half of them for source_ready. */
static ceov_ticket arm_counters(void)
{
	struct ceov_transfer made;
	uint32_t i;

	for (i = 0; i < MANY; i++) {
		made = byte_at(i);
		if (i % 2)
			made.source_ready = testing_mark(outside, i, 1);
		else
			made.target_free = testing_mark(outside, i, 1);
		testing_add(plan, &made);
	}
	return commit_and_launch();
}

START_TEST(test_marks_of_many_counters_come_in_any_order)
{
	ceov_ticket ticket = arm_counters();
	uint32_t order[MANY], i;

	check_parked(MANY);
	shuffle(order, MANY);
	for (i = 0; i < MANY; i++) {
		ck_assert_int_eq(ceov_signal_raise(outside, order[i], 1), 0);
		if (!(order[i] % 8))
			turns(1);
	}
	finish(ticket, 0);
	check_bytes();
	check_idle();
}
END_TEST

/* Only target_free is watched, so one whose other readers are late must not stay parked at it. */
START_TEST(test_marks_of_other_readers_come_in_any_order)
{
	struct ceov_transfer made;
	struct ceov_mark also;
	uint32_t order[MANY], i;
	ceov_ticket ticket;

	for (i = 0; i < MANY; i++) {
		made = byte_at(i);
		made.target_free = testing_mark(outside, i, 1);
		testing_add(plan, &made);
		also = testing_mark(links, i, 1);
		ck_assert_int_eq(cei_plan_await_also(plan, &also), 0);
	}
	ticket = commit_and_launch();
	check_parked(MANY);
	shuffle(order, MANY);
	for (i = 0; i < MANY; i++)
		ck_assert_int_eq(ceov_signal_raise(i % 2 ? outside : links, order[i], 1), 0);
	turns(50);
	ck_assert_uint_eq(engine()->doorbell.n_armed, MANY);
	for (i = 0; i < MANY; i++) {
		ck_assert_int_eq(ceov_signal_raise(i % 2 ? links : outside, order[i], 1), 0);
		if (!(order[i] % 8))
			turns(1);
	}
	ck_assert_uint_le(finish(ticket, 0), 4 * MANY);
	check_bytes();
	check_idle();
}
END_TEST

START_TEST(test_one_counter_lets_pass_what_its_value_has_reached)
{
	uint32_t values[MANY], i, seen;
	struct ceov_transfer made;
	ceov_ticket ticket;

	shuffle(values, MANY);
	for (i = 0; i < MANY; i++) {
		made = byte_at(i);
		made.source_ready = testing_mark(outside, 0, values[i] + 1);
		testing_add(plan, &made);
	}
	ticket = commit_and_launch();
	check_parked(MANY);
	for (seen = 1; seen < MANY; seen += 1 + (uint32_t)testing_below(&random_state, 50)) {
		ck_assert_int_eq(ceov_signal_raise(outside, 0, seen), 0);
		check_parked(MANY - seen);
	}
	ck_assert_int_eq(ceov_signal_raise(outside, 0, MANY), 0);
	finish(ticket, 0);
	check_bytes();
	check_idle();
}
END_TEST

/* Arms a chain in reverse order, in which each transfer waits for the mark of the next one. A link
 * must not take several turns, as it would if each turn checked only a part of all transfers. */
START_TEST(test_a_long_chain_takes_few_turns_a_link)
{
	struct ceov_transfer made;
	ceov_ticket ticket;
	uint32_t i;

	for (i = MANY; i-- > 0;) {
		made = byte_at(i);
		made.then = testing_mark(links, i, 1);
		if (i && i % 3 != 1)
			made.source_ready = testing_mark(links, i - 1, 1);
		if (i && i % 3)
			made.target_free = testing_mark(links, i - 1, 1);
		if (i)
			ck_assert_int_eq(ceov_plan_add(plan, &made), 0);
		else
			made.source_ready = testing_mark(outside, 0, 1);
		if (!i)
			testing_add(plan, &made);
	}
	ticket = commit_and_launch();
	check_parked(MANY);
	ck_assert_int_eq(ceov_signal_raise(outside, 0, 1), 0);
	ck_assert_uint_le(finish(ticket, 0), 4 * MANY);
	check_bytes();
	check_idle();
}
END_TEST

/* Transfers without bytes wait until it is their turn in the plan. */
START_TEST(test_marks_without_bytes_wait_for_their_turn)
{
	struct ceov_transfer made;
	uint32_t i, reached = 0;
	ceov_ticket ticket;
	uint64_t value;

	for (i = 0; i < MANY; i++) {
		made = byte_at(i);
		if (i % 2)
			made = testing_transfer(source, target, 0);
		else
			made.source_ready = testing_mark(outside, 0, i + 1);
		if (i % 2)
			made.then = testing_mark(links, i, 1);
		testing_add(plan, &made);
	}
	ticket = commit_and_launch();
	check_parked(MANY);
	ck_assert_int_eq(ceov_signal_raise(outside, 0, MANY / 2), 0);
	turns(MANY);
	for (i = 1; i < MANY; i += 2) {
		ck_assert_int_eq(ceov_signal_value(links, i, &value), 0);
		ck_assert_uint_eq(value, i <= MANY / 2);
		reached += value != 0;
	}
	ck_assert_uint_gt(reached, 0);
	ck_assert_int_eq(ceov_signal_raise(outside, 0, MANY), 0);
	finish(ticket, 0);
	check_idle();
}
END_TEST

START_TEST(test_others_do_not_wait_for_a_turn_among_many)
{
	ceov_ticket many = arm_counters(), one;
	ceov_plan *small = testing_plan(context, 0);
	ceov_buffer *there = testing_buffer(context, 0, 1);
	ceov_signal *mark = testing_signal(context, 0, 1);
	struct ceov_transfer made = testing_transfer(source, there, 1);

	made.source_ready = testing_mark(mark, 0, 1);
	testing_add(small, &made);
	ck_assert_int_eq(ceov_plan_commit(small), 0);
	check_parked(MANY);
	one = launch(small, 10 * TESTING_SECOND);
	turns(20);
	ck_assert_int_eq(ceov_signal_raise(mark, 0, 1), 0);
	ck_assert_uint_le(finish(one, 0), 4);
	ck_assert_int_eq(ceov_wait(context, many, 0), CEOV_PENDING);
}
END_TEST

START_TEST(test_what_is_parked_ends_with_its_launch)
{
	ceov_ticket ticket = arm_counters();

	check_parked(MANY);
	ck_assert_int_eq(ceov_abort(context, ticket), 0);
	finish(ticket, CEOV_ERR_ABORTED);
	check_idle();
}
END_TEST

START_TEST(test_what_is_parked_keeps_its_deadline)
{
	struct ceov_transfer made;
	ceov_ticket ticket;
	uint32_t i;

	for (i = 0; i < MANY; i++) {
		made = byte_at(i);
		made.then = testing_mark(links, i, 1);
		made.source_ready = i % 2 ? testing_mark(links, i - 1, 1)
			: testing_mark(outside, i, 1);
		if (i % 2)
			ck_assert_int_eq(ceov_plan_add(plan, &made), 0);
		else
			testing_add(plan, &made);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ticket = launch(plan, 100 * TESTING_MS);
	finish(ticket, CEOV_ERR_TIMEOUT);
	check_idle();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("parking");
	TCase *all = tcase_create("parking");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_marks_of_many_counters_come_in_any_order);
	tcase_add_test(all, test_marks_of_other_readers_come_in_any_order);
	tcase_add_test(all, test_one_counter_lets_pass_what_its_value_has_reached);
	tcase_add_test(all, test_a_long_chain_takes_few_turns_a_link);
	tcase_add_test(all, test_marks_without_bytes_wait_for_their_turn);
	tcase_add_test(all, test_others_do_not_wait_for_a_turn_among_many);
	tcase_add_test(all, test_what_is_parked_ends_with_its_launch);
	tcase_add_test(all, test_what_is_parked_keeps_its_deadline);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
