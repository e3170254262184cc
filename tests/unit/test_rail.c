/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests rails over a simulated network in virtual time: bytes and marks, windows, messages, drops
 * and orderly ends. Faults are in test_rail_faults.c. */

#include <check.h>
#include <string.h>

#include "unit/rail_rig.h"

static void set_jitter(uint64_t delay_ns, uint64_t jitter_ns)
{
	uint32_t i, k;

	for (i = 0; i < RAILS_MAX; i++)
		for (k = 0; k < RAILS_MAX; k++) {
			rails.net.links[i][k].delay_ns = delay_ns;
			rails.net.links[i][k].jitter_ns = jitter_ns;
		}
}

static void check_all_blocks(uint32_t at, uint32_t n_blocks)
{
	ck_assert_mem_eq(rails.processes[at].target, rails.processes[0].source,
			 n_blocks * RAILS_BLOCK_BYTES);
}

START_TEST(test_blocks_arrive_and_are_done)
{
	rails_open(2, testing_seed());
	rails_send(0, 1, 0, rails.wanted = 64);
	ck_assert(rails_until(rails_all_arrived, TESTING_SECOND));
	check_all_blocks(1, 64);
	rails_close();
}
END_TEST

/* The rig asserts after each turn that no mark comes before its bytes. */
START_TEST(test_marks_stay_behind_their_bytes_when_the_network_reorders)
{
	uint64_t state = testing_seed();
	uint32_t round;

	for (round = 0; round < 100; round++) {
		rails.config.window = 1 + (uint32_t)testing_below(&state, CEI_FAR_WINDOW_MAX);
		rails.config.piece_max = 1 + testing_below(&state, 2 * RAILS_BLOCK_BYTES);
		rails_open(2, testing_random(&state));
		set_jitter(testing_below(&state, 1000), 1 + testing_below(&state, 100000));
		rails.net.links[0][1].sends_early = round % 3 == 0;
		rails.net.links[0][1].full_every = (uint32_t)testing_below(&state, 4) * 2;
		rails.net.links[1][0].full_every = (uint32_t)testing_below(&state, 4) * 2;
		rails_send(0, 1, 0, rails.wanted = 1 + (uint32_t)testing_below(&state, 20));
		ck_assert(rails_until(rails_all_arrived, 100 * TESTING_SECOND));
		check_all_blocks(1, rails.wanted);
		rails_close();
	}
}
END_TEST

static int both_arrived(void)
{
	return rails_arrived(0) == 64 && rails_arrived(1) == 64 && rails_arrived(2) == 64;
}

START_TEST(test_processes_send_to_each_other_at_once)
{
	rails_open(3, testing_seed());
	set_jitter(10000, 50000);
	rails_send(0, 1, 0, 32);
	rails_send(2, 1, 32, 32);
	rails_send(1, 0, 0, 32);
	rails_send(2, 0, 32, 32);
	rails_send(0, 2, 0, 32);
	rails_send(1, 2, 32, 32);
	ck_assert(rails_until(both_arrived, TESTING_SECOND));
	rails_close();
}
END_TEST

static int is_second_done(void)
{
	return rails_done(0, 1) == 2;
}

/* Rows that do not follow each other in memory at one end, or at both. */
START_TEST(test_rows_with_pitches_arrive_in_place)
{
	const struct cei_far_copy shapes[] = {
		{ .row_bytes = 100, .n_rows = 30, .source_pitch_bytes = 100,
		  .target_pitch_bytes = 256 },
		{ .row_bytes = 100, .n_rows = 30, .source_pitch_bytes = 300,
		  .target_pitch_bytes = 100, .offset = 65536 },
	};
	uint32_t i, row;

	rails.config.piece_max = 64;      /* so that rows are cut as well */
	rails_open(2, testing_seed());
	set_jitter(10, 5000);
	for (i = 0; i < 2; i++) {
		struct cei_far_copy copy = shapes[i];

		copy.region = RAILS_BYTES_REGION;
		copy.source = (uint64_t)(uintptr_t)rails.processes[0].source;
		ck_assert_int_eq(cei_far_lane_copy(rails_lane(0, 1), &copy, 1), 0);
		ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
	}
	ck_assert(rails_until(is_second_done, TESTING_SECOND));
	for (i = 0; i < 2; i++)
		for (row = 0; row < 30; row++)
			ck_assert_mem_eq(rails.processes[1].target + shapes[i].offset +
					 row * shapes[i].target_pitch_bytes,
					 rails.processes[0].source +
					 row * shapes[i].source_pitch_bytes, 100);
	ck_assert_uint_eq(rails.processes[1].target[100], 0);
	rails_close();
}
END_TEST

