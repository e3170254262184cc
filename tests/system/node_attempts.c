/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs cases of faults between nodes again where the machine stalled. */

#include "system/node_attempts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "system/bootstrap_fixture.h"
#include "testing.h"

#define ATTEMPTS 3u

/* Returns the exit status of the case's process. */
static int attempt(const struct node_cell_order *order, struct node_cell_result *ret_result)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	need(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		node_cell_run(order, ret_result);
		_exit(0);
	}
	need(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : NODE_CELL_WRONG;
}

/* A case that goes wrong leaves what its processes met by. */
static void remove_tree(const char *folder)
{
	char command[160];

	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	need(!system(command));
}

void node_attempts_run(enum fault fault, enum phase phase, uint32_t number,
		       struct node_cell_result *ret_result)
{
	char folder[112];
	struct node_cell_order order = { fault, phase, number, folder };
	struct node_cell_result *result;
	uint32_t n_stalled = 0;
	int status;

	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	need(result != MAP_FAILED);
	for (;;) {
		snprintf(folder, sizeof(folder), "%s/%u-%u-%u-%u", directory, fault, phase, number,
			 n_stalled);
		status = attempt(&order, result);
		if (status != NODE_CELL_STALLED || ++n_stalled == ATTEMPTS)
			break;
		fprintf(stderr, "attempt %u of %u: the machine stalled, so the case is run "
			"again\n", n_stalled, ATTEMPTS);
		remove_tree(folder);
	}
	if (status)
		_exit(status);
	*ret_result = *result;
	ret_result->n_stalled = n_stalled;
	munmap(result, sizeof(*result));
}
