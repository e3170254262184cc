/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests floating buffers, whose address each launch gives; and transfers without bytes, whose mark
 * tells that all transfers before them have arrived. */

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"

#define SIZE    UINT64_C(8000)
#define PARTS   4u
#define PART    (SIZE / PARTS)
#define DELAY   (5 * TESTING_MS)
#define ROUNDS  300u

/* These variables are global because Check's tests take no arguments. */
static struct testing_log log_of;
static ceov_context *context;
static ceov_buffer *source, *target;
static ceov_signal *ready, *free_again, *arrived, *sent;
static ceov_plan *plan;
static unsigned char memory[2][SIZE + 1];

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(2, &log_of);
	ck_assert_int_eq(ceov_buffer_float(context, 0, SIZE, &source), 0);
	target = testing_buffer(context, 1, SIZE);
	ready = testing_signal(context, 0, 1);
	free_again = testing_signal(context, 1, PARTS);
	arrived = testing_signal(context, 1, PARTS);
	sent = testing_signal(context, 0, 1);
	plan = testing_plan(context, 0);
}

/* Delays every copy, so that a mark that did not wait for its bytes would be seen early. */
static void set_up_slow(void)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)DELAY);
	ck_assert_int_eq(setenv("CEOVERLAP_HOST_COPY_DELAY_NS", text, 1), 0);
	set_up();
}

static void tear_down(void)
{
	ceov_close(context);
}

static struct ceov_transfer whole(void)
{
	struct ceov_transfer made = testing_transfer(source, target, SIZE);

	made.source_ready = testing_mark(ready, 0, 1);
	made.target_free = testing_mark(free_again, 0, 0);
	made.then = testing_mark(arrived, 0, 1);
	return made;
}

/* Commits a plan of one transfer, cut into chunks of at most max_chunk_bytes. */
static void commit_whole(uint64_t max_chunk_bytes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = max_chunk_bytes };
	struct ceov_transfer transfer = whole();

	ceov_plan_release(plan);
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}

static int try_launch(uint64_t base, const void *floating, int is_gated,
		      ceov_ticket *ret_ticket)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };

	launch.producer_stream = is_gated ? context : NULL;
	launch.floating = floating;
	return ceov_launch(plan, &launch, ret_ticket);
}

static ceov_ticket launch_from(uint64_t base, const void *floating, int is_gated)
{
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(try_launch(base, floating, is_gated, &ticket), 0);
	return ticket;
}

static void raise_to(ceov_signal *signal, uint32_t index, uint64_t value)
{
	ck_assert_int_eq(ceov_signal_raise(signal, index, value), 0);
}

static void wait_for(ceov_ticket ticket)
{
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
}

static void target_holds(uint64_t seed)
{
	ck_assert_uint_eq(testing_check(ceov_buffer_base(target, 1), SIZE, seed), SIZE);
}

/* --- refusals ------------------------------------------------------------ */

static void commit_refused(const char *text, const char *and_text)
{
	testing_log_clear(&log_of);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_INVALID);
	testing_log_has(&log_of, text, and_text, NULL);
	ceov_plan_release(plan);
	plan = testing_plan(context, 0);
}

