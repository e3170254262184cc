/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

/* Programs that are installed with this one. */

#include <stddef.h>
#include <stdio.h>

/* Writes the path of the program beside this one, or where there is none its name, for which PATH
 * is searched. */
void bench_program_find(const char *name, char *path, size_t n_bytes);

/* Runs the program arguments[0] to its end, for ten minutes at most, with its standard output to
 * `out`. Returns 0, or -1, reported: it could not be run, or has failed. */
int  bench_program_run(const char *const *arguments, FILE *out);

#endif /* BENCH_PROGRAM_H */
