/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Test runner, seeds, log and helper objects of the suites. */

#include "testing.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "topology/machine.h"

/* --- running ------------------------------------------------------------- */

static void set_seed(void)
{
	char text[32];

	if (!getenv("CEOVERLAP_TEST_SEED")) {
		snprintf(text, sizeof(text), "%" PRIu64,
			 cei_now_ns() ^ (uint64_t)getpid() << 40);
		setenv("CEOVERLAP_TEST_SEED", text, 1);
	}
	printf("seed %s (CEOVERLAP_TEST_SEED repeats it)\n", getenv("CEOVERLAP_TEST_SEED"));
	fflush(stdout);
}

int testing_template(const char *name, char *ret_path, size_t n_bytes)
{
	const char *folder = getenv("TMPDIR");
	int n = snprintf(ret_path, n_bytes, "%s/%s.XXXXXX",
			 folder && *folder ? folder : "/tmp", name);

	return n > 0 && (size_t)n < n_bytes;
}

int testing_run(Suite *suite)
{
	char folder[256] = "a folder in TMPDIR, whose name is too long";
	SRunner *runner = srunner_create(suite);
	int is_ours = !getenv("CEOVERLAP_TEST_TMP");
	int n_failed;

	set_seed();
	if (is_ours && (!testing_template("ceov-suite", folder, sizeof(folder)) ||
			!mkdtemp(folder) || setenv("CEOVERLAP_TEST_TMP", folder, 1))) {
		perror(folder);
		return EXIT_FAILURE;
	}
	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (is_ours && rmdir(folder)) {
		perror(folder);         /* a test left a file there */
		return EXIT_FAILURE;
	}
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int testing_fails(int (*run)(void))
{
	int sink, status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		sink = open("/dev/null", O_WRONLY);
		if (sink < 0 || dup2(sink, STDOUT_FILENO) < 0 || dup2(sink, STDERR_FILENO) < 0)
			_exit(EXIT_SUCCESS);
		exit(run());
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) != 0;
}

uint32_t testing_share(uint32_t n)
{
	const char *text = getenv("CEOVERLAP_TEST_SHARE");
	uint32_t part = text ? (uint32_t)strtoul(text, NULL, 10) : 1;

	if (part <= 1 || n <= 2)
		return n;
	return n / part < 2 ? 2 : n / part;
}

uint64_t testing_seed(void)
{
	const char *text = getenv("CEOVERLAP_TEST_SEED");

	ck_assert_ptr_nonnull(text);
	return strtoull(text, NULL, 10);
}

/* splitmix64 */
uint64_t testing_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t testing_below(uint64_t *state, uint64_t limit)
{
	return testing_random(state) % limit;
}

void testing_path(const char *name, char *ret_path, size_t n_bytes)
{
	const char *folder = getenv("CEOVERLAP_TEST_TMP");
	int n;

	ck_assert_ptr_nonnull(folder);
	n = snprintf(ret_path, n_bytes, "%s/%s", folder, name);
	ck_assert_int_lt(n, (int)n_bytes);
}

struct cei_machine *testing_machine(const char *name)
{
	const char *srcdir = getenv("srcdir");
	struct cei_machine *machine = NULL;
	struct cei_report report;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/%s.xml", srcdir ? srcdir : ".",
		 name);
	cei_report_init(&report, NULL, NULL);
	ck_assert_msg(cei_machine_read_xml(&report, path, &machine) == 0, "%s", path);
	cei_report_fini(&report);
	return machine;
}

/* --- log ----------------------------------------------------------------- */

void testing_log_init(struct testing_log *log)
{
	memset(log, 0, sizeof(*log));
	pthread_mutex_init(&log->lock, NULL);
}

void testing_log_line(void *log_arg, const char *line)
{
	struct testing_log *log = log_arg;

	pthread_mutex_lock(&log->lock);
	snprintf(log->lines[log->n_lines++ % TESTING_LINES], sizeof(log->lines[0]), "%s",
		 line);
	pthread_mutex_unlock(&log->lock);
}

