/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests machine files: a written file is read again, lstopo's files are read, and what is no file
 * of hwloc is refused with a reason. */

#include <dirent.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "testing.h"
#include "topology/machine.h"

#define GB            UINT64_C(1000000000)
#define PATH_BYTES    4096
#define FILES_MAX     32u
#define NAME_BYTES    64u

static struct cei_report report;
static struct testing_log lines;

static void set_up(void)
{
	testing_log_init(&lines);
	cei_report_init(&report, testing_log_line, &lines);
}

static void tear_down(void)
{
	cei_report_fini(&report);
}

struct name {
	char text[NAME_BYTES];
};

static void fixture_path(const char *name, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%s/tests/fixtures/machines/%s",
		 getenv("srcdir") ? getenv("srcdir") : ".", name);
}

static struct cei_machine *read_from(const char *path)
{
	struct cei_machine *machine = NULL;

	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), 0);
	return machine;
}

static void remove_pair(char path[PATH_BYTES])
{
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_uint_lt(strlen(path) + strlen(CEI_MEASURED_SUFFIX), PATH_BYTES);
	ck_assert_int_eq(unlink(strcat(path, CEI_MEASURED_SUFFIX)), 0);
}

/* Writes the machine to a temporary file and reads it again. */
static struct cei_machine *through_a_file(const struct cei_machine *machine)
{
	struct cei_machine *again;
	char path[PATH_BYTES];

	testing_path("machine.xml", path, sizeof(path));
	ck_assert_int_eq(cei_machine_write_xml(&report, machine, path), 0);
	again = read_from(path);
	remove_pair(path);
	return again;
}

static void check_equal(const struct cei_machine *a, const struct cei_machine *b)
{
	uint32_t n = cei_machine_n_places(a);

	ck_assert_uint_eq(cei_machine_n_places(b), n);
	ck_assert(a->hash == b->hash);
	ck_assert_str_eq(a->driver, b->driver);
	ck_assert_uint_eq(a->n_ports, b->n_ports);
	ck_assert_int_eq(a->has_nvswitch, b->has_nvswitch);
	ck_assert(!memcmp(a->gpus, b->gpus, sizeof(a->gpus)));
	ck_assert(!memcmp(a->nodes, b->nodes, sizeof(a->nodes)));
	ck_assert(!memcmp(a->nics, b->nics, sizeof(a->nics)));
	ck_assert(!memcmp(a->ports, b->ports, sizeof(a->ports)));
	ck_assert(!memcmp(a->nic_distance, b->nic_distance, sizeof(a->nic_distance)));
	ck_assert(!memcmp(a->links, b->links, (size_t)n * n * sizeof(a->links[0])));
}

/* Fills names with the fixtures' files, at most FILES_MAX; returns how many. */
static uint32_t list_fixtures(struct name *names)
{
	struct dirent *entry;
	char path[PATH_BYTES];
	uint32_t n = 0;
	DIR *folder;

	fixture_path("", path);
	folder = opendir(path);
	ck_assert_ptr_nonnull(folder);
	while ((entry = readdir(folder)) && n < FILES_MAX)
		if (strlen(entry->d_name) > 4 && strlen(entry->d_name) < NAME_BYTES &&
		    !strcmp(entry->d_name + strlen(entry->d_name) - 4, ".xml"))
			memcpy(names[n++].text, entry->d_name, strlen(entry->d_name) + 1);
	closedir(folder);
	return n;
}

/* --- writing and reading -------------------------------------------------------------- */

START_TEST(test_every_fixture_comes_back_as_it_was)
{
	struct name names[FILES_MAX];
	char path[PATH_BYTES];
	struct cei_machine *machine, *again;
	uint32_t i, n = list_fixtures(names);

	ck_assert_uint_ge(n, 8);
	for (i = 0; i < n; i++) {
		fixture_path(names[i].text, path);
		machine = read_from(path);
		snprintf(machine->driver, sizeof(machine->driver), "580.159");
		again = through_a_file(machine);
		check_equal(machine, again);
		cei_machine_destroy(machine);
		machine = through_a_file(again);
		check_equal(machine, again);
		cei_machine_destroy(machine);
		cei_machine_destroy(again);
	}
}
END_TEST