/* What finds no room in the window waits in the lane, what finds none there with the engine; and
 * nothing is lost. */
START_TEST(test_a_full_window_holds_work_back)
{
	struct cei_far_copy copy = { .region = RAILS_BYTES_REGION, .row_bytes = 16, .n_rows = 1 };
	uint32_t n = 0, n_most = 0;

	rails.config.window = 2;
	rails_open(2, testing_seed());
	set_jitter(1000, 1000);
	copy.source = (uint64_t)(uintptr_t)rails.processes[0].source;
	while (!cei_far_lane_copy(rails_lane(0, 1), &copy, 1)) {
		copy.offset += copy.row_bytes;
		copy.source += copy.row_bytes;
		if (++n % CEI_FAR_BATCH == 0)
			ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
	}
	ck_assert_uint_ge(n, CEI_FAR_OPS - CEI_FAR_OPS / CEI_FAR_BATCH - 1);
	while (rails_done(0, 1) < n / CEI_FAR_BATCH) {
		rails_step();
		if (rails_status(0, 1).n_under_way > n_most)
			n_most = rails_status(0, 1).n_under_way;
	}
	ck_assert_uint_eq(n_most, 2);
	ck_assert_mem_eq(rails.processes[1].target, rails.processes[0].source,
			 n / CEI_FAR_BATCH * CEI_FAR_BATCH * 16);
	rails_step();
	ck_assert_int_eq(cei_far_lane_copy(rails_lane(0, 1), &copy, 1), 0);
	ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
	rails_close();
}
END_TEST

START_TEST(test_a_lane_takes_no_more_submits_than_it_can_count)
{
	uint32_t i;

	rails_open(2, testing_seed());
	for (i = 0; i < CEI_FAR_SUBMITS; i++)
		ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
	ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), CEOV_FULL);
	rails_pass(TESTING_SECOND);
	ck_assert_uint_eq(rails_done(0, 1), CEI_FAR_SUBMITS);
	ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
	rails_pass(TESTING_SECOND);
	rails_close();
}
END_TEST

START_TEST(test_counters_elsewhere_are_told_and_none_falls)
{
	struct cei_far_post posts[] = {
		{ .region = RAILS_FAR_REGION, .index = 1, .value = 5 },
		{ .region = RAILS_WORDS_REGION, .index = 3, .value = 9 },
		{ .region = RAILS_WORDS_REGION, .index = 3, .value = 4 },
	};

	rails_open(2, testing_seed());
	testing_fill(rails.processes[1].target, RAILS_BYTES, 1);    /* what counter 3 stands for */
	ck_assert_int_eq(cei_far_lane_post(rails_lane(0, 1), posts, 3), 0);
	ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
	rails_pass(TESTING_SECOND);
	ck_assert_uint_eq(rails_done(0, 1), 1);
	ck_assert_uint_eq(rails.processes[1].far_raised, 5);
	ck_assert_uint_eq(rails.processes[1].words[3], 9);
	ck_assert_uint_eq(rails_status(1, 0).counts.n_lowering, 1);
	rails_close();
}
END_TEST

START_TEST(test_a_stopped_lane_ends_when_what_was_sent_has_landed)
{
	rails_open(2, testing_seed());
	set_jitter(1000000, 0);
	rails_send(0, 1, 0, 40);
	while (!rails_arrived(1))
		rails_step();
	cei_far_lane_stop(rails_lane(0, 1));
	ck_assert(!cei_far_lane_is_idle(rails_lane(0, 1)));
	rails_pass(100 * TESTING_MS);
	ck_assert(cei_far_lane_is_idle(rails_lane(0, 1)));
	ck_assert_uint_lt(rails_arrived(1), 40);
	rails_close();
}
END_TEST

static int all_notes_heard(void)
{
	return rails.processes[1].n_heard == CEI_RAIL_NOTES_MAX + 1;
}

