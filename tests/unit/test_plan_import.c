/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests plans made from programs that another process wrote: the import gives the same plan, and a
 * program that does not fit the handles is refused and leaves nothing behind. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/plan/plan_import.h"
#include "ce_engine/program/program_wire.h"
#include "testing.h"

#define BYTES UINT64_C(4096)
#define ROWS  7u
#define ROW   100u
#define PITCH 300u

static struct testing_log log_of;
static ceov_context      *context;
static ceov_buffer       *source, *target, *floating;
static ceov_signal       *ready, *arrived;
static ceov_plan         *plan;         /* plan of rank 0, committed, with its own program */

/* Adds transfers: a matrix, a single row, a row of the floating buffer if there is one, and a mark
 * behind all of them. */
static void add_all(void)
{
	struct ceov_transfer transfer = testing_transfer(source, target, ROW);

	transfer.n_rows = ROWS;
	transfer.source.pitch_bytes = transfer.target.pitch_bytes = PITCH;
	transfer.source_ready = testing_mark(ready, 1, 1);
	transfer.then = testing_mark(arrived, 0, 1);
	testing_add(plan, &transfer);
	transfer = testing_transfer(source, target, ROW);
	transfer.source.offset_bytes = transfer.target.offset_bytes = ROWS * PITCH;
	transfer.target_free = testing_mark(arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	transfer.target_free = testing_mark(NULL, 0, 0);
	transfer.source.buffer = floating;
	transfer.source.offset_bytes = 8;
	transfer.target.offset_bytes += ROW;
	if (floating)
		ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	transfer = (struct ceov_transfer){ .struct_bytes = sizeof(transfer) };
	transfer.then = testing_mark(arrived, 2, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
}

static void set_up_with(int has_floating)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = 256, .mark_group_bytes = 999,
					     .urgency = CEOV_URGENCY_URGENT };

	testing_log_init(&log_of);
	context = testing_open(2, &log_of);
	source = testing_buffer(context, 0, BYTES);
	target = testing_buffer(context, 1, 2 * BYTES);
	floating = NULL;
	if (has_floating)
		ck_assert_int_eq(ceov_buffer_float(context, 0, 2 * ROW, &floating), 0);
	ready = testing_signal(context, 0, 2);
	arrived = testing_signal(context, 1, 3);
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	add_all();
	cei_plan_set_template(plan, "test");
	cei_plan_keep_order(plan);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}

static void set_up(void)
{
	set_up_with(0);
}

static void tear_down(void)
{
	ceov_close(context);
}

static void *encode(const struct cei_program *program, size_t *ret_n)
{
	void *bytes;

	*ret_n = cei_program_bytes(program);
	bytes = malloc(*ret_n);
	ck_assert_ptr_nonnull(bytes);
	cei_program_write(program, bytes);
	return bytes;
}

static struct cei_plan_handles handles_of(const struct ceov_plan *of)
{
	return (struct cei_plan_handles){ of->buffers, of->program.n_buffers, of->signals,
					  of->program.n_signals };
}

/* Imports the plan's present program with these handles into a context. */
static int import(ceov_context *into, const struct cei_plan_handles *handles,
		  ceov_plan **ret_plan)
{
	size_t n;
	void *bytes = encode(&plan->program, &n);
	int r = cei_plan_import(into, bytes, n, handles, ret_plan);

	free(bytes);
	return r;
}

/* Asserts that the import is refused and leaves nothing: the plan remains the only user of its
 * handles. */
static void refused(const struct cei_plan_handles *handles, const char *text)
{
	ceov_plan *none = NULL;

	ck_assert_int_eq(import(context, handles, &none), CEOV_ERR_INVALID);
	ck_assert_ptr_null(none);
	testing_log_has(&log_of, text, NULL, NULL);
	testing_log_clear(&log_of);
	ck_assert_uint_eq(cei_object_n_users(&source->object), 1);
	ck_assert_uint_eq(cei_object_n_users(&arrived->object), 1);
}

static void same_bytes(const struct cei_program *a, const struct cei_program *b)
{
	size_t n_a, n_b;
	void *bytes_a = encode(a, &n_a), *bytes_b = encode(b, &n_b);

	ck_assert_uint_eq(n_a, n_b);
	ck_assert_mem_eq(bytes_a, bytes_b, n_a);
	free(bytes_a);
	free(bytes_b);
}

