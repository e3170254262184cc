/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests whether areas overlap, against a comparison of each byte; and neighbours in a number
 * set. */

#include <check.h>
#include <string.h>

#include "ce_engine/program/area.h"
#include "testing.h"

#define BYTES  600u
#define ROUNDS 200000u

static struct cei_area random_area(uint64_t *random, unsigned char *bytes)
{
	uint64_t n_rows = 1 + testing_below(random, 12), row_bytes = 1 + testing_below(random, 9);
	uint64_t pitch = row_bytes + testing_below(random, 40), i;
	uint64_t begin = testing_below(random, BYTES - (n_rows - 1) * pitch - row_bytes + 1);
	struct cei_area area;

	cei_area_init(&area, begin, pitch, row_bytes, n_rows);
	memset(bytes, 0, BYTES);
	for (i = 0; i < n_rows; i++)
		memset(bytes + begin + i * pitch, 1, row_bytes);
	return area;
}

START_TEST(test_areas_meet_where_they_share_a_byte)
{
	unsigned char a_bytes[BYTES], b_bytes[BYTES];
	uint64_t random = testing_seed();
	uint32_t round, i, shared, n_met = 0;
	struct cei_area a, b;

	for (round = 0; round < ROUNDS; round++) {
		a = random_area(&random, a_bytes);
		b = random_area(&random, b_bytes);
		for (i = 0, shared = 0; i < BYTES; i++)
			shared |= a_bytes[i] & b_bytes[i];
		ck_assert_msg(cei_areas_meet(&a, &b) == (int)shared, "round %u", round);
		n_met += shared;
	}
	ck_assert_uint_gt(n_met, ROUNDS / 10);
	ck_assert_uint_lt(n_met, ROUNDS - ROUNDS / 10);
}
END_TEST

/* Comparing these areas row by row would take minutes. */
START_TEST(test_areas_of_very_many_rows_are_compared)
{
	const uint64_t n = UINT64_C(1) << 36;
	struct cei_area even, odd, other;

	cei_area_init(&even, 0, 6, 1, n);
	cei_area_init(&odd, 3, 6, 1, n);
	cei_area_init(&other, 6 * (n - 1) + 3 - 10 * (n / 2 - 1), 10, 1, n / 2);
	ck_assert_int_eq(cei_areas_meet(&even, &odd), 0);
	ck_assert_int_eq(cei_areas_meet(&odd, &even), 0);
	ck_assert_int_eq(cei_areas_meet(&odd, &other), 1);
	cei_area_init(&other, 7, 10, 1, n / 2);         /* its bytes have odd addresses only */
	ck_assert_int_eq(cei_areas_meet(&even, &other), 0);     /* so it never overlaps the area
								 * with even addresses */
	ck_assert_int_eq(cei_areas_meet(&odd, &other), 1);
}
END_TEST

static void check_neighbours(const struct cei_number_set *set, const unsigned char *has,
			     uint32_t bound, uint32_t at)
{
	uint32_t before = CEI_NO_NUMBER, after = CEI_NO_NUMBER, i;

	for (i = 0; i < at; i++)
		before = has[i] ? i : before;
	for (i = bound; i-- > at + 1;)
		after = has[i] ? i : after;
	ck_assert_uint_eq(cei_number_set_before(set, at), before);
	ck_assert_uint_eq(cei_number_set_after(set, at), after);
}

START_TEST(test_a_set_finds_neighbours)
{
	static const uint32_t bounds[] = { 0, 1, 63, 64, 65, 4096, 5000 };
	uint64_t random = testing_seed();
	unsigned char has[5000];
	struct cei_number_set set;
	uint32_t i, k, at, bound;

	for (i = 0; i < sizeof(bounds) / sizeof(*bounds); i++) {
		bound = bounds[i];
		memset(has, 0, sizeof(has));
		ck_assert_int_eq(cei_number_set_init(&set, bound), 0);
		check_neighbours(&set, has, bound, bound);
		for (k = 0; bound && k < 2000; k++) {
			at = (uint32_t)testing_below(&random, bound);
			has[at] = testing_below(&random, 3) == 0;
			if (has[at])
				cei_number_set_put(&set, at);
			else
				cei_number_set_take(&set, at);
			check_neighbours(&set, has, bound,
					 (uint32_t)testing_below(&random, bound + 1));
		}
		cei_number_set_fini(&set);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("area");
	TCase *all = tcase_create("area");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_areas_meet_where_they_share_a_byte);
	tcase_add_test(all, test_areas_of_very_many_rows_are_compared);
	tcase_add_test(all, test_a_set_finds_neighbours);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
