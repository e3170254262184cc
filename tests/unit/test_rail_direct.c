/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests rails whose transport accesses the memory of a "GPU" itself. That memory is a test double
 * (device_copier.h), and so is the network, which takes its addresses where it was told to. The rig
 * asserts all the time that no mark comes before its bytes, and that no byte lands after a process
 * was told that another one is lost. */

#include <check.h>
#include <string.h>

#include "net/far_peer.h"
#include "unit/rail_rig.h"

#define WITHIN_NS (RAILS_TIMEOUT_NS + RAILS_TIMEOUT_NS / 10)

/* kind: bit 0: the source is on the GPU, bit 1: the target is. */
static void open_kind(uint32_t kind, uint64_t *random)
{
	rails.has_device_sources = kind & 1;
	rails.has_device_targets = kind >> 1 & 1;
	rails.is_direct = 1;
	rails.copier.random = testing_random(random);
	rails_open(2, testing_random(random));
	rails.net.links[0][1].jitter_ns = rails.net.links[1][0].jitter_ns = 100000;
}

/* _i: see open_kind() */
START_TEST(test_bytes_arrive_without_slots)
{
	uint64_t random = testing_seed() + (uint64_t)_i;
	uint32_t round;

	for (round = 0; round < 40; round++) {
		rails.config.window = 1 + (uint32_t)testing_below(&random, CEI_FAR_WINDOW_MAX);
		rails.config.piece_max = 1 + testing_below(&random, 2 * RAILS_BLOCK_BYTES);
		open_kind((uint32_t)_i, &random);
		rails_send(0, 1, 0, rails.wanted = 1 + (uint32_t)testing_below(&random, 20));
		ck_assert(rails_until(rails_all_arrived, 100 * TESTING_SECOND));
		ck_assert_mem_eq(rails.processes[1].target, rails.processes[0].source,
				 rails.wanted * RAILS_BLOCK_BYTES);
		ck_assert_uint_eq(rails.copier.n_bound, 2);
		ck_assert_uint_eq(rails.copier.n_copies, 0);
		ck_assert_uint_eq(rails.copier.n_opened, 0);
		ck_assert_int_eq(rails.copier.n_landed >= rails.wanted, _i >> 1);
		rails_close();
	}
}
END_TEST

/* The connection fails at each of its messages in turn. */
START_TEST(test_a_connection_fails)
{
	uint64_t random = testing_seed() + (uint64_t)_i, at;
	uint32_t n_failed = 0;

	for (at = 1; at < 60; at++) {
		rails.config.window = 16;
		open_kind((uint32_t)_i, &random);
		rails.net.links[at & 1][!(at & 1)].fail_at = (at + 1) / 2;
		rails_send(0, 1, 0, rails.wanted = 24);
		ck_assert(rails_until(rails_has_ended, 2 * WITHIN_NS));
		n_failed += rails_error(0, 1) != 0;
		rails_pass(RAILS_TIMEOUT_NS);
		rails_close();
	}
	ck_assert_uint_gt(n_failed, 10);
}
END_TEST

/* Bytes that cannot be made visible to the GPU are not acknowledged: their mark is never raised,
 * and the sender's lane ends with an error. */
START_TEST(test_bytes_that_stay_invisible)
{
	uint64_t random = testing_seed();
	uint32_t at;

	for (at = 1; at < 24; at++) {
		rails.config.window = 16;
		rails.config.piece_max = RAILS_BLOCK_BYTES;
		rails.copier.hide_at = at;
		open_kind(2, &random);
		rails_send(0, 1, 0, rails.wanted = 24);
		ck_assert(rails_until(rails_has_ended, 2 * WITHIN_NS));
		ck_assert_int_lt(rails_error(0, 1), 0);
		ck_assert_uint_lt(rails_arrived(1), rails.wanted);
		rails_pass(RAILS_TIMEOUT_NS);
		rails_close();
		rails.copier.hide_at = 0;
	}
}
END_TEST

/* Memory that launches name keeps going through slots: the transport has never seen it. */
START_TEST(test_floating_memory_uses_slots)
{
	struct rails_process *own = &rails.processes[0];
	struct cei_far_memory floating = { .unit = DEVICE_UNIT, .n_bytes = UINT64_C(1) << 40 };
	struct cei_far_memory *memory = NULL;
	uint64_t random = testing_seed();

	open_kind(0, &random);
	ck_assert_uint_eq(rails.copier.n_opened, 0);
	floating.needs_slots = 1;
	floating.above = UINT64_C(1) << 62;
	floating.base = (uint8_t *)(uintptr_t)floating.above;
	ck_assert_int_eq(cei_rail_device_memory_open(own->rail, &floating, &memory), 0);
	ck_assert_uint_gt(rails.copier.n_opened, 0);
	ck_assert_int_eq(memory->is_device, 1);
	ck_assert_int_eq(cei_rail_memory_close(own->rail, memory), 0);
	rails_close();
}
END_TEST

START_TEST(test_a_thread_that_cannot_be_bound)
{
	uint64_t random = testing_seed();

	rails.has_device_sources = 1;
	rails_open(2, testing_random(&random));
	rails.copier.fails_to_bind = 1;
	ck_assert_int_eq(cei_rail_go_direct(rails.processes[0].rail, DEVICE_UNIT), CEOV_ERR_CUDA);
	rails_send(0, 1, 0, rails.wanted = 3);
	ck_assert(rails_until(rails_all_arrived, 100 * TESTING_SECOND));
	ck_assert_uint_gt(rails.copier.n_copies, 0);    /* through slots, as before */
	rails_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rail_direct");
	TCase *tcase = tcase_create("direct");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_bytes_arrive_without_slots, 1, 4);
	tcase_add_loop_test(tcase, test_a_connection_fails, 1, 4);
	tcase_add_test(tcase, test_bytes_that_stay_invisible);
	tcase_add_test(tcase, test_floating_memory_uses_slots);
	tcase_add_test(tcase, test_a_thread_that_cannot_be_bound);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
