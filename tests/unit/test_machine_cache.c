/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests measured ports, written as text, and the cache of measured machines: a stored machine is
 * found again, and other files in its place do no harm. */

#include <check.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"
#include "topology/machine_cache.h"

#define MACHINE "tests/fixtures/machines/vm-flat.xml"
#define ANOTHER "tests/fixtures/machines/pcie4-two-nodes.xml"
#define RATE    UINT64_C(123456789012)
#define T0_NS   UINT64_C(2345)
#define SHARED  UINT64_C(172000000000)

static struct testing_log log_of;
static struct cei_report  report;
static char               folder[200];

static void set_up(void)
{
	testing_log_init(&log_of);
	cei_report_init(&report, testing_log_line, &log_of);
	testing_path("machines", folder, sizeof(folder));
	setenv("CEOVERLAP_MACHINE_CACHE", folder, 1);
}

static void tear_down(void)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	ck_assert_int_eq(system(command), 0);
	cei_report_fini(&report);
}

static struct cei_machine *machine_of(const char *fixture)
{
	const char *srcdir = getenv("srcdir");
	struct cei_machine *machine = NULL;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", srcdir ? srcdir : ".", fixture);
	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), 0);
	strcpy(machine->driver, "580.159");
	return machine;
}

static uint32_t port_named(const struct cei_machine *machine, const char *name)
{
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++)
		if (!strcmp(machine->ports[i].name, name))
			return i;
	return CEOV_NOBODY;
}

static int is_on(const struct cei_machine *machine, uint32_t from, uint32_t to,
		 uint32_t port)
{
	const struct cei_machine_link *link = cei_machine_link(machine, from, to);
	uint32_t i;

	for (i = 0; i < link->n_ports; i++) {
		ck_assert(!i || link->ports[i - 1] < link->ports[i]);
		if (link->ports[i] == port)
			return 1;
	}
	return 0;
}

/* Adds a port that all links from the host to GPUs share. */
static int add_shared(struct cei_machine *machine, const char *name, uint64_t bytes_per_s)
{
	struct cei_machine_pair pairs[CEI_MACHINE_GPUS_MAX];
	struct cei_shared_bandwidth shared = { name, bytes_per_s, machine->n_gpus, pairs };
	uint32_t i;

	for (i = 0; i < machine->n_gpus; i++)
		pairs[i] = (struct cei_machine_pair){
			cei_machine_host_place(machine, 0), i };
	return cei_machine_set_shared_bandwidth(machine, &shared);
}

static struct cei_machine *measured(void)
{
	struct cei_machine *machine = machine_of(MACHINE);

	cei_machine_set_measured(machine, 0, 1, RATE, T0_NS);
	ck_assert_int_eq(add_shared(machine, "host to all, shared", SHARED), 0);
	return machine;
}

static void path_of(const struct cei_machine *machine, char *path)
{
	const char *why = NULL;

	ck_assert_int_eq(cei_machine_cache_path(machine, path, PATH_MAX, &why), 0);
	ck_assert_int_eq(strncmp(path, folder, strlen(folder)), 0);
}

/* --- ports ------------------------------------------------------------------ */

