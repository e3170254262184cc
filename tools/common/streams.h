/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef STREAMS_H
#define STREAMS_H

/* Standard streams of the command line tools. */

/* Opens standard descriptors that the caller closed, so that no other file gets their numbers. Call
 * it first in main(). At exit it reports output that could not be written, also that of --help, and
 * makes the exit status 1. Forked children call streams_flush() themselves before _exit(). */
void streams_begin(void);

/* Flushes stdout: 0, or -1, reported on stderr. One check is enough, because a stream that
 * failed stays failed. */
int  streams_flush(void);

#endif /* STREAMS_H */
