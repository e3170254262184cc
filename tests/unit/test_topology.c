/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the machine of a context: none on host memory alone; one from a file if CEOVERLAP_MACHINE
 * names it. */

#include <check.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/context.h"
#include "testing.h"
#include "topology/machine_cache.h"
#include "topology/topology.h"

#define FIXTURES "tests/fixtures/machines"

static struct testing_log log_of;

static void set_up(void)
{
	testing_log_init(&log_of);
	setenv("CEOVERLAP_MACHINE_CACHE", "off", 1);
	unsetenv("CEOVERLAP_MACHINE");
}

static void fixture(const char *name, char *path)
{
	const char *srcdir = getenv("srcdir");

	snprintf(path, PATH_MAX, "%s/%s/%s", srcdir ? srcdir : ".", FIXTURES, name);
}

static void tear_down(void)
{
	unsetenv("CEOVERLAP_MACHINE");
}

START_TEST(test_host_memory_needs_no_machine)
{
	ceov_context *context = testing_open(1, &log_of);
	const struct cei_topology *topology = context->works.topology;

	ck_assert_ptr_null(topology->machine);
	ck_assert_uint_eq(topology->n_gpus, 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_a_file_is_taken_instead)
{
	char path[PATH_MAX];
	ceov_context *context;

	fixture("pcie4-two-nodes.xml", path);
	setenv("CEOVERLAP_MACHINE", path, 1);
	context = testing_open(2, &log_of);
	ck_assert_ptr_nonnull(context->works.topology->machine);
	ck_assert_uint_eq(context->works.topology->machine->n_gpus, 4);
	ck_assert_uint_eq(context->works.topology->machine->n_nodes, 2);
	ck_assert_uint_eq(log_of.n_lines, 0);
	ceov_close(context);
}
END_TEST

/* Writes the explanation of a plan whose only transfer goes from rank 0 to rank `to`. */
static void explain(ceov_context *context, uint32_t to, char *text, size_t n_bytes)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer), .n_rows = 1,
					  .row_bytes = 1 << 20 };
	ceov_plan *plan = NULL;
	FILE *file = tmpfile();
	size_t n;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(ceov_buffer_create(context, 0, transfer.row_bytes,
					    &transfer.source.buffer), 0);
	ck_assert_int_eq(ceov_buffer_create(context, to, transfer.row_bytes,
					    &transfer.target.buffer), 0);
	ck_assert_int_eq(ceov_plan_create(context, 0, NULL, &plan), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_plan_explain(plan, fileno(file)), 0);
	rewind(file);
	n = fread(text, 1, n_bytes - 1, file);
	text[n] = '\0';
	fclose(file);
}

/* Links of one direction may differ: each transfer's expected time is that of its own link. */
START_TEST(test_expected_times_are_those_of_the_own_link)
{
	char path[PATH_MAX], kept[200], text[2000];
	struct cei_machine *machine = NULL;
	struct cei_report report;
	ceov_context *context;

	cei_report_init(&report, testing_log_line, &log_of);
	fixture("vm-flat.xml", path);
	testing_path("machine.xml", kept, sizeof(kept));
	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), 0);
	cei_machine_set_measured(machine, 0, 1, UINT64_C(256000000000), 3000);
	cei_machine_set_measured(machine, 0, 2, UINT64_C(128000000000), 5000);
	ck_assert_int_eq(cei_machine_write_xml(&report, machine, kept), 0);
	setenv("CEOVERLAP_MACHINE", kept, 1);
	context = testing_open(3, &log_of);
	explain(context, 1, text, sizeof(text));
	ck_assert_msg(strstr(text, "expected 7.1 us"), "%s", text);     /* 3 + 4.096 */
	explain(context, 2, text, sizeof(text));
	ck_assert_msg(strstr(text, "expected 13.2 us"), "%s", text);    /* 5 + 8.192 */
	ceov_close(context);
	cei_machine_destroy(machine);
	cei_report_fini(&report);
	ck_assert_int_eq(unlink(kept), 0);
	ck_assert_int_eq(unlink(strcat(kept, CEI_MEASURED_SUFFIX)), 0);
}
END_TEST

