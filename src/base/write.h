/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WRITE_H
#define CEI_WRITE_H

/* Text for a descriptor of the caller's. */

#include <signal.h>

#include "base/report.h"

/* All of it. CEOV_ERR_SYSTEM, raised: it cannot be written; some of it may be. call names
 * the public call. A pipe or socket that nobody reads is such an error: SIGPIPE, which
 * would end the application, does not reach it. */
int cei_write(struct cei_report *report, int fd, const char *text, const char *call);

/*
 * Keeps SIGPIPE away from this thread from begin to end: it is blocked, and the one that
 * a write between them has caused is taken back. What the application blocks, handles or
 * has pending already stays as it is. errno is kept.
 */
struct cei_pipe_guard {
	sigset_t before;                /* the thread's mask */
	int      was_pending;           /* that signal is not ours */
};

void cei_pipe_guard_begin(struct cei_pipe_guard *guard);
void cei_pipe_guard_end(struct cei_pipe_guard *guard);

#endif /* CEI_WRITE_H */
