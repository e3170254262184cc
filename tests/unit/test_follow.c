/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests that launches that follow a stream keep the stream's order, because work before an event of
 * the stream may have to run before the launch can. Host ranks have no streams, so the test plays
 * them: it decides when a stream reaches a launch's event, and the lane waits for that. */

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host.h"
#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "fake_event.h"
#include "testing.h"

#define POINTS  4u
#define STREAMS (CEI_LANES_GATED + 1)   /* one more than the number of gated lanes */
#define PLANS   (2 * STREAMS)
#define BYTES   UINT64_C(64)
#define TURNS   200u

struct stream {
	struct fake_event *events[POINTS]; /* events of its launches, in order */
	uint32_t      n;
};

struct fixture {
	ceov_context          *context;
	struct cei_place_ops   ops;             /* the host's table with streams */
	struct cei_lane_ops    lanes;
	struct stream          streams[STREAMS];
	ceov_signal           *ready[PLANS];    /* the mark that each plan's transfer waits for */
	ceov_plan             *plans[PLANS];
};

/* --- playing the streams --------------------------------------------------- */

static int event_record(struct cei_backend *backend, void *event, void *token)
{
	struct stream *stream = token;
	struct fake_event *fake = event;

	(void)backend;
	ck_assert_uint_lt(stream->n, POINTS);
	atomic_store(&fake->is_reached, 0);
	stream->events[stream->n++] = fake;
	return 0;
}

/* --- the fixture ------------------------------------------------------------- */

static void build(struct fixture *fixture, uint32_t i)
{
	ceov_buffer *source = testing_buffer(fixture->context, 0, BYTES);
	ceov_buffer *target = testing_buffer(fixture->context, 1, BYTES);
	struct ceov_transfer transfer = testing_transfer(source, target, BYTES);

	fixture->ready[i] = testing_signal(fixture->context, 0, 1);
	fixture->plans[i] = testing_plan(fixture->context, 0);
	transfer.source_ready = testing_mark(fixture->ready[i], 0, 1);
	testing_add(fixture->plans[i], &transfer);
	ck_assert_int_eq(ceov_plan_commit(fixture->plans[i]), 0);
}

static void fixture_open(struct fixture *fixture)
{
	uint32_t i;

	memset(fixture, 0, sizeof(*fixture));
	fixture->context = testing_open_turned(2, NULL);
	fixture->ops = cei_backend_host;
	fake_event_install(&fixture->ops, &fixture->lanes, event_record);
	fake_table_use(&fixture->context->works.engines[0], &fixture->ops);
	for (i = 0; i < PLANS; i++)
		build(fixture, i);
}

static void make_ready(const struct fixture *fixture, uint32_t plan)
{
	ck_assert_int_eq(ceov_signal_raise(fixture->ready[plan], 0, 1), 0);
}

static ceov_ticket launch_for(struct fixture *fixture, uint32_t plan, uint32_t stream,
			      uint64_t deadline_ns)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket = { 0 };

	launch.after_stream = &fixture->streams[stream];
	launch.deadline_ns = deadline_ns;
	ck_assert_int_eq(ceov_launch(fixture->plans[plan], &launch, &ticket), 0);
	return ticket;
}

static ceov_ticket launch_after(struct fixture *fixture, uint32_t plan, uint32_t stream)
{
	return launch_for(fixture, plan, stream, 0);
}

/* Makes a launch whose lane waits for the mark that work of the stream raises. */
static ceov_ticket launch_gated(struct fixture *fixture, uint32_t plan, uint32_t stream)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket = { 0 };

	launch.producer_stream = &fixture->streams[stream];
	ck_assert_int_eq(ceov_launch(fixture->plans[plan], &launch, &ticket), 0);
	return ticket;
}

static void reach(const struct fixture *fixture, uint32_t stream, uint32_t event)
{
	ck_assert_uint_lt(event, fixture->streams[stream].n);
	/* seq_cst: read by the lane, which runs in this thread */
	atomic_store(&fixture->streams[stream].events[event]->is_reached, 1);
}

/* Returns the launch's result after all launches that can proceed have done so. */
static int state_of(const struct fixture *fixture, ceov_ticket ticket)
{
	uint32_t i;

	for (i = 0; i < TURNS; i++)
		(void)ceov_turn(fixture->context);
	return ceov_wait(fixture->context, ticket, 0);
}

/* Returns the launch's result, which must come soon after its deadline at the latest. */
static int result_of(const struct fixture *fixture, ceov_ticket ticket)
{
	uint64_t until = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = state_of(fixture, ticket)) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), until);
	return r;
}

/* --- tests ----------------------------------------------------------------- */

/* The later launch waits for no mark, but its event is behind the earlier launch's event: it must
 * not reach the lane first. */