void testing_log_clear(struct testing_log *log)
{
	pthread_mutex_lock(&log->lock);
	log->n_lines = 0;
	memset(log->lines, 0, sizeof(log->lines));
	pthread_mutex_unlock(&log->lock);
}

static int line_has(const char *line, const char *text)
{
	return !text || strstr(line, text);
}

void testing_log_has(struct testing_log *log, const char *text, const char *and_text,
		     const char *and_third)
{
	uint32_t i, has = 0;

	pthread_mutex_lock(&log->lock);
	for (i = 0; i < TESTING_LINES && i < log->n_lines; i++)
		has += line_has(log->lines[i], text) && line_has(log->lines[i], and_text) &&
			line_has(log->lines[i], and_third);
	if (!has)
		for (i = 0; i < TESTING_LINES && i < log->n_lines; i++)
			fprintf(stderr, "logged: %s\n", log->lines[i]);
	pthread_mutex_unlock(&log->lock);
	ck_assert_msg(has, "no line has '%s', '%s' and '%s'", text,
		      and_text ? and_text : "", and_third ? and_third : "");
}

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

/* --- objects ------------------------------------------------------------- */

struct ceov_config testing_config(struct ceov_member *members, uint32_t n_ranks,
				  struct testing_log *log)
{
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint32_t i;

	for (i = 0; i < n_ranks; i++) {
		members[i].rank = i;
		members[i].place = testing_host;
	}
	config.members = members;
	config.n_members = n_ranks;
	config.n_ranks = n_ranks;
	config.log = log ? testing_log_line : drop_line;
	config.log_arg = log;
	return config;
}

static ceov_context *open_ranks(uint32_t n_ranks, struct testing_log *log, int is_turned)
{
	struct ceov_member members[16];
	struct ceov_config config = testing_config(members, n_ranks, log);
	ceov_context *context = NULL;

	config.progress_by_caller = is_turned;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	return context;
}

ceov_context *testing_open(uint32_t n_ranks, struct testing_log *log)
{
	return open_ranks(n_ranks, log, 0);
}

ceov_context *testing_open_turned(uint32_t n_ranks, struct testing_log *log)
{
	return open_ranks(n_ranks, log, 1);
}

ceov_buffer *testing_buffer(ceov_context *context, uint32_t rank, uint64_t size_bytes)
{
	ceov_buffer *buffer = NULL;

	ck_assert_int_eq(ceov_buffer_create(context, rank, size_bytes, &buffer), 0);
	return buffer;
}

ceov_signal *testing_signal(ceov_context *context, uint32_t rank, uint32_t n_counters)
{
	ceov_signal *signal = NULL;

	ck_assert_int_eq(ceov_signal_create(context, rank, testing_host, n_counters, 0,
					    &signal), 0);
	return signal;
}

ceov_plan *testing_plan(ceov_context *context, uint32_t rank)
{
	ceov_plan *plan = NULL;

	ck_assert_int_eq(ceov_plan_create(context, rank, NULL, &plan), 0);
	return plan;
}

struct ceov_mark testing_mark(ceov_signal *signal, uint32_t index, uint64_t value)
{
	struct ceov_mark mark = { signal, index, value };

	return mark;
}

struct ceov_transfer testing_transfer(ceov_buffer *source, ceov_buffer *target,
				      uint64_t n_bytes)
{
	struct ceov_transfer transfer;

	memset(&transfer, 0, sizeof(transfer));
	transfer.struct_bytes = sizeof(transfer);
	transfer.source.buffer = source;
	transfer.target.buffer = target;
	transfer.row_bytes = n_bytes;
	transfer.n_rows = 1;
	return transfer;
}

