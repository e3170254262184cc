/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Rows of reports: the same cells as a line of a table, as notes below it, and as JSON. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tools/common/cells.h"

static char *text;

/* Prints the row and ends it. */
static void print(struct cells *cells, int is_first)
{
	size_t n_bytes;
	FILE *out;

	free(text);
	out = open_memstream(&text, &n_bytes);
	ck_assert_ptr_nonnull(out);
	cells_print(out, cells, is_first);
	ck_assert_int_eq(fclose(out), 0);
	cells_end(cells);
}

static void tear_down(void)
{
	free(text);
	text = NULL;
}

static void is_json(const struct cells *cells, const char *wanted)
{
	ck_assert_str_eq(json_object_to_json_string_ext(cells->object, JSON_C_TO_STRING_PLAIN),
			 wanted);
}

START_TEST(test_a_row_is_a_line_and_an_object)
{
	struct cells cells;

	cells_begin(&cells);
	cells_text(&cells, "name", "name:-6", "one");
	cells_integer(&cells, "count", "count:6", 12);
	cells_number(&cells, "us", "us:7.2", 1.5);
	cells_text(&cells, NULL, "left:-9", "shown");
	cells_text(&cells, "hidden", NULL, "only in JSON");
	is_json(&cells, "{\"name\":\"one\",\"count\":12,\"us\":1.500,"
		"\"hidden\":\"only in JSON\"}");
	print(&cells, 1);
	ck_assert_str_eq(text, "name    count      us left\none        12    1.50 shown\n");
}
END_TEST

START_TEST(test_values_that_there_are_not)
{
	struct cells cells;

	cells_begin(&cells);
	cells_text(&cells, "text", "t:3", NULL);
	cells_number(&cells, "nan", "n:3.1", NAN);
	cells_measured(&cells, "measured", "m:3.1", 0);
	cells_optional(&cells, "optional", "o:3.1", 0);
	cells_number(&cells, "note", "a note:.1", NAN);
	cells_verified(&cells, "verified", "data:-9", -1);
	is_json(&cells, "{\"text\":null,\"nan\":null,\"measured\":null,\"note\":null,"
		"\"verified\":null}");
	print(&cells, 0);
	ck_assert_str_eq(text, "  -   -   -   - unchecked\n");
}
END_TEST

START_TEST(test_a_number_gives_up_decimals_before_it_is_too_wide)
{
	static const struct { double value; const char *shown; } cases[] = {
		{ 1.005, "   1.00\n" }, { 12345.67, "12345.7\n" }, { 1234567.8, "1234568\n" },
		{ 123456789.0, "123456789\n" }, { -0.5, "  -0.50\n" },
	};
	struct cells cells;
	uint32_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cells_begin(&cells);
		cells_number(&cells, NULL, "us:7.2", cases[i].value);
		print(&cells, 0);
		ck_assert_str_eq(text, cases[i].shown);
	}
	cells_begin(&cells);
	cells_number(&cells, "error", "error:8.1e", 0.00123);
	is_json(&cells, "{\"error\":1.230e-03}");
	print(&cells, 0);
	ck_assert_str_eq(text, " 1.2e-03\n");
}
END_TEST

START_TEST(test_notes_stand_below_and_are_not_too_long)
{
	char longest[100], *line;
	struct cells cells;
	uint32_t i;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	cells_begin(&cells);
	cells_text(&cells, NULL, "row:3", "r");
	cells_number(&cells, NULL, "rate, GB/s:.1", 2.25);
	cells_integer(&cells, NULL, "count", 3);
	print(&cells, 0);
	ck_assert_str_eq(text, "  r\n#   rate, GB/s 2.2, count 3\n");
	cells_begin(&cells);
	for (i = 0; i < 4; i++)
		cells_text(&cells, NULL, "a", longest);
	print(&cells, 1);
	for (i = 0, line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), i++)
		ck_assert_uint_le(strlen(line), CELLS_COLUMNS);
	ck_assert_uint_eq(i, 4);
}
END_TEST

START_TEST(test_a_brief_table_has_some_of_the_columns)
{
	struct cells cells;

	cells_begin(&cells);
	cells.is_brief = 1;
	cells_text(&cells, "name", "name:-6!", "one");
	cells_integer(&cells, "count", "count:6", 12);
	cells_number(&cells, "us", "us:7.2!", 1.5);
	cells_number(&cells, "big", "big:9.1e!", 1500);
	cells_number(&cells, "note", "note:.2", 2);
	is_json(&cells, "{\"name\":\"one\",\"count\":12,\"us\":1.500,\"big\":1.500e+03,"
		"\"note\":2.000}");
	print(&cells, 1);
	ck_assert_str_eq(text, "name        us       big\none       1.50   1.5e+03\n");
}
END_TEST

static const char *place(const void *arg, uint32_t number, char *room)
{
	(void)arg;
	snprintf(room, CELLS_PLACE_BYTES, "p%u", number);
	return room;
}

static double rate(const void *arg, uint32_t from, uint32_t to)
{
	return from == to || from == 1 || to == 1 ? NAN : *(const double *)arg + from;
}

START_TEST(test_a_matrix_leaves_out_places_without_values)
{
	double base = 7.25;
	struct cells_matrix matrix = { "# rates", 3, place, rate, &base };
	size_t n_bytes;
	FILE *out = open_memstream(&text, &n_bytes);

	ck_assert_ptr_nonnull(out);
	cells_matrix_print(out, &matrix);
	matrix.n = 1;
	cells_matrix_print(out, &matrix);
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_str_eq(text, "\n# rates\nfrom\\to     p0     p2\np0           -    7.2\n"
			 "p2         9.2      -\n");
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("cells");
	TCase *all = tcase_create("cells");

	tcase_add_checked_fixture(all, NULL, tear_down);
	tcase_add_test(all, test_a_row_is_a_line_and_an_object);
	tcase_add_test(all, test_values_that_there_are_not);
	tcase_add_test(all, test_a_number_gives_up_decimals_before_it_is_too_wide);
	tcase_add_test(all, test_notes_stand_below_and_are_not_too_long);
	tcase_add_test(all, test_a_brief_table_has_some_of_the_columns);
	tcase_add_test(all, test_a_matrix_leaves_out_places_without_values);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
