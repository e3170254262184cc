/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "system/daemon_fixture.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

int daemon_connect(const struct daemon_fixture *daemon)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(daemon->path), sizeof(address.sun_path));
	strcpy(address.sun_path, daemon->path);
	if (!connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

static void await_socket(const struct daemon_fixture *daemon)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int fd = daemon_connect(daemon);

	while (fd < 0 && cei_now_ns() < deadline) {
		usleep(1000);
		fd = daemon_connect(daemon);
	}
	ck_assert_int_ge(fd, 0);
	close(fd);
}

void daemon_start(struct daemon_fixture *daemon, const char *name)
{
	testing_path(name, daemon->path, sizeof(daemon->path));
	daemon->pid = fork();
	if (!daemon->pid) {     /* no assert here: another thread may have had Check's lock */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("./ceoverlapd", "ceoverlapd", "--socket", daemon->path, (char *)NULL);
		_exit(127);
	}
	ck_assert_int_ge(daemon->pid, 0);
	await_socket(daemon);
}

static int await_end(struct daemon_fixture *daemon)
{
	int status;

	ck_assert_int_eq(waitpid(daemon->pid, &status, 0), daemon->pid);
	daemon->pid = 0;
	return status;
}

void daemon_end(struct daemon_fixture *daemon)
{
	int status;

	ck_assert_int_eq(kill(daemon->pid, SIGTERM), 0);
	status = await_end(daemon);
	ck_assert(WIFEXITED(status) && !WEXITSTATUS(status));
	ck_assert_int_ne(access(daemon->path, F_OK), 0);
}

void daemon_strike(const struct daemon_fixture *daemon)
{
	ck_assert_int_eq(kill(daemon->pid, SIGKILL), 0);
}

void daemon_kill(struct daemon_fixture *daemon)
{
	daemon_strike(daemon);
	(void)await_end(daemon);
}
