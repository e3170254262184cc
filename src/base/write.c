/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/write.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static sigset_t only_sigpipe(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	return set;
}

/* Whether SIGPIPE is pending for this thread or for the process. */
static int is_pending(void)
{
	sigset_t set;

	return !sigpending(&set) && sigismember(&set, SIGPIPE) == 1;
}

void cei_pipe_guard_begin(struct cei_pipe_guard *guard)
{
	int error = errno;
	sigset_t set = only_sigpipe();

	guard->was_pending = is_pending();
	pthread_sigmask(SIG_BLOCK, &set, &guard->before);
	errno = error;
}

/* The kernel sends the SIGPIPE of a write to the thread that writes, so no other thread can get
 * it. */
void cei_pipe_guard_end(struct cei_pipe_guard *guard)
{
	static const struct timespec at_once = { 0, 0 };
	int error = errno;
	sigset_t set = only_sigpipe();

	if (!guard->was_pending)
		while (is_pending() && sigtimedwait(&set, NULL, &at_once) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
	errno = error;
}

static ssize_t write_some(int fd, const char *text, size_t n_bytes)
{
	struct cei_pipe_guard guard;
	ssize_t n;

	cei_pipe_guard_begin(&guard);
	n = write(fd, text, n_bytes);
	cei_pipe_guard_end(&guard);
	return n;
}

int cei_write(struct cei_report *report, int fd, const char *text, const char *call)
{
	size_t n_bytes = strlen(text), at;
	ssize_t n;
	int error;

	for (at = 0; at < n_bytes; at += (size_t)n) {
		n = write_some(fd, text + at, n_bytes - at);
		if (n < 0 && errno == EINTR)
			n = 0;
		error = errno;
		if (n < 0)
			return cei_raise(report, CEOV_ERR_SYSTEM, error,
					 "%s: cannot write to descriptor %d: %s", call, fd,
					 strerror(error));
	}
	return 0;
}

int cei_write_all(int fd, const uint8_t *bytes, uint64_t n_bytes)
{
	ssize_t n;

	while (n_bytes) {
		n = write(fd, bytes, (size_t)n_bytes);
		if (n < 0 && errno != EINTR)
			return errno;
		bytes += n > 0 ? n : 0;
		n_bytes -= n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}
