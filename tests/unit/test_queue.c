/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what is refused of plans that are queued on a stream, before the stream gets anything. */

#include <check.h>
#include <string.h>

#include "backend/host.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "stream_rig.h"

static void refused(struct stream_rig *rig, int error, const char *text)
{
	struct ceov_failure failure;

	(void)ceov_last_failure(rig->context, &failure);
	ck_assert_int_eq(stream_rig_queue(rig), error);
	ck_assert_str_eq(rig->stream.log, "");
	failure = testing_failure(rig->context);
	ck_assert_msg(strstr(failure.text, text) != NULL, "'%s': no '%s'", failure.text, text);
}

START_TEST(test_counters_do_not_fall)
{
	struct ceov_transfer transfer;
	struct ceov_mark mark;
	struct stream_rig rig;

	stream_rig_open(&rig);
	transfer = stream_rig_part(&rig, 0);
	testing_add(rig.plan, &transfer);
	stream_rig_add_raise(&rig, 3);
	stream_rig_commit(&rig);
	ck_assert_int_eq(ceov_signal_raise(rig.arrived, 3, STREAM_RIG_BASE + 2), 0);
	refused(&rig, CEOV_ERR_INVALID, "transfer 1 would lower counter 3 of");
	mark = testing_mark(rig.arrived, 3, 1);
	ck_assert_int_eq(ceov_stream_raise(rig.context, 0, &rig.stream, &mark, 1, STREAM_RIG_BASE),
			 CEOV_ERR_INVALID);
	ck_assert_str_eq(rig.stream.log, "");
	ck_assert_int_eq(ceov_stream_raise(rig.context, 0, &rig.stream, &mark, 1,
					   STREAM_RIG_BASE + 1), 0);
	ck_assert_int_eq(ceov_stream_wait(rig.context, 0, &rig.stream, &mark, 1,
					  STREAM_RIG_BASE), 0);
	ck_assert_str_eq(rig.stream.log, "r1 w1 ");
	ck_assert_int_eq(ceov_stream_raise(rig.context, 0, &rig.stream, NULL, 1, 0),
			 CEOV_ERR_INVALID);
	stream_rig_close(&rig);
}
END_TEST

START_TEST(test_streams_that_cannot_be_used_are_refused)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer;
	struct ceov_failure failure;
	struct stream_rig rig;

	stream_rig_open(&rig);
	transfer = stream_rig_part_behind(&rig, 0, 0);
	testing_add(rig.plan, &transfer);
	refused(&rig, CEOV_ERR_STATE, "not committed");
	stream_rig_commit(&rig);
	ck_assert_int_eq(ceov_plan_queue(rig.plan, NULL, 0), CEOV_ERR_INVALID);
	rig.stream.is_capturing = 1;
	refused(&rig, CEOV_ERR_INVALID, "captured");
	rig.stream.is_capturing = 0;
	rig.context->works.engines[0].backend->ops = &cei_backend_host;
	refused(&rig, CEOV_ERR_INVALID, "no streams");
	launch.after_stream = &rig.stream;
	ck_assert_int_eq(ceov_launch(rig.plan, &launch, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(rig.context, &failure), 0);
	ck_assert_ptr_nonnull(strstr(failure.text, "no streams: name no after_stream"));
	stream_rig_close(&rig);
}
END_TEST

/* Makes a signal look as if it were in a GPU of another process, or no longer so. */
static void found_in_a_gpu(ceov_signal *signal, int is_so)
{
	signal->gpu = is_so ? &signal->own_gpu : NULL;
	signal->own_gpu.address[0] = is_so ? (uintptr_t)signal : 0;
	signal->found_use = (uint64_t)is_so;
	signal->rank = (uint32_t)is_so;
}

