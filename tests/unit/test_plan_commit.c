/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what commit makes of a plan's handles: the program, and the list of handles that the plan
 * uses. */

#include <check.h>
#include <string.h>

#include "ce_engine/objects/plan.h"
#include "testing.h"

#define BYTES UINT64_C(4096)

static char shared_memory[4 * BYTES];

static ceov_buffer *part(ceov_context *context, uint64_t offset, uint64_t n_bytes)
{
	ceov_buffer *buffer;

	ck_assert_int_eq(ceov_buffer_register(context, 0, shared_memory + offset, n_bytes,
					      &buffer), 0);
	return buffer;
}

START_TEST(test_handles_become_numbers)
{
	struct testing_log log;
	ceov_context *context;
	ceov_buffer *buffers[2];
	ceov_signal *signals[2], *unused;
	ceov_plan *plan;
	struct ceov_transfer transfer;
	struct ceov_mark outside;
	const struct cei_program *program;

	testing_log_init(&log);
	context = testing_open(2, &log);
	buffers[0] = testing_buffer(context, 0, BYTES);
	buffers[1] = testing_buffer(context, 1, 2 * BYTES);
	signals[0] = testing_signal(context, 0, 3);
	signals[1] = testing_signal(context, 1, 5);
	unused = testing_signal(context, 1, 7);
	plan = testing_plan(context, 0);
	transfer = testing_transfer(buffers[1], buffers[0], 64);
	transfer.then = testing_mark(signals[1], 4, 9);
	testing_add(plan, &transfer);
	transfer = testing_transfer(buffers[0], buffers[1], 32);
	transfer.target.offset_bytes = 100;
	transfer.source_ready = testing_mark(signals[0], 2, 1);
	transfer.target_free = testing_mark(signals[1], 4, 7);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	transfer = (struct ceov_transfer){ .struct_bytes = sizeof(transfer) };
	transfer.then = testing_mark(signals[0], 0, 3);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	outside = testing_mark(signals[0], 2, 1);
	ck_assert_int_eq(ceov_plan_expect(plan, &outside), 0);
	outside = testing_mark(unused, 6, 1);
	ck_assert_int_eq(ceov_plan_expect(plan, &outside), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);

	program = &plan->program;
	ck_assert_int_eq(cei_program_verify(program), 0);
	ck_assert_uint_eq(program->rank, 0);
	ck_assert_uint_eq(program->n_ranks, 2);
	ck_assert_uint_eq(program->n_transfers, 3);
	ck_assert_uint_eq(program->n_buffers, 2);       /* numbered by their first use */
	ck_assert_uint_eq(program->buffers[0].rank, 1);
	ck_assert_uint_eq(program->buffers[0].size_bytes, 2 * BYTES);
	ck_assert_ptr_eq(plan->buffers[1], buffers[0]);
	ck_assert_uint_eq(program->n_signals, 2);
	ck_assert_uint_eq(program->signals[0].n_counters, 5);
	ck_assert_ptr_eq(plan->signals[1], signals[0]);
	ck_assert_uint_eq(program->transfers[1].source.buffer, 1);
	ck_assert_uint_eq(program->transfers[1].target.buffer, 0);
	ck_assert_uint_eq(program->transfers[1].target.offset_bytes, 100);
	ck_assert_uint_eq(program->transfers[1].source_ready.signal, 1);
	ck_assert_uint_eq(program->transfers[1].source_ready.counter, 2);
	ck_assert_uint_eq(program->transfers[1].target_free.signal, 0);
	ck_assert_uint_eq(program->transfers[1].target_free.value, 7);
	ck_assert_uint_eq(program->transfers[1].then.signal, CEI_PROGRAM_NONE);
	ck_assert_uint_eq(program->transfers[2].source.buffer, CEI_PROGRAM_NONE);
	ck_assert_uint_eq(program->n_expected, 1);      /* the other one orders nothing */
	ck_assert_uint_eq(program->expected[0].counter, 2);
	ceov_close(context);
}
END_TEST

/* A plan uses each handle once, from the call that first names it. A handle that only an expected
 * mark names is used until commit. A refused transfer uses nothing. */
