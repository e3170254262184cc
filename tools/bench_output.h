/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OUTPUT_H
#define BENCH_OUTPUT_H

/*
 * Files that the user asked for. They are checked before the run, which may take an hour,
 * and written after it: first beside the final name, so that a reader finds either the
 * whole new file or the whole old one. What is not a regular file (/dev/stdout, a pipe), or
 * is in a folder where no file can be created, is written directly.
 */

#include <stdio.h>

struct bench_output {
	FILE *stream;
	char  path[4096];               /* links resolved */
	char  beside[4096];             /* the new file's temporary name; "": written directly */
};

/* Checks that the path can be written; changes nothing. 0, or -1, reported on stderr. NULL
 * is allowed. */
int  bench_output_check(const char *path);

/* 0 with output->stream open, or -1, reported on stderr. */
int  bench_output_open(struct bench_output *output, const char *path);

/* 0, or -1, reported on stderr; then the old file is still there. */
int  bench_output_close(struct bench_output *output);

/* Opens, writes one text, and closes. */
int  bench_output_write(const char *path, const char *text);

#endif /* BENCH_OUTPUT_H */
