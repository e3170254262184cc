/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef OUTPUT_H
#define OUTPUT_H

/*
 * Files that the user asked for. They are checked before the run, which may take an hour, and
 * written after it: first under a temporary name in the same folder, then renamed, so that a
 * reader finds either the whole new file or the whole old one. If the path is not a regular file
 * (/dev/stdout, a pipe), or no file can be created in its folder, it is written directly.
 */

#include <stdio.h>

struct output {
	FILE *stream;
	char  path[4096];               /* the final path, with links resolved */
	char  beside[4096];             /* path of the temporary file; "": the file is written
					 * directly */
};

/* Checks that the path can be written; changes nothing. Returns 0, or -1, reported on stderr. NULL
 * is allowed. */
int  output_check(const char *path);

/* Opens output->stream. Returns 0, or -1, reported on stderr. */
int  output_open(struct output *output, const char *path);

/* Completes the file. Returns 0, or -1, reported on stderr; then the old file is still there. */
int  output_close(struct output *output);

/* Leaves the file unwritten: the old one stays. What was written directly stays, too. */
void output_drop(struct output *output);

/* Writes one text to the path, with open and close. */
int  output_write(const char *path, const char *text);

#endif /* OUTPUT_H */