START_TEST(test_shared_bandwidth_is_a_port_of_its_links)
{
	struct cei_machine *machine = machine_of(MACHINE);
	uint32_t i, port, host = cei_machine_host_place(machine, 0), n = machine->n_ports;

	ck_assert_uint_ge(machine->n_gpus, 2);
	ck_assert_int_eq(add_shared(machine, "host to all, shared", SHARED), 0);
	port = port_named(machine, "host to all, shared");
	ck_assert_uint_eq(port, n);
	ck_assert_uint_eq(machine->n_ports, n + 1);
	ck_assert_uint_eq(machine->ports[port].bytes_per_s, SHARED);
	ck_assert_uint_eq(machine->ports[port].origin, CEI_MACHINE_MEASURED);
	for (i = 0; i < machine->n_gpus; i++) {
		ck_assert(is_on(machine, host, i, port));
		ck_assert(!is_on(machine, i, host, port));
	}
	/* adding it again changes only its rate */
	ck_assert_int_eq(add_shared(machine, "host to all, shared", SHARED / 2), 0);
	ck_assert_uint_eq(machine->n_ports, n + 1);
	ck_assert_uint_eq(machine->ports[port].bytes_per_s, SHARED / 2);
	/* a port never carries less than one of its links */
	ck_assert_int_eq(add_shared(machine, "host to all, shared", 1), 0);
	ck_assert_uint_ge(machine->ports[port].bytes_per_s,
			  cei_machine_link(machine, host, 0)->bytes_per_s);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_shared_bandwidth_that_makes_no_sense)
{
	struct cei_machine *machine = machine_of(MACHINE);
	struct cei_machine_pair pair = { 0, cei_machine_n_places(machine) };
	struct cei_shared_bandwidth shared = { "x", 1, 1, &pair };
	uint32_t i, n = machine->n_ports;
	char name[CEI_MACHINE_NAME_BYTES + 1];

	ck_assert_int_eq(cei_machine_set_shared_bandwidth(machine, &shared), CEOV_ERR_INVALID);
	ck_assert_int_eq(add_shared(machine, "", SHARED), CEOV_ERR_INVALID);
	ck_assert_int_eq(add_shared(machine, "x", 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(add_shared(machine, "x", UINT64_MAX), CEOV_ERR_INVALID);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ck_assert_int_eq(add_shared(machine, name, SHARED), CEOV_ERR_INVALID);
	ck_assert_uint_eq(machine->n_ports, n);
	/* fill a link with as many ports as it may have */
	for (i = 0; i <= CEI_MACHINE_PATH_MAX; i++) {
		snprintf(name, sizeof(name), "port %u", i);
		if (add_shared(machine, name, SHARED))
			break;
	}
	ck_assert_uint_ge(i, 1);
	ck_assert_uint_le(i, CEI_MACHINE_PATH_MAX);
	ck_assert_int_eq(add_shared(machine, "one more", SHARED), CEOV_FULL);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_ports_as_text)
{
	struct cei_machine *machine = measured(), *other = machine_of(MACHINE);
	char text[CEI_MACHINE_PORT_TEXT_BYTES], again[CEI_MACHINE_PORT_TEXT_BYTES];
	uint32_t port = port_named(machine, "host to all, shared");
	uint32_t host = cei_machine_host_place(machine, 0);

	ck_assert_int_eq(cei_machine_port_to_text(other, 0, text), CEOV_NONE);
	ck_assert_int_eq(cei_machine_port_to_text(machine, port, text), 0);
	ck_assert_int_eq(strncmp(text, "172000000000 n0>", 16), 0);
	ck_assert_int_eq(cei_machine_port_from_text(other, text), 0);
	port = port_named(other, "host to all, shared");
	ck_assert_uint_ne(port, CEOV_NOBODY);
	ck_assert(is_on(other, host, other->n_gpus - 1, port));
	ck_assert_int_eq(cei_machine_port_to_text(other, port, again), 0);
	ck_assert_str_eq(text, again);
	cei_machine_destroy(machine);
	cei_machine_destroy(other);
}
END_TEST

START_TEST(test_hostile_text_changes_nothing)
{
	static const char *const bad[] = {
		"", " ", "1", "1 ", "1 -", "1 - ", "1 - nothing of that name", "x - y",
		"-1 n0>g0 x", "1 n0>g0", "1 n0>g0 ", "1 n0 x", "1 n0> x", "1 >n0 x", "1 , x",
		"1 n0>g0, x", "1 n0>g99 x", "1 n99>g0 x", "1 n0>g-1 x", "1 n>g x",
		"1 n0>0000:ff:1f.7 x", "18446744073709551616 n0>g0 x",
		"18446744073709551615 n0>g0 x", "0 n0>g0 x", "1 n00000000000000000000000>g0 x",
		"1 n0>g0 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
	};
	struct cei_machine *machine = machine_of(MACHINE);
	uint32_t i, n = machine->n_ports;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(cei_machine_port_from_text(machine, bad[i]) ==
			      CEOV_ERR_INVALID, "'%s' was taken", bad[i]);
		ck_assert_uint_eq(machine->n_ports, n);
	}
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_random_text_does_no_harm)
{
	static const char alphabet[] = "0123456789ng:.>,- x";
	struct cei_machine *machine = measured();
	char text[CEI_MACHINE_PORT_TEXT_BYTES];
	uint64_t state = testing_seed();
	uint32_t i, k, n;

	for (i = 0; i < 20000; i++) {
		ck_assert_int_eq(cei_machine_port_to_text(
			machine, port_named(machine, "host to all, shared"), text), 0);
		n = (uint32_t)testing_below(&state, 4);
		for (k = 0; k < n; k++)
			text[testing_below(&state, strlen(text))] =
				alphabet[testing_below(&state, sizeof(alphabet) - 1)];
		if (testing_below(&state, 4) == 0)
			text[testing_below(&state, strlen(text))] = '\0';
		(void)cei_machine_port_from_text(machine, text);
	}
	cei_machine_destroy(machine);
}
END_TEST

/* --- the file's text ---------------------------------------------------------- */

static struct ceov_failure failure;     /* of the last text that was not taken */

/* Whether the text is taken. The machine must be unchanged where it is not. */
static int is_taken(const char *text)
{
	struct cei_machine *fresh = machine_of(MACHINE);
	uint32_t n_ports = fresh->n_ports;
	char *copy = strdup(text);
	int r;

	ck_assert_ptr_nonnull(copy);
	r = cei_machine_take_measured(&report, fresh, "here", copy);
	ck_assert(!r || r == CEOV_ERR_INVALID);
	if (r) {
		ck_assert_uint_eq(fresh->n_ports, n_ports);
		ck_assert_uint_ne(cei_machine_link(fresh, 0, 1)->origin, CEI_MACHINE_MEASURED);
		ck_assert_int_eq(cei_report_take(&report, &failure), 0);
		ck_assert_ptr_nonnull(strstr(failure.text, "here, line "));
	}
	free(copy);
	cei_machine_destroy(fresh);
	return !r;
}

static char *kept_text(void)
{
	struct cei_machine *machine = measured();
	uint64_t n_bytes;
	char *text;

	ck_assert_int_eq(cei_machine_measured_text(machine, &text, &n_bytes), 0);
	ck_assert_uint_eq(strlen(text), n_bytes);
	cei_machine_destroy(machine);
	return text;
}

START_TEST(test_a_cut_file_changes_nothing)
{
	char *text = kept_text();
	size_t n = strlen(text);

	ck_assert(is_taken(text));
	while (n--) {
		text[n] = '\0';
		ck_assert_msg(!is_taken(text), "the first %zu bytes were taken", n);
	}
	free(text);
}
END_TEST

START_TEST(test_a_bad_line_is_named)
{
	static const struct {
		const char *line;
		const char *why;
	} bad[] = {
		{ "", "line 3: none of gpu, kind, link" },
		{ "link", "none of gpu, kind, link" },
		{ "link ", "not two places" },
		{ "link g0", "not two places" },
		{ "link g99 g0 1 1", "not two places" },
		{ "link g0 n9 1 1", "not two places" },
		{ "link g0  g1 1 1", "not two places" },
		{ "link g0 g1 1", "no rate in bytes" },
		{ "link g0 g1 -1 1", "no rate in bytes" },
		{ "link g0 g1 0 1", "no rate in bytes" },
		{ "link g0 g1 1 1 ", "no rate in bytes" },
		{ "link g0 g1 1000000000000001 1", "no rate in bytes" },
		{ "link g0 g1 1 1000000000001", "no rate in bytes" },
		{ "port 1 - no such port", "not a rate, links and a name" },
		{ "end\nend", "line 3: something behind" },
		{ "link g0 g1 5 5\nlink g0 g1 0 5", "line 4: no rate" },
	};
	char *text = kept_text(), lines[500];
	uint32_t i;

	*strstr(text, "gpu ") = '\0';
	snprintf(lines, sizeof(lines), "%slink g0 g1 5 5\nend\n", text);
	ck_assert(is_taken(lines));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(lines, sizeof(lines), "%s%s\nend\n", text, bad[i].line);
		ck_assert_msg(!is_taken(lines), "'%s' was taken", bad[i].line);
		ck_assert_msg(strstr(failure.text, bad[i].why) != NULL, "%s", failure.text);
	}
	ck_assert(!is_taken("ceoverlap-measured 2\nend\n"));
	ck_assert_ptr_nonnull(strstr(failure.text, "line 1: not \"ceoverlap-measured 1\""));
	free(text);
}
END_TEST

