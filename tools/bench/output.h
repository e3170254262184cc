/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OUTPUT_H
#define BENCH_OUTPUT_H

/*
 * Files that the user asked for. They are checked before the run, which may take an hour, and
 * written after it: first under a temporary name in the same folder, then renamed, so that a
 * reader finds either the whole new file or the whole old one. If the path is not a regular file
 * (/dev/stdout, a pipe), or no file can be created in its folder, it is written directly.
 */

#include <stdio.h>

struct bench_output {
	FILE *stream;
	char  path[4096];               /* the final path, with links resolved */
	char  beside[4096];             /* path of the temporary file; "": the file is written
					 * directly */
};

/* Checks that the path can be written; changes nothing. Returns 0, or -1, reported on stderr. NULL
 * is allowed. */
int  bench_output_check(const char *path);

/* Opens output->stream. Returns 0, or -1, reported on stderr. */
int  bench_output_open(struct bench_output *output, const char *path);

/* Completes the file. Returns 0, or -1, reported on stderr; then the old file is still there. */
int  bench_output_close(struct bench_output *output);

/* Writes one text to the path, with open and close. */
int  bench_output_write(const char *path, const char *text);

#endif /* BENCH_OUTPUT_H */
