/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the backend cases on the proxy in front of the host's mover. They pass with late completions
 * and reordering, and fail if the proxy reports completion before the move. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend_conformance.h"
#include "proxy.h"
#include "testing.h"

#define LATE_NS UINT64_C(20000)

static struct proxy proxy;

/* Runs the delivery cases in a child process with its output discarded; returns whether
 * they fail. */
static int fails_where_ends_are_early(void)
{
	int sink, status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		sink = open("/dev/null", O_WRONLY);
		if (sink < 0 || dup2(sink, STDOUT_FILENO) < 0 || dup2(sink, STDERR_FILENO) < 0 ||
		    setenv("CK_RUN_CASE", "delivery", 1))
			_exit(EXIT_SUCCESS);
		proxy_init(&proxy, cei_backend_named("host"));
		proxy.is_early = 1;
		exit(conformance_run(&proxy.ops));
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) != 0;
}

int main(void)
{
	if (!fails_where_ends_are_early()) {
		printf("the cases pass on a mover that ends before it has moved\n");
		return EXIT_FAILURE;
	}
	proxy_init(&proxy, cei_backend_named("host"));
	proxy_use_handles(&proxy);
	proxy.late_ns = LATE_NS;
	proxy.is_reversed = 1;
	return conformance_run(&proxy.ops);
}
