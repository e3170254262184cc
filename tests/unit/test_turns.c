/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Launches of one plan, and transfers of one launch, go in their order, however the engine
 * comes to see their marks. The caller turns the engine, so that nothing depends on time. */

#include <check.h>

#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "way.h"

#define CROWD 600u                      /* transfers that wait: more than one turn looks at */

/* A plan with many transfers, all of which wait for one mark. */
static ceov_plan *crowd(struct way *way, ceov_signal *gate)
{
	ceov_plan *plan = testing_plan(way->context, 0);
	ceov_buffer *target = testing_buffer(way->context, 1, CROWD * 16);
	struct ceov_transfer transfer = testing_transfer(way->source, target, 16);
	uint32_t i;

	for (i = 0; i < CROWD; i++) {
		transfer.target.offset_bytes = i * 16;
		transfer.source_ready = testing_mark(gate, 0, 1);
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void turn(struct way *way, uint32_t n)
{
	while (n--)
		ck_assert_int_ge(ceov_turn(way->context), 0);
}

/* What is in the way's target, by the mark that said so: launch k copies the bytes that the
 * source has when it goes, and raises k + 1. */
static uint64_t arrived_at(const struct way *way, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(way->arrived, index, &value), 0);
	return value;
}

static uint64_t arrived(const struct way *way)
{
	return arrived_at(way, 0);
}

/* Both launches' marks are reached at once, while the engine is in the middle of others:
 * whichever it looks at first, the earlier one goes first, and the mark does not fall. */
START_TEST(test_a_later_launch_does_not_overtake)
{
	ceov_signal *gate;
	ceov_plan *others;
	ceov_ticket first, second, rest = { 0 };
	struct way way;

	way_open_with(&way, 1, 0, 1);
	gate = testing_signal(way.context, 0, 1);
	others = crowd(&way, gate);
	first = way_launch(&way, 0, 0);
	ck_assert_int_eq(ceov_launch(others, NULL, &rest), 0);
	second = way_launch(&way, 1, 0);
	turn(&way, (uint32_t)_i);
	way_free(&way, 2);
	way_ready(&way, 2);
	while (ceov_wait(way.context, second, 0) == CEOV_PENDING) {
		turn(&way, 1);
		ck_assert_uint_le(arrived(&way), 2);
	}
	ck_assert_int_eq(ceov_wait(way.context, first, 0), 0);
	ck_assert_int_eq(ceov_wait(way.context, second, 0), 0);
	ck_assert_uint_eq(arrived(&way), 2);
	ck_assert_int_eq(ceov_signal_raise(gate, 0, 1), 0);
	while (ceov_wait(way.context, rest, 0) == CEOV_PENDING)
		turn(&way, 1);
	ck_assert_int_eq(ceov_wait(way.context, rest, 0), 0);
	way_close(&way);
}
END_TEST

/* The first transfer's target is not free yet: the second one, which could go, lets it go
 * first for a while, at least in the turn that sees it. */
START_TEST(test_a_transfer_waits_for_those_before_it)
{
	ceov_ticket ticket;
	struct way way;

	way_open_with(&way, 2, 0, 1);
	ticket = way_launch(&way, 1, 0);
	way_ready(&way, 2);
	ck_assert_int_eq(ceov_signal_raise(way.free, 1, 1), 0);
	turn(&way, 1);
	ck_assert_uint_eq(way.context->engines[0].doorbell.n_armed, 2);
	ck_assert_int_eq(ceov_signal_raise(way.free, 0, 1), 0);
	while (ceov_wait(way.context, ticket, 0) == CEOV_PENDING)
		turn(&way, 1);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), 0);
	ck_assert_uint_eq(arrived_at(&way, 0), 2);
	ck_assert_uint_eq(arrived_at(&way, 1), 2);
	way_close(&way);
}
END_TEST

/* A transfer without bytes says that those before it in the plan have arrived: its mark is
 * not raised while one of them waits. */
START_TEST(test_a_mark_without_bytes_comes_last)
{
	struct ceov_transfer transfer;
	ceov_ticket ticket = { 0 };
	ceov_plan *plan;
	struct way way;

	way_open_with(&way, 2, 0, 1);
	plan = testing_plan(way.context, 0);
	transfer = testing_transfer(way.source, way.target, 16);
	transfer.source_ready = testing_mark(way.ready, 0, 1);
	transfer.then = testing_mark(way.arrived, 0, 1);
	testing_add(plan, &transfer);
	transfer = testing_transfer(way.source, way.target, 0);
	transfer.then = testing_mark(way.arrived, 1, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	turn(&way, 100);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_PENDING);
	ck_assert_uint_eq(arrived_at(&way, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), 0);
	while (ceov_wait(way.context, ticket, 0) == CEOV_PENDING)
		turn(&way, 1);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), 0);
	ck_assert_uint_eq(arrived_at(&way, 0), 1);
	ck_assert_uint_eq(arrived_at(&way, 1), 1);
	way_close(&way);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("turns");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_a_later_launch_does_not_overtake, 0, 5);
	tcase_add_test(all, test_a_transfer_waits_for_those_before_it);
	tcase_add_test(all, test_a_mark_without_bytes_comes_last);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
