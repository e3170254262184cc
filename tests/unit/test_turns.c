/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests that launches of one plan, and transfers of one launch, keep their order, in whatever order
 * the engine sees their marks. The caller turns the engine, so that nothing depends on time. */

#include <check.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "loopback.h"

#define CROWD 600u                      /* waiting transfers, more than one turn checks */

/* Makes a plan with many transfers, all of which wait for one mark. */
static ceov_plan *crowd(struct loopback *loop, ceov_signal *gate)
{
	ceov_plan *plan = testing_plan(loop->context, 0);
	ceov_buffer *target = testing_buffer(loop->context, 1, CROWD * 16);
	struct ceov_transfer transfer = testing_transfer(loop->source, target, 16);
	uint32_t i;

	for (i = 0; i < CROWD; i++) {
		transfer.target.offset_bytes = i * 16;
		transfer.source_ready = testing_mark(gate, 0, 1);
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void turn(struct loopback *loop, uint32_t n)
{
	while (n--)
		ck_assert_int_ge(ceov_turn(loop->context), 0);
}

/* Returns the number of the launch whose content the target holds. Launch k copies the source's
 * content at that time, and raises its mark to k + 1. */
static uint64_t arrived_at(const struct loopback *loop, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(loop->arrived, index, &value), 0);
	return value;
}

static uint64_t arrived(const struct loopback *loop)
{
	return arrived_at(loop, 0);
}

/* Both launches' marks are reached at once while the engine is busy with others: whichever
 * it checks first, the earlier one goes first, and the mark does not fall. */
START_TEST(test_a_later_launch_does_not_overtake)
{
	ceov_signal *gate;
	ceov_plan *others;
	ceov_ticket first, second, rest = { 0 };
	struct loopback loop;

	loopback_open_turned(&loop, 1, 0);
	gate = testing_signal(loop.context, 0, 1);
	others = crowd(&loop, gate);
	first = loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(ceov_launch(others, NULL, &rest), 0);
	second = loopback_launch(&loop, 1, POLLED);
	turn(&loop, (uint32_t)_i);
	loopback_free(&loop, 2);
	loopback_ready(&loop, 2);
	while (ceov_wait(loop.context, second, 0) == CEOV_PENDING) {
		turn(&loop, 1);
		ck_assert_uint_le(arrived(&loop), 2);
	}
	ck_assert_int_eq(ceov_wait(loop.context, first, 0), 0);
	ck_assert_int_eq(ceov_wait(loop.context, second, 0), 0);
	ck_assert_uint_eq(arrived(&loop), 2);
	ck_assert_int_eq(ceov_signal_raise(gate, 0, 1), 0);
	while (ceov_wait(loop.context, rest, 0) == CEOV_PENDING)
		turn(&loop, 1);
	ck_assert_int_eq(ceov_wait(loop.context, rest, 0), 0);
	loopback_close(&loop);
}
END_TEST

/* The first transfer's target is not free yet. The second transfer could start, but waits for the
 * first one for a while, at least in the turn that sees it. */
START_TEST(test_a_transfer_waits_for_those_before_it)
{
	ceov_ticket ticket;
	struct loopback loop;

	loopback_open_turned(&loop, 2, 0);
	ticket = loopback_launch(&loop, 1, POLLED);
	loopback_ready(&loop, 2);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 1, 1), 0);
	turn(&loop, 1);
	ck_assert_uint_eq(loop.context->works.engines[0].doorbell.n_armed, 2);
	ck_assert_int_eq(ceov_signal_raise(loop.free, 0, 1), 0);
	while (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING)
		turn(&loop, 1);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), 0);
	ck_assert_uint_eq(arrived_at(&loop, 0), 2);
	ck_assert_uint_eq(arrived_at(&loop, 1), 2);
	loopback_close(&loop);
}
END_TEST

/* The mark of a transfer without bytes is not raised while a transfer before it in the plan
 * waits. */
START_TEST(test_a_mark_without_bytes_comes_last)
{
	struct ceov_transfer transfer;
	ceov_ticket ticket = { 0 };
	ceov_plan *plan;
	struct loopback loop;

	loopback_open_turned(&loop, 2, 0);
	plan = testing_plan(loop.context, 0);
	transfer = testing_transfer(loop.source, loop.target, 16);
	transfer.source_ready = testing_mark(loop.ready, 0, 1);
	transfer.then = testing_mark(loop.arrived, 0, 1);
	testing_add(plan, &transfer);
	transfer = testing_transfer(loop.source, loop.target, 0);
	transfer.then = testing_mark(loop.arrived, 1, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	turn(&loop, 100);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_PENDING);
	ck_assert_uint_eq(arrived_at(&loop, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), 0);
	while (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING)
		turn(&loop, 1);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), 0);
	ck_assert_uint_eq(arrived_at(&loop, 0), 1);
	ck_assert_uint_eq(arrived_at(&loop, 1), 1);
	loopback_close(&loop);
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
