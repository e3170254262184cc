/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Handles that are NULL, closed or none at all, and memory that cannot be read: each is refused
 * with a line that says which argument of which call was wrong. */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "testing.h"

static int lines;                       /* a file: what is written to stderr */

static void begin(void)
{
	char path[200];

	testing_path("lines", path, sizeof(path));
	ck_assert_ptr_nonnull(freopen(path, "w+", stderr));
	ck_assert_int_eq(unlink(path), 0);      /* read by its descriptor alone */
	lines = fileno(stderr);
}

/* Asserts that the call was refused, with one line that has the text. */
static void refused(int result, const char *text)
{
	char said[1000] = "";
	const char *end;

	ck_assert_int_eq(result, CEOV_ERR_INVALID);
	fflush(stderr);
	ck_assert_int_gt(pread(lines, said, sizeof(said) - 1, 0), 0);
	ck_assert_msg(strstr(said, text) != NULL, "'%s' is not in '%s'", text, said);
	end = strchr(said, '\n');
	ck_assert_msg(end && !end[1], "more than one line: '%s'", said);
	ck_assert_int_eq(ftruncate(lines, 0), 0);
	rewind(stderr);
}

START_TEST(test_null_contexts_are_named)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	const ceov_ticket ticket = { 1 };
	ceov_buffer *buffer;
	ceov_signal *signal;
	ceov_plan *plan;
	uint32_t n;

	begin();
	refused(ceov_open(NULL, NULL), "ceov_open: no ret_context");
	refused(ceov_buffer_create(NULL, 0, 64, &buffer),
		"ceov_buffer_create: the context is NULL");
	refused(ceov_buffer_find(NULL, 0, "a", &buffer), "ceov_buffer_find: the context is NULL");
	refused(ceov_signal_create(NULL, 0, host, 1, 0, &signal),
		"ceov_signal_create: the context is NULL");
	refused(ceov_signal_find(NULL, 0, "a", &signal), "ceov_signal_find: the context is NULL");
	refused(ceov_plan_create(NULL, 0, NULL, &plan), "ceov_plan_create: the context is NULL");
	refused(ceov_wait(NULL, ticket, 0), "ceov_wait: the context is NULL");
	refused(ceov_abort(NULL, ticket), "ceov_abort: the context is NULL");
	refused(ceov_turn(NULL), "ceov_turn: the context is NULL");
	refused(ceov_barrier(NULL, 0), "ceov_barrier: the context is NULL");
	refused(ceov_reopen(NULL, 0), "ceov_reopen: the context is NULL");
	refused(ceov_n_ranks(NULL, &n), "ceov_n_ranks: the context is NULL");
	refused(ceov_last_failure(NULL, NULL), "ceov_last_failure: no ret_failure");
}
END_TEST

START_TEST(test_null_handles_are_named)
{
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };
	uint64_t memory[64] = { 0 }, value;

	begin();
	refused(ceov_buffer_share(NULL, "a"), "ceov_buffer_share: the buffer is NULL");
	refused(ceov_signal_share(NULL, "a"), "ceov_signal_share: the signal is NULL");
	refused(ceov_signal_wait(NULL, 0, 1, 0), "ceov_signal_wait: the signal is NULL");
	refused(ceov_signal_raise(NULL, 0, 1), "ceov_signal_raise: the signal is NULL");
	refused(ceov_signal_value(NULL, 0, &value), "ceov_signal_value: the signal is NULL");
	refused(ceov_plan_add(NULL, NULL), "ceov_plan_add: the plan is NULL");
	refused(ceov_plan_expect(NULL, NULL), "ceov_plan_expect: the plan is NULL");
	refused(ceov_plan_commit(NULL), "ceov_plan_commit: the plan is NULL");
	refused(ceov_launch(NULL, NULL, NULL), "ceov_launch: the plan is NULL");
	refused(ceov_plan_add_all_gather(NULL, &gather),
		"ceov_plan_add_all_gather: the plan is NULL");
	refused(ceov_plan_commit((void *)memory), "ceov_plan_commit: the plan is no handle");
}
END_TEST

/* A program that ignores results may repeat a call for ever, by several functions. */
START_TEST(test_lines_of_a_loop_are_few)
{
	const uint32_t n_rounds = 10000;
	struct stat stat;
	uint32_t i;

	begin();
	for (i = 0; i < n_rounds; i++) {
		if (ceov_turn(NULL) != CEOV_ERR_INVALID ||
		    ceov_plan_commit(NULL) != CEOV_ERR_INVALID)
			ck_abort_msg("round %u was not refused", i);
	}
	fflush(stderr);
	ck_assert_int_eq(fstat(lines, &stat), 0);
	ck_assert_int_gt(stat.st_size, 0);
	ck_assert_int_lt(stat.st_size, 20000);
}
END_TEST

START_TEST(test_a_closed_context_is_named)
{
	ceov_context *context = testing_open(1, NULL);

	ceov_close(context);
	begin();
	refused(ceov_barrier(context, 0), "ceov_barrier: the context was closed");
}
END_TEST

/* --- the last failure of a thread ---------------------------------------------------------- */

static void has_raised(int error, const char *text)
{
	struct ceov_failure failure;

	ck_assert_int_eq(ceov_last_failure(NULL, &failure), 0);
	ck_assert_int_eq(failure.error, error);
	ck_assert_msg(strstr(failure.text, text) != NULL, "'%s' is not in '%s'", text,
		      failure.text);
	ck_assert_int_eq(ceov_last_failure(NULL, &failure), CEOV_NONE);
}

