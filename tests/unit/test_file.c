/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Files by name: what is no file is refused at once, what is too large is not read. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "testing.h"

static char path[300];

static void set_up(void)
{
	testing_path("file", path, sizeof(path));
}

static void tear_down(void)
{
	(void)unlink(path);
}

static void write_text(const char *text)
{
	FILE *file = NULL;

	ck_assert_int_eq(cei_file_create(path, &file), 0);
	ck_assert_int_ne(fcntl(fileno(file), F_GETFD) & FD_CLOEXEC, 0);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void assert_read(const char *wanted)
{
	uint64_t n_bytes = 77;
	char *text = NULL;

	ck_assert_int_eq(cei_file_read(path, 100, &text, &n_bytes), 0);
	ck_assert_str_eq(text, wanted);
	ck_assert_uint_eq(n_bytes, strlen(wanted));
	free(text);
}

START_TEST(test_what_is_written_is_read)
{
	write_text("a longer text\n");
	assert_read("a longer text\n");
	write_text("short");            /* nothing of the old one stays */
	assert_read("short");
	write_text("");
	assert_read("");
}
END_TEST

static void assert_not_read(int error)
{
	uint64_t n_bytes;
	char *text;

	ck_assert_int_eq(cei_file_read(path, 4, &text, &n_bytes), error);
}

START_TEST(test_what_is_missing_or_too_large)
{
	assert_not_read(ENOENT);
	write_text("12345");
	assert_not_read(EFBIG);
}
END_TEST

/* A pipe would be waited for: the test ends in time or not at all. */
START_TEST(test_a_pipe_is_refused_at_once)
{
	FILE *file = NULL;
	int reader;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	assert_not_read(EINVAL);
	ck_assert_int_eq(cei_file_create(path, &file), EINVAL);
	reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(reader, 0);
	ck_assert_int_eq(cei_file_create(path, &file), EINVAL);
	ck_assert_str_eq(cei_file_fault(EINVAL), "it is no regular file");
	close(reader);
}
END_TEST

START_TEST(test_a_folder_is_refused)
{
	FILE *file = NULL;

	ck_assert_int_eq(mkdir(path, 0700), 0);
	assert_not_read(EINVAL);
	ck_assert_int_eq(cei_file_create(path, &file), EISDIR);
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(test_a_device_is_written)
{
	FILE *file = NULL;

	ck_assert_int_eq(cei_file_create("/dev/null", &file), 0);
	ck_assert_int_eq(fclose(file), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("file");
	TCase *all = tcase_create("file");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_what_is_written_is_read);
	tcase_add_test(all, test_what_is_missing_or_too_large);
	tcase_add_test(all, test_a_pipe_is_refused_at_once);
	tcase_add_test(all, test_a_folder_is_refused);
	tcase_add_test(all, test_a_device_is_written);
	tcase_set_timeout(all, 20);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