static void launch_and_check(ceov_plan *launched, const char *floating_bytes)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch),
				      .floating = floating_bytes };
	const char *from = ceov_buffer_base(source, 0);
	char *to = ceov_buffer_base(target, 1);
	ceov_ticket ticket;
	uint32_t i;

	testing_fill(ceov_buffer_base(source, 0), BYTES, 3);
	memset(to, 0, 2 * BYTES);
	ck_assert_int_eq(ceov_launch(launched, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_signal_raise(ready, 1, 1), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	for (i = 0; i < ROWS; i++) {
		ck_assert_mem_eq(to + i * PITCH, from + i * PITCH, ROW);
		ck_assert_int_eq(to[i * PITCH + ROW], 0);
	}
	ck_assert_mem_eq(to + ROWS * PITCH, from + ROWS * PITCH, ROW);
	if (floating_bytes)
		ck_assert_mem_eq(to + ROWS * PITCH + ROW, floating_bytes + 8, ROW);
	ck_assert_int_eq(ceov_signal_wait(arrived, 2, 1, TESTING_PATIENCE), 0);
}

START_TEST(test_a_plan_comes_back)
{
	struct cei_plan_handles handles = handles_of(plan);
	ceov_plan *back;

	ck_assert_int_eq(import(context, &handles, &back), 0);
	same_bytes(&plan->program, &back->program);
	ck_assert_uint_eq(back->program.n_chunks, plan->program.n_chunks);
	ck_assert_uint_gt(back->program.n_chunks, back->program.n_transfers);
	ck_assert_mem_eq(back->cuts, plan->cuts, plan->program.n_chunks * sizeof(*plan->cuts));
	ceov_plan_release(plan);                /* the imported plan needs nothing of the first
						 * one */
	launch_and_check(back, NULL);
	ceov_plan_release(back);
	ck_assert_int_eq(ceov_buffer_release(source), 0);
	ck_assert_int_eq(ceov_signal_release(arrived), 0);
}
END_TEST

START_TEST(test_a_floating_buffer_comes_back)
{
	static char bytes[2 * ROW];
	struct cei_plan_handles handles;
	ceov_plan *back;

	set_up_with(1);
	handles = handles_of(plan);
	testing_fill(bytes, sizeof(bytes), 5);
	ck_assert_int_eq(import(context, &handles, &back), 0);
	same_bytes(&plan->program, &back->program);
	launch_and_check(back, bytes);
	tear_down();
}
END_TEST

/* Reachability, places, movers and shared memory are not taken from the program but found again in
 * this process. */
START_TEST(test_what_the_program_says_of_its_makers_process_is_not_believed)
{
	struct cei_plan_handles handles = handles_of(plan);
	struct cei_program *sent = &plan->program;
	size_t n;
	void *honest = encode(sent, &n);
	struct cei_program program;
	ceov_plan *back;

	sent->buffers[0].flags = sent->buffers[1].flags = 0;
	sent->buffers[0].start = sent->buffers[1].start = 12345;
	sent->buffers[0].place = 3;
	sent->signals[0].flags = sent->signals[1].flags = 0;
	sent->movers[0].moves = CEI_MOVES_AMONG_GPUS;
	sent->transfers[0].has_direct = 0;
	ck_assert_int_eq(import(context, &handles, &back), 0);
	ck_assert_int_eq(cei_program_read(honest, n, &program), 0);
	same_bytes(&program, &back->program);
	launch_and_check(back, NULL);
	cei_program_fini(&program);
	free(honest);
}
END_TEST

START_TEST(test_lists_that_do_not_fit_are_refused)
{
	struct cei_plan_handles handles = handles_of(plan);
	ceov_buffer *buffers[] = { source, target };
	ceov_signal *signals[] = { ready, arrived };

	handles.n_buffers = 1;
	refused(&handles, "it names 2 buffers and 2 signals, but 1 and 2 were given");
	handles.n_buffers = 2;
	handles.n_signals = 3;
	refused(&handles, "but 2 and 3 were given");
	handles = (struct cei_plan_handles){ buffers, 2, signals, 2 };
	buffers[1] = NULL;
	refused(&handles, "buffer 1 is missing");
	buffers[1] = testing_buffer(context, 1, BYTES);
	refused(&handles, "buffer 1 is 4096 bytes of rank 1, and not, as the program says, 8192");
	buffers[1] = testing_buffer(context, 0, 2 * BYTES);
	refused(&handles, "buffer 1 is 8192 bytes of rank 0");
	ck_assert_int_eq(ceov_buffer_float(context, 1, 2 * BYTES, &buffers[1]), 0);
	refused(&handles, "buffer 1 is 8192 bytes of rank 1");
	buffers[1] = (ceov_buffer *)arrived;
	refused(&handles, "a program's import");
	buffers[1] = target;
	signals[0] = testing_signal(context, 1, 2);
	refused(&handles, "signal 0 has 2 counters of rank 1");
	signals[0] = testing_signal(context, 0, 3);
	refused(&handles, "signal 0 has 3 counters of rank 0");
	signals[0] = NULL;
	refused(&handles, "signal 0 is missing");
}
END_TEST

START_TEST(test_handles_of_another_context_are_refused)
{
	struct cei_plan_handles handles = handles_of(plan);
	ceov_buffer *buffers[] = { source, NULL };
	ceov_signal *signals[] = { ready, NULL };
	ceov_context *other = testing_open(2, NULL);

	buffers[1] = testing_buffer(other, 1, 2 * BYTES);
	signals[1] = testing_signal(other, 1, 3);
	handles.signals = signals;
	refused(&handles, "signal 1 is of another context");
	handles.buffers = buffers;
	refused(&handles, "buffer 1 is of another context");
	ceov_close(other);
}
END_TEST

/* A plan of rank 1 cannot make transfers between buffers of rank 0, and ranks must exist in the
 * group. */
START_TEST(test_other_ranks_are_refused)
{
	struct cei_plan_handles handles = handles_of(plan);
	struct cei_program *sent = &plan->program;

	sent->n_ranks = 3;
	refused(&handles, "for a group of 3 ranks, this one has 2");
	sent->rank = 2;
	refused(&handles, "no program");
	sent->n_ranks = 2;
	sent->rank = 0;
	sent->buffers[1].rank = 0;
	refused(&handles, "buffer 1 is 8192 bytes of rank 1");
	sent->buffers[1].rank = 1;
	sent->transfers[1].target_free.signal = CEI_PROGRAM_NONE;
	refused(&handles, "no program");
}
END_TEST

/* The import refuses a program for the same faults for which commit refuses a plan. */
START_TEST(test_programs_that_cannot_be_committed_are_refused)
{
	struct cei_plan_handles handles = handles_of(plan);
	struct cei_program *sent = &plan->program;

	sent->transfers[1].target.offset_bytes = PITCH + 50;
	sent->transfers[1].target_free = (struct cei_program_mark){ CEI_PROGRAM_NONE, 0, 0 };
	refused(&handles, "transfers 0 and 1: their targets overlap");
	sent->transfers[1].target_free = (struct cei_program_mark){ 1, 1, 1 };
	refused(&handles, "transfer 1: target_free waits for counter 1");
	sent->n_expected = 0;
	refused(&handles, "transfer 0: source_ready waits for counter 1");
}
END_TEST

/* In the program two buffers are far apart, but the given handles share their memory. */
START_TEST(test_memory_that_handles_share_is_found)
{
	static char memory[4 * BYTES];
	struct cei_plan_handles handles = handles_of(plan);
	ceov_buffer *buffers[2];

	ck_assert_int_eq(ceov_buffer_register(context, 0, memory, BYTES, &buffers[0]), 0);
	ck_assert_int_eq(ceov_buffer_register(context, 1, memory, 2 * BYTES, &buffers[1]), 0);
	handles.buffers = buffers;
	refused(&handles, "source and target overlap");
}
END_TEST

/* One signal given as two handles counts as one signal: only one transfer may raise a value of its
 * counters. */
START_TEST(test_a_signal_that_is_given_twice_is_one)
{
	struct cei_plan_handles handles = handles_of(plan);
	ceov_signal *signals[] = { arrived, arrived };
	struct cei_program *sent = &plan->program;

	sent->signals[0] = sent->signals[1];
	sent->transfers[1].then = (struct cei_program_mark){ 0, 2, 1 };
	handles.signals = signals;
	refused(&handles, "both raise counter 2 of");
}
END_TEST

/* Changed bytes make another plan, or none. If they make one, it uses its handles until it is
 * released. */
START_TEST(test_damaged_bytes_do_no_harm)
{
	struct cei_plan_handles handles = handles_of(plan);
	uint64_t state = testing_seed();
	uint32_t i, n_plans = 0;
	ceov_plan *back;
	uint8_t *bytes;
	size_t n;

	for (i = 0; i < 2000; i++) {
		bytes = encode(&plan->program, &n);
		bytes[16 + testing_below(&state, n - 16)] ^=
			(uint8_t)(1 << testing_below(&state, 8));
		if (!cei_plan_import(context, bytes, n, &handles, &back)) {
			ck_assert_int_eq(cei_program_verify(&back->program), 0);
			ceov_plan_release(back);
			n_plans++;
		}
		free(bytes);
	}
	ck_assert_uint_gt(n_plans, 0);
	ck_assert_uint_lt(n_plans, 2000);
	ck_assert_uint_eq(cei_object_n_users(&source->object), 1);
	ck_assert_uint_eq(cei_object_n_users(&ready->object), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan_import");
	TCase *tcase = tcase_create("import");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_a_plan_comes_back);
	tcase_add_test(tcase,
		       test_what_the_program_says_of_its_makers_process_is_not_believed);
	tcase_add_test(tcase, test_lists_that_do_not_fit_are_refused);
	tcase_add_test(tcase, test_handles_of_another_context_are_refused);
	tcase_add_test(tcase, test_other_ranks_are_refused);
	tcase_add_test(tcase, test_programs_that_cannot_be_committed_are_refused);
	tcase_add_test(tcase, test_memory_that_handles_share_is_found);
	tcase_add_test(tcase, test_a_signal_that_is_given_twice_is_one);
	tcase_add_test(tcase, test_damaged_bytes_do_no_harm);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("floating");
	tcase_add_test(tcase, test_a_floating_buffer_comes_back);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
