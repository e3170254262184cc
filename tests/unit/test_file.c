/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests files: a path that is no regular file is refused at once, files that are too large are not
 * read, and stored files are replaced as a whole or not at all. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
	write_text("short");            /* nothing of the old content remains */
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

/* Opening a pipe must not wait for a writer. */
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

static void assert_alone(void)
{
	char folder[300], *slash;
	struct dirent *entry;
	DIR *list;

	strcpy(folder, path);
	slash = strrchr(folder, '/');
	*slash = '\0';
	list = opendir(folder);
	ck_assert_ptr_nonnull(list);
	while ((entry = readdir(list)))
		ck_assert_msg(entry->d_name[0] == '.' || !strcmp(entry->d_name, slash + 1) ||
			      strncmp(entry->d_name, slash + 1, strlen(slash + 1)),
			      "'%s' was left beside the file", entry->d_name);
	closedir(list);
}

START_TEST(test_files_are_replaced_as_a_whole)
{
	uint64_t n_bytes = 0;
	struct stat about;
	char *text = NULL;
	int reader;

	ck_assert_int_eq(cei_file_replace(path, "the first", 9, 0600), 0);
	ck_assert_int_eq(stat(path, &about), 0);
	ck_assert_uint_eq(about.st_mode & 0777, 0600);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(reader, 0);
	ck_assert_int_eq(cei_file_replace(path, "2", 1, 0666), 0);
	assert_read("2");
	/* a process that has the old file open still reads all of it */
	ck_assert_int_eq(fstat(reader, &about), 0);
	ck_assert_int_eq(about.st_size, 9);
	close(reader);
	/* a NUL among the bytes is kept */
	ck_assert_int_eq(cei_file_replace(path, "a\0b", 3, 0600), 0);
	ck_assert_int_eq(cei_file_read(path, 100, &text, &n_bytes), 0);
	ck_assert_uint_eq(n_bytes, 3);
	free(text);
	assert_alone();
}
END_TEST

/* Thread function: replaces the file many times. Threads must not share a temporary file. */
static void *replace_often(void *text)
{
	uint32_t i;

	for (i = 0; i < 200; i++)
		if (cei_file_replace(path, text, strlen(text), 0600))
			return text;
	return NULL;
}

START_TEST(test_writers_do_not_disturb_each_other)
{
	char texts[4][32];
	pthread_t threads[4];
	uint64_t n_bytes = 0;
	void *failed = NULL;
	char *text = NULL;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		snprintf(texts[i], sizeof(texts[i]), "%.*s", 5 + 5 * (int)i,
			 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
		ck_assert_int_eq(pthread_create(&threads[i], NULL, replace_often, texts[i]), 0);
	}
	for (i = 0; i < 100; i++) {
		if (cei_file_read(path, 100, &text, &n_bytes))
			continue;       /* the file does not exist yet */
		ck_assert_msg(n_bytes && n_bytes % 5 == 0, "a part of a file: '%s'", text);
		free(text);
	}
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
		ck_assert_ptr_null(failed);
	}
	assert_alone();
}
END_TEST

START_TEST(test_a_pipe_is_replaced)
{
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(cei_file_replace(path, "x", 1, 0600), 0);
	assert_read("x");
}
END_TEST

START_TEST(test_what_cannot_be_replaced_stays)
{
	char longer[PATH_MAX + 10];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	ck_assert_int_ne(cei_file_replace(longer, "x", 1, 0600), 0);
	ck_assert_int_eq(cei_file_replace("/no/such/folder/file", "x", 1, 0600), ENOENT);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(cei_file_replace(path, "x", 1, 0600), EISDIR);
	assert_alone();
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

/* If every write fails, the old file stays, and no temporary file is left in its folder. */
START_TEST(test_a_full_disk_leaves_the_old_file)
{
	struct rlimit limit = { 4, RLIM_INFINITY };
	int error;

	ck_assert_int_eq(cei_file_replace(path, "old", 3, 0600), 0);
	ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	error = cei_file_replace(path, "longer than that", 16, 0600);
	limit.rlim_cur = RLIM_INFINITY;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(error, EFBIG);
	assert_read("old");
	assert_alone();
}
END_TEST

static void assert_cache(const char *cache, const char *home, const char *wanted)
{
	uint64_t n_given = 0;
	char found[300];

	setenv("XDG_CACHE_HOME", cache, 1);
	setenv("HOME", home, 1);
	if (!wanted) {
		ck_assert_int_eq(cei_file_cache_folder("/x/y", found, sizeof(found), &n_given),
				 ENOENT);
		return;
	}
	ck_assert_int_eq(cei_file_cache_folder("/x/y", found, sizeof(found), &n_given), 0);
	ck_assert_str_eq(found, wanted);
	ck_assert_uint_eq(n_given, strlen(*cache == '/' ? cache : home));
	ck_assert_int_eq(cei_file_cache_folder("/x/y", found, strlen(wanted), &n_given),
			 ENAMETOOLONG);
}

START_TEST(test_the_users_cache)
{
	assert_cache("/a/cache", "/home/of", "/a/cache/x/y");
	assert_cache("", "/home/of", "/home/of/.cache/x/y");
	assert_cache("not/whole", "/home/of", "/home/of/.cache/x/y");
	assert_cache("", "home", NULL);
	assert_cache("", "", NULL);
}
END_TEST

START_TEST(test_folders_are_made_from_what_was_given_on)
{
	char below[400];
	struct stat about;

	snprintf(below, sizeof(below), "%s/a/b", path);
	/* the part that must exist already ends inside ".../a", so nothing is created */
	cei_file_make_folders(below, strlen(path) + 2);
	ck_assert_int_ne(stat(path, &about), 0);
	cei_file_make_folders(below, strlen(path));
	ck_assert_int_eq(stat(below, &about), 0);
	ck_assert(S_ISDIR(about.st_mode));
	ck_assert_uint_eq(about.st_mode & 0777, 0700);
	cei_file_make_folders(below, strlen(path));     /* the folders exist already */
	ck_assert_int_eq(rmdir(below), 0);
	below[strlen(path) + 2] = '\0';
	ck_assert_int_eq(rmdir(below), 0);
	ck_assert_int_eq(rmdir(path), 0);
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
	tcase_add_test(all, test_files_are_replaced_as_a_whole);
	tcase_add_test(all, test_writers_do_not_disturb_each_other);
	tcase_add_test(all, test_a_pipe_is_replaced);
	tcase_add_test(all, test_what_cannot_be_replaced_stays);
	tcase_add_test(all, test_a_full_disk_leaves_the_old_file);
	tcase_add_test(all, test_the_users_cache);
	tcase_add_test(all, test_folders_are_made_from_what_was_given_on);
	tcase_set_timeout(all, 20);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
