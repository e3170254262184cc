/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests structs of older and newer headers. */

#include <check.h>
#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "testing.h"

struct grown {                          /* a struct that ended before `second` in its first
					 * version */
	size_t   struct_bytes;
	uint64_t first;
	uint64_t second;
	uint32_t third;
	uint32_t fourth;
};

struct newer {
	struct grown known;
	uint8_t      more[24];
};

#define FIRST_BYTES offsetof(struct grown, second)

static const char *fault_of(size_t struct_bytes)
{
	struct newer from = { { struct_bytes, 1, 2, 3, 4 }, { 0 } };

	return cei_sized_fault(&from, FIRST_BYTES, sizeof(struct grown));
}

START_TEST(test_sizes)
{
	ck_assert_ptr_nonnull(strstr(cei_sized_fault(NULL, 8, 8), "no struct"));
	ck_assert_ptr_nonnull(strstr(fault_of(0), "too small"));
	ck_assert_ptr_nonnull(strstr(fault_of(FIRST_BYTES - 4), "too small"));
	ck_assert_ptr_nonnull(strstr(fault_of(FIRST_BYTES + 1), "no struct's size"));
	ck_assert_ptr_nonnull(strstr(fault_of(FIRST_BYTES + 4), "no struct's size"));
	ck_assert_ptr_nonnull(strstr(fault_of(4104), "no struct's size"));
	ck_assert_ptr_nonnull(strstr(fault_of(SIZE_MAX), "no struct's size"));
	ck_assert_ptr_null(fault_of(FIRST_BYTES));
	ck_assert_ptr_null(fault_of(offsetof(struct grown, third)));
	ck_assert_ptr_null(fault_of(sizeof(struct grown)));
	ck_assert_ptr_null(fault_of(sizeof(struct newer)));
}
END_TEST

/* Each byte beyond the known size is checked, up to the end of the caller's struct and no
 * further. */
START_TEST(test_what_is_not_known_is_not_in_use)
{
	struct newer from = { { sizeof(from), 1, 2, 3, 4 }, { 0 } };
	size_t i;

	for (i = 0; i < sizeof(from.more); i++) {
		from.more[i] = 1;
		ck_assert_ptr_nonnull(strstr(cei_sized_fault(&from, FIRST_BYTES,
							     sizeof(from.known)),
					     "does not know"));
		from.more[i] = 0;
	}
	from.known.struct_bytes = sizeof(from) - 8;
	from.more[sizeof(from.more) - 8] = 1;
	ck_assert_ptr_null(cei_sized_fault(&from, FIRST_BYTES, sizeof(from.known)));
}
END_TEST

START_TEST(test_what_a_struct_lacks_is_zero)
{
	struct newer from = { { FIRST_BYTES, 1, 2, 3, 4 }, { 5 } };
	struct grown taken[2];

	memset(taken, 0xa5, sizeof(taken));
	cei_sized_take(taken, &from, sizeof(taken[0]));
	ck_assert_uint_eq(taken[0].first, 1);
	ck_assert_uint_eq(taken[0].second, 0);
	ck_assert_uint_eq(taken[0].fourth, 0);
	from.known.struct_bytes = offsetof(struct grown, third);
	cei_sized_take(taken, &from, sizeof(taken[0]));
	ck_assert_uint_eq(taken[0].second, 2);
	ck_assert_uint_eq(taken[0].third, 0);
	from.known.struct_bytes = sizeof(from);
	cei_sized_take(taken, &from, sizeof(taken[0]));
	ck_assert_uint_eq(taken[0].fourth, 4);
	ck_assert_uint_eq(taken[1].struct_bytes, (size_t)0xa5a5a5a5a5a5a5a5);
	cei_sized_take(taken, NULL, sizeof(taken[0]));
	ck_assert_uint_eq(taken[0].struct_bytes, 0);
	ck_assert_uint_eq(taken[0].fourth, 0);
}
END_TEST

START_TEST(test_a_refusal_is_logged)
{
	static struct testing_log log;
	struct cei_report report;
	struct newer from = { { sizeof(from), 1, 2, 3, 4 }, { 1 } };

	testing_log_init(&log);
	cei_report_init(&report, testing_log_line, &log);
	ck_assert_int_eq(cei_sized_check(&report, &from, FIRST_BYTES, sizeof(from.known),
					 "a call: its struct"), CEOV_ERR_INVALID);
	testing_log_has(&log, "a call: its struct: ", "older than the caller's header", NULL);
	from.more[0] = 0;
	ck_assert_int_eq(cei_sized_check(&report, &from, FIRST_BYTES, sizeof(from.known),
					 "a call: its struct"), 0);
	cei_report_fini(&report);
}
END_TEST

/* An older caller gets the fields that it has room for, and nothing is written behind them; a newer
 * one gets 0 in the fields that the library does not know. */
START_TEST(test_what_is_given)
{
	const struct grown from = { sizeof(from), 1, 2, 3, 4 };
	struct newer to;

	memset(&to, 0xa5, sizeof(to));
	to.known.struct_bytes = offsetof(struct grown, third);
	ck_assert_ptr_null(cei_sized_room_fault(&to, FIRST_BYTES));
	cei_sized_give(&to, &from, sizeof(from));
	ck_assert_uint_eq(to.known.struct_bytes, offsetof(struct grown, third));
	ck_assert_uint_eq(to.known.first, 1);
	ck_assert_uint_eq(to.known.second, 2);
	ck_assert_uint_eq(to.known.third, 0xa5a5a5a5u);
	to.known.struct_bytes = sizeof(to) - 8;
	ck_assert_ptr_null(cei_sized_room_fault(&to, FIRST_BYTES));
	cei_sized_give(&to, &from, sizeof(from));
	ck_assert_uint_eq(to.known.struct_bytes, sizeof(to) - 8);
	ck_assert_uint_eq(to.known.fourth, 4);
	ck_assert_uint_eq(to.more[0], 0);
	ck_assert_uint_eq(to.more[sizeof(to.more) - 9], 0);
	ck_assert_uint_eq(to.more[sizeof(to.more) - 8], 0xa5);
}
END_TEST

START_TEST(test_no_room)
{
	size_t bytes = FIRST_BYTES - 8;

	ck_assert_ptr_nonnull(strstr(cei_sized_room_fault(NULL, FIRST_BYTES), "no struct"));
	ck_assert_ptr_nonnull(strstr(cei_sized_room_fault(&bytes, FIRST_BYTES), "too small"));
	bytes = FIRST_BYTES + 4;
	ck_assert_ptr_nonnull(strstr(cei_sized_room_fault(&bytes, FIRST_BYTES),
				     "no struct's size"));
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("sized");
	TCase *all = tcase_create("sized");

	tcase_add_test(all, test_sizes);
	tcase_add_test(all, test_what_is_not_known_is_not_in_use);
	tcase_add_test(all, test_what_a_struct_lacks_is_zero);
	tcase_add_test(all, test_a_refusal_is_logged);
	tcase_add_test(all, test_what_is_given);
	tcase_add_test(all, test_no_room);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