START_TEST(test_a_plan_uses_each_handle_once)
{
	struct testing_log log;
	ceov_context *context;
	ceov_buffer *buffers[2], *refused;
	ceov_signal *signals[2], *expected;
	struct ceov_transfer transfer;
	struct ceov_mark outside;
	ceov_plan *plan;
	uint32_t i;

	testing_log_init(&log);
	context = testing_open(1, &log);
	plan = testing_plan(context, 0);
	expected = testing_signal(context, 0, 1);
	refused = testing_buffer(context, 0, BYTES);
	for (i = 0; i < 2; i++) {
		buffers[i] = testing_buffer(context, 0, BYTES);
		signals[i] = testing_signal(context, 0, 4);
	}
	transfer = testing_transfer(refused, NULL, 64);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), CEOV_ERR_INVALID);
	for (i = 0; i < 3; i++) {
		transfer = testing_transfer(buffers[0], buffers[1], 64);
		transfer.target.offset_bytes = 64 * i;
		transfer.source_ready = testing_mark(signals[0], i, 1);
		transfer.then = testing_mark(signals[1], i, 1);
		testing_add(plan, &transfer);
	}
	outside = testing_mark(expected, 0, 1);
	ck_assert_int_eq(ceov_plan_expect(plan, &outside), 0);
	ck_assert_uint_eq(cei_object_n_users((void *)refused), 0);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(ceov_buffer_release(buffers[i]), CEOV_PENDING);
		ck_assert_int_eq(ceov_signal_release(signals[i]), CEOV_PENDING);
	}
	ck_assert_int_eq(ceov_signal_release(expected), CEOV_PENDING);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	for (i = 0; i < 2; i++) {
		ck_assert_uint_eq(cei_object_n_users((void *)buffers[i]), 1);
		ck_assert_uint_eq(cei_object_n_users((void *)signals[i]), 1);
	}
	ck_assert_int_eq(ceov_signal_release(expected), 0);
	ceov_plan_release(plan);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(ceov_buffer_release(buffers[i]), 0);
		ck_assert_int_eq(ceov_signal_release(signals[i]), 0);
	}
	ceov_close(context);
}
END_TEST

/* Buffers that share memory share it in the program, too, and other buffers do not. The program
 * does not contain this process's addresses. */
START_TEST(test_shared_memory_is_shared_in_the_program)
{
	struct testing_log log;
	ceov_context *context;
	ceov_buffer *low, *high, *alone;
	struct ceov_transfer transfer;
	const struct cei_program_buffer *buffers;
	ceov_plan *plan;

	testing_log_init(&log);
	context = testing_open(1, &log);
	alone = testing_buffer(context, 0, BYTES);
	high = part(context, BYTES, 2 * BYTES);
	low = part(context, 0, 2 * BYTES);
	plan = testing_plan(context, 0);
	transfer = testing_transfer(alone, high, 16);
	testing_add(plan, &transfer);
	transfer = testing_transfer(alone, low, 16);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	buffers = plan->program.buffers;
	ck_assert_uint_eq(buffers[1].start - buffers[2].start, BYTES);
	ck_assert(buffers[0].start >= buffers[1].start + 2 * BYTES ||
		  buffers[0].start + BYTES <= buffers[2].start);
	ck_assert_uint_le(buffers[0].start, 8 * BYTES);
	ck_assert_uint_le(buffers[1].start, 8 * BYTES);

	plan = testing_plan(context, 0);
	transfer = testing_transfer(alone, high, 16);
	testing_add(plan, &transfer);
	transfer.target.buffer = low;
	transfer.target.offset_bytes = BYTES + 15;
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_INVALID);
	testing_log_has(&log, "transfers 0 and 1", "targets overlap", NULL);
	ceov_close(context);
}
END_TEST

/* Launches do not change what commit compiled: their counts are stored apart from it. */
START_TEST(test_launches_change_nothing_that_was_compiled)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct testing_log log;
	struct cei_step steps[2];
	struct cei_cut cuts[2];
	ceov_context *context;
	ceov_signal *signal;
	struct ceov_transfer transfer;
	ceov_ticket ticket;
	ceov_plan *plan;
	uint32_t i;

	testing_log_init(&log);
	context = testing_open(1, &log);
	signal = testing_signal(context, 0, 2);
	plan = testing_plan(context, 0);
	for (i = 0; i < 2; i++) {
		transfer = testing_transfer(testing_buffer(context, 0, BYTES),
					    testing_buffer(context, 0, BYTES), BYTES);
		transfer.then = testing_mark(signal, i, 1);
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_uint_eq(plan->program.n_chunks, 2);
	memcpy(steps, plan->steps, sizeof(steps));
	memcpy(cuts, plan->cuts, sizeof(cuts));
	for (i = 1; i < 4; i++) {
		launch.base = i;
		ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	}
	ck_assert_mem_eq(steps, plan->steps, sizeof(steps));
	ck_assert_mem_eq(cuts, plan->cuts, sizeof(cuts));
	ck_assert_uint_eq(plan->run.turns[0], 3);
	ck_assert_uint_eq(plan->run.turns[1], 3);
	ceov_close(context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan_commit");
	TCase *tcase = tcase_create("commit");

	tcase_add_test(tcase, test_handles_become_numbers);
	tcase_add_test(tcase, test_a_plan_uses_each_handle_once);
	tcase_add_test(tcase, test_shared_memory_is_shared_in_the_program);
	tcase_add_test(tcase, test_launches_change_nothing_that_was_compiled);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
