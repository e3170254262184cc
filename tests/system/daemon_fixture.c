/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "system/daemon_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

/* Returns a connection, or -1. */
static int connect_to(const char *path, int type)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	if (!connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

int daemon_connect(const struct daemon_fixture *daemon)
{
	return connect_to(daemon->path, SOCK_SEQPACKET);
}

/* Waits for the operator's socket, which is the last to listen, and counts no client. */
static void await_control(const struct daemon_fixture *daemon)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int fd = connect_to(daemon->control, SOCK_STREAM);

	while (fd < 0 && cei_now_ns() < deadline) {
		usleep(1000);
		fd = connect_to(daemon->control, SOCK_STREAM);
	}
	ck_assert_int_ge(fd, 0);
	close(fd);
}

/* In the child: no assert here, since another thread may have had Check's lock. */
static void be_daemon(const struct daemon_fixture *daemon, const char *config, const char *log)
{
	const char *arguments[8] = { "ceoverlapd", "--socket", daemon->path };
	uint32_t n = 3;
	int fd = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : STDERR_FILENO;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(126);
	if (config) {
		arguments[n++] = "--config";
		arguments[n++] = config;
	}
	if (daemon->drain) {
		arguments[n++] = "--drain";
		arguments[n++] = daemon->drain;
	}
	execv("./ceoverlapd", (char *const *)(uintptr_t)arguments);
	_exit(127);
}

void daemon_start_with(struct daemon_fixture *daemon, const char *name, const char *config,
		       const char *log)
{
	testing_path(name, daemon->path, sizeof(daemon->path));
	snprintf(daemon->control, sizeof(daemon->control), "%s.control", daemon->path);
	daemon->pid = fork();
	if (!daemon->pid)
		be_daemon(daemon, config, log);
	ck_assert_int_ge(daemon->pid, 0);
	await_control(daemon);
}

void daemon_start(struct daemon_fixture *daemon, const char *name)
{
	daemon_start_with(daemon, name, NULL, NULL);
}

static int await_status(struct daemon_fixture *daemon)
{
	int status;

	ck_assert_int_eq(waitpid(daemon->pid, &status, 0), daemon->pid);
	daemon->pid = 0;
	return status;
}

void daemon_await_end(struct daemon_fixture *daemon)
{
	int status = await_status(daemon);

	ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
	ck_assert_int_ne(access(daemon->path, F_OK), 0);
	ck_assert_int_ne(access(daemon->control, F_OK), 0);
}

void daemon_end(struct daemon_fixture *daemon)
{
	ck_assert_int_eq(kill(daemon->pid, SIGTERM), 0);
	daemon_await_end(daemon);
}

void daemon_strike(const struct daemon_fixture *daemon)
{
	ck_assert_int_eq(kill(daemon->pid, SIGKILL), 0);
}

void daemon_kill(struct daemon_fixture *daemon)
{
	daemon_strike(daemon);
	(void)await_status(daemon);
}