START_TEST(test_a_changed_file_does_no_harm)
{
	uint64_t state = testing_seed();
	char *text = kept_text(), kept;
	uint32_t i, n_taken = 0;
	size_t at;

	for (i = 0; i < 500; i++) {
		at = (size_t)testing_below(&state, strlen(text));
		kept = text[at];
		text[at] = "0123456789ng:.>,- x\n"[testing_below(&state, 20)];
		n_taken += (uint32_t)is_taken(text);
		text[at] = kept;
	}
	ck_assert_uint_lt(n_taken, i);
	free(text);
}
END_TEST

/* --- the cache --------------------------------------------------------------- */

START_TEST(test_what_is_kept_comes_back)
{
	struct cei_machine *machine = measured(), *fresh = machine_of(MACHINE);
	const struct cei_machine_link *link;
	char path[PATH_MAX];
	struct stat about;
	uint32_t port;

	ck_assert_int_eq(cei_machine_cache_load(&report, fresh), 0);
	ck_assert_uint_eq(log_of.n_lines, 0);
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), 0);
	path_of(machine, path);
	ck_assert_int_eq(stat(path, &about), 0);
	ck_assert_uint_eq(about.st_mode & 0077, 0);
	ck_assert_int_eq(stat(folder, &about), 0);
	ck_assert_uint_eq(about.st_mode & 0777, 0700);

	ck_assert_int_eq(cei_machine_cache_load(&report, fresh), 1);
	link = cei_machine_link(fresh, 0, 1);
	ck_assert_uint_eq(link->origin, CEI_MACHINE_MEASURED);
	ck_assert_uint_eq(link->bytes_per_s, RATE);
	ck_assert_uint_eq(link->t0_ns, T0_NS);
	ck_assert_uint_ne(cei_machine_link(fresh, 1, 0)->origin, CEI_MACHINE_MEASURED);
	port = port_named(fresh, "host to all, shared");
	ck_assert_uint_ne(port, CEOV_NOBODY);
	ck_assert_uint_eq(fresh->ports[port].bytes_per_s, SHARED);
	ck_assert_uint_eq(fresh->hash, machine->hash);
	ck_assert_uint_eq(log_of.n_lines, 0);
	cei_machine_destroy(machine);
	cei_machine_destroy(fresh);
}
END_TEST

