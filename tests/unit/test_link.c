/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests directions and default costs of links. */

#include <check.h>
#include <string.h>

#include "testing.h"
#include "topology/link.h"

#define GB UINT64_C(1000000000)

/* --- single functions ----------------------------------------------------------------- */

START_TEST(test_a_copy_takes_t0_and_its_bytes)
{
	struct cei_machine_link link = { .kind = CEI_MACHINE_PCIE, .bytes_per_s = 50 * GB,
					 .t0_ns = 4000 };

	ck_assert_uint_eq(cei_machine_link_ns(&link, 0), 4000);
	ck_assert_uint_eq(cei_machine_link_ns(&link, 50 * GB), 4000 + GB);
	ck_assert_uint_eq(cei_machine_link_ns(&link, 75 * GB), 4000 + GB + GB / 2);
	link.bytes_per_s = 1;
	ck_assert_uint_eq(cei_machine_link_ns(&link, UINT64_MAX), UINT64_MAX);
	link.kind = CEI_MACHINE_NONE;
	ck_assert_uint_eq(cei_machine_link_ns(&link, 1), UINT64_MAX);
}
END_TEST

/* Each direction has a lane for copies without waits. Directions share a lane only if they share a
 * copy engine. */
START_TEST(test_directions_have_lanes)
{
	ck_assert_int_eq(cei_direction_lane(CEI_DIRECTION_PEER), CEI_DIRECTION_PEER);
	ck_assert_int_eq(cei_direction_lane(CEI_DIRECTION_IN), CEI_DIRECTION_IN);
	ck_assert_int_eq(cei_direction_lane(CEI_DIRECTION_OUT), CEI_DIRECTION_OUT);
	ck_assert_int_eq(cei_direction_lane(CEI_DIRECTION_LOCAL), CEI_DIRECTION_PEER);
	ck_assert_int_eq(cei_direction_lane(CEI_DIRECTION_HOST), CEI_DIRECTION_PEER);
}
END_TEST

START_TEST(test_each_direction_has_a_default)
{
	const struct cei_machine_link *link;
	int i;

	for (i = CEI_DIRECTION_PEER; i < CEI_DIRECTION_ANY; i++) {
		link = cei_link_default((enum cei_direction)i);
		ck_assert_int_eq(link->origin, CEI_MACHINE_DEFAULT);
		ck_assert_uint_eq(link->n_ports, 0);
		ck_assert_uint_eq(cei_machine_link_ns(link, 0), link->t0_ns);
		ck_assert_uint_eq(cei_machine_link_ns(link, link->bytes_per_s),
				  link->t0_ns + GB);
	}
	ck_assert_uint_eq(cei_link_default(CEI_DIRECTION_HOST)->t0_ns, 2000);
	ck_assert_uint_eq(cei_link_default(CEI_DIRECTION_PEER)->bytes_per_s, 392 * GB);
}
END_TEST

START_TEST(test_all_have_names)
{
	int i;

	for (i = CEI_DIRECTION_PEER; i <= CEI_DIRECTION_ANY; i++)
		ck_assert_str_ne(cei_direction_name((enum cei_direction)i), "unknown");
	for (i = CEI_MACHINE_NONE; i <= CEI_MACHINE_NODES; i++)
		ck_assert_str_ne(cei_machine_link_kind_name((enum cei_machine_link_kind)i),
				 "unknown");
	ck_assert_str_eq(cei_machine_origin_name(CEI_MACHINE_MEASURED), "measured");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("link");
	TCase *tests = tcase_create("link");

	tcase_add_test(tests, test_a_copy_takes_t0_and_its_bytes);
	tcase_add_test(tests, test_directions_have_lanes);
	tcase_add_test(tests, test_each_direction_has_a_default);
	tcase_add_test(tests, test_all_have_names);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
