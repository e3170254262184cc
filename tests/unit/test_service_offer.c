/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what a daemon takes of an offer of memory: all of it in order, and nothing else. */

#include "ipc/service_wire.h"

#include <string.h>

#include "base/cursor.h"
#include "ipc/wire.h"
#include "testing.h"

#define N 3u

static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
}

static uint8_t bytes[N * CEI_WIRE_REGION_BYTES];
static struct cei_region_wire wires[N];
static int fds[N];

/* Regions of which the first and the last have a descriptor. */
static struct cei_service_taken make_offer(void)
{
	struct cei_service_offer offer = { .memories = wires, .n_memories = N };
	struct cei_service_taken taken = { bytes, N, fds, 2, 0, 0 };
	uint32_t i;

	memset(wires, 0, sizeof(wires));
	for (i = 0; i < N; i++) {
		wires[i].kind = i == 1 ? CEOV_PLACE_GPU : CEOV_PLACE_HOST;
		wires[i].has_fd = i != 1;
		wires[i].size_bytes = 1 + testing_below(&state, 1u << 30);
		wires[i].buffer_id = testing_random(&state);
	}
	ck_assert_uint_eq(cei_offer_bytes(&offer), sizeof(bytes));
	cei_offer_write(&offer, bytes);
	fds[0] = 100;
	fds[1] = 102;
	return taken;
}

START_TEST(test_all_is_taken_in_order)
{
	struct cei_service_taken taken = make_offer();
	struct cei_region_wire wire;
	uint32_t i;
	int fd;

	for (i = 0; i < N; i++) {
		ck_assert(!cei_offer_is_taken(&taken));
		ck_assert_int_eq(cei_offer_take(&taken, &wire, &fd), 0);
		ck_assert_int_eq(fd, i == 1 ? -1 : 100 + (int)i);
		ck_assert_mem_eq(&wire, &wires[i], sizeof(wire));
	}
	ck_assert(cei_offer_is_taken(&taken));
	ck_assert_int_eq(fds[0], -1);
	ck_assert_int_eq(fds[1], -1);
	ck_assert_int_eq(cei_offer_take(&taken, &wire, &fd), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_a_descriptor_is_missing)
{
	struct cei_service_taken taken = make_offer();
	struct cei_region_wire wire;
	int fd;

	taken.n_fds = 1;
	ck_assert_int_eq(cei_offer_take(&taken, &wire, &fd), 0);
	ck_assert_int_eq(cei_offer_take(&taken, &wire, &fd), 0);
	ck_assert_int_eq(cei_offer_take(&taken, &wire, &fd), CEOV_ERR_INVALID);
	ck_assert(!cei_offer_is_taken(&taken));
}
END_TEST

START_TEST(test_a_descriptor_is_left_over)
{
	struct cei_service_taken taken = make_offer();
	struct cei_region_wire wire;
	uint32_t i;
	int fd;

	taken.n_fds = 3;
	for (i = 0; i < N; i++)
		ck_assert_int_eq(cei_offer_take(&taken, &wire, &fd), 0);
	ck_assert(!cei_offer_is_taken(&taken));
}
END_TEST

/* Random bytes are either a description that encodes to the same bytes, or refused. */
START_TEST(test_random_bytes)
{
	struct cei_service_taken taken;
	uint8_t again[CEI_WIRE_REGION_BYTES];
	struct cei_region_wire wire;
	struct cei_writer writer;
	uint32_t round, i;
	int fd;

	for (round = 0; round < 20000; round++) {
		taken = make_offer();
		for (i = 0; i < 1 + round % 4; i++)
			bytes[testing_below(&state, 8 + round % 64)] =
				(uint8_t)testing_random(&state);
		if (cei_offer_take(&taken, &wire, &fd))
			continue;
		writer = cei_writer_on(again, sizeof(again));
		cei_put_layout(&writer, &cei_region_layout, &wire);
		ck_assert_mem_eq(again, bytes, sizeof(again));
		ck_assert_int_eq(fd >= 0, wire.has_fd);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("service_offer");
	TCase *all = tcase_create("service_offer");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_test(all, test_all_is_taken_in_order);
	tcase_add_test(all, test_a_descriptor_is_missing);
	tcase_add_test(all, test_a_descriptor_is_left_over);
	tcase_add_test(all, test_random_bytes);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
