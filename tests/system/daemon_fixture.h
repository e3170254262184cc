/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef DAEMON_FIXTURE_H
#define DAEMON_FIXTURE_H

/* A real ceoverlapd for tests: a child process with its socket in the test's folder, which ends
 * with the process that started it, however that ends. Asserts with Check. */

#include <sys/types.h>

struct daemon_fixture {
	pid_t pid;
	char  path[200];        /* of its socket */
};

/* Starts a daemon with that name of a socket, and waits until it listens. */
void daemon_start(struct daemon_fixture *daemon, const char *name);

/* Ends it in order (SIGTERM); it has removed its socket. */
void daemon_end(struct daemon_fixture *daemon);

/* Kills it; its socket's file stays, as nobody is there to remove it. The second call also waits
 * until the process has ended. */
void daemon_strike(const struct daemon_fixture *daemon);
void daemon_kill(struct daemon_fixture *daemon);

/* Returns a connection to the daemon that has said nothing yet, or -1. */
int  daemon_connect(const struct daemon_fixture *daemon);

#endif /* DAEMON_FIXTURE_H */