START_TEST(test_another_driver_is_measured_anew)
{
	struct cei_machine *machine = measured(), *fresh = machine_of(MACHINE);

	ck_assert_int_eq(cei_machine_cache_store(&report, machine), 0);
	strcpy(fresh->driver, "581.0");
	ck_assert_int_eq(cei_machine_cache_load(&report, fresh), 0);
	strcpy(fresh->driver, "580.159");
	ck_assert_int_eq(cei_machine_cache_load(&report, fresh), 1);
	/* path separators in the driver's version are dropped */
	strcpy(fresh->driver, "../../x/y");
	ck_assert_int_eq(cei_machine_cache_store(&report, fresh), 0);
	ck_assert_int_eq(cei_machine_cache_load(&report, fresh), 1);
	cei_machine_destroy(machine);
	cei_machine_destroy(fresh);
}
END_TEST

START_TEST(test_switched_off)
{
	struct cei_machine *machine = measured();
	char path[PATH_MAX];
	const char *why = NULL;

	setenv("CEOVERLAP_MACHINE_CACHE", "off", 1);
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), CEOV_NONE);
	ck_assert_int_eq(cei_machine_cache_load(&report, machine), 0);
	ck_assert_int_eq(cei_machine_cache_path(machine, path, sizeof(path), &why), CEOV_NONE);
	ck_assert_ptr_nonnull(strstr(why, "CEOVERLAP_MACHINE_CACHE"));
	setenv("CEOVERLAP_MACHINE_CACHE", "no/whole/path", 1);
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), CEOV_NONE);
	unsetenv("CEOVERLAP_MACHINE_CACHE");
	setenv("XDG_CACHE_HOME", "/x", 1);
	ck_assert_int_eq(cei_machine_cache_path(machine, path, sizeof(path), &why), 0);
	ck_assert_int_eq(strncmp(path, "/x/ceoverlap/machines/", 22), 0);
	unsetenv("XDG_CACHE_HOME");
	setenv("HOME", "/y", 1);
	ck_assert_int_eq(cei_machine_cache_path(machine, path, sizeof(path), &why), 0);
	ck_assert_int_eq(strncmp(path, "/y/.cache/ceoverlap/machines/", 29), 0);
	unsetenv("HOME");
	ck_assert_int_eq(cei_machine_cache_path(machine, path, sizeof(path), &why), CEOV_NONE);
	setenv("CEOVERLAP_MACHINE_CACHE", "/proc/no/such", 1);
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), CEOV_ERR_SYSTEM);
	testing_log_has(&log_of, "/proc/no/such", "cannot be kept", NULL);
	cei_machine_destroy(machine);
}
END_TEST

