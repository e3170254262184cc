/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WRITE_H
#define CEI_WRITE_H

/* Writes to file descriptors: text to one that the application owns, bytes to a file. */

#include <signal.h>
#include <stdint.h>

#include "base/report.h"

/* Writes all of the text. CEOV_ERR_SYSTEM, raised: it cannot be written, or only a part was. This
 * is also the error if fd is a pipe or socket that nobody reads: SIGPIPE, which would end the
 * application, is kept away. call: name of the public function. */
int cei_write(struct cei_report *report, int fd, const char *text, const char *call);

/* Writes all of the bytes to a file of the library's. Returns an errno, or 0. */
int cei_write_all(int fd, const uint8_t *bytes, uint64_t n_bytes);

/*
 * Keeps SIGPIPE away from the calling thread between begin and end: the signal is blocked, and if a
 * write causes it meanwhile, it is consumed. Signals that the application blocks, handles or has
 * pending are left as they are, and errno is kept.
 */
struct cei_pipe_guard {
	sigset_t before;                /* the thread's signal mask at the begin */
	int      was_pending;           /* 1: SIGPIPE was pending at the begin, and must stay
					 * pending */
};

void cei_pipe_guard_begin(struct cei_pipe_guard *guard);
void cei_pipe_guard_end(struct cei_pipe_guard *guard);

#endif /* CEI_WRITE_H */
