/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* For tests that need UCX. A file of its own, because what it says to sanitizers holds for every
 * program that it is linked into. */

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

#include "config.h"

/* Turns the leak check of an address sanitizer off: it crashes in processes that UCX runs in. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int testing_has_ucx(void)
{
	pid_t child = HAVE_UCX ? fork() : -1;
	int status = 1;

	if (!child)
		_exit(!dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL));
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}
