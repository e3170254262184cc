/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases that compare a backend's behaviour with what it declares: which memory it moves,
 * its capabilities, and who makes its lanes progress. */

#include <string.h>

#include "backend_rig.h"
#include "base/clock.h"

#define MOVED (UINT64_C(256) << 10)

/* memory of one kind of place, and how a case fills and reads it */
struct part {
	enum ceov_place_kind kind;
	struct cei_region    region;
};

static void part_open(struct part *part, enum ceov_place_kind kind)
{
	memset(part, 0, sizeof(*part));
	part->kind = kind;
	rig_make_region(&part->region, kind, MOVED);
}

static void part_fill(struct part *part, uint64_t seed)
{
	if (part->kind == CEOV_PLACE_HOST)
		testing_fill(part->region.host, MOVED, seed);
	else
		rig_fill(part->region.address[0], MOVED, seed);
}

static void part_check(struct part *part, uint64_t seed)
{
	if (part->kind == CEOV_PLACE_HOST)
		ck_assert_uint_eq(testing_check(part->region.host, MOVED, seed), MOVED);
	else
		rig_check(part->region.address[0], MOVED, seed);
}

static void reap_lane(struct cei_lane *lane, uint64_t n_wanted)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	uint64_t n_done = 0;

	while (n_done < n_wanted) {
		ck_assert_int_eq(rig.ops->lanes->reap(lane, &n_done), 0);
		ck_assert_msg(cei_now_ns() < deadline, "%s: the lane does not end",
			      rig.ops->name);
	}
}

/* Returns the direction of the lane that the engine would choose. */
static enum cei_direction direction_of(enum ceov_place_kind source, enum ceov_place_kind target)
{
	if (source == target)
		return CEI_DIRECTION_PEER;
	return source == CEOV_PLACE_HOST ? CEI_DIRECTION_IN : CEI_DIRECTION_OUT;
}

static void move_between(enum ceov_place_kind from, enum ceov_place_kind to, uint64_t seed)
{
	struct part source, target;
	struct cei_piece piece;
	struct cei_lane lane;

	part_open(&source, from);
	part_open(&target, to);
	part_fill(&source, seed);
	part_fill(&target, seed + MOVED);
	ck_assert_int_eq(cei_lane_open(&lane, &rig.backend, direction_of(from, to), CEOV_NOBODY,
				       7), 0);
	piece = rig_piece(target.region.address[0], source.region.address[0], MOVED);
	ck_assert_int_eq(rig.ops->lanes->copy(&lane, &piece, 1), 0);
	ck_assert_int_eq(rig.ops->lanes->submit(&lane), 0);
	reap_lane(&lane, 1);
	part_fill(&source, seed + 2 * MOVED);   /* a copy that is done no longer needs its
						 * source */
	part_check(&target, seed);
	cei_lane_close(&lane);
	cei_region_fini(&target.region);
	cei_region_fini(&source.region);
}

START_TEST(test_it_moves_between_all_memory_that_it_names)
{
	static const enum ceov_place_kind kinds[] = { CEOV_PLACE_HOST, CEOV_PLACE_GPU };
	uint32_t i, n = 0;

	for (i = 0; i < 4; i++) {
		if (!(rig.ops->moves & cei_moves_between(kinds[i / 2], kinds[i % 2])))
			continue;
		move_between(kinds[i / 2], kinds[i % 2], 100 + i);
		n++;
	}
	ck_assert_uint_gt(n, 0);
	ck_assert(rig.ops->moves & cei_moves_between(rig.kind, rig.kind));
}
END_TEST

/* Repeats many times, because a mark that comes too early is wrong for less than a microsecond. */
START_TEST(test_a_mark_comes_behind_its_bytes)
{
	uint64_t k;

	ck_assert(rig.ops->caps & CEI_CAP_ORDERED);
	for (k = 1; k <= 200; k++) {
		rig_fill(rig_at(0, 0), MOVED, k);
		rig_copy(0, rig_at(1, 0), rig_at(0, 0), MOVED);
		rig_post(0, 0, k);
		(void)rig_submit(0);
		rig_reach(0, k);
		rig_check(rig_at(1, MOVED - 4096), 4096, k + (MOVED - 4096) / 8);
		rig_reap(0, k);
	}
}
END_TEST

START_TEST(test_what_is_reaped_has_arrived)
{
	uint64_t k;

	ck_assert(rig.ops->caps & CEI_CAP_DELIVERED);
	for (k = 1; k <= 200; k++) {
		rig_fill(rig_at(0, 0), MOVED, k);
		rig_copy(0, rig_at(1, 0), rig_at(0, 0), MOVED);
		rig_reap(0, rig_submit(0));
		rig_fill(rig_at(0, MOVED - 4096), 4096, k + 1);
		rig_check(rig_at(1, MOVED - 4096), 4096, k + (MOVED - 4096) / 8);
	}
}
END_TEST

