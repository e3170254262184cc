/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests XML that must not reach hwloc's parser, beyond what test_machine_xml covers. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "testing.h"
#include "topology/xml_scan.h"
#include "topology/xml_tree.h"

static void refused(const char *text, const char *why)
{
	struct cei_xml_fault fault = { 0, "" };
	char told[CEI_XML_WHY_BYTES + 16];

	ck_assert_int_eq(cei_xml_scan(text, strlen(text), &fault), CEOV_ERR_INVALID);
	snprintf(told, sizeof(told), "line %u: %s", fault.line, fault.why);
	ck_assert_msg(strstr(told, why) != NULL, "'%s' is not '%s' of %s", told, why, text);
}

#define TYPE "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"

/* Valid XML that hwloc does not write. hwloc's parser would understand it differently from
 * the checker. */
START_TEST(test_what_hwloc_does_not_write_is_refused)
{
	refused(TYPE "<topology version=\"&a;\"/>", "line 2: an entity");
	refused(TYPE "<topology version=\"2.0\">&a;</topology>", "line 2: an entity");
	refused(TYPE "<topology version=\"2.0\">&#10;</topology>", "text where");
	refused("<!DOCTYPE topology [<!ENTITY a \"aa\"><!ENTITY b \"&lt;&lt;\">]>\n<topology/>",
		"line 1: a declaration");
	refused("<!DOCTYPE topology [<!ATTLIST topology version CDATA \"2.0\">]><topology/>",
		"a declaration");
	refused("<!DOCTYPE topology SYSTEM \"/etc/passwd\"><topology/>", "a declaration");
	refused("<!DOCTYPE topology PUBLIC \"a\" \"b\"><topology/>", "a declaration");
	refused("<?xml version=\"1.0\" encoding=\"US-ASCII\"?><topology/>", "a declaration");
	refused("<topology version=\"2.0\"><?a b?></topology>", "a declaration");
	refused("<topology version=\"2.0\"><![CDATA[ ]]></topology>", "a declaration");
	refused("<topology version =\"2.0\"/>", "a blank beside the =");
	refused("<topology version=\"2.0\" a:b=\"c\"/>", "or has a colon");
	refused("<topology:x version=\"2.0\"></topology:x>", "whose name has a colon");
	refused("<topology version=2.0/>", "no XML: ");
	refused("<!-- a -- b --><topology/>", "no XML: ");
}
END_TEST

/* Tests limits that even a small file can exceed. */
START_TEST(test_bounds_of_one_element)
{
	char text[2000] = "<topology version=\"2.0\"";
	uint32_t i;

	refused("<topology version=\"2.0\" an_attribute_with_thirty_two_letter=\"\"/>",
		"name is too long");
	for (i = 0; i < CEI_XML_ATTRIBUTES_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " a%u=\"\"", i);
	strcat(text, "/>");
	refused(text, "more than 32 attributes");
}
END_TEST

START_TEST(test_a_long_value_is_refused)
{
	uint64_t n = 70000;
	char *text = malloc(n + 100);

	ck_assert_ptr_nonnull(text);
	strcpy(text, "<topology version=\"");
	memset(text + strlen(text), 'a', n);
	strcpy(text + strlen("<topology version=\"") + n, "\"/>");
	refused(text, "attribute version of more than 65536 bytes");
	free(text);
}
END_TEST

START_TEST(test_sizes_are_bounded)
{
	struct cei_xml_fault fault;

	/* refused by its size before it is read */
	ck_assert_int_eq(cei_xml_scan("", CEI_XML_BYTES_MAX + 1, &fault), CEOV_ERR_INVALID);
	ck_assert_str_eq(fault.why, "it is too large");
	ck_assert_uint_eq(fault.line, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("xml scan");
	TCase *tests = tcase_create("xml scan");

	tcase_add_test(tests, test_what_hwloc_does_not_write_is_refused);
	tcase_add_test(tests, test_bounds_of_one_element);
	tcase_add_test(tests, test_a_long_value_is_refused);
	tcase_add_test(tests, test_sizes_are_bounded);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
