/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_LIBRARY_H
#define BENCH_LIBRARY_H

/* Libraries of others, opened at run time. */

#include <stddef.h>

/* path alone where it is given; else each of names, which dlopen() searches where the
 * loader does or which are patterns of whole paths; NULL ends them. Returns NULL where
 * there is none. */
void *bench_library_open(const char *path, const char *const *names);

struct bench_symbol {
	const char *name;
	void       *call;               /* address of the pointer to a function */
};

/* 0, or CEOV_NONE: one is missing. */
int   bench_library_find(void *library, const struct bench_symbol *symbols, size_t n);

#endif /* BENCH_LIBRARY_H */