static void passed_over(const char *text)
{
	struct cei_machine *fresh = machine_of(MACHINE);

	testing_log_clear(&log_of);
	ck_assert_int_eq(cei_machine_cache_load(&report, fresh), 0);
	ck_assert_uint_eq(log_of.n_lines, 1);
	testing_log_has(&log_of, "passed over", text, NULL);
	ck_assert_uint_ne(cei_machine_link(fresh, 0, 1)->origin, CEI_MACHINE_MEASURED);
	cei_machine_destroy(fresh);
}

static void write_file(const char *path, const char *text, size_t n_bytes)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, n_bytes, file), n_bytes);
	ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_hostile_files_are_passed_over)
{
	struct cei_machine *machine = measured(), *other = machine_of(ANOTHER);
	char path[PATH_MAX], text[4096], *kept;
	uint64_t n_kept;
	size_t n;
	FILE *file;

	ck_assert_int_eq(cei_machine_cache_store(&report, machine), 0);
	path_of(machine, path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	n = fread(text, 1, sizeof(text), file);
	fclose(file);
	write_file(path, text, n / 2);
	passed_over(path);
	write_file(path, "", 0);
	passed_over(path);
	write_file(path, "\0\xff<", 3);
	passed_over(path);
	ck_assert_int_eq(truncate(path, (off_t)CEI_MEASURED_BYTES_MAX + 1), 0);
	passed_over("too large");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	passed_over(path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	passed_over(path);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(symlink(path, path), 0);
	passed_over(path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(cei_machine_measured_text(other, &kept, &n_kept), 0);
	write_file(path, kept, n_kept);
	free(kept);
	passed_over("line 2: it is of another machine");
	/* the errors were not raised in the caller's report */
	ck_assert_int_eq(report.has_first, 0);
	/* a new measurement replaces the bad file */
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), 0);
	ck_assert_int_eq(cei_machine_cache_load(&report, machine), 1);
	cei_machine_destroy(machine);
	cei_machine_destroy(other);
}
END_TEST

START_TEST(test_old_files_make_room)
{
	struct cei_machine *machine = measured();
	char path[PATH_MAX];
	uint32_t i, n = 0, n_others = 0;
	struct dirent *entry;
	DIR *list;

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	for (i = 0; i < CEI_MACHINE_CACHE_FILES + 5; i++) {
		snprintf(path, sizeof(path), "%s/%016x-580.159.measured", folder, i);
		write_file(path, "", 0);
	}
	snprintf(path, sizeof(path), "%s/somebody-elses.measured", folder);
	write_file(path, "", 0);
	ck_assert_int_eq(cei_machine_cache_store(&report, machine), 0);
	list = opendir(folder);
	ck_assert_ptr_nonnull(list);
	while ((entry = readdir(list))) {
		n += strstr(entry->d_name, "-580.159.measured") != NULL;
		n_others += !strcmp(entry->d_name, "somebody-elses.measured");
	}
	closedir(list);
	ck_assert_uint_eq(n, CEI_MACHINE_CACHE_FILES);
	ck_assert_uint_eq(n_others, 1);
	ck_assert_int_eq(cei_machine_cache_load(&report, machine), 1);
	cei_machine_destroy(machine);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("machine cache");
	TCase *ports = tcase_create("ports");
	TCase *files = tcase_create("files");

	tcase_add_checked_fixture(ports, set_up, tear_down);
	tcase_add_test(ports, test_shared_bandwidth_is_a_port_of_its_links);
	tcase_add_test(ports, test_shared_bandwidth_that_makes_no_sense);
	tcase_add_test(ports, test_ports_as_text);
	tcase_add_test(ports, test_hostile_text_changes_nothing);
	tcase_add_test(ports, test_random_text_does_no_harm);
	tcase_add_test(ports, test_a_cut_file_changes_nothing);
	tcase_add_test(ports, test_a_bad_line_is_named);
	tcase_add_test(ports, test_a_changed_file_does_no_harm);
	tcase_set_timeout(ports, 60);
	suite_add_tcase(suite, ports);
	tcase_add_checked_fixture(files, set_up, tear_down);
	tcase_add_test(files, test_what_is_kept_comes_back);
	tcase_add_test(files, test_another_driver_is_measured_anew);
	tcase_add_test(files, test_switched_off);
	tcase_add_test(files, test_hostile_files_are_passed_over);
	tcase_add_test(files, test_old_files_make_room);
	suite_add_tcase(suite, files);
	return testing_run(suite);
}
