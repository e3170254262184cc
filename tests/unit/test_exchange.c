/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests which means of an exchange is chosen, and that settings which make no sense are refused. */

#include "net/exchange.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "testing.h"

static struct cei_report report;
static struct testing_log log_lines;
static struct cei_exchange_config config;
static struct cei_exchange exchange;

static void set_up(void)
{
	static const char *const variables[] = {
		"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
		"TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE", "PMIX_RANK", "CEOVERLAP_STORE",
		"CEOVERLAP_BOOTSTRAP", "CEOVERLAP_JOB", "CEOVERLAP_PROCESS",
		"CEOVERLAP_PROCESSES", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
		"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "FLUX_TASK_RANK", "FLUX_JOB_SIZE",
		"PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
	};
	size_t i;

	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	testing_log_init(&log_lines);
	cei_report_init(&report, testing_log_line, &log_lines);
	memset(&config, 0, sizeof(config));
	config.report = &report;
}

static void tear_down(void)
{
	cei_report_fini(&report);
}

static void set_torchrun(void)
{
	setenv("RANK", "3", 1);
	setenv("WORLD_SIZE", "8", 1);
	setenv("MASTER_ADDR", "localhost", 1);
	setenv("MASTER_PORT", "29400", 1);
	setenv("TORCHELASTIC_RUN_ID", "run", 1);
}

static int gather_nothing(void *arg, const void *own, size_t n_bytes, void *ret_all,
			  uint64_t timeout_ns)
{
	(void)arg;
	(void)own;
	(void)n_bytes;
	(void)ret_all;
	(void)timeout_ns;
	return 1;
}

static int open_it(void)
{
	return cei_exchange_open(&exchange, &config, cei_now_ns() + TESTING_PATIENCE);
}

/* Opens and closes it, and checks what was found out. */
static void assert_opens(const char *name, uint32_t process, uint32_t n_processes)
{
	ck_assert_int_eq(open_it(), 0);
	ck_assert_str_eq(exchange.ops->name, name);
	ck_assert_uint_eq(exchange.process, process);
	ck_assert_uint_eq(exchange.n_processes, n_processes);
	cei_exchange_close(&exchange);
}

static void assert_refused(const char *text, const char *and_text)
{
	ck_assert_int_eq(open_it(), CEOV_ERR_INVALID);
	testing_log_has(&log_lines, text, and_text, NULL);
}

START_TEST(test_nothing_is_shown)
{
	assert_refused("nothing says how", "CEOVERLAP_STORE");
	setenv("CEOVERLAP_BOOTSTRAP", "store", 1);
	assert_refused("meet by 'store'", NULL);
	setenv("CEOVERLAP_BOOTSTRAP", "mpi", 1);
	assert_refused("CEOVERLAP_BOOTSTRAP is 'mpi'", "'pmix', 'store' or 'alone'");
	config.means = CEOV_BOOTSTRAP_ALONE + 1;
	assert_refused("bootstrap 6", "0 to 5");
}
END_TEST

START_TEST(test_torchrun)
{
	set_torchrun();
	assert_opens("store", 3, 8);
	ck_assert_str_eq(exchange.where, "localhost:29401");
	ck_assert_str_eq(exchange.job, "run.0");
	setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
	setenv("MASTER_ADDR", "::1", 1);
	assert_opens("store", 3, 8);
	ck_assert_str_eq(exchange.where, "[::1]:29401");
	ck_assert_str_eq(exchange.job, "run.2");
	setenv("CEOVERLAP_STORE", "127.0.0.1:77", 1);
	setenv("CEOVERLAP_JOB", "mine", 1);
	setenv("CEOVERLAP_PROCESS", "1", 1);
	setenv("CEOVERLAP_PROCESSES", "4", 1);
	assert_opens("store", 1, 4);
	ck_assert_str_eq(exchange.where, "127.0.0.1:77");
	ck_assert_str_eq(exchange.job, "mine");
	config.job = "a call's";
	config.where = "127.0.0.1:78";
	config.process = 5;
	config.n_processes = 6;
	assert_opens("store", 5, 6);
	ck_assert_str_eq(exchange.where, "127.0.0.1:78");
	ck_assert_str_eq(exchange.job, "a call's");
}
END_TEST

static uint32_t n_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	uint32_t n = 0;

	ck_assert_ptr_nonnull(tasks);
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n;
}

START_TEST(test_address_in_figures_needs_no_thread)
{
	static const char *const hosts[] = { "127.0.0.1", "::1", "10.0.0.7" };
	uint32_t n = n_threads(), i;

	set_torchrun();
	for (i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		setenv("MASTER_ADDR", hosts[i], 1);
		assert_opens("store", 3, 8);
		ck_assert_uint_eq(n_threads(), n);
	}
}
END_TEST

