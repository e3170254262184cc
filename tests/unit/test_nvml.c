/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what NVML adds to hints, with a fake NVML that may be missing, fail, or lack calls. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"
#include "topology/topology.h"

static struct cei_report report;
static struct testing_log lines;
static struct cei_machine_hints hints;
static char library[256];

static void set_up(void)
{
	testing_log_init(&lines);
	cei_report_init(&report, testing_log_line, &lines);
	report.level = CEI_LOG_DEBUG;
	memset(&hints, 0, sizeof(hints));
	hints.n_gpus = 2;
	strcpy(hints.gpus[0].bus_id, "0000:19:00.0");
	strcpy(hints.gpus[1].bus_id, "0000:3B:00.0");
}

static void tear_down(void)
{
	cei_report_fini(&report);
	if (library[0])
		unlink(library);
}

/* Loads the double, which is then found by its SONAME. Each test is a process of its own. */
static void use_fake(const char *behaviour, const char *option)
{
	const char *compiler = getenv("CC") ? getenv("CC") : "cc";
	const char *folder = getenv("srcdir") ? getenv("srcdir") : ".";
	char command[1024];

	testing_path("libnvidia-ml.so.1", library, sizeof(library));
	snprintf(command, sizeof(command), "%s %s -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 "
		 "-o '%s' '%s/tests/stub/fake_nvml.c'", compiler, option, library, folder);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(setenv("CEOVERLAP_FAKE_NVML", behaviour, 1), 0);
	ck_assert_msg(dlopen(library, RTLD_NOW) != NULL, "%s", dlerror());
}

START_TEST(test_links_to_a_switch_are_counted)
{
	use_fake("switch", "");
	cei_machine_hints_from_nvml(&report, &hints);
	ck_assert_uint_eq(hints.gpus[0].n_nvlinks, 18);
	ck_assert_uint_eq(hints.gpus[1].n_nvlinks, 18);
	ck_assert_uint_eq(hints.gpus[1].nvlink_bytes_per_s, 26562000000);
	ck_assert_int_eq(hints.gpus[0].is_on_switch, 1);
	ck_assert_uint_eq(hints.n_direct[0][1], 0);
}
END_TEST

START_TEST(test_links_between_gpus_are_counted)
{
	use_fake("direct", "");
	cei_machine_hints_from_nvml(&report, &hints);
	ck_assert_uint_eq(hints.gpus[0].n_nvlinks, 4);
	ck_assert_int_eq(hints.gpus[0].is_on_switch, 0);
	ck_assert_uint_eq(hints.n_direct[0][1], 4);
	ck_assert_uint_eq(hints.n_direct[1][0], 4);
	ck_assert_uint_eq(hints.n_direct[0][0], 0);
}
END_TEST

static void check_unchanged(void)
{
	static struct cei_machine_hints before;

	before = hints;
	cei_machine_hints_from_nvml(&report, &hints);
	ck_assert(!memcmp(&before, &hints, sizeof(hints)));
}

START_TEST(test_nvml_that_does_not_start_is_no_error)
{
	struct ceov_failure failure;

	use_fake("refuses", "");
	check_unchanged();
	testing_log_has(&lines, "NVML does not start (999)", NULL, NULL);
	ck_assert_int_eq(cei_report_take(&report, &failure), CEOV_NONE);
}
END_TEST

START_TEST(test_nvml_that_knows_no_gpu_says_nothing)
{
	use_fake("silent", "");
	check_unchanged();
}
END_TEST

START_TEST(test_nvml_of_few_calls_says_nothing)
{
	use_fake("switch", "-DFAKE_NVML_FEW");
	check_unchanged();
}
END_TEST

START_TEST(test_without_gpus_nvml_is_not_asked)
{
	use_fake("switch", "");
	hints.n_gpus = 0;
	check_unchanged();
	ck_assert_uint_eq(lines.n_lines, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nvml");
	TCase *all = tcase_create("nvml");

	tcase_set_timeout(all, 60);
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_links_to_a_switch_are_counted);
	tcase_add_test(all, test_links_between_gpus_are_counted);
	tcase_add_test(all, test_nvml_that_does_not_start_is_no_error);
	tcase_add_test(all, test_nvml_that_knows_no_gpu_says_nothing);
	tcase_add_test(all, test_nvml_of_few_calls_says_nothing);
	tcase_add_test(all, test_without_gpus_nvml_is_not_asked);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