START_TEST(test_a_later_launch_does_not_pass_an_earlier_one)
{
	ceov_ticket earlier, later;
	struct fixture fixture;

	fixture_open(&fixture);
	make_ready(&fixture, 1);
	earlier = launch_after(&fixture, 0, 0);
	later = launch_after(&fixture, 1, 0);
	reach(&fixture, 0, 0);
	ck_assert_int_eq(state_of(&fixture, earlier), CEOV_PENDING);
	make_ready(&fixture, 0);
	ck_assert_int_eq(state_of(&fixture, earlier), 0);
	ck_assert_int_eq(state_of(&fixture, later), CEOV_PENDING);
	reach(&fixture, 0, 1);
	ck_assert_int_eq(state_of(&fixture, later), 0);
	ceov_close(fixture.context);
}
END_TEST

/* A launch is held because an earlier launch of its plan, on another stream, is in flight. Later
 * launches on its own stream are then held as well, while other streams go on. */
START_TEST(test_a_held_launch_keeps_its_place)
{
	ceov_ticket first, held, behind, beside;
	struct fixture fixture;

	fixture_open(&fixture);
	make_ready(&fixture, 0);
	make_ready(&fixture, 2);
	first = launch_after(&fixture, 0, 0);
	held = launch_after(&fixture, 0, 1);
	behind = _i ? launch_gated(&fixture, 1, 1) : launch_after(&fixture, 1, 1);
	beside = launch_after(&fixture, 2, 2);
	if (!_i)
		make_ready(&fixture, 1);
	reach(&fixture, 2, 0);
	ck_assert_int_eq(state_of(&fixture, beside), 0);
	reach(&fixture, 0, 0);
	ck_assert_int_eq(state_of(&fixture, first), 0);
	reach(&fixture, 1, 0);
	ck_assert_int_eq(state_of(&fixture, held), 0);
	ck_assert_int_eq(state_of(&fixture, behind), CEOV_PENDING);
	if (_i)
		make_ready(&fixture, 1);
	else
		reach(&fixture, 1, 1);
	ck_assert_int_eq(state_of(&fixture, behind), 0);
	ceov_close(fixture.context);
}
END_TEST

/* Streams wait for each other in a circle, as runs of operators do, and there is one more stream
 * than lanes. The last stream must get a lane although others ask for lanes again. In the second
 * case it also waits for its plan's launch on the first stream, while a lane is free. */
START_TEST(test_lanes_are_given_in_order)
{
	uint32_t n_first = STREAMS - 1 - (uint32_t)_i, last = n_first, i;
	ceov_ticket tickets[2 * STREAMS];
	struct fixture fixture;

	fixture_open(&fixture);
	for (i = 0; i < PLANS; i++)
		make_ready(&fixture, i);
	for (i = 0; i < n_first; i++)
		tickets[i] = launch_after(&fixture, i, i);
	tickets[last] = launch_after(&fixture, _i ? 0 : last, last);
	for (i = 0; i < STREAMS; i++)   /* launches of all other streams */
		if (i != last)
			(void)launch_after(&fixture, STREAMS + i, i);
	for (i = 0; i <= last; i++) {
		reach(&fixture, i, 0);
		ck_assert_int_eq(state_of(&fixture, tickets[i]), 0);
	}
	for (i = 0; i < n_first; i++)
		reach(&fixture, i, 1);
	for (i = last + 1; i < STREAMS; i++)
		reach(&fixture, i, 0);
	ck_assert_int_eq(state_of(&fixture, tickets[0]), 0);
	ceov_close(fixture.context);
}
END_TEST

/* One of three launches on a stream fails because its event or its mark does not come in time: the
 * other two still run. */
START_TEST(test_one_that_fails_lets_others_go)
{
	struct fixture fixture;
	ceov_ticket tickets[3];
	uint32_t i;

	fixture_open(&fixture);
	for (i = 0; i < 3; i++)
		tickets[i] = launch_for(&fixture, i, 0, i == (uint32_t)_i ? TESTING_MS : 0);
	ck_assert_int_eq(result_of(&fixture, tickets[_i]), CEOV_ERR_TIMEOUT);
	for (i = 0; i < 3; i++) {
		if (i == (uint32_t)_i)
			continue;
		ck_assert_int_eq(state_of(&fixture, tickets[i]), CEOV_PENDING);
		make_ready(&fixture, i);
		reach(&fixture, 0, i);
		ck_assert_int_eq(state_of(&fixture, tickets[i]), 0);
	}
	ceov_close(fixture.context);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("follow");
	TCase *all = tcase_create("follow");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_later_launch_does_not_pass_an_earlier_one);
	tcase_add_loop_test(all, test_a_held_launch_keeps_its_place, 0, 2);
	tcase_add_loop_test(all, test_lanes_are_given_in_order, 0, 2);
	tcase_add_loop_test(all, test_one_that_fails_lets_others_go, 0, 3);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
