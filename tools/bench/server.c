/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/service_link.h"
#include "tools/bench/children.h"
#include "tools/bench/program.h"

#define START_NS UINT64_C(20000000000)
#define END_NS   UINT64_C(30000000000)   /* the daemon drains for 10 s */

static double seconds(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static void become(const struct bench_server *server)
{
	const char *program = server->program;
	char path[512];

	bench_program_find("ceoverlapd", path, sizeof(path));
	program = program ? program : path;
	execlp(program, "ceoverlapd", "--socket", server->path, (char *)NULL);
	fprintf(stderr, "ceoverlap-bench: ceoverlapd: %s; name it by --daemon\n", strerror(errno));
}

/* Waits until the daemon listens. Ends it if it does not; reported. */
static int await_socket(const char *path, pid_t pid)
{
	uint64_t deadline_ns = cei_deadline(START_NS);
	struct cei_report report;
	int r;

	while (access(path, F_OK) && cei_now_ns() < deadline_ns) {
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			fprintf(stderr, "ceoverlap-bench: the daemon did not start\n");
			return -1;
		}
		usleep(1000);
	}
	cei_report_init(&report, NULL, NULL);
	r = cei_service_link_await_daemon(&report, path, deadline_ns);
	cei_report_fini(&report);
	if (r) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	return r;
}

int bench_server_start(struct bench_server *server, const char *folder)
{
	pid_t parent = getpid();

	server->pid = 0;
	if (server->socket) {
		snprintf(server->path, sizeof(server->path), "%s", server->socket);
		return 0;
	}
	snprintf(server->path, sizeof(server->path), "%s/d.sock", folder);
	fflush(NULL);
	server->pid = fork();
	if (!server->pid) {
		bench_child_follow(parent);
		become(server);
		_exit(127);
	}
	if (server->pid < 0) {
		fprintf(stderr, "ceoverlap-bench: fork: %s\n", strerror(errno));
		return -1;
	}
	return await_socket(server->path, server->pid) ? -1 : 0;
}

struct bench_server_memory bench_server_look(pid_t pid)
{
	struct bench_server_memory memory = { 0, 0 };
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (!strncmp(line, "RssAnon:", 8))
			memory.own = strtoull(line + 8, NULL, 10);
		if (!strncmp(line, "RssShmem:", 9))
			memory.files = strtoull(line + 9, NULL, 10);
	}
	if (file)
		fclose(file);
	return memory;
}

/* Waits for the daemon's end until a deadline, and kills it then. Returns its status. */
static int reap(pid_t pid, struct rusage *ret_usage)
{
	uint64_t deadline_ns = cei_deadline(END_NS);
	int status = -1;
	pid_t ended;

	while ((ended = wait4(pid, &status, WNOHANG, ret_usage)) == 0 &&
	       cei_now_ns() < deadline_ns)
		usleep(1000);
	if (!ended) {
		(void)kill(pid, SIGKILL);
		(void)wait4(pid, &status, 0, ret_usage);
	}
	return status;
}

int bench_server_end(const struct bench_server *server, double *ret_cpu_s)
{
	struct rusage usage = { 0 };
	int status;

	*ret_cpu_s = 0;
	if (!server->pid)
		return 0;
	(void)kill(server->pid, SIGTERM);
	status = reap(server->pid, &usage);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "ceoverlap-bench: the daemon did not end in order\n");
		return -1;
	}
	*ret_cpu_s = seconds(&usage.ru_utime) + seconds(&usage.ru_stime);
	return 0;
}
