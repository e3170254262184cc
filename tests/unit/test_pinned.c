/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests pinned ranges: each is pinned once, exactly as long as it has a user. */

#include <string.h>

#include "ipc/pinned.h"
#include "testing.h"

#define N_BYTES 64u
#define N_USERS 24u
#define ROUNDS  20000u

/* A fake driver that refuses to pin a byte twice, unpins only whole ranges, and may refuse any
 * call. */
static struct {
	uint64_t base_of[N_BYTES];      /* begin of the pinned range that covers the byte, + 1; 0:
					 * none */
	int      is_foreign[N_BYTES];   /* pinned by the application */
	uint32_t n_pins;
	int      refuses;
} driver_state;

static int pin(void *arg, uint64_t base, uint64_t n_bytes)
{
	uint64_t i;

	ck_assert_ptr_null(arg);
	ck_assert_uint_gt(n_bytes, 0);
	if (driver_state.refuses)
		return CEOV_ERR_CUDA;
	for (i = base; i < base + n_bytes; i++)
		if (driver_state.is_foreign[i])
			return CEOV_NONE;
	for (i = base; i < base + n_bytes; i++) {
		ck_assert_uint_eq(driver_state.base_of[i], 0);
		driver_state.base_of[i] = base + 1;
	}
	driver_state.n_pins++;
	return 0;
}

static void unpin(void *arg, uint64_t base)
{
	uint32_t i, n = 0;

	ck_assert_ptr_null(arg);
	for (i = 0; i < N_BYTES; i++)
		if (driver_state.base_of[i] == base + 1) {
			driver_state.base_of[i] = 0;
			n++;
		}
	ck_assert_uint_gt(n, 0);
	driver_state.n_pins--;
}

static const struct cei_pinned_driver driver = { pin, unpin, NULL };
static struct cei_pinned pinned;

static void set_up(void)
{
	memset(&driver_state, 0, sizeof(driver_state));
	memset(&pinned, 0, sizeof(pinned));
}

static int take(uint64_t base, uint64_t end)
{
	return cei_pinned_take(&pinned, base, end, &driver);
}

static void give(uint64_t base)
{
	cei_pinned_give(&pinned, base, &driver);
}

static int is_pinned(uint32_t byte)
{
	return driver_state.base_of[byte] != 0;
}

static void assert_nothing_is_pinned(void)
{
	ck_assert_uint_eq(driver_state.n_pins, 0);
	ck_assert_uint_eq(pinned.n_ranges, 0);
	ck_assert_ptr_null(pinned.ranges);
}

START_TEST(test_neighbours_are_ranges_of_their_own)
{
	ck_assert_int_eq(take(3, 5), 0);
	ck_assert_int_eq(take(1, 3), 0);
	ck_assert_int_eq(take(5, 9), 0);
	ck_assert_uint_eq(driver_state.n_pins, 3);
	give(3);
	ck_assert(is_pinned(2) && !is_pinned(3) && !is_pinned(4) && is_pinned(5));
	give(1);
	give(5);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_what_lies_within_uses_the_range)
{
	ck_assert_int_eq(take(10, 20), 0);
	ck_assert_int_eq(take(10, 12), 0);
	ck_assert_int_eq(take(19, 20), 0);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	give(10);                               /* either of the two users that begin there */
	give(19);
	ck_assert(is_pinned(10) && is_pinned(19));
	give(10);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_what_overlaps_in_part_is_refused)
{
	static const uint64_t ranges[][2] = { { 9, 11 }, { 19, 21 }, { 9, 21 }, { 10, 21 },
					      { 9, 20 }, { 11, 40 } };
	uint32_t i;

	ck_assert_int_eq(take(10, 20), 0);
	for (i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		ck_assert_int_eq(take(ranges[i][0], ranges[i][1]), CEI_PINNED_IN_PART);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	give(10);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_a_refusal_changes_nothing)
{
	driver_state.refuses = 1;
	ck_assert_int_eq(take(8, 10), CEOV_ERR_CUDA);
	assert_nothing_is_pinned();
	driver_state.refuses = 0;
	ck_assert_int_eq(take(10, 12), 0);
	driver_state.refuses = 1;
	ck_assert_int_eq(take(8, 10), CEOV_ERR_CUDA);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	give(10);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_what_others_pinned_is_not_noted)
{
	driver_state.is_foreign[20] = 1;
	ck_assert_int_eq(take(20, 22), CEOV_NONE);
	ck_assert_int_eq(take(21, 24), 0);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	give(21);
	assert_nothing_is_pinned();
}
END_TEST

struct user {
	uint32_t base;
	uint32_t end;                   /* end of the user's range; 0: unused */
};

/* Asserts that each user's bytes lie in one pinned range, and that every pinned range has a
 * user. */
static void check_users(const struct user *users)
{
	uint64_t kept[N_BYTES] = { 0 };
	uint32_t i, byte;

	for (i = 0; i < N_USERS; i++)
		for (byte = users[i].base; byte < users[i].end; byte++) {
			ck_assert_msg(is_pinned(byte), "byte %u is not pinned", byte);
			ck_assert_uint_eq(driver_state.base_of[byte],
					  driver_state.base_of[users[i].base]);
			kept[driver_state.base_of[byte] - 1] = 1;
		}
	for (byte = 0; byte < N_BYTES; byte++)
		ck_assert_msg(!is_pinned(byte) || kept[driver_state.base_of[byte] - 1],
			      "byte %u stays pinned", byte);
}

static void come_or_go(struct user *user, uint64_t *random)
{
	if (user->end) {
		give(user->base);
		user->end = user->base = 0;
		return;
	}
	user->base = (uint32_t)testing_below(random, N_BYTES);
	user->end = user->base + 1 + (uint32_t)testing_below(random, N_BYTES - user->base) / 4;
	driver_state.refuses = !testing_below(random, 8);
	if (take(user->base, user->end))
		user->end = user->base = 0;
	driver_state.refuses = 0;
}

START_TEST(test_random_users)
{
	struct user users[N_USERS] = { { 0, 0 } };
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < testing_share(ROUNDS); i++) {
		come_or_go(&users[testing_below(&random, N_USERS)], &random);
		check_users(users);
	}
	for (i = 0; i < N_USERS; i++)
		if (users[i].end)
			give(users[i].base);
	assert_nothing_is_pinned();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("pinned");
	TCase *all = tcase_create("pinned");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_test(all, test_neighbours_are_ranges_of_their_own);
	tcase_add_test(all, test_what_lies_within_uses_the_range);
	tcase_add_test(all, test_what_overlaps_in_part_is_refused);
	tcase_add_test(all, test_a_refusal_changes_nothing);
	tcase_add_test(all, test_what_others_pinned_is_not_noted);
	tcase_add_test(all, test_random_users);
	tcase_set_timeout(all, 60);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