START_TEST(test_measured_links_and_ports_come_back)
{
	struct cei_machine_pair pairs[2] = { { 4, 0 }, { 4, 1 } };
	struct cei_shared_bandwidth limit = { "host out", 60 * GB, 2, pairs };
	struct cei_machine *machine, *again;
	char path[PATH_BYTES];

	fixture_path("pcie4-two-nodes.xml", path);
	machine = read_from(path);
	cei_machine_set_measured(machine, 0, 3, 17 * GB, 9876);
	ck_assert_int_eq(cei_machine_set_shared_bandwidth(machine, &limit), 0);
	again = through_a_file(machine);
	check_equal(machine, again);
	ck_assert_int_eq(cei_machine_link(again, 0, 3)->origin, CEI_MACHINE_MEASURED);
	ck_assert_uint_eq(cei_machine_link(again, 0, 3)->t0_ns, 9876);
	/* measure again: nothing of what the file said remains */
	cei_machine_set_measured(again, 0, 3, 12 * GB, 1111);
	cei_machine_destroy(machine);
	machine = through_a_file(again);
	check_equal(machine, again);
	cei_machine_destroy(machine);
	cei_machine_destroy(again);
}
END_TEST

static void hint(struct cei_machine_hints *hints)
{
	uint32_t i;

	memset(hints, 0, sizeof(*hints));
	hints->n_gpus = 4;
	for (i = 0; i < 4; i++) {
		snprintf(hints->gpus[i].name, sizeof(hints->gpus[i].name), "GPU <%u> & \"Co\"",
			 i);
		hints->gpus[i].n_copy_engines = 3;
		hints->gpus[i].n_nvlinks = 18;
		hints->gpus[i].nvlink_bytes_per_s = 26562000000;
		hints->gpus[i].is_on_switch = i < 3;
		memset(hints->peer[i], 1, 4);
	}
	/* two parts of one GPU, and a GPU that the tree does not show */
	strcpy(hints->gpus[0].bus_id, "0000:81:00.0");
	strcpy(hints->gpus[1].bus_id, "0000:81:00.1");
	strcpy(hints->gpus[2].bus_id, "0000:99:00.0");
	hints->n_direct[0][3] = 2;
	hints->peer[3][0] = 0;
}

START_TEST(test_a_machine_of_the_driver_comes_back)
{
	struct cei_machine *machine, *again;
	struct cei_machine_hints hints;
	struct hwloc_topology *tree;
	char path[PATH_BYTES];

	hint(&hints);
	fixture_path("pcie4-two-nodes.xml", path);
	machine = read_from(path);
	ck_assert_int_eq(hwloc_topology_dup(&tree, machine->hwloc), 0);
	cei_machine_destroy(machine);
	ck_assert_int_eq(cei_machine_from_hwloc(&report, tree, &hints, &machine), 0);
	again = through_a_file(machine);
	check_equal(machine, again);
	cei_machine_destroy(machine);
	cei_machine_destroy(again);
	/* without a tree, the file beside it holds the whole machine */
	ck_assert_int_eq(cei_machine_from_hwloc(&report, NULL, &hints, &machine), 0);
	again = through_a_file(machine);
	ck_assert(machine->hash == again->hash);
	ck_assert_int_eq(cei_machine_link(again, 3, 0)->kind, CEI_MACHINE_NONE);
	ck_assert_int_eq(cei_machine_link(again, 0, 3)->kind, CEI_MACHINE_NVLINK);
	cei_machine_destroy(machine);
	cei_machine_destroy(again);
}
END_TEST

