/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes nodes out of network namespaces. */

#include "system/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define COMMAND_BYTES 512
#define CABLES        2u                /* of a node; by the last one nodes meet */

/* --- commands -------------------------------------------------------------------------- */

/* Runs a line of shell in the calling process' namespaces. Returns 0 if all went well. */
static int run_line(const char *format, va_list arguments)
{
	char line[COMMAND_BYTES];

	vsnprintf(line, sizeof(line), format, arguments);
	return system(line);
}

__attribute__((format(printf, 1, 2))) static int run_quietly(const char *format, ...)
{
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = run_line(format, arguments);
	va_end(arguments);
	return r;
}

/* As run_quietly(); ends the process if it went wrong. */
__attribute__((format(printf, 1, 2))) static void run_surely(const char *format, ...)
{
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = run_line(format, arguments);
	va_end(arguments);
	if (!r)
		return;
	fprintf(stderr, "namespaces: '%s' has failed with status %#x\n", format, (unsigned)r);
	_exit(96);
}

/* --- making -------------------------------------------------------------------------------- */

static int write_line(const char *path, const char *line)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, line, strlen(line));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(line) ? 0 : -1;
}

/* A user namespace, in which this process may do everything to the namespaces that it makes. */
static int enter_hub(void)
{
	unsigned user = geteuid(), group = getegid();
	char map[32];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS))
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", user);
	if (write_line("/proc/self/uid_map", map) || write_line("/proc/self/setgroups", "deny"))
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", group);
	return write_line("/proc/self/gid_map", map);
}

/* Shows the interfaces of the node in /sys, where UCX looks for them, says so, and sleeps. */
static void hold(int ready, pid_t parent)
{
	char is_ready = !unshare(CLONE_NEWNET | CLONE_NEWNS) &&
		!mount("none", "/sys", "sysfs", 0, NULL);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (write(ready, &is_ready, 1) != 1 || getppid() != parent)
		_exit(1);
	for (;;)
		pause();
}

static int start_holder(struct namespaces *nodes)
{
	pid_t parent = getpid(), pid;
	char is_ready = 0;
	int fds[2];

	if (pipe(fds))
		return -1;
	pid = fork();
	if (!pid) {
		close(fds[0]);
		hold(fds[1], parent);
	}
	close(fds[1]);
	if (pid > 0)
		nodes->holders[nodes->n++] = pid;
	if (pid < 0 || read(fds[0], &is_ready, 1) != 1)
		is_ready = 0;
	close(fds[0]);
	return is_ready ? 0 : -1;
}

/* Interface e0 of node 1 is at the port p0n1 of the bridge br0. */
static int wire(const struct namespaces *nodes, uint32_t node, uint32_t cable)
{
	pid_t pid = nodes->holders[node];

	return run_quietly("exec 2> /dev/null; ip link add p%un%u type veth peer name e%u netns %d "
			   "&& ip link set p%un%u master br%u up && "
			   "nsenter -t %d -n ip addr add 10.77.%u.%u/24 dev e%u && "
			   "nsenter -t %d -n ip link set e%u up && "
			   "nsenter -t %d -n ip link set lo up", cable, node, cable, (int)pid,
			   cable, node, cable, (int)pid, cable + 1, node + 1, cable, (int)pid,
			   cable, (int)pid);
}

/* The kernel notices a carrier up to a second later, at each end by itself, and the bridge drops
 * what comes until then. Returns 0 when both have. */
static int await_carrier(const struct namespaces *nodes, uint32_t node, uint32_t cable)
{
	return run_quietly("for i in $(seq 500); do nsenter -t %d -n ip link show dev e%u | "
			   "grep -q 'state UP' && ip -d link show dev p%un%u | "
			   "grep -q 'state forwarding' && exit 0; sleep 0.01; done; exit 1",
			   (int)nodes->holders[node], cable, cable, node);
}

static int await_carriers(const struct namespaces *nodes)
{
	uint32_t node, cable;

	for (node = 0; node < nodes->n; node++)
		for (cable = 0; cable < CABLES; cable++)
			if (await_carrier(nodes, node, cable))
				return -1;
	return 0;
}

