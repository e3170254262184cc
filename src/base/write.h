/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WRITE_H
#define CEI_WRITE_H

/* Writes text to a file descriptor that the application owns. */

#include <signal.h>

#include "base/report.h"

/* Writes all of the text. CEOV_ERR_SYSTEM, raised: it cannot be written; a part may have
 * been. call: name of the public function. Writing to a pipe or socket that nobody reads is
 * such an error; SIGPIPE, which would end the application, is not delivered. */
int cei_write(struct cei_report *report, int fd, const char *text, const char *call);

/*
 * Keeps SIGPIPE away from this thread from begin to end: the signal is blocked, and one
 * that a write caused meanwhile is consumed. What the application blocks, handles or has
 * pending stays as it is, and errno is kept.
 */
struct cei_pipe_guard {
	sigset_t before;                /* the thread's mask */
	int      was_pending;           /* SIGPIPE was pending before, and must stay so */
};

void cei_pipe_guard_begin(struct cei_pipe_guard *guard);
void cei_pipe_guard_end(struct cei_pipe_guard *guard);

#endif /* CEI_WRITE_H */