START_TEST(test_where_a_file_cannot_be_written_is_said)
{
	struct cei_machine *machine;
	char path[PATH_BYTES];

	fixture_path("laptop.xml", path);
	machine = read_from(path);
	ck_assert_int_eq(cei_machine_write_xml(&report, machine, "/no/such/folder/m.xml"),
			 CEOV_ERR_SYSTEM);
	testing_log_has(&lines, "/no/such/folder/m.xml", "cannot be written", "No such");
	ck_assert_int_eq(cei_machine_write_xml(&report, machine, "/dev/null"),
			 CEOV_ERR_INVALID);
	testing_log_has(&lines, "/dev/null", "not a file", NULL);
	cei_machine_destroy(machine);
}
END_TEST

/* --- other files ---------------------------------------------------------------------- */

static void refused(const char *text, const char *why)
{
	struct cei_machine *machine = NULL;
	char path[PATH_BYTES];

	testing_log_clear(&lines);
	testing_path("refused.xml", path, sizeof(path));
	ck_assert_int_eq(cei_file_replace(path, text, strlen(text), 0600), 0);
	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), CEOV_ERR_INVALID);
	unlink(path);
	ck_assert_ptr_null(machine);
	testing_log_has(&lines, why, NULL, NULL);
}

START_TEST(test_what_is_no_file_is_refused)
{
	struct cei_machine *machine = NULL;
	char path[PATH_BYTES];
	FILE *file;

	ck_assert_int_eq(cei_machine_read_xml(&report, "/no/such.xml", &machine),
			 CEOV_ERR_SYSTEM);
	testing_log_has(&lines, "/no/such.xml", "cannot be opened", NULL);
	ck_assert_int_eq(cei_machine_read_xml(&report, "/tmp", &machine), CEOV_ERR_INVALID);
	testing_log_has(&lines, "/tmp: not a file", NULL, NULL);

	testing_path("pipe", path, sizeof(path));
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), CEOV_ERR_INVALID);
	unlink(path);

	testing_path("huge.xml", path, sizeof(path));
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(ftruncate(fileno(file), (64 << 20) + 1), 0);
	fclose(file);
	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), CEOV_ERR_INVALID);
	unlink(path);
	testing_log_has(&lines, "huge.xml: 67108865 bytes", NULL, NULL);
	ck_assert_ptr_null(machine);
}
END_TEST

START_TEST(test_what_hwloc_does_not_read_is_refused)
{
	static const char *const nothing[] = {
		"", "this is no XML", "\n\n\x7f" "ELF\n", "<topology version=\"2.0\">\n<object",
		"<html></html>", "<topology version=\"2.0\">\n\n</object>",
		"<topology version=\"2.0\"/>", "<topology version=\"2.0\">\n",
	};
	uint32_t i;

	for (i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		refused(nothing[i], "no topology that hwloc ");
}
END_TEST

START_TEST(test_a_format_of_another_hwloc_is_named)
{
	const unsigned int linked = hwloc_get_api_version() >> 16;
	char text[100], why[200];

	snprintf(text, sizeof(text), "<?xml version=\"1.0\"?>\n<topology version=\"%u.0\"/>",
		 linked + 1);
	snprintf(why, sizeof(why), "refused.xml: in the format of hwloc %u, which this program's "
		 "hwloc %u does", linked + 1, linked);
	refused(text, why);
	snprintf(why, sizeof(why), "use hwloc %u,", linked + 1);
	refused(text, why);
	/* a version elsewhere is none of the root element */
	refused("<topology x=\"\"><a version=\"9.0\"/></topology>", "no topology that hwloc ");
}
END_TEST

/* Writes a fixture's copy, and beside it this text. */
static void write_pair(const char *name, const char *measured, char path[PATH_BYTES])
{
	char from[PATH_BYTES], command[2 * PATH_BYTES + 20], beside[PATH_BYTES];
	FILE *file;

	fixture_path(name, from);
	testing_path("machine.xml", path, PATH_BYTES);
	snprintf(command, sizeof(command), "cp '%s' '%s'", from, path);
	ck_assert_int_eq(system(command), 0);
	testing_path("machine.xml.measured", beside, sizeof(beside));
	file = fopen(beside, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "ceoverlap-measured 1\nmachine - -\n%send\n", measured);
	ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_what_stands_beside_is_read_with_distrust)
{
	static const struct {
		const char *line;
		const char *why;
	} bad[] = {
		{ "gpu nonsense\n", "line 3: not an address, five numbers and a name" },
		{ "gpu - 3 9999 1 0 0 X\n", "beyond reason" },
		{ "gpu - 3 1 1 2 0 X\n", "beyond reason" },
		{ "kind n0 n0 0 self\n", "not two places" },
		{ "kind 0000:21:00.0 n9 0 host\n", "not two places" },
		{ "kind 0000:21:00.0 n0 0 NVLink\n", "no kind of link between these two" },
		{ "kind 0000:21:00.0 n0 x host\n", "no rate" },
		{ "kind 0000:21:00.0 n0 0 host\nport x\n", "line 4: not a rate" },
		{ "something\n", "none of gpu, kind, link and port" },
	};
	struct cei_machine *machine = NULL;
	struct ceov_failure failure;
	char path[PATH_BYTES];
	uint32_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_pair("two-no-p2p.xml", bad[i].line, path);
		ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), CEOV_ERR_INVALID);
		ck_assert_ptr_null(machine);
		ck_assert_int_eq(cei_report_take(&report, &failure), 0);
		ck_assert_msg(strstr(failure.text, bad[i].why) &&
			      strstr(failure.text, "machine.xml.measured, line "), "%s",
			      failure.text);
	}
	write_pair("two-no-p2p.xml", "kind 0000:21:00.0 0000:41:00.0 0 PCIe\n", path);
	machine = read_from(path);
	ck_assert_int_eq(cei_machine_link(machine, 0, 1)->kind, CEI_MACHINE_PCIE);
	cei_machine_destroy(machine);
	remove_pair(path);
}
END_TEST

