/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Numbers for pointers. */

#include <check.h>

#include "base/ids.h"
#include "testing.h"

#define KEYS 5000u

START_TEST(test_numbers_are_those_of_the_first_call)
{
	static const char keys[KEYS];
	struct cei_ids ids = { 0 };
	uint64_t state = testing_seed();
	uint32_t i, key, number, n = 0, number_of[KEYS];

	ck_assert_uint_eq(cei_ids_find(&ids, keys), UINT32_MAX);
	for (i = 0; i < KEYS; i++)
		number_of[i] = UINT32_MAX;
	for (i = 0; i < 4 * KEYS; i++) {
		key = (uint32_t)testing_below(&state, KEYS);
		ck_assert_uint_eq(cei_ids_find(&ids, &keys[key]), number_of[key]);
		ck_assert_int_eq(cei_ids_number(&ids, &keys[key], &number), 0);
		if (number_of[key] == UINT32_MAX)
			number_of[key] = n++;
		ck_assert_uint_eq(number, number_of[key]);
		ck_assert_uint_eq(ids.n, n);
		ck_assert_ptr_eq(ids.keys[number], &keys[key]);
	}
	cei_ids_fini(&ids);
	ck_assert_uint_eq(ids.n, 0);
	ck_assert_uint_eq(cei_ids_find(&ids, keys), UINT32_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ids");
	TCase *tcase = tcase_create("ids");

	tcase_add_test(tcase, test_numbers_are_those_of_the_first_call);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
