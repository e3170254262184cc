/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests which copies and marks a lane gets in one batch, and which marks it waits for. The host
 * backend plays a GPU's, and the test counts the calls. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "loopback.h"

#define PART  UINT64_C(64)
#define PARTS 4u
#define MIB   (UINT64_C(1) << 20)
#define TURNS 200u

/* Counts the calls that lanes of rank 0's engine get. The caller turns the engine, so there is only
 * one thread. */
static struct cei_place_ops told_ops;
static struct cei_lane_ops told_lanes;
static uint32_t n_copies;               /* calls of copy */
static uint32_t n_pieces_max;           /* most pieces in one call of copy */
static uint32_t n_posts_max;            /* most marks in one call of post */

static const struct cei_place_ops *host(void)
{
	return cei_backend_named("host");
}

static int copy(struct cei_lane *lane, const struct cei_piece *pieces, uint32_t n)
{
	n_copies++;
	n_pieces_max = n > n_pieces_max ? n : n_pieces_max;
	return host()->lanes->copy(lane, pieces, n);
}

static int post(struct cei_lane *lane, const struct cei_post *posts, uint32_t n)
{
	n_posts_max = n > n_posts_max ? n : n_posts_max;
	return host()->lanes->post(lane, posts, n);
}

static void listen(ceov_context *context)
{
	struct cei_lanes *lanes = &context->engines[0]->lanes;
	uint32_t i;

	n_copies = n_pieces_max = n_posts_max = 0;
	told_ops = *host();
	told_lanes = *told_ops.lanes;
	told_lanes.copy = copy;
	told_lanes.post = post;
	told_ops.lanes = &told_lanes;
	for (i = 0; i < cei_lanes_n(lanes); i++) {      /* all lanes, also those on helping GPUs */
		lanes->states[i]->lane.ops = &told_lanes;
		lanes->states[i]->lane.backend->ops = &told_ops;
	}
}

/* Returns the launch's result after all work that can proceed has done so. */
static int state_of(ceov_context *context, ceov_ticket ticket)
{
	uint32_t i;

	for (i = 0; i < TURNS; i++)
		ck_assert_int_ge(ceov_turn(context), 0);
	return ceov_wait(context, ticket, 0);
}

static uint64_t value_of(ceov_signal *signal, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(signal, index, &value), 0);
	return value;
}

/* Two transfers of a launch wait for different values of one counter. The bytes of the later one
 * must not move before its own value is reached. */
START_TEST(test_a_lane_waits_for_each_value)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer;
	ceov_ticket ticket = { 0 };
	struct loopback loop;
	ceov_plan *plan;
	uint32_t i;

	loopback_open_turned(&loop, 2, 0);
	plan = testing_plan(loop.context, 0);
	for (i = 0; i < 2; i++) {
		transfer = testing_transfer(loop.source, loop.target, PART);
		transfer.source.offset_bytes = transfer.target.offset_bytes = i * PART;
		transfer.source_ready = testing_mark(loop.ready, 0, i + 1);
		transfer.then = testing_mark(loop.arrived, i, 1);
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	launch.producer_stream = &loop;
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	ck_assert_int_eq(state_of(loop.context, ticket), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), 0);
	ck_assert_int_eq(state_of(loop.context, ticket), CEOV_PENDING);
	ck_assert_uint_eq(value_of(loop.arrived, 0), 1);
	ck_assert_uint_eq(value_of(loop.arrived, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 2), 0);
	ck_assert_int_eq(state_of(loop.context, ticket), 0);
	ck_assert_uint_eq(value_of(loop.arrived, 1), 1);
	loopback_close(&loop);
}
END_TEST

/* The signal was renewed between two launches: waits before the renewal do not count for
 * the second one. */
START_TEST(test_a_lane_waits_again_after_renewal)
{
	ceov_ticket ticket;
	struct loopback loop;

	loopback_open_turned(&loop, 1, 0);
	ticket = loopback_launch(&loop, 0, GATED);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(state_of(loop.context, ticket), 0);
	ck_assert_int_eq(ceov_signal_renew(loop.ready), 0);
	ck_assert_int_eq(ceov_signal_renew(loop.arrived), 0);
	ticket = loopback_launch(&loop, 0, GATED);
	ck_assert_int_eq(state_of(loop.context, ticket), CEOV_PENDING);
	ck_assert_uint_eq(value_of(loop.arrived, 0), 0);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(state_of(loop.context, ticket), 0);
	ck_assert_uint_eq(value_of(loop.arrived, 0), 1);
	loopback_close(&loop);
}
END_TEST

/* Marks of one batch have no order, so a second launch must not share a batch with the
 * first. */
START_TEST(test_launches_of_a_plan_share_no_batch)
{
	ceov_ticket first, second;
	struct loopback loop;

	loopback_open_turned(&loop, 1, 0);
	listen(loop.context);
	loopback_ready(&loop, 2);
	loopback_free(&loop, 2);
	first = loopback_launch(&loop, 0, POLLED);
	second = loopback_launch(&loop, 1, POLLED);
	ck_assert_int_eq(state_of(loop.context, first), 0);
	ck_assert_int_eq(state_of(loop.context, second), 0);
	ck_assert_uint_eq(value_of(loop.arrived, 0), 2);
	ck_assert_uint_eq(n_copies, 2);
	ck_assert_uint_eq(n_posts_max, 1);
	loopback_close(&loop);
}
END_TEST