START_TEST(test_a_floating_buffer_has_no_memory)
{
	struct ceov_transfer transfer = whole();
	ceov_buffer *none = NULL;

	ck_assert_ptr_null(ceov_buffer_base(source, 0));
	ck_assert_ptr_null(ceov_buffer_base(source, 1));
	ck_assert_int_eq(ceov_buffer_share(source, "a"), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "floating", "share", NULL);
	ck_assert_int_eq(ceov_buffer_float(context, 0, 0, &none), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_float(context, 2, 1, &none), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_float(context, 0, 1, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_float(NULL, 0, 1, &none), CEOV_ERR_INVALID);
	ck_assert_ptr_null(none);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_buffer_release(source), CEOV_PENDING);
	ceov_plan_release(plan);
	ck_assert_int_eq(ceov_buffer_release(source), 0);
	ck_assert_int_eq(ceov_buffer_release(source), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_a_floating_buffer_is_one_source_of_its_rank)
{
	ceov_buffer *fixed = testing_buffer(context, 0, SIZE), *other = NULL;
	struct ceov_transfer transfer;

	transfer = testing_transfer(target, source, 64);
	testing_add(plan, &transfer);
	commit_refused("transfer 0: its target is a floating buffer", "source only");
	transfer = testing_transfer(source, target, 64);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_buffer_float(context, 0, SIZE, &other), 0);
	transfer.source.buffer = other;
	transfer.target.offset_bytes = 64;
	testing_add(plan, &transfer);
	commit_refused("transfer 1: its source is a second floating buffer", NULL);
	ck_assert_int_eq(ceov_buffer_float(context, 1, SIZE, &other), 0);
	transfer = testing_transfer(other, fixed, 64);
	testing_add(plan, &transfer);
	commit_refused("transfer 0: its source is a floating buffer of rank 1", "rank 0");
	transfer = testing_transfer(source, target, 64);
	transfer.source.offset_bytes = SIZE - 63;
	testing_add(plan, &transfer);
	commit_refused("transfer 0: source", "outside");
	transfer.source.offset_bytes = SIZE - 64;
	testing_add(plan, &transfer);
	transfer.target.offset_bytes = 64;      /* the same target as before, now from a fixed
						 * buffer */
	testing_add(plan, &transfer);
	transfer = testing_transfer(fixed, target, 64);
	transfer.target.offset_bytes = 128;
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

/* Offsets in a floating buffer are not compared with the addresses of other buffers. */
START_TEST(test_a_floating_source_overlaps_nothing)
{
	uint64_t at = (uint64_t)(uintptr_t)ceov_buffer_base(target, 1);
	ceov_buffer *large = NULL;
	struct ceov_transfer transfer;

	ck_assert_int_eq(ceov_buffer_float(context, 0, UINT64_MAX / 2, &large), 0);
	transfer = testing_transfer(large, target, 64);
	transfer.source.offset_bytes = at;
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

START_TEST(test_a_launch_names_an_address_where_there_is_a_place)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer;
	ceov_ticket ticket;

	commit_whole(SIZE);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), CEOV_ERR_INVALID);
	ck_assert_int_eq(try_launch(0, NULL, 0, &ticket), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "has a floating buffer", "name its address", NULL);
	ck_assert_int_eq(try_launch(0, (void *)UINTPTR_MAX, 0, &ticket), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "floating", "wraps", NULL);
	launch.floating = memory[0];
	launch.struct_bytes = offsetof(struct ceov_launch, floating);
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), CEOV_ERR_INVALID);
	ceov_plan_release(plan);
	plan = testing_plan(context, 0);
	transfer = testing_transfer(testing_buffer(context, 0, SIZE), target, SIZE);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(try_launch(0, memory[0], 0, &ticket), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "no floating buffer", NULL, NULL);
}
END_TEST

/* Structs of older headers, which end before `floating`, and longer ones of newer headers are
 * accepted. */
START_TEST(test_launches_of_other_sizes_are_taken)
{
	struct { struct ceov_launch launch; uint64_t more[4]; } longer = { 0 };
	struct ceov_launch *launch = &longer.launch;
	struct ceov_transfer transfer;
	ceov_ticket ticket;

	transfer = testing_transfer(testing_buffer(context, 0, SIZE), target, SIZE);
	transfer.then = testing_mark(arrived, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	launch->struct_bytes = offsetof(struct ceov_launch, floating);
	launch->floating = memory[0];           /* beyond struct_bytes, so it is not read */
	ck_assert_int_eq(ceov_launch(plan, launch, &ticket), 0);
	wait_for(ticket);
	launch->struct_bytes = sizeof(*launch) - 1;
	ck_assert_int_eq(ceov_launch(plan, launch, &ticket), CEOV_ERR_INVALID);
	launch->struct_bytes = offsetof(struct ceov_launch, floating) - 1;
	ck_assert_int_eq(ceov_launch(plan, launch, &ticket), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "struct_bytes is too small", NULL, NULL);
	launch->floating = NULL;
	launch->struct_bytes = sizeof(longer);
	longer.more[3] = 1;
	ck_assert_int_eq(ceov_launch(plan, launch, &ticket), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "fields that this library does not know", NULL, NULL);
	longer.more[3] = 0;
	ck_assert_int_eq(ceov_launch(plan, launch, &ticket), 0);
	wait_for(ticket);
	commit_whole(SIZE);
	raise_to(ready, 0, 1);
	launch->floating = memory[0];
	ck_assert_int_eq(ceov_launch(plan, launch, &ticket), 0);
	wait_for(ticket);
}
END_TEST

/* --- copies -------------------------------------------------------------- */

/* Puts two launches of one plan in flight, each with its own address. */
static void move_from_two(int is_gated, uint64_t max_chunk_bytes)
{
	ceov_ticket tickets[2];
	uint32_t k;

	commit_whole(max_chunk_bytes);
	for (k = 0; k < 2; k++) {
		testing_fill(memory[k] + k, SIZE, k);
		tickets[k] = launch_from(k, memory[k] + k, is_gated);
	}
	ck_assert_int_eq(ceov_wait(context, tickets[0], 0), CEOV_PENDING);
	raise_to(ready, 0, 2);
	wait_for(tickets[0]);
	target_holds(0);
	ck_assert_int_eq(ceov_signal_wait(arrived, 0, 2, 0), CEOV_PENDING);
	raise_to(free_again, 0, 1);
	wait_for(tickets[1]);
	target_holds(1);
	ck_assert_int_eq(ceov_signal_wait(arrived, 0, 2, 0), 0);
}

START_TEST(test_each_launch_moves_from_its_own_address)
{
	move_from_two(_i % 2, _i < 2 ? SIZE : 1000);
}
END_TEST

START_TEST(test_rows_of_a_floating_buffer)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = 250 };
	struct ceov_transfer transfer = whole();
	unsigned char *base = ceov_buffer_base(target, 1);
	uint64_t row;

	transfer.source.offset_bytes = 7;
	transfer.source.pitch_bytes = 130;
	transfer.target.pitch_bytes = 100;
	transfer.row_bytes = 100;
	transfer.n_rows = 60;
	ceov_plan_release(plan);
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	testing_fill(memory[1], SIZE, 3);
	raise_to(ready, 0, 1);
	wait_for(launch_from(0, memory[1], 0));
	for (row = 0; row < 60; row++)
		ck_assert_mem_eq(base + row * 100, memory[1] + 7 + row * 130, 100);
}
END_TEST

