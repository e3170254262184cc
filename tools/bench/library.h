/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_LIBRARY_H
#define BENCH_LIBRARY_H

/* Opens shared libraries such as NCCL at run time. */

#include <stddef.h>

/* Opens path if it is given; otherwise the first of names that dlopen() finds. Each name is a plain
 * name or a glob pattern of whole paths; NULL ends the list. Returns NULL if none is found. */
void *bench_library_open(const char *path, const char *const *names);

struct bench_symbol {
	const char *name;
	void       *call;               /* address of the function pointer to set */
};

/* Looks up all symbols. Returns 0, or CEOV_NONE if one is missing. */
int   bench_library_find(void *library, const struct bench_symbol *symbols, size_t n);

#endif /* BENCH_LIBRARY_H */
