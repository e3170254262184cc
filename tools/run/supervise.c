/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What happens while the processes run: their ends, signals to this program, the timeout, and
 * their output. */

#include "tools/run/run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_MS  UINT64_C(1000000)
#define WAIT_MS    60000u               /* the longest sleep */

int run_signals_take(struct run *run)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = SIG_IGN };
	sigset_t taken;
	size_t i;

	sigemptyset(&taken);
	sigaddset(&taken, SIGCHLD);
	/* What this program was told to ignore, as nohup(1) does, its processes ignore, too. */
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&taken, numbers[i]);
	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, &run->pipe_before);
	action.sa_handler = SIG_DFL;            /* ignored, children would not be waited for */
	sigaction(SIGCHLD, &action, NULL);
	sigprocmask(SIG_BLOCK, &taken, &run->mask_before);
	run->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
	if (run->signals >= 0)
		return 0;
	fprintf(stderr, "ceoverlap-run: signalfd: %s\n", strerror(errno));
	return -1;
}

/* --- ending ------------------------------------------------------------------------------- */

static void begin_grace(struct run *run)
{
	if (run->kill_at_ns == UINT64_MAX)
		run->kill_at_ns = cei_now_ns() + run->options->grace_ns;
}

void run_tell_to_end(struct run *run, int status)
{
	if (!run->status)
		run->status = status;
	begin_grace(run);
	if (!run->has_told)
		run_process_signal(run, SIGTERM);
	run->has_told = 1;
}

static void look_at_time(struct run *run)
{
	uint64_t now = cei_now_ns();

	if (now >= run->timeout_at_ns) {
		run->timeout_at_ns = UINT64_MAX;
		if (!run->status)
			fprintf(stderr, "ceoverlap-run: the timeout of %g s is over: %u of %u "
				"processes are told to end\n",
				(double)run->options->timeout_ns / 1e9, run->n_alive,
				run->options->n_processes);
		run_tell_to_end(run, RUN_STATUS_TIMEOUT);
	}
	if (now >= run->kill_at_ns)
		run_process_signal(run, SIGKILL);
}

/* --- processes and signals ---------------------------------------------------------------- */

static void say_failure(const struct run *run, uint32_t number, int status)
{
	const char *others = run->n_alive ? "; the others are told to end" : "";

	if (WIFSIGNALED(status))
		fprintf(stderr, "ceoverlap-run: process %u of %u was ended by signal %d (%s)%s\n",
			number, run->options->n_processes, WTERMSIG(status),
			strsignal(WTERMSIG(status)), others);
	else
		fprintf(stderr, "ceoverlap-run: process %u of %u ended with status %d%s\n", number,
			run->options->n_processes, WEXITSTATUS(status), others);
}

static void note_end(struct run *run, uint32_t number, int status)
{
	int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

	run->processes[number].pid = 0;
	run->n_alive--;
	if (!code)
		return;
	if (!run->status)
		say_failure(run, number, status);
	run_tell_to_end(run, code);
}

/* Also reaps orphans, which are nobody's process here. */
static void reap(struct run *run)
{
	int status;
	uint32_t i;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (i = 0; i < run->n_started; i++)
			if (run->processes[i].pid == pid)
				note_end(run, i, status);
}

static void read_signals(struct run *run)
{
	struct signalfd_siginfo about;

	while (read(run->signals, &about, sizeof(about)) == sizeof(about)) {
		if (about.ssi_signo == SIGCHLD)
			continue;
		run_process_signal(run, (int)about.ssi_signo);
		begin_grace(run);
	}
	reap(run);
}

/* --- waiting ------------------------------------------------------------------------------ */

static int sleep_ms(const struct run *run)
{
	uint64_t until = run->timeout_at_ns, now = cei_now_ns();

	if (run->kill_at_ns < until)
		until = run->kill_at_ns;
	if (until <= now)
		return 1;               /* processes that were killed may take a moment to end */
	if (until - now > WAIT_MS * NS_PER_MS)
		return (int)WAIT_MS;
	return (int)((until - now) / NS_PER_MS + 1);
}

/* Fills in what to poll: the signals, then all streams, closed ones as -1, which poll() skips. */
static nfds_t fill(const struct run *run, struct pollfd *polls)
{
	nfds_t n = 0;
	uint32_t i;

	polls[n++] = (struct pollfd){ .fd = run->signals, .events = POLLIN };
	for (i = 0; run->options->has_labels && i < 2 * run->n_started; i++)
		polls[n++] = (struct pollfd){
			.fd = run->processes[i / 2].streams ?
				run->processes[i / 2].streams[i % 2].fd : -1,
			.events = POLLIN,
		};
	return n;
}

void run_supervise(struct run *run)
{
	struct pollfd polls[1 + 2 * RUN_PROCESSES_MAX];
	nfds_t n, i;

	while (run->n_alive) {
		n = fill(run, polls);
		if (poll(polls, n, sleep_ms(run)) > 0) {
			for (i = 1; i < n; i++)
				if (polls[i].revents)
					(void)run_label_read(run, (uint32_t)(i - 1) / 2,
							     (int)(i - 1) % 2);
			read_signals(run);
		}
		look_at_time(run);
	}
	close(run->signals);
}
