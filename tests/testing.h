/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TESTING_H
#define CEI_TESTING_H

/*
 * Shared by the suites: running tests, seeds, a temporary folder, a log that can be
 * searched, and objects on host memory whose creation must succeed. Asserts with Check.
 */

#include <check.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ceoverlap/ceoverlap.h>

#define TESTING_MS       UINT64_C(1000000)
#define TESTING_SECOND   (1000 * TESTING_MS)
#define TESTING_PATIENCE (20 * TESTING_SECOND)  /* longer than anything that works takes */

/* Runs the suite and frees it; returns main()'s exit status. Prints the seed and creates
 * the folder; tests find both in the environment. */
int testing_run(Suite *suite);

/* Runs the function, which returns an exit status, in a child without output. Returns whether that
 * fails. For suites that have to find something wrong. */
int testing_fails(int (*run)(void));

/* How many of n rounds of a test that draws, or repeats, are to be run: all, or, where
 * CEOVERLAP_TEST_SHARE is a number, one of so many, and at least two. For runs under sanitizers,
 * which take several times as long and look for something else than the last wrong round. */
uint32_t testing_share(uint32_t n);

/* Whether UCX is there. It is looked for in a child, so that this process and those that it forks
 * begin without it. In a program that calls this no leaks are looked for (testing_ucx.c). */
int testing_has_ucx(void);

/* The seed in CEOVERLAP_TEST_SEED. */
uint64_t testing_seed(void);

/* The next random number, and one below limit; *state begins as the seed. */
uint64_t testing_random(uint64_t *state);
uint64_t testing_below(uint64_t *state, uint64_t limit);

/* A template for mkdtemp() in TMPDIR, or in /tmp; 0 where it does not fit. */
int testing_template(const char *name, char *ret_path, size_t n_bytes);

/* A path in the test's own folder, CEOVERLAP_TEST_TMP. */
void testing_path(const char *name, char *ret_path, size_t n_bytes);

/* A machine of tests/fixtures/machines, named without ".xml". The caller frees it. */
struct cei_machine;
struct cei_machine *testing_machine(const char *name);

/* Collects a context's lines, the oldest dropped first. */
#define TESTING_LINES 64u

struct testing_log {
	pthread_mutex_t lock;           /* guards the rest */
	uint32_t        n_lines;
	char            lines[TESTING_LINES][400];
};

void testing_log_init(struct testing_log *log);
void testing_log_line(void *log, const char *line);     /* for ceov_config.log */
void testing_log_clear(struct testing_log *log);

/* Asserts that one line holds all of the texts (NULL: no more). */
void testing_log_has(struct testing_log *log, const char *text, const char *and_text,
		     const char *and_third);

static const struct ceov_place testing_host = { CEOV_PLACE_HOST, 0 };

/* A config with members 0 to n - 1 on host memory, which are the whole group. The array is
 * the caller's. log NULL: lines are dropped. */
struct ceov_config testing_config(struct ceov_member *members, uint32_t n_ranks,
				  struct testing_log *log);
ceov_context *testing_open(uint32_t n_ranks, struct testing_log *log);

/* The same without threads: progress is made only in ceov_turn(). */
ceov_context *testing_open_turned(uint32_t n_ranks, struct testing_log *log);

ceov_buffer *testing_buffer(ceov_context *context, uint32_t rank, uint64_t size_bytes);
ceov_signal *testing_signal(ceov_context *context, uint32_t rank, uint32_t n_counters);
ceov_plan   *testing_plan(ceov_context *context, uint32_t rank);

struct ceov_mark testing_mark(ceov_signal *signal, uint32_t index, uint64_t value);

/* A transfer from the begin of one buffer to the begin of another, without marks. */
struct ceov_transfer testing_transfer(ceov_buffer *source, ceov_buffer *target,
				      uint64_t n_bytes);

/* Adds the transfer and declares its awaited marks as expected. */
void testing_add(ceov_plan *plan, const struct ceov_transfer *transfer);

/* Asserts that ceov_plan_explain() of a short plan says the text. */
void testing_explained(const ceov_plan *plan, const char *text);

/* Asserts that it does not say the text. */
void testing_not_explained(const ceov_plan *plan, const char *text);

/* Fills bytes with a pattern that depends on the seed and on the offset. */
void testing_fill(void *bytes, uint64_t n_bytes, uint64_t seed);

/* The offset of the first byte that differs from the pattern, or n_bytes. */
uint64_t testing_check(const void *bytes, uint64_t n_bytes, uint64_t seed);

/* Likewise for bytes that all have the same value: guards, and what nobody may have written to. An
 * assertion for each byte would take longer than most tests: Check sends a message to another
 * process for each assertion that holds. */
uint64_t testing_check_same(const void *bytes, uint64_t n_bytes, unsigned char value);

/* Takes the first failure, asserting that there is one. */
struct ceov_failure testing_failure(ceov_context *context);

/* Stops a child and returns when all its threads have stopped: kill() returns while they
 * may still run. SIGCONT lets it go on. */
void testing_stop(pid_t child);

/* From now on threads of this process can (0) or cannot (1) be started, since no memory is left for
 * their stacks. */
void testing_refuse_threads(int refuse);

#endif /* CEI_TESTING_H */