static const char *make(struct namespaces *nodes, uint32_t n)
{
	uint32_t node, cable;

	if (enter_hub())
		return "user and network namespaces are not allowed here";
	for (cable = 0; cable < CABLES; cable++)
		if (run_quietly("ip link add br%u type bridge 2> /dev/null && "
				"ip link set br%u up", cable, cable))
			return "ip (iproute2) is not here, or makes no bridge";
	for (node = 0; node < n; node++) {
		if (start_holder(nodes))
			return "sysfs cannot be mounted in a namespace here";
		for (cable = 0; cable < CABLES; cable++)
			if (wire(nodes, node, cable))
				return "ip makes no veth pairs here";
	}
	if (await_carriers(nodes))
		return "veth pairs get no carrier here";
	if (run_quietly("tc qdisc add dev p0n0 root tbf rate 1gbit burst 256kb latency 50ms "
			"2> /dev/null && tc qdisc del dev p0n0 root"))
		return "tc (iproute2) is not here, or has no tbf";
	return NULL;
}

const char *namespaces_open(struct namespaces *nodes, uint32_t n)
{
	const char *why;

	memset(nodes, 0, sizeof(*nodes));
	why = make(nodes, n);
	if (why)
		namespaces_close(nodes);
	return why;
}

void namespaces_close(struct namespaces *nodes)
{
	while (nodes->n) {
		kill(nodes->holders[--nodes->n], SIGKILL);
		(void)waitpid(nodes->holders[nodes->n], NULL, 0);
	}
}

/* --- nodes ------------------------------------------------------------------------------------ */

static int enter(pid_t pid, const char *name, int kind)
{
	char path[64];
	int fd, r;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = setns(fd, kind);
	close(fd);
	return r;
}

int namespaces_join(const struct namespaces *nodes, uint32_t node)
{
	pid_t pid = nodes->holders[node];

	return enter(pid, "net", CLONE_NEWNET) || enter(pid, "mnt", CLONE_NEWNS) ? -1 : 0;
}

/* --- cables ----------------------------------------------------------------------------------- */

/* What the kernel was asking for in vain it would call unreachable for up to three seconds more. */
static void forget_neighbours(const struct namespaces *nodes)
{
	uint32_t node;

	for (node = 0; node < nodes->n; node++)
		run_surely("nsenter -t %d -n ip neigh flush dev e0", (int)nodes->holders[node]);
}

void namespaces_plug(const struct namespaces *nodes, uint32_t node, int is_in)
{
	run_surely("ip link set p0n%u %s", node, is_in ? "up" : "down");
	if (!is_in)
		return;
	if (await_carrier(nodes, node, 0)) {
		fprintf(stderr, "namespaces: e0 of node %u gets no carrier\n", node);
		_exit(96);
	}
	forget_neighbours(nodes);
}

/* A bucket that holds no packet drops all of them. */
void namespaces_deafen(const struct namespaces *nodes, uint32_t node)
{
	(void)nodes;
	run_surely("tc qdisc replace dev p0n%u root tbf rate 8bit burst 1b limit 1b", node);
}

void namespaces_limit(const struct namespaces *nodes, uint32_t node, uint32_t megabits)
{
	(void)nodes;
	run_surely("tc qdisc replace dev p0n%u root tbf rate %umbit burst 64kb latency 50ms", node,
		   megabits);
}

void namespaces_unlimit(const struct namespaces *nodes, uint32_t node)
{
	run_surely("tc qdisc del dev p0n%u root", node);
	forget_neighbours(nodes);
}

uint64_t namespaces_ask(void)
{
	struct ethtool_value link = { .cmd = ETHTOOL_GLINK };
	struct ifreq request;
	uint64_t began_ns;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memset(&request, 0, sizeof(request));
	memcpy(request.ifr_name, "lo", sizeof("lo"));
	request.ifr_data = (void *)&link;
	began_ns = cei_now_ns();
	(void)ioctl(fd, SIOCETHTOOL, &request);         /* the answer does not matter */
	began_ns = cei_now_ns() - began_ns;
	(void)close(fd);
	return began_ns;
}
