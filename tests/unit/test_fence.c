/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests an engine whose member's place is lost, as the host backend's fault script plays it: all
 * its launches end with an error that says so, later ones at once, and the other engine goes on. */

#include <check.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "testing.h"

#define BYTES   UINT64_C(4096)
#define WHY     "host memory 0 is lost, as its fault script says"
#define FOREVER (10 * TESTING_PATIENCE)         /* a deadline that does not end what is tested */

struct flow {                           /* a plan of one transfer from a rank to the other */
	uint32_t     rank;
	ceov_buffer *source, *target;
	ceov_signal *ready, *arrived;
	ceov_plan   *plan;
};

static struct testing_log log_lines;
static ceov_context *context;

static void set_up(void)
{
	testing_log_init(&log_lines);
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_FAULT_RANK", "0", 1), 0);
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_BREAK_AT", "3", 1), 0);
	context = testing_open(2, &log_lines);
}

static void tear_down(void)
{
	ceov_close(context);
}

static void make(struct flow *flow, uint32_t rank)
{
	struct ceov_transfer transfer;

	flow->rank = rank;
	flow->source = testing_buffer(context, rank, BYTES);
	flow->target = testing_buffer(context, !rank, BYTES);
	flow->ready = testing_signal(context, rank, 1);
	flow->arrived = testing_signal(context, !rank, 1);
	flow->plan = testing_plan(context, rank);
	transfer = testing_transfer(flow->source, flow->target, BYTES);
	transfer.source_ready = testing_mark(flow->ready, 0, 1);
	transfer.then = testing_mark(flow->arrived, 0, 1);
	testing_add(flow->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(flow->plan), 0);
}

static ceov_ticket launch(struct flow *flow, uint64_t base)
{
	const struct ceov_launch ask = { .struct_bytes = sizeof(ask), .base = base,
					 .deadline_ns = FOREVER };
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(ceov_launch(flow->plan, &ask, &ticket), 0);
	return ticket;
}

static int pass(struct flow *flow, uint64_t base)
{
	ceov_ticket ticket;

	testing_fill(ceov_buffer_base(flow->source, flow->rank), BYTES, base + 1);
	ticket = launch(flow, base);
	ck_assert_int_eq(ceov_signal_raise(flow->ready, 0, base + 1), 0);
	return ceov_wait(context, ticket, TESTING_PATIENCE);
}

/* The engine's own fence, as others read it. */
static int fence_of(uint32_t member, char *ret_text)
{
	return cei_fence_read(&context->engines[member]->fence, ret_text);
}

START_TEST(test_launches_of_a_lost_place_end_and_others_go_on)
{
	struct flow first, waits, idle, other;
	char text[CEI_LOST_BYTES] = "";
	ceov_ticket waiting;
	uint64_t i;

	make(&first, 0);
	make(&waits, 0);
	make(&idle, 0);
	make(&other, 1);
	waiting = launch(&waits, 0);            /* for a mark that nobody raises */
	ck_assert_int_eq(pass(&first, 0), 0);
	ck_assert_int_eq(pass(&first, 1), 0);
	ck_assert_int_eq(fence_of(0, text), 0);
	ck_assert_int_eq(pass(&first, 2), CEOV_ERR_SYSTEM);     /* the third copy */
	ck_assert_int_eq(fence_of(0, text), CEOV_ERR_SYSTEM);
	ck_assert_str_eq(text, WHY);
	testing_log_has(&log_lines, "rank 0: launch 4, transfer 0, chunk 0", WHY,
			"to blame: rank 0");
	ck_assert_int_eq(ceov_wait(context, waiting, TESTING_PATIENCE), CEOV_ERR_SYSTEM);
	testing_log_has(&log_lines, "rank 0: launch 1, transfer 0", WHY, "has not begun");
	ck_assert_int_eq(ceov_signal_wait(waits.arrived, 0, 1, TESTING_PATIENCE), CEOV_ERR_SYSTEM);
	/* a plan that nothing has happened to: its launch ends before anything of it begins */
	ck_assert_int_eq(ceov_wait(context, launch(&idle, 0), TESTING_PATIENCE), CEOV_ERR_SYSTEM);
	testing_log_has(&log_lines, "rank 0: launch 5, transfer 0", WHY, "has not begun");
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(pass(&other, i), 0);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(other.target, 0), BYTES, 20), BYTES);
	ck_assert_int_eq(fence_of(1, text), 0);
}
END_TEST

/* Its signals are renewed, so nothing but the fence ends the launch. */
START_TEST(test_a_fence_outlives_a_renewal)
{
	struct flow flow;
	uint64_t i;

	make(&flow, 0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(pass(&flow, i), 0);
	ck_assert_int_eq(pass(&flow, 2), CEOV_ERR_SYSTEM);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(ceov_signal_renew(flow.ready), 0);
		ck_assert_int_eq(ceov_signal_renew(flow.arrived), 0);
		testing_log_clear(&log_lines);
		ck_assert_int_eq(ceov_wait(context, launch(&flow, 0), TESTING_PATIENCE),
				 CEOV_ERR_SYSTEM);
		testing_log_has(&log_lines, "rank 0: launch", WHY, "has not begun");
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("fence");
	TCase *cases = tcase_create("fence");

	tcase_add_checked_fixture(cases, set_up, tear_down);
	tcase_set_timeout(cases, 120);
	tcase_add_test(cases, test_launches_of_a_lost_place_end_and_others_go_on);
	tcase_add_test(cases, test_a_fence_outlives_a_renewal);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
