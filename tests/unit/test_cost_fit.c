/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Fitting the cost of copies to measured times. */

#include <check.h>
#include <math.h>

#include "testing.h"
#include "topology/cost_fit.h"

#define MIB (UINT64_C(1) << 20)

static double time_of(uint64_t bytes, double t0_ns, double bytes_per_s)
{
	return t0_ns + (double)bytes / bytes_per_s * 1e9;
}

START_TEST(test_exact_times_give_their_line)
{
	const uint64_t sizes[] = { MIB, 16 * MIB, 256 * MIB };
	uint64_t state = testing_seed(), bytes_per_s = 0, t0_ns = 0;
	struct cei_cost_sample points[3];
	double rate, t0;
	uint32_t i, k;

	for (i = 0; i < 1000; i++) {
		rate = (double)(1 + testing_below(&state, 2000)) * 1e9 / 2;
		t0 = (double)testing_below(&state, 20000);
		for (k = 0; k < 3; k++)
			points[k] = (struct cei_cost_sample){ sizes[k],
				time_of(sizes[k], t0, rate) };
		ck_assert_int_eq(cei_cost_fit(points, 3, &bytes_per_s, &t0_ns), 0);
		ck_assert_double_le(fabs((double)bytes_per_s - rate), 1e-6 * rate);
		ck_assert_double_le(fabs((double)t0_ns - t0), 1);
	}
}
END_TEST

/* Times measured on one pair of GPUs: 4.9 us for 1 MiB, 45.9 for 16, 679 for 256. */
START_TEST(test_measured_times)
{
	const struct cei_cost_sample points[] = {
		{ MIB, 4900 }, { 16 * MIB, 45900 }, { 256 * MIB, 679000 },
	};
	uint64_t bytes_per_s = 0, t0_ns = 0;
	uint32_t i;

	ck_assert_int_eq(cei_cost_fit(points, 3, &bytes_per_s, &t0_ns), 0);
	ck_assert_uint_ge(bytes_per_s, UINT64_C(385000000000));
	ck_assert_uint_le(bytes_per_s, UINT64_C(400000000000));
	for (i = 0; i < 3; i++)
		ck_assert_double_le(fabs(time_of(points[i].bytes, (double)t0_ns,
						 (double)bytes_per_s) / points[i].ns - 1),
				    0.03);
}
END_TEST

START_TEST(test_t0_is_never_negative)
{
	/* small copies take less time than the line predicts, as if they came from a cache */
	const struct cei_cost_sample points[] = {
		{ MIB, 50000 }, { 16 * MIB, 1600000 }, { 64 * MIB, 6700000 },
	};
	uint64_t bytes_per_s = 0, t0_ns = 7;

	ck_assert_int_eq(cei_cost_fit(points, 3, &bytes_per_s, &t0_ns), 0);
	ck_assert_uint_eq(t0_ns, 0);
	ck_assert_uint_ge(bytes_per_s, UINT64_C(10000000000));
	ck_assert_uint_le(bytes_per_s, UINT64_C(21000000000));
}
END_TEST

static void refused(const struct cei_cost_sample *points, uint32_t n)
{
	uint64_t bytes_per_s = 1, t0_ns = 2;

	ck_assert_int_eq(cei_cost_fit(points, n, &bytes_per_s, &t0_ns), CEOV_ERR_INVALID);
	ck_assert_uint_eq(bytes_per_s, 1);
	ck_assert_uint_eq(t0_ns, 2);
}

START_TEST(test_what_is_no_line_is_refused)
{
	const struct cei_cost_sample one[] = { { MIB, 5000 } };
	const struct cei_cost_sample same[] = { { MIB, 5000 }, { MIB, 5100 } };
	const struct cei_cost_sample zero[] = { { MIB, 0 }, { 2 * MIB, 5100 } };
	const struct cei_cost_sample negative[] = { { MIB, -1 }, { 2 * MIB, 5100 } };
	const struct cei_cost_sample not_a_number[] = { { MIB, 5000 }, { 2 * MIB, NAN } };
	const struct cei_cost_sample endless[] = { { MIB, 5000 }, { 2 * MIB, INFINITY } };
	const struct cei_cost_sample level[] = { { MIB, 5000 }, { 256 * MIB, 5000 } };
	const struct cei_cost_sample falling[] = { { MIB, 9000 }, { 256 * MIB, 5000 } };

	refused(one, 0);
	refused(one, 1);
	refused(same, 2);
	refused(zero, 2);
	refused(negative, 2);
	refused(not_a_number, 2);
	refused(endless, 2);
	refused(level, 2);
	refused(falling, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fit");
	TCase *tests = tcase_create("fit");

	tcase_add_test(tests, test_exact_times_give_their_line);
	tcase_add_test(tests, test_measured_times);
	tcase_add_test(tests, test_t0_is_never_negative);
	tcase_add_test(tests, test_what_is_no_line_is_refused);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