START_TEST(test_messages_of_the_layer_above_arrive_once_and_in_order)
{
	struct cei_far_message note = { .type = CEI_FAR_NOTE };
	uint8_t bytes[CEI_FAR_NOTE_MAX];
	struct cei_rail *rail;
	uint32_t i;

	rails_open(2, testing_seed());
	set_jitter(1000, 100000);
	rails.net.links[0][1].full_every = 3;
	rail = rails.processes[0].rail;
	testing_fill(bytes, sizeof(bytes), 5);
	note.note.bytes = bytes;
	note.note.n_bytes = sizeof(bytes);
	for (i = 0; i < CEI_RAIL_NOTES_MAX; i++) {
		bytes[0] = (uint8_t)i;
		ck_assert_int_eq(cei_rail_say(rail, 1, &note), 0);
	}
	ck_assert_int_eq(cei_rail_say(rail, 1, &note), CEOV_FULL);
	rails_pass(100 * TESTING_MS);
	bytes[0] = (uint8_t)i;
	ck_assert_int_eq(cei_rail_say(rail, 1, &note), 0);
	ck_assert(rails_until(all_notes_heard, TESTING_SECOND));
	ck_assert_uint_eq(rails.processes[1].n_note, sizeof(bytes));
	ck_assert_mem_eq(rails.processes[1].note, bytes, sizeof(bytes));
	rails_pass(TESTING_SECOND);
	ck_assert(all_notes_heard());
	for (i = 0; i <= CEI_RAIL_NOTES_MAX; i++)
		ck_assert_uint_eq(rails.processes[1].firsts[i], i);
	rails_close();
}
END_TEST

static int has_departed(void)
{
	return rails.processes[1].n_departed[0] == 1;
}

/* A network may bring the farewell before what was said before it. */
START_TEST(test_a_farewell_is_heard_behind_messages)
{
	struct cei_far_message note = { .type = CEI_FAR_NOTE };
	uint8_t byte = 0;

	rails_open(2, testing_seed());
	note.note.bytes = &byte;
	note.note.n_bytes = 1;
	ck_assert_int_eq(cei_rail_say(rails.processes[0].rail, 1, &note), 0);
	rails_pass(100 * TESTING_MS);
	set_jitter(1000, 100000);
	for (byte = 1; byte < CEI_RAIL_NOTES_MAX; byte++)
		ck_assert_int_eq(cei_rail_say(rails.processes[0].rail, 1, &note), 0);
	cei_rail_leave(rails.processes[0].rail);
	ck_assert(rails_until(has_departed, TESTING_SECOND));
	ck_assert_uint_eq(rails.processes[1].n_heard, CEI_RAIL_NOTES_MAX);
	ck_assert_uint_eq(rails.processes[1].n_losing[0], 0);
	rails_close();
}
END_TEST

START_TEST(test_wrong_messages_and_processes_are_refused)
{
	struct cei_far_message message = { .type = CEI_FAR_ACK };
	struct cei_far_lane *lane;
	struct cei_rail *rail;

	rails_open(2, testing_seed());
	rail = rails.processes[0].rail;
	ck_assert_int_eq(cei_rail_say(rail, 1, &message), CEOV_ERR_INVALID);
	message.type = CEI_FAR_NOTE;
	message.note.bytes = (const uint8_t *)"x";
	message.note.n_bytes = 1;
	ck_assert_int_eq(cei_rail_say(rail, 0, &message), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_rail_say(rail, 2, &message), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_rail_lane_open(rail, 0, &lane), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_rail_lane_open(rail, 2, &lane), CEOV_ERR_INVALID);
	rails_close();
}
END_TEST

/* A copy whose source nobody registered breaks its lane, and no other one. */
START_TEST(test_a_copy_from_unknown_memory_breaks_its_lane_alone)
{
	struct cei_far_copy copy = { .region = RAILS_BYTES_REGION, .row_bytes = 16, .n_rows = 1 };
	struct cei_far_lane *bad;
	uint64_t n_done;

	rails_open(2, testing_seed());
	ck_assert_int_eq(cei_rail_lane_open(rails.processes[0].rail, 1, &bad), 0);
	copy.source = (uint64_t)(uintptr_t)&copy;
	ck_assert_int_eq(cei_far_lane_copy(bad, &copy, 1), 0);
	ck_assert_int_eq(cei_far_lane_submit(bad), 0);
	rails_send(0, 1, 0, rails.wanted = 10);
	ck_assert(rails_until(rails_all_arrived, TESTING_SECOND));
	ck_assert_int_eq(cei_far_lane_reap(bad, &n_done), CEOV_ERR_INVALID);
	ck_assert_uint_eq(n_done, 0);
	ck_assert(cei_far_lane_is_idle(bad));
	cei_rail_lane_close(rails.processes[0].rail, bad);
	rails_close();
}
END_TEST