START_TEST(test_explain_says_floating)
{
	char text[1000] = "";
	int pipe_fds[2];

	commit_whole(SIZE);
	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_eq(ceov_plan_explain(plan, pipe_fds[1]), 0);
	ck_assert_int_gt(read(pipe_fds[0], text, sizeof(text) - 1), 0);
	ck_assert_msg(strstr(text, "rank 0 (floating) -> rank 1") != NULL, "%s", text);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
END_TEST

/* --- marks of transfers without bytes ------------------------------------ */

/* Commits one transfer for each part, and a transfer without bytes whose mark tells that all parts
 * were sent. */
static void commit_parts(int has_same_ready, uint64_t mark_group_bytes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .mark_group_bytes = mark_group_bytes };
	struct ceov_transfer transfer = whole(), last = { .struct_bytes = sizeof(last) };
	uint32_t i;

	ceov_plan_release(plan);
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	for (i = 0; i < PARTS; i++) {
		transfer.row_bytes = PART;
		transfer.source.offset_bytes = transfer.target.offset_bytes = i * PART;
		transfer.target_free.index = transfer.then.index = i;
		testing_add(plan, &transfer);
	}
	if (has_same_ready)
		last.source_ready = transfer.source_ready;
	last.then = testing_mark(sent, 0, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &last), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}

/* Commits a variant. Its bits: the launch is gated; the last transfer waits for the same mark as
 * the others; each batch has only one transfer. */
static void commit_variant(int variant)
{
	commit_parts(variant & 2, variant & 4 ? 1 : 0);
}

