/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Whether news reach all processes, whatever their number, while some of them tell nothing. */

#include <string.h>

#include "ipc/group/spread.h"
#include "testing.h"

#define LARGEST 300u

static uint32_t log2_of(uint32_t n)
{
	uint32_t log = 0;

	while (n >>= 1)
		log++;
	return log;
}

/* Returns how many hear news of the first process, itself included, if the mute ones neither hear
 * nor tell. */
static uint32_t count_reached(uint32_t first, uint32_t n, const uint8_t *is_mute)
{
	uint32_t queue[LARGEST], told[CEI_SPREAD_MAX], n_told, at, i, n_reached = 1;
	uint8_t has_heard[LARGEST] = { 0 };

	queue[0] = first;
	has_heard[first] = 1;
	for (at = 0; at < n_reached; at++) {
		n_told = cei_spread(queue[at], n, told);
		for (i = 0; i < n_told; i++) {
			if (is_mute[told[i]] || has_heard[told[i]])
				continue;
			has_heard[told[i]] = 1;
			queue[n_reached++] = told[i];
		}
	}
	return n_reached;
}

/* Whether these are few others of n processes, each named once. */
static int is_few_and_once(uint32_t own, uint32_t n, const uint32_t *told, uint32_t n_told)
{
	uint32_t i, k;

	if (n_told > 2 * log2_of(n))
		return 0;
	for (i = 0; i < n_told; i++) {
		if (told[i] >= n || told[i] == own)
			return 0;
		for (k = 0; k < i; k++)
			if (told[i] == told[k])
				return 0;
	}
	return 1;
}

START_TEST(test_each_tells_few_and_each_of_them_once)
{
	uint32_t told[CEI_SPREAD_MAX], n, own, n_told;

	for (n = 1; n <= testing_share(LARGEST); n++) {
		for (own = 0; own < n; own++) {
			n_told = cei_spread(own, n, told);
			if (!is_few_and_once(own, n, told, n_told))
				ck_abort_msg("process %u of %u tells %u", own, n, n_told);
		}
	}
	ck_assert_uint_le(cei_spread(UINT32_MAX - 1, UINT32_MAX, told), CEI_SPREAD_MAX);
}
END_TEST

/* One process is lost, whichever. */
START_TEST(test_all_hear_of_one_that_is_lost)
{
	uint8_t is_mute[LARGEST] = { 0 };
	uint32_t n, lost;

	for (n = 2; n <= 100; n++) {
		for (lost = 0; lost < n; lost++) {
			is_mute[lost] = 1;
			ck_assert_uint_eq(count_reached((lost + 1) % n, n, is_mute), n - 1);
			is_mute[lost] = 0;
		}
	}
}
END_TEST

/* Several are lost at once, at random. */
START_TEST(test_all_hear_of_several_that_are_lost)
{
	uint64_t random = testing_seed();
	uint32_t n, round, i, first, n_mute;
	uint8_t is_mute[LARGEST];

	for (round = 0; round < testing_share(20000); round++) {
		n = 3 + (uint32_t)testing_below(&random, LARGEST - 2);
		memset(is_mute, 0, sizeof(is_mute));
		for (i = 0; i < log2_of(n); i++)
			is_mute[testing_below(&random, n)] = 1;
		for (i = 0, n_mute = 0; i < n; i++)
			n_mute += is_mute[i];
		for (first = 0; first < n && is_mute[first]; first++)
			;
		if (first < n)
			ck_assert_uint_eq(count_reached(first, n, is_mute), n - n_mute);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("spread");
	TCase *all = tcase_create("spread");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_each_tells_few_and_each_of_them_once);
	tcase_add_test(all, test_all_hear_of_one_that_is_lost);
	tcase_add_test(all, test_all_hear_of_several_that_are_lost);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