void testing_add(ceov_plan *plan, const struct ceov_transfer *transfer)
{
	ck_assert_int_eq(ceov_plan_add(plan, transfer), 0);
	if (transfer->source_ready.signal)
		ck_assert_int_eq(ceov_plan_expect(plan, &transfer->source_ready), 0);
	if (transfer->target_free.signal)
		ck_assert_int_eq(ceov_plan_expect(plan, &transfer->target_free), 0);
}

/* Reads what ceov_plan_explain() says of a short plan, as a string of at most n_bytes_max. */
static void read_explanation(const ceov_plan *plan, char *said, size_t n_bytes_max)
{
	size_t at = 0;
	ssize_t n;
	int fds[2];

	ck_assert_int_eq(pipe(fds), 0);         /* holds 64 KiB */
	ck_assert_int_eq(ceov_plan_explain(plan, fds[1]), 0);
	(void)close(fds[1]);
	while (at < n_bytes_max - 1 && (n = read(fds[0], said + at, n_bytes_max - 1 - at)) > 0)
		at += (size_t)n;
	said[at] = '\0';
	(void)close(fds[0]);
}

void testing_explained(const ceov_plan *plan, const char *text)
{
	char said[16384];

	read_explanation(plan, said, sizeof(said));
	ck_assert_msg(strstr(said, text) != NULL, "'%s' is not in: %s", text, said);
}

void testing_not_explained(const ceov_plan *plan, const char *text)
{
	char said[16384];

	read_explanation(plan, said, sizeof(said));
	ck_assert_msg(!strstr(said, text), "'%s' is in: %s", text, said);
}

/* The pattern's 8 bytes from 8 i on, computed at once because sanitizers check every
 * access. */
static uint64_t word_at(uint64_t i, uint64_t seed)
{
	uint64_t mixed = (i + seed) * UINT64_C(0x9e3779b97f4a7c15);

	return mixed ^ (mixed >> 29 & 0xff) * UINT64_C(0x0101010101010101);
}

static size_t word_bytes(uint64_t at, uint64_t n_bytes)
{
	return n_bytes - at < sizeof(uint64_t) ? (size_t)(n_bytes - at) : sizeof(uint64_t);
}

void testing_fill(void *bytes, uint64_t n_bytes, uint64_t seed)
{
	unsigned char *to = bytes;
	uint64_t at, word;

	for (at = 0; at < n_bytes; at += sizeof(word)) {
		word = word_at(at / sizeof(word), seed);
		memcpy(to + at, &word, word_bytes(at, n_bytes));
	}
}

uint64_t testing_check(const void *bytes, uint64_t n_bytes, uint64_t seed)
{
	const unsigned char *from = bytes;
	unsigned char wanted[sizeof(uint64_t)];
	uint64_t at, word;
	size_t i;

	for (at = 0; at < n_bytes; at += sizeof(word)) {
		word = word_at(at / sizeof(word), seed);
		memcpy(wanted, &word, sizeof(word));
		if (!memcmp(from + at, wanted, word_bytes(at, n_bytes)))
			continue;
		for (i = 0; from[at + i] == wanted[i]; i++)
			;
		return at + i;
	}
	return n_bytes;
}

uint64_t testing_check_same(const void *bytes, uint64_t n_bytes, unsigned char value)
{
	const unsigned char *from = bytes;
	uint64_t at = 0;

	while (at < n_bytes && from[at] == value)
		at++;
	return at;
}

struct ceov_failure testing_failure(ceov_context *context)
{
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_last_failure(context, &failure), 0);
	return failure;
}

void testing_stop(pid_t child)
{
	int status = 0;

	ck_assert_int_eq(kill(child, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
}

void testing_refuse_threads(int refuse)
{
	pthread_attr_t attributes;

	ck_assert_int_eq(pthread_attr_init(&attributes), 0);
	ck_assert_int_eq(pthread_attr_setstacksize(&attributes, (size_t)1 << (refuse ? 46 : 21)),
			 0);
	ck_assert_int_eq(pthread_setattr_default_np(&attributes), 0);
	ck_assert_int_eq(pthread_attr_destroy(&attributes), 0);
}
