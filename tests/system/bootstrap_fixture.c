/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the tests of the bootstrap share; nothing here is a test. */

#include "bootstrap_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

#define PARTS_MAX 16

struct shared *shared;
char directory[96];
char path[104];

static pid_t parts[PARTS_MAX];
static int n_parts;

/* --- parts --------------------------------------------------------------- */

void give_up(int line, const char *condition)
{
	fprintf(stderr, "part %d, line %d: %s\n", (int)getpid(), line, condition);
	_exit(99);
}

void pause_ms(uint64_t ms)
{
	struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
				  .tv_nsec = (long)(ms % 1000 * NS_PER_MS) };

	nanosleep(&pause, NULL);
}

void step_done(int step)
{
	/* release: pairs with the acquire in step_reached() */
	atomic_fetch_add_explicit(&shared->steps[step], 1, memory_order_release);
}

int step_reached(int step, uint32_t n)
{
	uint64_t deadline_ns = cei_deadline(PATIENCE_MS * NS_PER_MS);

	/* acquire: pairs with the release in step_done() */
	while (atomic_load_explicit(&shared->steps[step], memory_order_acquire) < n) {
		if (cei_now_ns() > deadline_ns)
			return 0;
		pause_ms(1);
	}
	return 1;
}

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	if (getenv("CEOVERLAP_TEST_SHOW"))
		fprintf(stderr, "%d: %s\n", (int)getpid(), line);
}

static void note_gone(void *gone_arg, uint32_t rank, int departed)
{
	struct part *part = gone_arg;
	struct seen *seen = &shared->seen[part->site.members[0].rank][rank];

	/* release: pairs with the acquire in wait_gone() */
	atomic_store_explicit(&seen->departed, departed, memory_order_relaxed);
	atomic_fetch_add_explicit(&seen->n_gone, 1, memory_order_relaxed);
	atomic_store_explicit(&seen->gone_ns, cei_now_ns(), memory_order_release);
}

uint64_t wait_gone(uint32_t who, uint32_t whom)
{
	struct seen *seen = &shared->seen[who][whom];
	uint64_t deadline_ns = cei_deadline(PATIENCE_MS * NS_PER_MS);
	uint64_t gone_ns;

	do {
		/* acquire: pairs with the release in note_gone() */
		gone_ns = atomic_load_explicit(&seen->gone_ns, memory_order_acquire);
		if (!gone_ns)
			pause_ms(1);
	} while (!gone_ns && cei_now_ns() < deadline_ns);
	return gone_ns;
}

void part_init(struct part *part, uint32_t n_ranks)
{
	memset(part, 0, sizeof(*part));
	cei_report_init(&part->report, drop_line, NULL);
	part->site.report = &part->report;
	part->site.n_ranks = n_ranks;
}

void part_hold(struct part *part, uint32_t rank)
{
	part->site.members[part->site.n_members++].rank = rank;
	if (part->site.n_members == 1)
		part->report.rank = rank;
}

int part_open_by(struct part *part, uint64_t timeout_ms)
{
	struct cei_bootstrap_config config = {
		.path = path,
		.deadline_ns = cei_deadline(timeout_ms * NS_PER_MS),
		.gone = note_gone,
		.gone_arg = part,
	};
	int r = cei_bootstrap_open(&part->site, &config, &part->bootstrap);

	cei_report_take(&part->report, &part->failure);
	return r;
}

void part_open(struct part *part, uint32_t n_ranks, uint32_t rank)
{
	part_init(part, n_ranks);
	part_hold(part, rank);
	if (!part_open_by(part, PATIENCE_MS))
		return;
	fprintf(stderr, "rank %u: %s\n", rank, part->failure.text);
	_exit(98);
}

void part_close(struct part *part)
{
	cei_bootstrap_close(part->bootstrap);
	cei_report_fini(&part->report);
}

int part_barrier(struct part *part, uint64_t timeout_ms)
{
	int r = cei_bootstrap_barrier(part->bootstrap, cei_deadline(timeout_ms * NS_PER_MS));

	cei_report_take(&part->report, &part->failure);
	return r;
}

int part_find(struct part *part, uint32_t rank, const char *name,
	      struct cei_export *ret_export, uint64_t *ret_id)
{
	struct cei_lookup lookup = { rank, name, cei_deadline(FIND_MS * NS_PER_MS) };
	int r = cei_bootstrap_find(part->bootstrap, &lookup, ret_export, ret_id);

	cei_report_take(&part->report, &part->failure);
	return r;
}

int says(const struct part *part, const char *words)
{
	if (strstr(part->failure.text, words))
		return 1;
	fprintf(stderr, "'%s' is not in '%s'\n", words, part->failure.text);
	return 0;
}

/* --- the test's own side ------------------------------------------------- */

pid_t start(void (*run)(uint32_t), uint32_t number)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		run(number);
		exit(0);        /* not _exit(): the leak check runs */
	}
	ck_assert_int_lt(n_parts, PARTS_MAX);
	parts[n_parts++] = pid;
	return pid;
}

static void forget(pid_t pid)
{
	int i;

	for (i = 0; i < n_parts; i++)
		if (parts[i] == pid)
			parts[i] = parts[--n_parts];
}

void assert_ends_well(pid_t pid)
{
	uint64_t deadline_ns = cei_deadline(2 * PATIENCE_MS * NS_PER_MS);
	int status = 0;
	pid_t ended;

	do {
		ended = waitpid(pid, &status, WNOHANG);
		if (!ended)
			pause_ms(2);
	} while (!ended && cei_now_ns() < deadline_ns);
	ck_assert_msg(ended == pid, "a part hangs");
	forget(pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
		      "a part ended with status 0x%x", (unsigned)status);
}

void assert_all_end_well(void)
{
	while (n_parts)
		assert_ends_well(parts[0]);
}

uint64_t kill_part(pid_t pid)
{
	uint64_t now_ns = cei_now_ns();

	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	forget(pid);
	return now_ns;
}

uint32_t n_open_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	uint32_t n = 0;

	if (!fds)
		return 0;
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

int is_directory_empty(void)
{
	DIR *entries = opendir(directory);
	int n = 0;

	if (!entries)
		return 0;
	while (readdir(entries))
		n++;
	closedir(entries);
	return n == 2;
}

static void set_up(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	ck_assert_int_eq(testing_template("ceoverlap-test", directory, sizeof(directory)), 1);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/group", directory);
}

static void tear_down(void)
{
	while (n_parts)
		kill_part(parts[0]);
	unlink(path);
	rmdir(directory);
	munmap(shared, sizeof(*shared));
}

int run_suite(const char *name, void (*add_tests)(TCase *))
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	int n_failed;

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 100);
	add_tests(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