/* With progress_by_caller a lane progresses only in turn(); otherwise it progresses by itself. */
START_TEST(test_lanes_progress_as_they_say)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	uint64_t n_done = 7;
	struct cei_piece piece = rig_piece(rig_at(1, 0), rig_at(0, 0), 4096);
	struct cei_lane lane;

	rig.site.progress_by_caller = 1;
	rig_fill(rig_at(0, 0), 4096, 1);
	ck_assert_int_eq(cei_lane_open(&lane, &rig.backend, CEI_DIRECTION_PEER, CEOV_NOBODY,
				       8), 0);
	ck_assert_int_eq(rig.ops->lanes->copy(&lane, &piece, 1), 0);
	ck_assert_int_eq(rig.ops->lanes->submit(&lane), 0);
	if (!rig.ops->lanes->turn) {
		reap_lane(&lane, 1);
	} else {
		rig_pause();
		ck_assert_int_eq(rig.ops->lanes->reap(&lane, &n_done), 0);
		ck_assert_uint_eq(n_done, 0);
		while (rig.ops->lanes->turn(&lane) == CEOV_PENDING)
			ck_assert(cei_now_ns() < deadline);
		reap_lane(&lane, 1);
		ck_assert_int_eq(rig.ops->lanes->turn(&lane), 0);
	}
	rig_check(rig_at(1, 0), 4096, 1);
	cei_lane_close(&lane);
	rig.site.progress_by_caller = 0;
}
END_TEST

/* Tests a mover that has addresses of its own for the two regions of the rig. */
START_TEST(test_memory_is_moved_by_the_addresses_that_it_was_given)
{
	struct cei_memory memory[2];
	uint64_t address[2];
	struct cei_piece piece;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		memory[i] = (struct cei_memory){ .region = &rig.memory[i], .address = rig_at(i, 0),
						 .size_bytes = BYTES };
		ck_assert(cei_backend_reaches(&rig.backend, &memory[i]));
		address[i] = rig_at(i, 0);
		if (rig.ops->memory_open)
			ck_assert_int_eq(rig.ops->memory_open(&rig.backend, &memory[i],
							      &address[i]), 0);
		ck_assert_uint_ne(address[i], 0);
	}
	rig_fill(rig_at(0, 0), BYTES, 21);
	rig_fill(rig_at(1, 0), BYTES, 22);
	piece = rig_piece(address[1] + 4096, address[0] + 8192, MOVED);
	ck_assert_int_eq(rig.ops->lanes->copy(&rig.lane[0], &piece, 1), 0);
	rig_reap(0, rig_submit(0));
	rig_check(rig_at(1, 4096), MOVED, 21 + 8192 / 8);
	rig_check(rig_at(1, 0), 4096, 22);
	for (i = 0; i < 2 && rig.ops->memory_open; i++)
		rig.ops->memory_close(&rig.backend, address[i]);
	ck_assert_int_eq(!rig.ops->memory_open, !rig.ops->memory_reaches);
	ck_assert_int_eq(!rig.ops->memory_open, !rig.ops->memory_close);
}
END_TEST

/* Capabilities of an open backend are a subset of its table's; a device that it reports is a
 * place. */
START_TEST(test_live_capabilities_are_among_those_of_the_table)
{
	uint32_t live = cei_backend_caps(&rig.backend);
	uint32_t may_lack = CEI_CAP_LANE_WAIT | CEI_CAP_STREAMS | CEI_CAP_CAPTURE;

	ck_assert_uint_eq(live & ~rig.ops->caps, 0);
	ck_assert_uint_eq(rig.ops->caps & ~live & ~may_lack, 0);
	ck_assert_uint_eq(rig.ops->caps & CEI_CAPS_NEEDED, CEI_CAPS_NEEDED);
	ck_assert(!(live & CEI_CAP_CAPTURE) || (live & CEI_CAP_STREAMS));
	ck_assert_int_eq((rig.ops->caps & CEI_CAP_DEVICE) != 0, rig.kind != CEOV_PLACE_HOST);
}
END_TEST

START_TEST(test_functions_are_there_with_what_they_need)
{
	int has_streams = (rig.ops->caps & CEI_CAP_STREAMS) != 0;
	int waits = (rig.ops->caps & CEI_CAP_LANE_WAIT) != 0;

	ck_assert_int_eq(rig.ops->stream_queue != NULL, has_streams);
	ck_assert_int_eq(rig.ops->event_open != NULL, has_streams);
	ck_assert_int_eq(rig.ops->event_close != NULL, has_streams);
	ck_assert_int_eq(rig.ops->event_record != NULL, has_streams);
	ck_assert_int_eq(rig.ops->lanes->follow != NULL, has_streams);
	ck_assert_int_eq(rig.ops->lanes->wait != NULL, waits);
}
END_TEST

void rig_add_cap_cases(Suite *suite)
{
	TCase *caps = tcase_create("capabilities");
	TCase *delivery = tcase_create("delivery");

	tcase_add_checked_fixture(delivery, rig_open, rig_close);
	tcase_set_timeout(delivery, 60);
	tcase_add_test(delivery, test_it_moves_between_all_memory_that_it_names);
	tcase_add_test(delivery, test_what_is_reaped_has_arrived);
	suite_add_tcase(suite, delivery);
	tcase_add_checked_fixture(caps, rig_open, rig_close);
	tcase_set_timeout(caps, 60);
	tcase_add_test(caps, test_a_mark_comes_behind_its_bytes);
	tcase_add_test(caps, test_lanes_progress_as_they_say);
	tcase_add_test(caps, test_memory_is_moved_by_the_addresses_that_it_was_given);
	tcase_add_test(caps, test_live_capabilities_are_among_those_of_the_table);
	tcase_add_test(caps, test_functions_are_there_with_what_they_need);
	suite_add_tcase(suite, caps);
}