START_TEST(test_plans_that_cannot_be_queued_are_refused)
{
	struct ceov_transfer transfer;
	struct ceov_failure failure;
	struct ceov_mark ready;
	struct stream_rig rig;
	ceov_ticket ticket;

	stream_rig_open(&rig);
	transfer = stream_rig_part_behind(&rig, 0, 0);
	ready = transfer.source_ready;
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	ck_assert_int_eq(ceov_plan_queue(rig.plan, &rig.stream, CEOV_VALUE_LIMIT - 1),
			 CEOV_ERR_INVALID);
	rig.plan->program.transfers[0].has_direct = 0;
	refused(&rig, CEOV_ERR_INVALID, "transfer 0 has no direct path");
	rig.plan->program.transfers[0].has_direct = 1;
	rig.plan->steps[0].source_ready.address = 0;
	refused(&rig, CEOV_ERR_NO_ROUTE, "transfer 0: source_ready");
	rig.plan->steps[0].source_ready.address =
		(uintptr_t)rig.plan->steps[0].source_ready.seen;
	found_in_a_gpu(rig.ready, 1);
	refused(&rig, CEOV_ERR_NO_ROUTE, "counters of an unshared signal of rank 1 "
		"on the host with 8 counters, which are in another process' GPU");
	ck_assert_int_eq(ceov_stream_wait(rig.context, 0, &rig.stream, &ready, 1, 0),
			 CEOV_ERR_NO_ROUTE);
	failure = testing_failure(rig.context);
	ck_assert_msg(strstr(failure.text, "in another process"), "\"%s\"", failure.text);
	found_in_a_gpu(rig.ready, 0);
	ck_assert_int_eq(ceov_launch(rig.plan, NULL, &ticket), 0);
	refused(&rig, CEOV_ERR_STATE, "a launch of the plan is in flight");
	ck_assert_int_eq(ceov_abort(rig.context, ticket), 0);
	while (ceov_wait(rig.context, ticket, 0) == CEOV_PENDING)
		(void)ceov_turn(rig.context);
	refused(&rig, CEOV_ERR_ABORTED, "renew it");
	stream_rig_close(&rig);
}
END_TEST

/* Bases may not fall, whether the last run was launched or queued. */
START_TEST(test_a_base_never_falls)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = STREAM_RIG_BASE };
	struct ceov_transfer transfer;
	struct stream_rig rig;
	ceov_ticket ticket;

	stream_rig_open(&rig);
	transfer = stream_rig_part(&rig, 0);
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	ck_assert_int_eq(ceov_plan_queue(rig.plan, &rig.stream, STREAM_RIG_BASE + 1), 0);
	ck_assert_int_eq(ceov_plan_queue(rig.plan, &rig.stream, STREAM_RIG_BASE), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_launch(rig.plan, &launch, &ticket), CEOV_ERR_INVALID);
	launch.base = STREAM_RIG_BASE + 2;
	ck_assert_int_eq(ceov_launch(rig.plan, &launch, &ticket), 0);
	while (ceov_wait(rig.context, ticket, 0) == CEOV_PENDING)
		(void)ceov_turn(rig.context);
	ck_assert_int_eq(ceov_plan_queue(rig.plan, &rig.stream, STREAM_RIG_BASE + 1),
			 CEOV_ERR_INVALID);
	stream_rig_close(&rig);
}
END_TEST

START_TEST(test_a_mark_of_a_later_transfer_is_refused)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;

	stream_rig_open(&rig);
	transfer = stream_rig_part(&rig, 0);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part(&rig, 1);
	transfer.target_free = testing_mark(rig.arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(rig.plan, &transfer), 0);
	transfer = stream_rig_part(&rig, 2);
	transfer.then = testing_mark(rig.arrived, 0, 1);
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	refused(&rig, CEOV_ERR_INVALID, "transfer 1 waits for a mark of one behind it");
	stream_rig_close(&rig);
}
END_TEST

START_TEST(test_a_floating_buffer_is_refused)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;
	ceov_buffer *floating;

	stream_rig_open(&rig);
	ck_assert_int_eq(ceov_buffer_float(rig.context, 0, STREAM_RIG_BYTES, &floating), 0);
	transfer = testing_transfer(floating, rig.source, STREAM_RIG_BYTES);
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	refused(&rig, CEOV_ERR_INVALID, "floating");
	stream_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("queue");
	TCase *all = tcase_create("queue");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_counters_do_not_fall);
	tcase_add_test(all, test_streams_that_cannot_be_used_are_refused);
	tcase_add_test(all, test_plans_that_cannot_be_queued_are_refused);
	tcase_add_test(all, test_a_base_never_falls);
	tcase_add_test(all, test_a_mark_of_a_later_transfer_is_refused);
	tcase_add_test(all, test_a_floating_buffer_is_refused);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
