/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench/children.h"

#define LIMIT_S 600u

void bench_program_find(const char *name, char *path, size_t n_bytes)
{
	ssize_t n = readlink("/proc/self/exe", path, n_bytes - 1);
	char *last;

	path[n > 0 ? n : 0] = '\0';
	last = strrchr(path, '/');
	if (last)
		snprintf(last + 1, n_bytes - (size_t)(last + 1 - path), "%s", name);
	if (access(path, X_OK))
		snprintf(path, n_bytes, "%s", name);
}

static void become(const char *const *arguments, FILE *out)
{
	char path[512];

	bench_program_find(arguments[0], path, sizeof(path));
	if (dup2(fileno(out), STDOUT_FILENO) < 0)
		return;
	(void)alarm(LIMIT_S);           /* it stays set in the other program, and ends it */
	execvp(path, (char *const *)(uintptr_t)arguments);
	fprintf(stderr, "ceoverlap-bench: %s: %s\n", arguments[0], strerror(errno));
}

int bench_program_run(const char *const *arguments, FILE *out)
{
	pid_t parent = getpid(), pid;
	int status = -1;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		bench_child_follow(parent);
		become(arguments, out);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	fprintf(stderr, "ceoverlap-bench: %s has failed\n", arguments[0]);
	return -1;
}
