/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests rails whose bytes come from or go to memory that the transport does not access: they go
 * through slots. The memory of the "GPU" and its copies are a test double (device_copier.h). The
 * rig asserts all the time that no mark comes before its bytes, and that no byte lands after a
 * process was told that another one is lost. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "net/far_peer.h"
#include "unit/rail_rig.h"

#define WITHIN_NS (RAILS_TIMEOUT_NS + RAILS_TIMEOUT_NS / 10)

static void set_delays(uint64_t delay_ns, uint64_t jitter_ns)
{
	uint32_t i, k;

	for (i = 0; i < RAILS_MAX; i++)
		for (k = 0; k < RAILS_MAX; k++) {
			rails.net.links[i][k].delay_ns = delay_ns;
			rails.net.links[i][k].jitter_ns = jitter_ns;
		}
}

/* kind: bit 0: the source is on the GPU, bit 1: the target is. */
static void open_kind(uint32_t kind, uint32_t n, uint64_t *random)
{
	rails.has_device_sources = kind & 1;
	rails.has_device_targets = kind >> 1 & 1;
	rails.copier.random = testing_random(random);
	rails.copier.looks_max = (uint32_t)testing_below(random, 50);
	rails_open(n, testing_random(random));
}

static void check_blocks(uint32_t n_blocks)
{
	ck_assert_mem_eq(rails.processes[1].target, rails.processes[0].source,
			 n_blocks * RAILS_BLOCK_BYTES);
}

/* _i: see open_kind() */
START_TEST(test_bytes_arrive_through_slots)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	uint32_t round;

	for (round = 0; round < testing_share(40); round++) {
		rails.config.window = 1 + (uint32_t)testing_below(&random, CEI_FAR_WINDOW_MAX);
		rails.config.piece_max = 1 + testing_below(&random, 2 * RAILS_BLOCK_BYTES);
		open_kind((uint32_t)_i, 2, &random);
		set_delays(testing_below(&random, 1000), 1 + testing_below(&random, 100000));
		rails.net.links[0][1].sends_early = round % 3 == 0;
		rails.net.links[0][1].full_every = (uint32_t)testing_below(&random, 4) * 2;
		rails.net.links[1][0].full_every = (uint32_t)testing_below(&random, 4) * 2;
		rails_send(0, 1, 0, rails.wanted = 1 + (uint32_t)testing_below(&random, 20));
		ck_assert(rails_until(rails_all_arrived, 100 * TESTING_SECOND));
		check_blocks(rails.wanted);
		ck_assert_uint_gt(rails.copier.n_copies, 0);
		rails_close();
	}
}
END_TEST

static int is_parked(void)
{
	return rails_status(0, 2).connection == CEI_FAR_UP &&
		rails.copier.n_under_way == CEI_FAR_SLOTS;
}

static int both_arrived(void)
{
	return rails_arrived(2) == 64 && rails_done(0, 2) == 1 && rails_done(1, 2) == 1;
}

/* Two processes send more pieces at once than there are slots: the others wait for a slot, and
 * everything arrives. */
START_TEST(test_offers_wait_for_a_slot)
{
	uint64_t random = testing_seed();

	rails.has_device_targets = 1;
	rails.config.window = 16;
	rails.copier.looks_max = 100;
	rails.copier.random = testing_random(&random);
	rails_open(3, testing_random(&random));
	rails_send(0, 2, 0, 32);
	rails_send(1, 2, 32, 32);
	ck_assert(rails_until(is_parked, TESTING_SECOND));
	ck_assert(rails_until(both_arrived, TESTING_SECOND));
	ck_assert_mem_eq(rails.processes[2].target, rails.processes[0].source,
			 32 * RAILS_BLOCK_BYTES);
	ck_assert_mem_eq(rails.processes[2].target + 32 * RAILS_BLOCK_BYTES,
			 rails.processes[1].source + 32 * RAILS_BLOCK_BYTES,
			 32 * RAILS_BLOCK_BYTES);
	rails_close();
}
END_TEST

/* The connection fails at each of its messages in turn, with copies under way at both ends. */
START_TEST(test_a_connection_fails_while_slots_are_in_use)
{
	uint64_t random = testing_seed() + (uint64_t)_i, at;
	uint32_t n_failed = 0;

	for (at = 1; at < 60; at++) {
		rails.config.window = 16;
		open_kind((uint32_t)_i, 2, &random);
		set_delays(1000, 5000);
		rails.net.links[at & 1][!(at & 1)].fail_at = (at + 1) / 2;
		rails_send(0, 1, 0, rails.wanted = 24);
		ck_assert(rails_until(rails_has_ended, 2 * WITHIN_NS));
		n_failed += rails_error(0, 1) != 0;
		rails_pass(RAILS_TIMEOUT_NS);
		ck_assert_uint_eq(rails.copier.n_under_way, 0);
		rails_close();
	}
	ck_assert_uint_gt(n_failed, 10);
}
END_TEST

/* A copy fails at either end: the launch ends with an error, the lane touches nothing any more, and
 * no mark is raised whose bytes are missing. */
