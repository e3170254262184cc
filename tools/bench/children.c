/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/children.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/common/streams.h"

#define GRACE_NS      UINT64_C(20000000000)
#define OVERTIME_NS   UINT64_C(5000000000)
#define LOOK_NS       2000000L
#define GROUP_BYTES   16                /* room for "/group" and other files in the folder */

/* --- the folder ---------------------------------------------------------- */

static int make_folder(struct bench_children *children)
{
	const char *where = getenv("TMPDIR");
	size_t room = sizeof(children->folder) - GROUP_BYTES;

	if (!where || !*where)
		where = "/tmp";
	if (strlen(where) + strlen("/ceoverlap-bench-XXXXXX") >= room) {
		fprintf(stderr, "ceoverlap-bench: TMPDIR is too long for a socket's path: "
			"/tmp instead\n");
		where = "/tmp";
	}
	snprintf(children->folder, sizeof(children->folder), "%s/ceoverlap-bench-XXXXXX",
		 where);
	if (mkdtemp(children->folder))
		return 0;
	fprintf(stderr, "ceoverlap-bench: cannot make a folder in %s: %s\n", where,
		strerror(errno));
	return -1;
}

void bench_children_remove_folder(const struct bench_children *children)
{
	DIR *entries = opendir(children->folder);
	const struct dirent *entry;

	while (entries && (entry = readdir(entries)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			(void)unlinkat(dirfd(entries), entry->d_name, 0);
	if (entries)
		closedir(entries);
	if (rmdir(children->folder) && errno != ENOENT)
		fprintf(stderr, "ceoverlap-bench: cannot remove %s: %s\n", children->folder,
			strerror(errno));
}

/* --- processes ----------------------------------------------------------- */

/* Blocks the signals that end the bench, except those that the process ignores (nohup makes it
 * ignore SIGHUP). */
static void take_signals(struct bench_children *children)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action;
	size_t i;

	sigemptyset(&children->waiting);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!sigaction(numbers[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&children->waiting, numbers[i]);
	sigprocmask(SIG_BLOCK, &children->waiting, &children->before);
}

int bench_children_begin(struct bench_children *children, const char *what)
{
	memset(children, 0, sizeof(*children));
	children->parent = getpid();
	children->what = what;
	take_signals(children);
	if (!make_folder(children))
		return 0;
	sigprocmask(SIG_SETMASK, &children->before, NULL);
	return -1;
}

/* Ends this child with its parent. The parent may have died before prctl() took effect;
 * then the parent's pid has changed. */
void bench_child_follow(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(EXIT_FAILURE);
}

int bench_children_start(struct bench_children *children,
			 int (*run)(void *arg, uint32_t number), void *arg)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		bench_child_follow(children->parent);
		sigprocmask(SIG_SETMASK, &children->before, NULL);
		status = run(arg, children->n);
		_exit(streams_flush() ? EXIT_FAILURE : status);
	}
	if (pid > 0) {
		children->pids[children->n++] = pid;
		return 0;
	}
	fprintf(stderr, "ceoverlap-bench: fork: %s\n", strerror(errno));
	return -1;
}

static void kill_all(const struct bench_children *children)
{
	uint32_t i;

	for (i = 0; i < children->n; i++)
		if (children->pids[i])
			(void)kill(children->pids[i], SIGKILL);
}

/* Collects children that have ended and returns how many. Sets *ret_failed if one ended with an
 * error. */
static uint32_t reap(struct bench_children *children, int *ret_failed)
{
	uint32_t i, n = 0;
	int status;

	for (i = 0; i < children->n; i++) {
		if (!children->pids[i] || waitpid(children->pids[i], &status, WNOHANG) <= 0)
			continue;
		children->pids[i] = 0;
		n++;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		*ret_failed = 1;
		if (WIFSIGNALED(status) && !children->ended_by &&
		    !sigismember(&children->waiting, WTERMSIG(status)))
			fprintf(stderr, "ceoverlap-bench: %s %u: ended by signal %d\n",
				children->what, i, WTERMSIG(status));
	}
	return n;
}

/* Sleeps a little, and records a signal that came meanwhile. */
static void look_for_signal(struct bench_children *children)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	int number = sigtimedwait(&children->waiting, NULL, &pause);

	if (number > 0 && !children->ended_by)
		children->ended_by = number;
}

int bench_children_wait(struct bench_children *children, uint64_t deadline_ns,
			_Atomic int *failed)
{
	uint64_t kill_at = deadline_ns + OVERTIME_NS, now;
	uint32_t n_left = children->n;
	int has_failed = 0;

	while (n_left) {
		n_left -= reap(children, &has_failed);
		now = cei_now_ns();
		if (has_failed) {
			atomic_store(failed, CEOV_ERR_PEER_LOST);       /* seq_cst: not on a fast
									 * path */
			if (kill_at > now + GRACE_NS)
				kill_at = now + GRACE_NS;
		}
		if (children->ended_by || now > kill_at)
			kill_all(children);
		look_for_signal(children);      /* once more at the end, because the signal may have
						 * ended the children */
	}
	return has_failed || children->ended_by ? EXIT_FAILURE : EXIT_SUCCESS;
}

void bench_children_end(struct bench_children *children)
{
	bench_children_remove_folder(children);
	if (children->ended_by)
		(void)raise(children->ended_by);        /* takes effect when the old signal mask is
							 * restored */
	sigprocmask(SIG_SETMASK, &children->before, NULL);
}
