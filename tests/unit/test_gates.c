/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A launch that may be gated either makes a lane wait for its marks or, if too many streams of the
 * GPU wait already, is polled. The host backend stands in for a GPU's backend: the test sets how
 * many more streams may wait, and counts the waits that lanes get. */

#include <check.h>
#include <string.h>
#include <unistd.h>

#include "backend/host.h"
#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "fake_event.h"
#include "testing.h"

#define BYTES UINT64_C(64)
#define TURNS 200u

static uint32_t n_may_wait;     /* how many more streams may wait, as the backend answers */
static uint32_t n_lane_waits;   /* how many waits lanes got */

struct fixture {
	ceov_context          *context;
	struct cei_place_ops   ops;
	struct cei_lane_ops    lanes;
	ceov_signal           *ready;
	ceov_plan             *plan;
};

static uint32_t waits_left(struct cei_backend *backend)
{
	(void)backend;
	return n_may_wait;
}

static int lane_wait(struct cei_lane *lane, const struct cei_await *await)
{
	n_lane_waits++;
	return cei_backend_named("host")->lanes->wait(lane, await);
}

static void fixture_open(struct fixture *fixture)
{
	struct ceov_transfer transfer;
	ceov_buffer *source, *target;

	memset(fixture, 0, sizeof(*fixture));
	fixture->context = testing_open_turned(2, NULL);
	fixture->ops = *cei_backend_named("host");
	fixture->ops.waits_left = waits_left;
	fixture->lanes = *fixture->ops.lanes;
	fixture->lanes.wait = lane_wait;
	fixture->ops.lanes = &fixture->lanes;
	fake_table_use(&fixture->context->works.engines[0], &fixture->ops);
	source = testing_buffer(fixture->context, 0, BYTES);
	target = testing_buffer(fixture->context, 1, BYTES);
	transfer = testing_transfer(source, target, BYTES);
	fixture->ready = testing_signal(fixture->context, 0, 1);
	fixture->plan = testing_plan(fixture->context, 0);
	transfer.source_ready = testing_mark(fixture->ready, 0, 1);
	testing_add(fixture->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(fixture->plan), 0);
}

static ceov_ticket launch(struct fixture *fixture, uint64_t base)
{
	struct ceov_launch made = { .struct_bytes = sizeof(made), .base = base,
				    .producer_stream = fixture };
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(ceov_launch(fixture->plan, &made, &ticket), 0);
	return ticket;
}

static int state_of(const struct fixture *fixture, ceov_ticket ticket)
{
	uint32_t i;

	for (i = 0; i < TURNS; i++)
		(void)ceov_turn(fixture->context);
	return ceov_wait(fixture->context, ticket, 0);
}

static void make_ready(const struct fixture *fixture, uint64_t value)
{
	ck_assert_int_eq(ceov_signal_raise(fixture->ready, 0, value), 0);
}

START_TEST(test_a_lane_waits_where_one_may)
{
	struct fixture fixture;
	ceov_ticket ticket;

	n_may_wait = 1;
	fixture_open(&fixture);
	ticket = launch(&fixture, 0);
	ck_assert_int_eq(state_of(&fixture, ticket), CEOV_PENDING);
	ck_assert_uint_eq(n_lane_waits, 1);
	make_ready(&fixture, 1);
	ck_assert_int_eq(state_of(&fixture, ticket), 0);
	ceov_close(fixture.context);
}
END_TEST

START_TEST(test_marks_are_polled_where_none_may)
{
	struct fixture fixture;
	ceov_ticket ticket;

	n_may_wait = 0;
	fixture_open(&fixture);
	ticket = launch(&fixture, 0);
	ck_assert_int_eq(state_of(&fixture, ticket), CEOV_PENDING);
	make_ready(&fixture, 1);
	ck_assert_int_eq(state_of(&fixture, ticket), 0);
	ck_assert_uint_eq(n_lane_waits, 0);
	ceov_close(fixture.context);
}
END_TEST

/* While a lane waits for one launch of a plan, the lane also gets the plan's next launch. If that
 * one were polled it would be held until the first launch has ended. */
START_TEST(test_launches_of_a_plan_stay_together)
{
	ceov_ticket first, second;
	struct fixture fixture;

	n_may_wait = 1;
	fixture_open(&fixture);
	first = launch(&fixture, 0);
	ck_assert_int_eq(state_of(&fixture, first), CEOV_PENDING);
	n_may_wait = 0;
	second = launch(&fixture, 1);
	ck_assert_int_eq(state_of(&fixture, second), CEOV_PENDING);
	make_ready(&fixture, 1);
	ck_assert_int_eq(state_of(&fixture, first), 0);
	make_ready(&fixture, 2);
	ck_assert_int_eq(state_of(&fixture, second), 0);
	ck_assert_uint_eq(n_lane_waits, 2);
	ceov_close(fixture.context);
}
END_TEST

static uint64_t value_of(ceov_signal *signal, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(signal, index, &value), 0);
	return value;
}

/* Transfers of one launch that wait for one counter: the lane waits again where the next one waits
 * for more, and not where it waits for the same. */
START_TEST(test_a_lane_waits_for_each_value)
{
	static const uint64_t values[] = { 1, 1, 2 };
	struct ceov_transfer transfer;
	struct fixture fixture;
	ceov_signal *arrived;
	ceov_ticket ticket;
	uint32_t i;

	n_may_wait = 1;
	fixture_open(&fixture);
	arrived = testing_signal(fixture.context, 1, 3);
	fixture.plan = testing_plan(fixture.context, 0);
	for (i = 0; i < 3; i++) {
		transfer = testing_transfer(testing_buffer(fixture.context, 0, BYTES),
					    testing_buffer(fixture.context, 1, BYTES), BYTES);
		transfer.source_ready = testing_mark(fixture.ready, 0, values[i]);
		transfer.then = testing_mark(arrived, i, 1);
		testing_add(fixture.plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(fixture.plan), 0);
	ticket = launch(&fixture, 0);
	ck_assert_int_eq(state_of(&fixture, ticket), CEOV_PENDING);
	ck_assert_uint_eq(n_lane_waits, 2);
	make_ready(&fixture, 1);
	ck_assert_int_eq(state_of(&fixture, ticket), CEOV_PENDING);
	ck_assert_uint_eq(value_of(arrived, 1), 1);
	ck_assert_uint_eq(value_of(arrived, 2), 0);
	make_ready(&fixture, 2);
	ck_assert_int_eq(state_of(&fixture, ticket), 0);
	ceov_close(fixture.context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("gates");
	TCase *all = tcase_create("gates");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_lane_waits_where_one_may);
	tcase_add_test(all, test_marks_are_polled_where_none_may);
	tcase_add_test(all, test_launches_of_a_plan_stay_together);
	tcase_add_test(all, test_a_lane_waits_for_each_value);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