START_TEST(test_a_copy_that_fails_ends_the_lane)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	uint32_t at;

	for (at = 1; at < 24; at++) {
		rails.config.window = 16;
		rails.copier.fail_at = at % 2 ? at : 0;
		rails.copier.refuse_at = at % 2 ? 0 : at;
		open_kind((uint32_t)_i, 2, &random);
		rails_send(0, 1, 0, rails.wanted = 24);
		ck_assert(rails_until(rails_has_ended, 2 * WITHIN_NS));
		ck_assert(rails_error(0, 1));
		ck_assert_uint_lt(rails_arrived(1), rails.wanted);
		rails_pass(RAILS_TIMEOUT_NS);
		ck_assert_uint_eq(rails.copier.n_under_way, 0);
		rails_close();
	}
}
END_TEST

static int is_copying(void)
{
	return rails.copier.n_under_way > 2;
}

static int is_lost(void)
{
	return rails.processes[0].n_lost[1] == 1;
}

/* That a process is lost is told when no copy of its bytes is under way any more, so its memory is
 * quiet then. */
START_TEST(test_lost_is_told_when_copies_have_ended)
{
	uint64_t random = testing_seed();
	uint32_t kind;

	for (kind = 1; kind <= 2; kind++) {
		rails.config.window = 16;
		open_kind(kind, 2, &random);
		rails.copier.looks_max = 1000;
		rails_send(kind - 1, 2 - kind, 0, 32);
		ck_assert(rails_until(is_copying, TESTING_SECOND));
		rails_give_up(0, 1);
		while (!is_lost()) {
			rails_step();
			ck_assert(!is_lost() || !rails.copier.n_under_way);
		}
		rails_pass(2 * RAILS_TIMEOUT_NS);
		rails_close();
	}
}
END_TEST

/* _i % 4: see open_kind(). A GPU that copies nothing is not the network's fault, at either side,
 * however long that takes; offers wait for slots at the receiver meanwhile. */
START_TEST(test_who_waits_for_a_gpu_is_not_lost)
{
	uint64_t random = testing_seed();

	rails.config.window = _i < 4 ? 16 : 4;  /* more or fewer than there are slots */
	rails.copier.is_hung = 1;
	open_kind((uint32_t)_i % 4, 2, &random);
	set_delays(1000, 0);
	rails_send(0, 1, 0, rails.wanted = 24);
	rails_pass(5 * RAILS_TIMEOUT_NS);
	ck_assert_uint_gt(rails.copier.n_under_way, 0);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_UP);
	ck_assert_uint_eq(rails_status(1, 0).connection, CEI_FAR_UP);
	rails.copier.is_hung = 0;
	ck_assert(rails_until(rails_all_arrived, RAILS_TIMEOUT_NS));
	check_blocks(rails.wanted);
	rails_close();
}
END_TEST

/* All slots wait for bytes that do not come, and further offers for the slots. */
START_TEST(test_bytes_that_do_not_reach_their_slots_are_noticed)
{
	uint64_t random = testing_seed();

	rails.config.window = 16;
	open_kind(2, 2, &random);
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = 10 * RAILS_TIMEOUT_NS;
	rails_send(0, 1, 0, 24);
	ck_assert(rails_until(is_lost, 2 * RAILS_TIMEOUT_NS + RAILS_TIMEOUT_NS / 2));
	ck_assert_ptr_nonnull(strstr(rails.processes[1].why, "of 32768 bytes under way"));
	rails_pass(WITHIN_NS);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	rails_close();
}
END_TEST

/* Whoever names more than a slot holds is refused, and nothing is written. */
START_TEST(test_a_piece_larger_than_a_slot_is_refused)
{
	struct cei_far_region *region;
	struct cei_far_table table;
	struct cei_transport transport = { .ops = &loop_transport };
	struct cei_far_region opened = { .id = 1, .uses = CEI_FAR_BYTES,
					 .device = 4096,
					 .n_bytes = 4 * CEI_FAR_SLOT_BYTES };
	struct cei_far_piece piece = { .region = 1, .n_rows = 1,
				       .row_bytes = CEI_FAR_SLOT_BYTES + 1,
				       .pitch_bytes = CEI_FAR_SLOT_BYTES + 1 };

	cei_far_table_init(&table, &transport);
	ck_assert_int_eq(cei_far_region_open(&table, &opened), 0);
	ck_assert_ptr_nonnull(cei_far_check_piece(&table, &piece, piece.row_bytes, &region));
	piece.row_bytes = piece.pitch_bytes = CEI_FAR_SLOT_BYTES;
	ck_assert_ptr_null(cei_far_check_piece(&table, &piece, piece.row_bytes, &region));
	ck_assert_int_eq(cei_far_region_close(&table, 1), 0);
	cei_far_table_fini(&table);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rail_slots");
	TCase *tcase = tcase_create("slots");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_bytes_arrive_through_slots, 1, 4);
	tcase_add_test(tcase, test_offers_wait_for_a_slot);
	tcase_add_loop_test(tcase, test_a_connection_fails_while_slots_are_in_use, 1, 4);
	tcase_add_loop_test(tcase, test_a_copy_that_fails_ends_the_lane, 1, 4);
	tcase_add_test(tcase, test_lost_is_told_when_copies_have_ended);
	tcase_add_loop_test(tcase, test_who_waits_for_a_gpu_is_not_lost, 1, 4);
	tcase_add_loop_test(tcase, test_who_waits_for_a_gpu_is_not_lost, 5, 8);
	tcase_add_test(tcase, test_bytes_that_do_not_reach_their_slots_are_noticed);
	tcase_add_test(tcase, test_a_piece_larger_than_a_slot_is_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
