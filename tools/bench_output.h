/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OUTPUT_H
#define BENCH_OUTPUT_H

/*
 * Files that the user asked for. They are looked at before the run, which may take an
 * hour, and written after it: beside the name first, so that a reader finds all of the
 * new file or all of the old one. What is no regular file (/dev/stdout, a pipe), or lies in
 * a folder where nothing can be made, is written as it is.
 */

#include <stdio.h>

struct bench_output {
	FILE *stream;
	char  path[4096];               /* links resolved */
	char  beside[4096];             /* "": written as it is */
};

/* 0, or -1, told on stderr: it cannot be written. Nothing is changed. NULL will do. */
int  bench_output_check(const char *path);

/* 0 with output->stream open, or -1, told. */
int  bench_output_open(struct bench_output *output, const char *path);

/* 0, or -1, told: what the name stood for before is still there. */
int  bench_output_close(struct bench_output *output);

/* The same for one text. */
int  bench_output_write(const char *path, const char *text);

#endif /* BENCH_OUTPUT_H */