/* Without a machine the defaults of the direction hold: 2 us and 8 GB/s for a thread's memcpy(). */
START_TEST(test_expected_times_without_a_machine_are_defaults)
{
	ceov_context *context = testing_open(2, &log_of);
	char text[2000];

	explain(context, 1, text, sizeof(text));
	ck_assert_msg(strstr(text, "route direct host;"), "%s", text);
	ck_assert_msg(strstr(text, "expected 133.1 us"), "%s", text);
	ceov_close(context);
}
END_TEST

static void refused(const char *path, const char *text)
{
	struct ceov_member members[1];
	struct ceov_config config = testing_config(members, 1, &log_of);
	ceov_context *context = NULL;

	testing_log_clear(&log_of);
	setenv("CEOVERLAP_MACHINE", path, 1);
	ck_assert_int_lt(ceov_open(&config, &context), 0);
	ck_assert_ptr_null(context);
	testing_log_has(&log_of, path, text, NULL);
}

START_TEST(test_a_bad_file_is_refused_with_its_reason)
{
	char path[PATH_MAX];

	refused("/nonexistent/machine.xml", "No such file");
	fixture("README.md", path);
	refused(path, "");
}
END_TEST

/* Opens this machine as tools without ranks do. */
START_TEST(test_this_machine)
{
	struct cei_machine *machine = NULL, *again = NULL;
	struct cei_report report;

	cei_report_init(&report, testing_log_line, &log_of);
	ck_assert_int_eq(cei_machine_open_live(&report, &machine), 0);
	ck_assert_uint_ge(machine->n_nodes, 1);
	ck_assert_int_eq(cei_machine_open_unmeasured(&report, &again), 0);
	ck_assert_uint_eq(machine->hash, again->hash);
	cei_machine_destroy(machine);
	cei_machine_destroy(again);
	cei_report_fini(&report);
}
END_TEST

static void remove_cache(const char *folder)
{
	struct dirent *entry;
	DIR *files = opendir(folder);

	ck_assert_ptr_nonnull(files);
	while ((entry = readdir(files)))
		(void)unlinkat(dirfd(files), entry->d_name, 0);
	closedir(files);
	ck_assert_int_eq(rmdir(folder), 0);
}

/* A stored measurement is found by the next call. */
START_TEST(test_this_machine_as_it_was_measured)
{
	struct cei_machine *machine = NULL, *again = NULL;
	struct cei_report report;
	uint32_t host;
	char folder[200];

	testing_path("cache", folder, sizeof(folder));
	setenv("CEOVERLAP_MACHINE_CACHE", folder, 1);
	cei_report_init(&report, testing_log_line, &log_of);
	ck_assert_int_eq(cei_machine_open_live(&report, &machine), 0);
	host = cei_machine_host_place(machine, 0);
	cei_machine_set_measured(machine, host, host, UINT64_C(9000000000), 1234);
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), 0);
	ck_assert_int_eq(cei_machine_open_live(&report, &again), 0);
	ck_assert_uint_eq(cei_machine_link(again, host, host)->bytes_per_s,
			  UINT64_C(9000000000));
	ck_assert_uint_eq(cei_machine_link(again, host, host)->t0_ns, 1234);
	ck_assert_uint_eq(cei_machine_link(again, host, host)->origin, CEI_MACHINE_MEASURED);
	cei_machine_destroy(machine);
	cei_machine_destroy(again);
	cei_report_fini(&report);
	remove_cache(folder);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("topology");
	TCase *tests = tcase_create("topology");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_test(tests, test_host_memory_needs_no_machine);
	tcase_add_test(tests, test_a_file_is_taken_instead);
	tcase_add_test(tests, test_expected_times_are_those_of_the_own_link);
	tcase_add_test(tests, test_expected_times_without_a_machine_are_defaults);
	tcase_add_test(tests, test_a_bad_file_is_refused_with_its_reason);
	tcase_add_test(tests, test_this_machine);
	tcase_add_test(tests, test_this_machine_as_it_was_measured);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