static ceov_plan *plan_of(const struct loopback *loop, uint64_t mark_group_bytes)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .mark_group_bytes = mark_group_bytes };
	struct ceov_transfer transfer;
	ceov_plan *plan;
	uint32_t i;

	ck_assert_int_eq(ceov_plan_create(loop->context, 0, &options, &plan), 0);
	for (i = 0; i < PARTS; i++) {
		transfer = testing_transfer(loop->source, loop->target, PART);
		transfer.source.offset_bytes = transfer.target.offset_bytes = i * PART;
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* A batch has no more bytes than the plan's mark_group_bytes. */
START_TEST(test_a_batch_keeps_to_the_plans_bound)
{
	ceov_ticket ticket = { 0 };
	struct loopback loop;
	ceov_plan *plan;

	loopback_open_turned(&loop, 1, 0);
	plan = plan_of(&loop, 2 * PART);
	listen(loop.context);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(state_of(loop.context, ticket), 0);
	ck_assert_uint_eq(n_copies, PARTS / 2);
	ck_assert_uint_eq(n_pieces_max, 2);
	loopback_close(&loop);
}
END_TEST

#define CHUNK  UINT64_C(512)
#define CHUNKS 7u

/* Launches one transfer, of one row or two rows with gaps, in chunks of 512 bytes, at most 3 of
 * them in a batch, and checks its bytes. caps are those that the mover has besides its own. */
static void move_chunks(uint32_t n_rows, uint32_t caps)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = CHUNK,
					     .mark_group_bytes = 3 * CHUNK };
	ceov_context *context = testing_open_turned(2, NULL);
	uint64_t pitch = CHUNKS * CHUNK + 64, row = CHUNKS * CHUNK - 100;
	ceov_buffer *source = testing_buffer(context, 0, 2 * pitch);
	ceov_buffer *target = testing_buffer(context, 1, 2 * pitch);
	struct ceov_transfer transfer = testing_transfer(source, target, row);
	ceov_ticket ticket = { 0 };
	const char *from = ceov_buffer_base(source, 0), *to = ceov_buffer_base(target, 1);
	ceov_plan *plan;
	uint32_t i;

	testing_fill(ceov_buffer_base(source, 0), 2 * pitch, testing_seed());
	memset(ceov_buffer_base(target, 1), 0x5a, 2 * pitch);
	transfer.n_rows = n_rows;
	transfer.source.pitch_bytes = transfer.target.pitch_bytes = n_rows > 1 ? pitch : 0;
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	listen(context);
	told_ops.caps |= caps;
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(state_of(context, ticket), 0);
	for (i = 0; i < n_rows; i++) {
		ck_assert_mem_eq(to + i * pitch, from + i * pitch, row);
		ck_assert_int_eq(to[i * pitch + row], 0x5a);
	}
	ceov_close(context);
}

/* Chunks of a transfer that go in one batch are one copy there. */
START_TEST(test_chunks_of_a_batch_are_one_copy)
{
	move_chunks(1, CEI_CAP_DEVICE);
	ck_assert_uint_eq(n_copies, 3);
	ck_assert_uint_eq(n_pieces_max, 1);
}
END_TEST

/* The last chunk of a row and the first one of the next row are two copies. */
START_TEST(test_rows_with_gaps_stay_apart)
{
	move_chunks(2, CEI_CAP_DEVICE);
	ck_assert_uint_ge(n_copies, 5);
	ck_assert_uint_eq(n_pieces_max, 2);
}
END_TEST

/* A mover to other machines gets the chunks as they were cut. */
START_TEST(test_chunks_between_machines_stay_apart)
{
	move_chunks(1, CEI_CAP_LEAVES_MACHINE);
	ck_assert_uint_eq(n_copies, 3);
	ck_assert_uint_eq(n_pieces_max, 3);
}
END_TEST

/* Opens a context whose ranks are places 0 and 1 of a machine without a direct link between
 * them. */
static ceov_context *open_without_link(void)
{
	const char *srcdir = getenv("srcdir");
	ceov_context *context;
	char path[600];

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/two-no-p2p.xml",
		 srcdir ? srcdir : ".");
	setenv("CEOVERLAP_MACHINE", path, 1);
	context = testing_open_turned(3, NULL);
	unsetenv("CEOVERLAP_MACHINE");
	return context;
}

/* Each leg of a staged route is a batch of its own, so that its slot is released as soon as its
 * copy is done. */
START_TEST(test_a_leg_goes_alone)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .mark_group_bytes = 1024 * MIB };
	ceov_context *context = open_without_link();
	ceov_buffer *source = testing_buffer(context, 0, 21 * MIB);
	ceov_buffer *target = testing_buffer(context, 1, 21 * MIB);
	struct ceov_transfer transfer = testing_transfer(source, target, 21 * MIB);
	ceov_ticket ticket = { 0 };
	ceov_plan *plan;

	testing_fill(ceov_buffer_base(source, 0), 21 * MIB, testing_seed());
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	listen(context);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(state_of(context, ticket), 0);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(target, 1), 21 * MIB,
					testing_seed()), 21 * MIB);
	ck_assert_uint_gt(n_copies, 2 * CEI_ROUTE_SLOTS);
	ck_assert_uint_eq(n_pieces_max, 1);
	ceov_close(context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("groups");
	TCase *all = tcase_create("groups");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_lane_waits_for_each_value);
	tcase_add_test(all, test_a_lane_waits_again_after_renewal);
	tcase_add_test(all, test_launches_of_a_plan_share_no_batch);
	tcase_add_test(all, test_a_batch_keeps_to_the_plans_bound);
	tcase_add_test(all, test_chunks_of_a_batch_are_one_copy);
	tcase_add_test(all, test_rows_with_gaps_stay_apart);
	tcase_add_test(all, test_chunks_between_machines_stay_apart);
	tcase_add_test(all, test_a_leg_goes_alone);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