START_TEST(test_all_connections_close_in_order)
{
	rails_open(2, testing_seed());
	set_jitter(1000, 1000);
	rails_send(0, 1, 0, rails.wanted = 30);
	ck_assert(rails_until(rails_all_arrived, TESTING_SECOND));
	rails_send(0, 1, 30, 30);
	rails_step();
	cei_rail_leave(rails.processes[1].rail);  /* pieces are under way to it */
	rails_pass(TESTING_SECOND);
	ck_assert_int_eq(rails_error(0, 1), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(rails.processes[0].n_departed[1], 1);
	ck_assert_uint_eq(rails.processes[1].n_departed[0], 1);
	ck_assert_uint_eq(rails.processes[0].n_losing[1] + rails.processes[1].n_losing[0], 0);
	rails_close();
}
END_TEST

/* The transport still reads what was sent from it. */
START_TEST(test_memory_that_is_read_does_not_close)
{
	struct rails_process *own = &rails.processes[0];

	rails_open(2, testing_seed());
	rails.net.links[0][1].bytes_ns = RAILS_TIMEOUT_NS;
	rails_send(0, 1, 0, rails.wanted = 1);
	rails_pass(RAILS_TIMEOUT_NS / 2);
	ck_assert_int_eq(cei_rail_memory_close(own->rail, own->memory), CEOV_PENDING);
	ck_assert(rails_until(rails_all_arrived, RAILS_TIMEOUT_NS));
	rails_close();
}
END_TEST

/* Regions that something lands in stay. */
START_TEST(test_a_region_in_use_does_not_close)
{
	struct cei_far_memory *memory;

	rails_open(2, testing_seed());
	/* somebody else has the same memory open, too */
	ck_assert_int_eq(cei_rail_memory_open(rails.processes[1].rail, rails.processes[1].target,
					      RAILS_BYTES, &memory), 0);
	set_jitter(1000000, 0);
	rails_send(0, 1, 0, rails.wanted = 4);
	ck_assert_int_eq(cei_rail_region_close(rails.processes[1].rail, 1000), CEOV_NONE);
	while (memcmp(rails.processes[1].target, rails.processes[0].source, 64))
		rails_step();             /* until the first half of a block is there */
	ck_assert_int_eq(cei_rail_region_close(rails.processes[1].rail, RAILS_BYTES_REGION),
			 CEOV_PENDING);
	ck_assert(rails_until(rails_all_arrived, TESTING_SECOND));
	ck_assert_int_eq(cei_rail_memory_close(rails.processes[1].rail, memory), 0);
	rails_close();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rail");
	TCase *all = tcase_create("rail");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_blocks_arrive_and_are_done);
	tcase_add_test(all, test_marks_stay_behind_their_bytes_when_the_network_reorders);
	tcase_add_test(all, test_processes_send_to_each_other_at_once);
	tcase_add_test(all, test_rows_with_pitches_arrive_in_place);
	tcase_add_test(all, test_a_full_window_holds_work_back);
	tcase_add_test(all, test_a_lane_takes_no_more_submits_than_it_can_count);
	tcase_add_test(all, test_counters_elsewhere_are_told_and_none_falls);
	tcase_add_test(all, test_a_stopped_lane_ends_when_what_was_sent_has_landed);
	tcase_add_test(all, test_messages_of_the_layer_above_arrive_once_and_in_order);
	tcase_add_test(all, test_a_farewell_is_heard_behind_messages);
	tcase_add_test(all, test_wrong_messages_and_processes_are_refused);
	tcase_add_test(all, test_a_copy_from_unknown_memory_breaks_its_lane_alone);
	tcase_add_test(all, test_all_connections_close_in_order);
	tcase_add_test(all, test_memory_that_is_read_does_not_close);
	tcase_add_test(all, test_a_region_in_use_does_not_close);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
