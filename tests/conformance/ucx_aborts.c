/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tells an abort of an old UCX from a failure of a test. */

#include "conformance/ucx_aborts.h"

#include <check.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MENDED_MINOR 14u                /* of 1.14 */

static int is_old(void)
{
	void (*version)(unsigned *, unsigned *, unsigned *);
	void *ucx = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
	unsigned major = 0, minor = 0, release = 0;

	if (!ucx)
		return 0;
	*(void **)(&version) = dlsym(ucx, "ucp_get_version");
	if (version)
		version(&major, &minor, &release);
	return major == 1 && minor < MENDED_MINOR;
}

int ucx_aborts_on_loss(void)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child)
		_exit(is_old());
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

void ucx_run_survivor(void (*run)(int number), int number)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(number);
		exit(0);        /* exit() instead of _exit(), so that sanitizers look */
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && ucx_aborts_on_loss()) {
		printf("UCX has aborted the process that lost its peer, which it does before "
		       "1.14\n");
		return;
	}
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
		      "the process that lost its peer ended with status 0x%x", (unsigned)status);
}
