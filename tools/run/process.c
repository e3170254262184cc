/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Starting the processes, each with its environment, and in a process group of its own. */

#include "tools/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* --- in the child ------------------------------------------------------------------------- */

static void set_number(const char *name, uint32_t number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	if (setenv(name, text, 1))
		_exit(RUN_STATUS_NO_EXEC);
}

static void set_text(const char *name, const char *text)
{
	if (setenv(name, text, 1))
		_exit(RUN_STATUS_NO_EXEC);
}

static void set_environment(const struct run *run, uint32_t number)
{
	const struct run_options *options = run->options;
	char node[16];

	/* These would give all processes one rank, or all nodes one socket. */
	unsetenv("CEOVERLAP_RANK");
	unsetenv("CEOVERLAP_RANKS");
	unsetenv("CEOVERLAP_GROUP");
	set_text("CEOVERLAP_BOOTSTRAP", "store");
	set_text("CEOVERLAP_STORE", run->store);
	set_text("CEOVERLAP_JOB", run->job);
	set_number("CEOVERLAP_PROCESS", number);
	set_number("CEOVERLAP_PROCESSES", options->n_processes);
	if (!options->n_nodes)
		return;
	snprintf(node, sizeof(node), "node%u", (uint32_t)((uint64_t)number * options->n_nodes /
							  options->n_processes));
	set_text("CEOVERLAP_NODE", node);
}

/* Standard input is empty: the processes are in the background of a terminal, which stops those
 * that read from it. pipes: write ends for standard output and errors; NULL: as this program's. */
static void set_streams(const int *pipes)
{
	int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (empty < 0 || dup2(empty, STDIN_FILENO) < 0 ||
	    (pipes && (dup2(pipes[0], STDOUT_FILENO) < 0 || dup2(pipes[1], STDERR_FILENO) < 0)))
		_exit(RUN_STATUS_NO_EXEC);
}

static void be_program(const struct run *run, uint32_t number, pid_t parent, const int *pipes)
{
	char **program = run->options->program;
	int error;

	setpgid(0, 0);
	/* Should this program be killed, its processes end, too. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(RUN_STATUS_NO_EXEC);
	set_streams(pipes);
	set_environment(run, number);
	sigaction(SIGPIPE, &run->pipe_before, NULL);
	sigprocmask(SIG_SETMASK, &run->mask_before, NULL);
	execvp(program[0], program);
	error = errno;
	dprintf(STDERR_FILENO, "ceoverlap-run: cannot execute %s: %s\n", program[0],
		strerror(error));
	_exit(error == ENOENT ? RUN_STATUS_ABSENT : RUN_STATUS_NO_EXEC);
}

/* --- in this program ---------------------------------------------------------------------- */

static void close_both(const int *fds)
{
	close(fds[0]);
	close(fds[1]);
}

/* Makes the pipes of a process's output. The streams keep the read ends. */
static int make_pipes(struct run_process *process, int ret_pipes[2])
{
	int out[2], errors[2];

	process->streams = calloc(2, sizeof(*process->streams));
	if (!process->streams)
		return -1;
	process->streams[0].fd = process->streams[1].fd = -1;
	if (pipe2(out, O_CLOEXEC))
		return -1;
	if (pipe2(errors, O_CLOEXEC)) {
		close_both(out);
		return -1;
	}
	if (fcntl(out[0], F_SETFL, O_NONBLOCK) || fcntl(errors[0], F_SETFL, O_NONBLOCK)) {
		close_both(out);
		close_both(errors);
		return -1;
	}
	process->streams[0].fd = out[0];
	process->streams[1].fd = errors[0];
	ret_pipes[0] = out[1];
	ret_pipes[1] = errors[1];
	return 0;
}

int run_process_start(struct run *run)
{
	struct run_process *process = &run->processes[run->n_started];
	int pipes[2], has_labels = run->options->has_labels, error;
	pid_t parent = getpid(), pid = -1;

	fflush(NULL);
	if (!has_labels || !make_pipes(process, pipes))
		pid = fork();
	error = errno;
	if (!pid)
		be_program(run, run->n_started, parent, has_labels ? pipes : NULL);
	if (has_labels && process->streams && process->streams[0].fd >= 0)
		close_both(pipes);
	run->n_started++;
	if (pid < 0) {
		fprintf(stderr, "ceoverlap-run: cannot start process %u of %u: %s\n",
			run->n_started - 1, run->options->n_processes, strerror(error));
		return -1;
	}
	/* Here, too: a signal may be sent to the group before the child has made it. */
	setpgid(pid, pid);
	process->pid = pid;
	run->n_alive++;
	return 0;
}

void run_process_signal(const struct run *run, int number)
{
	uint32_t i;

	for (i = 0; i < run->n_started; i++)
		if (run->processes[i].pid)
			(void)kill(-run->processes[i].pid, number);
}