/* The store takes the numbers of whichever launcher started the process, the innermost one's. */
START_TEST(test_numbers_of_launchers)
{
	static const char *const variables[][2] = {
		{ "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" }, { "PMI_RANK", "PMI_SIZE" },
		{ "FLUX_TASK_RANK", "FLUX_JOB_SIZE" },
		{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
		{ "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE" }, { "RANK", "WORLD_SIZE" },
	};
	uint32_t i;
	char text[16];

	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		snprintf(text, sizeof(text), "%u", i + 1);
		setenv(variables[i][0], text, 1);
		setenv(variables[i][1], "9", 1);
		unsetenv("CEOVERLAP_STORE");
		assert_refused("to meet the others, set", variables[i][1]);
		setenv("CEOVERLAP_STORE", "127.0.0.1:77", 1);
		assert_opens("store", i + 1, 9);
	}
}
END_TEST

START_TEST(test_order_of_means)
{
	set_torchrun();
	assert_opens("store", 3, 8);
	config.all_gather = gather_nothing;
	assert_refused("number of processes", "0");
	config.n_processes = 2;
	assert_opens("callback", 0, 2);
	config.means = CEI_MEANS_STORE;
	assert_opens("store", 0, 2);
}
END_TEST

/* Earlier versions met in a folder: what asks for that is told of the store. */
START_TEST(test_a_folder_is_refused)
{
	set_torchrun();
	setenv("CEOVERLAP_BOOTSTRAP", "folder", 1);
	assert_refused("cannot meet in a shared folder any more", "CEOVERLAP_STORE");
	setenv("CEOVERLAP_BOOTSTRAP", "store", 1);
	config.means = CEOV_BOOTSTRAP_FOLDER;
	assert_refused("cannot meet in a shared folder any more", "host:port");
	config.means = CEI_MEANS_SHOWN;
	config.where = "/a/folder";
	assert_refused("'/a/folder', must be host:port", NULL);
}
END_TEST

START_TEST(test_bad_numbers)
{
	set_torchrun();
	setenv("RANK", "8", 1);
	assert_refused("process 8 of 8", NULL);
	setenv("RANK", "-1", 1);
	assert_refused("RANK is '-1'", NULL);
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "65537", 1);
	assert_refused("WORLD_SIZE is '65537'", "65536");
	setenv("WORLD_SIZE", "8", 1);
	setenv("MASTER_PORT", "65535", 1);
	assert_refused("MASTER_PORT is '65535'", "65534");
	config.n_processes = 65537;
	setenv("MASTER_PORT", "1024", 1);
	assert_refused("of 65537", "at most 65536");
}
END_TEST

START_TEST(test_long_names)
{
	char text[1100];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	set_torchrun();
	config.job = text;
	assert_refused("job's name has 1099 bytes", "319");
	config.job = "two\nlines";
	assert_refused("job's name has characters that cannot be printed", NULL);
	config.job = NULL;
	config.where = text;
	assert_refused("has 1099 bytes", "1023");
	config.where = NULL;
	setenv("MASTER_ADDR", text, 1);
	assert_refused("MASTER_ADDR is longer", NULL);
}
END_TEST

START_TEST(test_missing_processes_as_text)
{
	char text[CEI_MISSING_TEXT_BYTES];
	static uint8_t has[65536];
	uint32_t i;

	memset(has, 1, sizeof(has));
	ck_assert_uint_eq(cei_missing_text(&cei_processes, has, 4, text), 0);
	ck_assert_str_eq(text, "");
	has[2] = 0;
	ck_assert_uint_eq(cei_missing_text(&cei_processes, has, 4, text), 1);
	ck_assert_str_eq(text, "process 2");
	has[3] = 0;
	ck_assert_uint_eq(cei_missing_text(&cei_processes, has, 4, text), 2);
	ck_assert_str_eq(text, "processes 2, 3");
	for (i = 60000; i < 65536; i++)
		has[i] = 0;
	ck_assert_uint_eq(cei_missing_text(&cei_processes, has, 65536, text), 5538);
	ck_assert_str_eq(text, "processes 2, 3, 60000, 60001, 60002, 60003, 60004, 60005 and "
			 "5530 more");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exchange");
	TCase *tcase = tcase_create("exchange");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_nothing_is_shown);
	tcase_add_test(tcase, test_torchrun);
	tcase_add_test(tcase, test_address_in_figures_needs_no_thread);
	tcase_add_test(tcase, test_numbers_of_launchers);
	tcase_add_test(tcase, test_order_of_means);
	tcase_add_test(tcase, test_a_folder_is_refused);
	tcase_add_test(tcase, test_bad_numbers);
	tcase_add_test(tcase, test_long_names);
	tcase_add_test(tcase, test_missing_processes_as_text);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
