/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef DAEMON_FIXTURE_H
#define DAEMON_FIXTURE_H

/* A real ceoverlapd for tests: a child process with its socket in the test's folder, which ends
 * with the process that started it, however that ends. Asserts with Check. */

#include <sys/types.h>

struct daemon_fixture {
	pid_t pid;
	const char *drain;      /* its option --drain, in seconds; NULL: it gets none */
	char  path[200];        /* of its socket */
	char  control[220];     /* of its operator's */
};

/* Starts a daemon with that name of a socket, and waits until it listens. */
void daemon_start(struct daemon_fixture *daemon, const char *name);

/* The same with a configuration file, NULL: without one, and with a file for its stderr. */
void daemon_start_with(struct daemon_fixture *daemon, const char *name, const char *config,
		       const char *log);

/* Ends it in order (SIGTERM), or waits until it has; it has removed its sockets. */
void daemon_end(struct daemon_fixture *daemon);
void daemon_await_end(struct daemon_fixture *daemon);

/* Kills it; its socket's file stays, as nobody is there to remove it. The second call also waits
 * until the process has ended. */
void daemon_strike(const struct daemon_fixture *daemon);
void daemon_kill(struct daemon_fixture *daemon);

/* Returns a connection to the daemon that has said nothing yet, or -1. */
int  daemon_connect(const struct daemon_fixture *daemon);

#endif /* DAEMON_FIXTURE_H */