/* One target becomes free only after the doorbell has parked its transfer. */
START_TEST(test_all_sent_comes_after_all_bytes)
{
	ceov_ticket ticket;
	uint32_t i;

	commit_variant(_i);
	for (i = 1; i < PARTS; i++)
		raise_to(free_again, i, 7);
	testing_fill(memory[0], SIZE, 5);
	ticket = launch_from(7, memory[0], _i & 1);
	ck_assert_int_eq(ceov_signal_wait(sent, 0, 1, 20 * TESTING_MS), CEOV_PENDING);
	raise_to(ready, 0, 8);
	ck_assert_int_eq(ceov_signal_wait(arrived, PARTS - 1, 8, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_wait(sent, 0, 1, 20 * TESTING_MS), CEOV_PENDING);
	raise_to(free_again, 0, 7);
	ck_assert_int_eq(ceov_signal_wait(sent, 0, 8, TESTING_PATIENCE), 0);
	target_holds(5);
	wait_for(ticket);
}
END_TEST

/* All transfers may start at once; only their copies take time. */
START_TEST(test_all_sent_comes_after_slow_copies)
{
	ceov_ticket ticket;
	uint64_t k;
	uint32_t i;

	commit_variant(_i);
	for (k = 0; k < 3; k++) {
		testing_fill(memory[0], SIZE, k);
		for (i = 0; i < PARTS; i++)
			raise_to(free_again, i, k);
		ticket = launch_from(k, memory[0], _i & 1);
		raise_to(ready, 0, k + 1);
		ck_assert_int_eq(ceov_signal_wait(sent, 0, k + 1, TESTING_PATIENCE), 0);
		memset(memory[0], 0, SIZE);     /* the copy has ended, so the memory may change */
		target_holds(k);
		wait_for(ticket);
	}
}
END_TEST

/* Several launches are in flight, from two addresses alternately; targets become free in
 * any order. */
START_TEST(test_all_sent_over_many_launches)
{
	uint64_t random = testing_seed();
	ceov_ticket tickets[2];
	uint64_t k;
	uint32_t i, first;

	commit_variant(_i);
	for (k = 0; k < 2; k++)
		tickets[k] = launch_from(k, memory[k], _i & 1);
	for (k = 0; k < ROUNDS; k++) {
		testing_fill(memory[k % 2], SIZE, k);
		first = (uint32_t)testing_below(&random, PARTS);
		raise_to(ready, 0, k + 1);
		for (i = 0; i < PARTS; i++)
			raise_to(free_again, (first + i) % PARTS, k);
		ck_assert_int_eq(ceov_signal_wait(sent, 0, k + 1, TESTING_PATIENCE), 0);
		target_holds(k);
		wait_for(tickets[k % 2]);
		tickets[k % 2] = launch_from(k + 2, memory[k % 2], _i & 1);
	}
	for (i = 0; i < PARTS; i++)
		raise_to(free_again, i, k + 1);
	raise_to(ready, 0, k + 2);
	wait_for(tickets[0]);
	wait_for(tickets[1]);
}
END_TEST

/* A transfer without bytes in the middle of a plan does not delay the transfers behind it. */
START_TEST(test_what_moves_nothing_keeps_nobody_back)
{
	struct ceov_transfer transfer = whole(), empty = { .struct_bytes = sizeof(empty) };
	ceov_ticket ticket;

	transfer.row_bytes = PART;
	testing_add(plan, &transfer);
	empty.then = testing_mark(sent, 0, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &empty), 0);
	transfer.target.offset_bytes = PART;
	transfer.target_free.index = transfer.then.index = 1;
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ticket = launch_from(1, memory[0], 0);
	raise_to(free_again, 1, 1);
	raise_to(ready, 0, 2);
	ck_assert_int_eq(ceov_signal_wait(arrived, 1, 2, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_wait(sent, 0, 2, 0), CEOV_PENDING);
	raise_to(free_again, 0, 1);
	wait_for(ticket);
	ck_assert_int_eq(ceov_signal_wait(sent, 0, 2, 0), 0);
}
END_TEST

static struct ceov_transfer part(uint32_t i)
{
	struct ceov_transfer made = testing_transfer(source, target, PART);

	made.target.offset_bytes = i * PART;
	made.then = testing_mark(arrived, i, 1);
	return made;
}

START_TEST(test_what_goes_before_cannot_wait_for_what_moves_nothing)
{
	struct ceov_transfer empty = { .struct_bytes = sizeof(empty) }, moves;

	empty.then = testing_mark(sent, 0, 1);
	moves = part(0);
	moves.source_ready = empty.then;
	ck_assert_int_eq(ceov_plan_add(plan, &moves), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &empty), 0);
	commit_refused("transfer 0: it waits for the mark of transfer 1", "moves nothing");
	moves = part(0);
	moves.source_ready = testing_mark(arrived, 2, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &moves), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &empty), 0);
	moves = part(2);
	moves.target_free = empty.then;
	ck_assert_int_eq(ceov_plan_add(plan, &moves), 0);
	commit_refused("transfer 0: it waits for the mark of transfer 1", "moves nothing");
	moves = part(0);
	ck_assert_int_eq(ceov_plan_add(plan, &moves), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &empty), 0);
	moves = part(1);
	moves.source_ready = empty.then;
	ck_assert_int_eq(ceov_plan_add(plan, &moves), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	wait_for(launch_from(0, memory[0], 0));
}
END_TEST

static TCase *add_case(Suite *made, const char *name, void (*before)(void))
{
	TCase *added = tcase_create(name);

	tcase_add_checked_fixture(added, before, tear_down);
	tcase_set_timeout(added, 60);
	suite_add_tcase(made, added);
	return added;
}

static Suite *suite(void)
{
	Suite *made = suite_create("floating");
	TCase *all = add_case(made, "floating", set_up);
	TCase *slow = add_case(made, "slow copies", set_up_slow);

	tcase_add_test(all, test_a_floating_buffer_has_no_memory);
	tcase_add_test(all, test_a_floating_buffer_is_one_source_of_its_rank);
	tcase_add_test(all, test_a_floating_source_overlaps_nothing);
	tcase_add_test(all, test_a_launch_names_an_address_where_there_is_a_place);
	tcase_add_test(all, test_launches_of_other_sizes_are_taken);
	tcase_add_loop_test(all, test_each_launch_moves_from_its_own_address, 0, 4);
	tcase_add_test(all, test_rows_of_a_floating_buffer);
	tcase_add_test(all, test_explain_says_floating);
	tcase_add_loop_test(all, test_all_sent_over_many_launches, 0, 8);
	tcase_add_test(all, test_what_moves_nothing_keeps_nobody_back);
	tcase_add_test(all, test_what_goes_before_cannot_wait_for_what_moves_nothing);
	tcase_add_loop_test(slow, test_all_sent_comes_after_all_bytes, 0, 8);
	tcase_add_loop_test(slow, test_all_sent_comes_after_slow_copies, 0, 8);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
