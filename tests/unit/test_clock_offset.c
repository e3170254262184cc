/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Offsets of clocks, from the times of a question and its answer. */

#include "net/clock_offset.h"
#include "testing.h"

#define SECOND UINT64_C(1000000000)

/* An exchange with a reference that is so far ahead; ways there and back, and the time between. */
static struct cei_clock_stamps exchange(uint64_t at, int64_t ahead, uint64_t there, uint64_t busy,
					uint64_t back)
{
	struct cei_clock_stamps stamps = { .asked_ns = at };

	stamps.heard_ns = (uint64_t)((int64_t)(at + there) + ahead);
	stamps.told_ns = stamps.heard_ns + busy;
	stamps.back_ns = at + there + busy + back;
	return stamps;
}

static struct cei_clock_offset offset_of(struct cei_clock_stamps stamps)
{
	struct cei_clock_offset offset;

	ck_assert_int_eq(cei_clock_offset_of(&stamps, &offset), 0);
	ck_assert_uint_lt(offset.at_ns, CEI_CLOCK_NS_MAX);
	ck_assert_uint_lt(offset.within_ns, CEI_CLOCK_NS_MAX);
	ck_assert_int_lt(offset.ahead_ns, (int64_t)CEI_CLOCK_NS_MAX);
	ck_assert_int_gt(offset.ahead_ns, -(int64_t)CEI_CLOCK_NS_MAX);
	return offset;
}

START_TEST(test_even_ways_give_the_offset)
{
	struct cei_clock_offset offset = offset_of(exchange(SECOND, 5000, 40, 1000, 40));

	ck_assert_int_eq(offset.ahead_ns, 5000);
	ck_assert_uint_eq(offset.within_ns, 40);
	ck_assert_uint_eq(offset.at_ns, SECOND + 540);
	offset = offset_of(exchange(90 * SECOND, -(int64_t)(80 * SECOND), 0, 0, 0));
	ck_assert_int_eq(offset.ahead_ns, -(int64_t)(80 * SECOND));
	ck_assert_uint_eq(offset.within_ns, 0);
}
END_TEST

/* However the delay is divided, the true offset is within the bound. */
START_TEST(test_the_bound_holds_for_uneven_ways)
{
	uint64_t random = testing_seed(), there, back, apart;
	struct cei_clock_offset offset;
	int64_t ahead;
	uint32_t i;

	for (i = 0; i < 100000; i++) {
		there = testing_below(&random, SECOND);
		back = i % 3 ? testing_below(&random, 1000) : 0;
		ahead = (int64_t)testing_below(&random, 200 * SECOND) - (int64_t)(100 * SECOND);
		offset = offset_of(exchange(100 * SECOND, ahead, there,
					    testing_below(&random, SECOND), back));
		apart = (uint64_t)(ahead > offset.ahead_ns ? ahead - offset.ahead_ns :
				   offset.ahead_ns - ahead);
		ck_assert_uint_le(apart, offset.within_ns);
		ck_assert_uint_eq(offset.within_ns, (there + back + 1) / 2);
	}
}
END_TEST

static void refused(uint64_t asked, uint64_t heard, uint64_t told, uint64_t back)
{
	struct cei_clock_stamps stamps = { asked, heard, told, back };
	struct cei_clock_offset offset;

	ck_assert_int_eq(cei_clock_offset_of(&stamps, &offset), CEOV_ERR_INVALID);
}

START_TEST(test_times_that_no_clocks_show)
{
	refused(10, 50, 49, 20);                /* answered before it was asked */
	refused(10, 50, 61, 20);                /* busy for longer than the answer took */
	refused(20, 50, 50, 10);                /* the own clock goes back */
	refused(10, UINT64_MAX, UINT64_MAX, 20);
	refused(10, 0, CEI_CLOCK_NS_MAX, 20);
	refused(CEI_CLOCK_NS_MAX, 5, 5, CEI_CLOCK_NS_MAX);
}
END_TEST

START_TEST(test_the_largest_times_do_not_overflow)
{
	const uint64_t most = CEI_CLOCK_NS_MAX - 1;
	struct cei_clock_offset ahead = offset_of((struct cei_clock_stamps){ 0, most, most, 0 });
	struct cei_clock_offset behind = offset_of((struct cei_clock_stamps){ most, 0, 0, most });
	struct cei_clock_offset wide = offset_of((struct cei_clock_stamps){ 0, 0, 0, most });

	ck_assert_int_eq(ahead.ahead_ns, (int64_t)most);
	ck_assert_int_eq(behind.ahead_ns, -(int64_t)most);
	ck_assert_uint_eq(wide.within_ns, most - most / 2);
	ck_assert_int_eq(cei_clock_offsets_agree(&ahead, &behind), 0);
	ck_assert_int_eq(cei_clock_offsets_agree(&behind, &ahead), 0);
	ck_assert_int_eq(cei_clock_offsets_agree(&wide, &wide), 1);
}
END_TEST

/* Offsets may differ by their bounds, and by what clocks drift in the time between. */
START_TEST(test_offsets_that_contradict_each_other)
{
	struct cei_clock_offset one = { SECOND, 1000, 30 }, other = { SECOND, 1050, 20 };

	ck_assert_int_eq(cei_clock_offsets_agree(&one, &other), 1);
	other.ahead_ns = 1052;
	ck_assert_int_eq(cei_clock_offsets_agree(&one, &other), 0);
	ck_assert_int_eq(cei_clock_offsets_agree(&other, &one), 0);
	other.at_ns = 2 * SECOND;
	ck_assert_int_eq(cei_clock_offsets_agree(&one, &other), 1);
	other.ahead_ns = -2001000;
	ck_assert_int_eq(cei_clock_offsets_agree(&one, &other), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("clock offset");
	TCase *all = tcase_create("clock offset");

	tcase_add_test(all, test_even_ways_give_the_offset);
	tcase_add_test(all, test_the_bound_holds_for_uneven_ways);
	tcase_add_test(all, test_times_that_no_clocks_show);
	tcase_add_test(all, test_the_largest_times_do_not_overflow);
	tcase_add_test(all, test_offsets_that_contradict_each_other);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
