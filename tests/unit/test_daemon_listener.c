/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The file of a daemon's socket: who may connect, from its first moment on. */

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/server/listener.h"
#include "testing.h"

#define UNTOUCHED 07777u

static mode_t mode_before = UNTOUCHED;  /* of the file when its mode is set; first: it was not */

/* Takes the place of the system's. */
int chmod(const char *path, mode_t mode)
{
	struct stat about;

	ck_assert_int_eq(lstat(path, &about), 0);
	mode_before = about.st_mode & 07777;
	return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}

/* Between bind() and chmod() nobody may connect, whatever the process's umask lets through. */
START_TEST(test_nobody_may_connect_before_the_mode_is_set)
{
	struct cei_listener_path ask = { .type = SOCK_SEQPACKET, .mode = 0660,
					 .group = CEI_LISTENER_NO_GROUP };
	struct cei_report report;
	struct stat about;
	char path[200];
	mode_t mask = umask(0);
	int fd = -1;

	testing_path("l.sock", path, sizeof(path));
	ask.path = path;
	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_listener_bind(&report, &ask, &fd), 0);
	ck_assert_uint_eq(mode_before, 0);
	ck_assert_int_eq(lstat(path, &about), 0);
	ck_assert_uint_eq(about.st_mode & 07777, 0660);
	ck_assert_uint_eq(umask(mask), 0);      /* it is as it was */
	close(fd);
	ck_assert_int_eq(unlink(path), 0);
	cei_report_fini(&report);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon listener");
	TCase *tests = tcase_create("listener");

	tcase_add_test(tests, test_nobody_may_connect_before_the_mode_is_set);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
