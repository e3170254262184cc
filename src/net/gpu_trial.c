/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/gpu_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"

#define OUTPUT_BYTES 512u
#define END_NS       UINT64_C(1000000000)       /* that the program gets to end */

extern char **environ;

static int refuse(struct cei_gpu_trial_result *result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(struct cei_gpu_trial_result *result, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(result->why, sizeof(result->why), format, args);
	va_end(args);
	return CEOV_NONE;
}

/* --- starting it ----------------------------------------------------------------------------- */

static int add_actions(posix_spawn_file_actions_t *actions, int output)
{
	int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY,
						     0);

	if (!error)
		error = posix_spawn_file_actions_adddup2(actions, output, STDOUT_FILENO);
	if (!error)
		error = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null",
							 O_WRONLY, 0);
	return error;
}

/* The caller's thread may block signals, and its process ignore some. */
static int set_signals(posix_spawnattr_t *attributes)
{
	sigset_t none, all;
	int error;

	sigemptyset(&none);
	sigfillset(&all);
	error = posix_spawnattr_setsigmask(attributes, &none);
	if (!error)
		error = posix_spawnattr_setsigdefault(attributes, &all);
	if (!error)
		error = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
						 POSIX_SPAWN_SETSIGDEF);
	return error;
}

/* Returns 0 or an errno. */
static int spawn(const struct cei_gpu_trial *trial, int output, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char gpu[16], program[] = "ceoverlap-gpu-direct", gpu_key[] = "--gpu", nic_key[] = "--nic";
	char *arguments[] = { program, gpu_key, gpu, trial->nic ? nic_key : NULL,
			      (char *)(uintptr_t)trial->nic, NULL };
	int error = posix_spawn_file_actions_init(&actions);

	if (error)
		return error;
	error = posix_spawnattr_init(&attributes);
	if (error) {
		posix_spawn_file_actions_destroy(&actions);
		return error;
	}
	snprintf(gpu, sizeof(gpu), "%u", trial->gpu);
	error = add_actions(&actions, output);
	if (!error)
		error = set_signals(&attributes);
	if (!error)
		error = posix_spawn(ret_pid, trial->program, &actions, &attributes, arguments,
				    environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

/* --- its end --------------------------------------------------------------------------------- */

/* Reads until the other side has closed, the deadline passes or the text is full. Returns whether
 * the other side has closed. */
static int read_all(int fd, uint64_t deadline_ns, char text[OUTPUT_BYTES])
{
	struct pollfd awaited = { .fd = fd, .events = POLLIN };
	uint64_t now_ns;
	size_t at = 0;
	ssize_t n;

	text[0] = '\0';
	while (at < OUTPUT_BYTES - 1 && (now_ns = cei_now_ns()) < deadline_ns) {
		if (poll(&awaited, 1, (int)((deadline_ns - now_ns) / 1000000 % 60000) + 1) <= 0)
			continue;
		n = read(fd, text + at, OUTPUT_BYTES - 1 - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 1;
		at += (size_t)n;
		text[at] = '\0';
	}
	return 0;
}

/* Returns whether it has ended. The application may have taken its status: then it has. */
static int has_ended(pid_t pid)
{
	pid_t r = waitpid(pid, NULL, WNOHANG);

	return r == pid || (r < 0 && errno != EINTR);
}

static int await_end(pid_t pid, uint64_t deadline_ns)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (!has_ended(pid)) {
		if (cei_now_ns() >= deadline_ns)
			return 0;
		cei_backoff_step(&backoff);
	}
	return 1;
}

/* A process that SIGKILL does not end, because a driver holds it, is left alone. */
static void end(pid_t pid, int is_closed)
{
	if (is_closed && await_end(pid, cei_deadline(END_NS)))
		return;
	(void)kill(pid, SIGKILL);
	(void)await_end(pid, cei_deadline(END_NS));
}

static int judge(const char *text, int is_closed, struct cei_gpu_trial_result *result)
{
	const char *reason = strncmp(text, "failed: ", 8) ? NULL : text + 8;

	if (sscanf(text, "passed %lf %lf", &result->direct_bytes_per_s,
		   &result->staged_bytes_per_s) == 2 && strchr(text, '\n'))
		return 0;
	if (reason)
		return refuse(result, "its test failed: %.*s", (int)strcspn(reason, "\n"), reason);
	return refuse(result, is_closed ? "its test ended without a result"
		      : "its test did not end in time");
}

int cei_gpu_trial_run(const struct cei_gpu_trial *trial, struct cei_gpu_trial_result *ret_result)
{
	char text[OUTPUT_BYTES];
	int pipes[2], error, is_closed;
	pid_t pid;

	memset(ret_result, 0, sizeof(*ret_result));
	if (pipe2(pipes, O_CLOEXEC))
		return refuse(ret_result, "its test cannot be run: %s", strerror(errno));
	error = spawn(trial, pipes[1], &pid);
	close(pipes[1]);
	if (error) {
		close(pipes[0]);
		return refuse(ret_result, "its test %s cannot be run: %s", trial->program,
			      strerror(error));
	}
	is_closed = read_all(pipes[0], trial->deadline_ns, text);
	close(pipes[0]);
	end(pid, is_closed);
	return judge(text, is_closed, ret_result);
}
