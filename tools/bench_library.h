/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_LIBRARY_H
#define BENCH_LIBRARY_H

/* Opens libraries of others at run time. */

#include <stddef.h>

/* Opens path where it is given; else the first of names that dlopen() finds, each a plain
 * name or a glob pattern of whole paths; NULL ends the list. Returns NULL where none is
 * found. */
void *bench_library_open(const char *path, const char *const *names);

struct bench_symbol {
	const char *name;
	void       *call;               /* address of the pointer to a function */
};

/* 0, or CEOV_NONE: one is missing. */
int   bench_library_find(void *library, const struct bench_symbol *symbols, size_t n);

#endif /* BENCH_LIBRARY_H */
