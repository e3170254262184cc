/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef STREAMS_H
#define STREAMS_H

/* Standard streams of the command line tools. */

/* First of all in main(). A standard descriptor that the caller closed is opened, so that
 * no other file gets its number; output that cannot be written, --help's too, makes the
 * exit status 1 and is told. Processes that are forked call streams_flush() themselves
 * before _exit(). */
void streams_begin(void);

/* What is buffered for stdout: 0, or -1, told on stderr. Once is enough: a stream that
 * failed stays failed. */
int  streams_flush(void);

#endif /* STREAMS_H */
