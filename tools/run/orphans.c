/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Processes that the processes of a run have started, and perhaps left behind in a process group
 * or session of their own. The kernel hands them to this program when their parents end. */

#include "tools/run/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define PATIENCE_NS UINT64_C(10000000000)
#define LOOK_NS     2000000L

int run_orphans_adopt(void)
{
	if (!prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL))
		return 0;
	fprintf(stderr, "ceoverlap-run: cannot become the parent of orphans: %s\n",
		strerror(errno));
	return -1;
}

/* Returns the parent of a process, from /proc/PID/stat; 0: there is no such process. */
static pid_t parent_of(const char *pid)
{
	char path[64], text[512];
	const char *end;
	long parent;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	/* The program's name stands in parentheses, and may have some itself. */
	end = strrchr(text, ')');
	return end && sscanf(end, ") %*c %ld", &parent) == 1 ? (pid_t)parent : 0;
}

static void kill_children(void)
{
	DIR *processes = opendir("/proc");
	const struct dirent *entry;
	pid_t self = getpid();

	while (processes && (entry = readdir(processes)))
		if (*entry->d_name >= '1' && *entry->d_name <= '9' &&
		    parent_of(entry->d_name) == self)
			(void)kill((pid_t)atol(entry->d_name), SIGKILL);
	if (processes)
		closedir(processes);
}

/* Returns whether there are children still, after reaping those that have ended. */
static int has_children(void)
{
	pid_t pid;

	do
		pid = waitpid(-1, NULL, WNOHANG);
	while (pid > 0 || (pid < 0 && errno == EINTR));
	return pid == 0;
}

void run_orphans_end(void)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t until = cei_now_ns() + PATIENCE_NS;

	/* Each round hands the children of those that were killed to this process. */
	while (has_children()) {
		if (cei_now_ns() > until) {
			fprintf(stderr, "ceoverlap-run: processes that it started do not end "
				"although they were killed: look for them with 'ps --ppid %d'\n",
				(int)getpid());
			return;
		}
		kill_children();
		nanosleep(&pause, NULL);
	}
}