START_TEST(test_a_thread_is_told_why_without_a_context)
{
	struct ceov_config config = CEOV_CONFIG_INIT;
	struct ceov_failure failure;
	ceov_context *context;
	ceov_buffer *buffer;

	begin();
	ck_assert_int_eq(ceov_last_failure(NULL, &failure), CEOV_NONE);
	ck_assert_int_eq(ceov_turn(NULL), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "ceov_turn: the context is NULL");
	config.progress_by_caller = 2;
	ck_assert_int_eq(ceov_open(&config, &context), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "progress_by_caller is 2");
	config.struct_bytes = 1;
	ck_assert_int_eq(ceov_open(&config, &context), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "struct_bytes is too small");

	context = testing_open(1, NULL);
	ck_assert_int_eq(ceov_buffer_create(context, 7, 64, &buffer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_create(context, 0, 0, &buffer), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "size_bytes is 0");                /* the last one; ... */
	ck_assert_int_eq(ceov_last_failure(context, &failure), 0);      /* ... here the first */
	ck_assert_ptr_nonnull(strstr(failure.text, "rank 7"));
	ck_assert_int_eq(ceov_last_failure(context, NULL), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "no ret_failure");
	ceov_close(context);
	ck_assert_int_eq(ceov_turn(context), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "the context was closed");
}
END_TEST

static void *raise_another(void *arg)
{
	struct ceov_failure failure;

	(void)arg;
	ck_assert_int_eq(ceov_last_failure(NULL, &failure), CEOV_NONE);
	ck_assert_int_eq(ceov_barrier(NULL, 0), CEOV_ERR_INVALID);
	has_raised(CEOV_ERR_INVALID, "ceov_barrier");
	ck_assert_int_eq(ceov_barrier(NULL, 0), CEOV_ERR_INVALID);
	return NULL;
}

START_TEST(test_threads_have_failures_of_their_own)
{
	pthread_t thread;

	begin();
	ck_assert_int_eq(ceov_turn(NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(pthread_create(&thread, NULL, raise_another, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	has_raised(CEOV_ERR_INVALID, "ceov_turn");
	ck_assert_int_eq(pthread_create(&thread, NULL, raise_another, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* --- memory -------------------------------------------------------------------------------- */

static int is_registered(ceov_context *context, uint8_t *base, size_t n_bytes)
{
	ceov_buffer *buffer;
	int r = ceov_buffer_register(context, 0, base, n_bytes, &buffer);

	ck_assert(r == 0 || r == CEOV_ERR_INVALID);
	return !r;
}

/* A hole in the range counts as well, however small. */
START_TEST(test_memory_that_is_not_mapped_is_not_registered)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct testing_log log;
	ceov_context *context;

	testing_log_init(&log);
	context = testing_open(1, &log);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	ck_assert_int_eq(munmap(memory + page, page), 0);
	ck_assert(!is_registered(context, memory + page, page));
	ck_assert(!is_registered(context, memory, 3 * page));
	ck_assert(!is_registered(context, memory + page - 1, 2));
	testing_log_has(&log, "cannot register host memory", "has not mapped all of it", NULL);
	ck_assert(is_registered(context, memory + 1, page - 1));
	ck_assert(is_registered(context, memory + 2 * page, page));
	ceov_close(context);
	ck_assert_int_eq(munmap(memory, 3 * page), 0);
}
END_TEST

/* As a reserved range of addresses that nothing was put into yet, or at its end, and a mapping that
 * is longer than its file. */
START_TEST(test_memory_that_cannot_be_read_is_not_registered)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *memory = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("short", MFD_CLOEXEC);
	struct testing_log log;
	ceov_context *context;
	uint8_t *file;

	testing_log_init(&log);
	context = testing_open(1, &log);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	ck_assert(!is_registered(context, memory, 3 * page));
	ck_assert_int_eq(mprotect(memory + page, page, PROT_READ), 0);
	ck_assert(!is_registered(context, memory + page - 1, 2));
	ck_assert(!is_registered(context, memory + page + 1, page));
	testing_log_has(&log, "cannot register host memory", "cannot read", NULL);
	ck_assert(is_registered(context, memory + page, page));
	ck_assert(is_registered(context, memory + page + 1, page - 1));
	ck_assert_int_eq(ftruncate(fd, (off_t)page), 0);
	file = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(file, MAP_FAILED);
	ck_assert(is_registered(context, file, page));
	ck_assert(!is_registered(context, file, page + 1));
	ceov_close(context);
	ck_assert_int_eq(munmap(file, 2 * page), 0);
	ck_assert_int_eq(munmap(memory, 3 * page), 0);
	close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nulls");
	TCase *all = tcase_create("nulls");

	tcase_add_test(all, test_null_contexts_are_named);
	tcase_add_test(all, test_null_handles_are_named);
	tcase_add_test(all, test_lines_of_a_loop_are_few);
	tcase_add_test(all, test_a_closed_context_is_named);
	tcase_add_test(all, test_a_thread_is_told_why_without_a_context);
	tcase_add_test(all, test_threads_have_failures_of_their_own);
	tcase_add_test(all, test_memory_that_is_not_mapped_is_not_registered);
	tcase_add_test(all, test_memory_that_cannot_be_read_is_not_registered);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
