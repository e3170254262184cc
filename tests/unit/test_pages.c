/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Pinned pages: each pinned once, as long as somebody uses it and no longer. */

#include <string.h>

#include "ipc/pages.h"
#include "testing.h"

#define PAGE    UINT64_C(4096)
#define N_PAGES 64u
#define N_USERS 24u
#define ROUNDS  20000u

/* A driver that pins pages once, unpins only what it pinned as one, and may refuse. */
static struct {
	uint64_t base_of[N_PAGES];      /* where the pin that holds it began, + 1; 0: none */
	int      is_foreign[N_PAGES];   /* pinned by somebody else */
	uint32_t n_pins;
	uint32_t n_until_refusal;       /* 0: never */
} driver_state;

static int pin(void *arg, uint64_t base, uint64_t n_bytes)
{
	uint64_t i;

	ck_assert_ptr_null(arg);
	ck_assert_uint_eq(base % PAGE, 0);
	ck_assert_uint_eq(n_bytes % PAGE, 0);
	ck_assert_uint_gt(n_bytes, 0);
	if (driver_state.n_until_refusal && !--driver_state.n_until_refusal)
		return CEOV_ERR_CUDA;
	for (i = base / PAGE; i < (base + n_bytes) / PAGE; i++)
		if (driver_state.is_foreign[i])
			return CEOV_NONE;
	for (i = base / PAGE; i < (base + n_bytes) / PAGE; i++) {
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
	for (i = 0; i < N_PAGES; i++)
		if (driver_state.base_of[i] == base + 1) {
			driver_state.base_of[i] = 0;
			n++;
		}
	ck_assert_uint_gt(n, 0);
	driver_state.n_pins--;
}

static const struct cei_pages_driver driver = { pin, unpin, NULL };
static struct cei_pages pages;

static void set_up(void)
{
	memset(&driver_state, 0, sizeof(driver_state));
	memset(&pages, 0, sizeof(pages));
}

static int take(uint64_t first, uint64_t end)
{
	return cei_pages_take(&pages, first * PAGE, end * PAGE, &driver);
}

static void give(uint64_t first, uint64_t end)
{
	cei_pages_give(&pages, first * PAGE, end * PAGE, &driver);
}

static int is_pinned(uint32_t page)
{
	return driver_state.base_of[page] != 0;
}

static void assert_nothing_is_pinned(void)
{
	ck_assert_uint_eq(driver_state.n_pins, 0);
	ck_assert_uint_eq(pages.n_pieces, 0);
	ck_assert_ptr_null(pages.pieces);
}

START_TEST(test_neighbours_share_a_page)
{
	ck_assert_int_eq(take(1, 3), 0);
	ck_assert_int_eq(take(2, 5), 0);        /* page 2 is both's */
	ck_assert_uint_eq(driver_state.n_pins, 2);
	give(1, 3);
	ck_assert(is_pinned(2) && is_pinned(3) && is_pinned(4));
	ck_assert_int_eq(take(0, 8), 0);        /* and around them */
	give(2, 5);
	ck_assert(is_pinned(0) && is_pinned(2) && is_pinned(4) && is_pinned(7));
	give(0, 8);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_one_range_many_times)
{
	uint32_t i;

	for (i = 0; i < 100; i++)
		ck_assert_int_eq(take(7, 9), 0);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	for (i = 0; i < 99; i++)
		give(7, 9);
	ck_assert(is_pinned(7) && is_pinned(8));
	give(7, 9);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_a_refusal_changes_nothing)
{
	ck_assert_int_eq(take(10, 12), 0);
	driver_state.n_until_refusal = 2;       /* before is pinned, behind is refused */
	ck_assert_int_eq(take(8, 14), CEOV_ERR_CUDA);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	ck_assert(!is_pinned(8) && is_pinned(10) && is_pinned(11) && !is_pinned(12));
	give(10, 12);
	assert_nothing_is_pinned();
}
END_TEST

START_TEST(test_what_others_pinned_is_not_unpinned)
{
	driver_state.is_foreign[20] = 1;
	ck_assert_int_eq(take(20, 22), 0);
	ck_assert_int_eq(take(21, 24), 0);
	ck_assert_uint_eq(driver_state.n_pins, 1);
	give(20, 22);
	give(21, 24);
	assert_nothing_is_pinned();
}
END_TEST

struct user {
	uint32_t first;
	uint32_t end;                   /* 0: none */
};

/* All pages of users are pinned, and no others but in pieces that reach beyond them. */
static void check_users(const struct user *users)
{
	uint8_t used[N_PAGES] = { 0 };
	uint32_t i, page, other;

	for (i = 0; i < N_USERS; i++)
		for (page = users[i].first; page < users[i].end; page++)
			used[page] = 1;
	for (page = 0; page < N_PAGES; page++) {
		ck_assert_msg(!used[page] || is_pinned(page), "page %u is not pinned", page);
		if (used[page] || !is_pinned(page))
			continue;
		for (other = 0; other < N_PAGES; other++)
			if (used[other] &&
			    driver_state.base_of[other] == driver_state.base_of[page])
				break;
		ck_assert_msg(other < N_PAGES, "page %u stays pinned", page);
	}
}

START_TEST(test_random_users)
{
	struct user users[N_USERS] = { { 0, 0 } };
	uint64_t random = testing_seed();
	struct user *user;
	uint32_t i;
	int r;

	for (i = 0; i < ROUNDS; i++) {
		user = &users[testing_below(&random, N_USERS)];
		if (user->end) {
			give(user->first, user->end);
			user->end = user->first = 0;
		} else {
			user->first = (uint32_t)testing_below(&random, N_PAGES);
			user->end = user->first + 1 +
				(uint32_t)testing_below(&random, N_PAGES - user->first);
			if (!testing_below(&random, 8))
				driver_state.n_until_refusal =
					1 + (uint32_t)testing_below(&random, 3);
			r = take(user->first, user->end);
			driver_state.n_until_refusal = 0;
			if (r)
				user->end = user->first = 0;
		}
		check_users(users);
	}
	for (i = 0; i < N_USERS; i++)
		if (users[i].end)
			give(users[i].first, users[i].end);
	assert_nothing_is_pinned();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("pages");
	TCase *all = tcase_create("pages");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_test(all, test_neighbours_share_a_page);
	tcase_add_test(all, test_one_range_many_times);
	tcase_add_test(all, test_a_refusal_changes_nothing);
	tcase_add_test(all, test_what_others_pinned_is_not_unpinned);
	tcase_add_test(all, test_random_users);
	tcase_set_timeout(all, 60);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
