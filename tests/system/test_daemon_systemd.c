/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what systemd hears of a real ceoverlapd, and what its journal does. */

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "system/daemon_rig.h"

static struct daemon_rig rig;

/* A socket such as systemd listens at. */
static int notify_socket(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = 20 };
	char path[100];
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	testing_path("notify", path, sizeof(path));
	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
	return fd;
}

static void hears(int fd, const char *text)
{
	char message[512];
	ssize_t n;

	do {
		n = recv(fd, message, sizeof(message) - 1, 0);
		ck_assert_msg(n > 0, "nobody says %s", text);
		message[n] = 0;
	} while (!strstr(message, text));
}

/* What has come already. */
static void hears_no(int fd, const char *text)
{
	char message[512];
	ssize_t n;

	while ((n = recv(fd, message, sizeof(message) - 1, MSG_DONTWAIT)) > 0) {
		message[n] = 0;
		ck_assert_msg(!strstr(message, text), "%s", message);
	}
}

START_TEST(test_systemd_is_told)
{
	int fd = notify_socket();
	char path[100];

	ck_assert_int_eq(setenv("WATCHDOG_USEC", "400000", 1), 0);
	daemon_rig_start(&rig, "[limits]\nplans = 3\n");
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	hears(fd, "READY=1");
	hears(fd, "WATCHDOG=1");
	hears(fd, "WATCHDOG=1");        /* its engine sleeps, and turns nevertheless */
	daemon_rig_says(&rig, "reload", "read again");
	hears(fd, "RELOADING=1");
	hears(fd, "READY=1");
	hears(fd, "WATCHDOG=1");
	daemon_rig_end(&rig);
	hears(fd, "STOPPING=1");
	close(fd);
	testing_path("notify", path, sizeof(path));
	unlink(path);
}
END_TEST

/* 20 s for launches, and twice 10 s for engines. */
START_TEST(test_systemd_hears_of_the_command_lines_drain)
{
	struct daemon_rig_client client;
	int fd = notify_socket();
	char path[100];

	rig.daemon.drain = "20";
	daemon_rig_start(&rig, "[daemon]\ndrain_seconds = 20\n");
	unsetenv("NOTIFY_SOCKET");
	daemon_rig_configure(&rig, "[daemon]\ndrain_seconds = 1\n");
	daemon_rig_says(&rig, "reload", "read again");
	daemon_rig_open(&rig, &client, CEOV_URGENCY_NORMAL);
	ck_assert_int_eq(ceov_launch(client.plan, NULL, NULL), 0);      /* keeps it from its end */
	daemon_rig_says(&rig, "drain", "ends when all launches have");
	hears(fd, "EXTEND_TIMEOUT_USEC=40000000");
	daemon_rig_says(&rig, "reload", "read again");
	ck_assert_int_eq(ceov_signal_raise(client.ready, 0, 1), 0);
	daemon_rig_await_end(&rig);
	hears_no(fd, "RELOADING");
	ceov_close(client.context);
	close(fd);
	testing_path("notify", path, sizeof(path));
	unlink(path);
}
END_TEST

/* The rig's log is what stderr is, so the journal seems to read it. */
START_TEST(test_lines_have_priorities_in_the_journal)
{
	char stream[64], path[200];
	struct stat stat_of;
	int fd;

	testing_path("d.log", path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &stat_of), 0);
	close(fd);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)stat_of.st_dev,
		 (unsigned long long)stat_of.st_ino);
	ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
	daemon_rig_start(&rig, "[limits]\nplans = 3\n");
	unsetenv("JOURNAL_STREAM");
	daemon_rig_configure(&rig, "[limits]\nplans = no\n");
	daemon_rig_fails(&rig, "reload", 1, "plans is 'no'");
	daemon_rig_logs(&rig, "<3>ceoverlap: error: ");
	ck_assert_int_eq(kill(rig.daemon.pid, SIGUSR1), 0);
	daemon_rig_logs(&rig, "<4>ceoverlapd: what went last");
	daemon_rig_end(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("daemon and systemd");
	TCase *cases = tcase_create("daemon and systemd");

	tcase_set_timeout(cases, 120);
	tcase_add_test(cases, test_systemd_is_told);
	tcase_add_test(cases, test_systemd_hears_of_the_command_lines_drain);
	tcase_add_test(cases, test_lines_have_priorities_in_the_journal);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