/* Rates that an earlier ceoverlap wrote into the XML are passed over, and one line says so. */
START_TEST(test_rates_of_the_old_form_are_ignored)
{
	struct hwloc_topology *tree;
	struct cei_machine *machine;
	char path[PATH_BYTES];

	fixture_path("two-no-p2p.xml", path);
	machine = read_from(path);
	tree = machine->hwloc;
	ck_assert_int_eq(hwloc_obj_add_info(hwloc_get_root_obj(tree), "CeoverlapGPU",
					    "0000:21:00.0 3 9 1 0 0 X"), 0);
	ck_assert_int_eq(hwloc_obj_add_info(hwloc_get_root_obj(tree), "CeoverlapLink",
					    "0 2 5 2 77000 1234"), 0);
	ck_assert_uint_eq(lines.n_lines, 0);
	cei_machine_destroy(through_a_file(machine));
	testing_log_has(&lines, "machine.xml: an earlier ceoverlap", "not read any more",
			"measure again with ceoverlap-bench measure");
	ck_assert_uint_eq(lines.n_lines, 1);
	cei_machine_destroy(machine);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("machine xml");
	TCase *back = tcase_create("there and back");
	TCase *hostile = tcase_create("hostile files");

	tcase_add_checked_fixture(back, set_up, tear_down);
	tcase_set_timeout(back, 30);
	tcase_add_test(back, test_every_fixture_comes_back_as_it_was);
	tcase_add_test(back, test_measured_links_and_ports_come_back);
	tcase_add_test(back, test_a_machine_of_the_driver_comes_back);
	tcase_add_test(back, test_where_a_file_cannot_be_written_is_said);
	suite_add_tcase(all, back);
	tcase_add_checked_fixture(hostile, set_up, tear_down);
	tcase_set_timeout(hostile, 30);
	tcase_add_test(hostile, test_what_is_no_file_is_refused);
	tcase_add_test(hostile, test_what_hwloc_does_not_read_is_refused);
	tcase_add_test(hostile, test_a_format_of_another_hwloc_is_named);
	tcase_add_test(hostile, test_what_stands_beside_is_read_with_distrust);
	tcase_add_test(hostile, test_rates_of_the_old_form_are_ignored);
	suite_add_tcase(all, hostile);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
