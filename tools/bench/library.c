/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

static void *open_first(const char *pattern)
{
	void *library = NULL;
	glob_t found;
	size_t i;

	if (glob(pattern, 0, NULL, &found))
		return NULL;
	for (i = 0; !library && i < found.gl_pathc; i++)
		library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&found);
	return library;
}

void *bench_library_open(const char *path, const char *const *names)
{
	void *library = NULL;

	if (path)
		return dlopen(path, RTLD_NOW | RTLD_LOCAL);
	for (; !library && *names; names++)
		library = **names == '/' ? open_first(*names)
			: dlopen(*names, RTLD_NOW | RTLD_LOCAL);
	return library;
}

/* C has no cast from an object pointer to a function pointer. */
int bench_library_find(void *library, const struct bench_symbol *symbols, size_t n)
{
	void *address;
	size_t i;

	for (i = 0; i < n; i++) {
		address = dlsym(library, symbols[i].name);
		if (!address)
			return CEOV_NONE;
		memcpy(symbols[i].call, &address, sizeof(address));
	}
	return 0;
}
