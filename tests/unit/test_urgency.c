/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests that each urgency has a name that is read as that urgency, and nothing else is a name. */

#include "base/urgency.h"

#include "testing.h"

START_TEST(test_names_are_read_as_they_are_written)
{
	uint32_t urgency, read;

	for (urgency = 0; urgency <= CEOV_URGENCY_BACKGROUND; urgency++) {
		read = UINT32_MAX;
		ck_assert(cei_urgency_read(cei_urgency_name(urgency), &read));
		ck_assert_uint_eq(read, urgency);
	}
	ck_assert_str_eq(cei_urgency_name(CEOV_URGENCY_URGENT), "urgent");
	ck_assert_str_eq(cei_urgency_name(CEOV_URGENCY_BACKGROUND), "background");
}
END_TEST

START_TEST(test_nothing_else_is_a_name)
{
	uint32_t read = 7;

	ck_assert_str_eq(cei_urgency_name(CEOV_URGENCY_BACKGROUND + 1), "?");
	ck_assert_str_eq(cei_urgency_name(UINT32_MAX), "?");
	ck_assert(!cei_urgency_read("", &read));
	ck_assert(!cei_urgency_read("urgen", &read));
	ck_assert(!cei_urgency_read("Urgent", &read));
	ck_assert(!cei_urgency_read("?", &read));
	ck_assert_uint_eq(read, 7);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("urgency");
	TCase *all = tcase_create("urgency");

	tcase_add_test(all, test_names_are_read_as_they_are_written);
	tcase_add_test(all, test_nothing_else_is_a_name);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
