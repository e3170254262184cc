/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Talks to the daemon: one command, one answer. */

#include "tools/ctl/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Of each step of a conversation. */
#define PATIENCE_S 10

/* More than any answer has. */
#define ANSWER_MAX (UINT64_C(64) << 20)

static int fail(const char *path, const char *what, int *ret_status)
{
	fprintf(stderr, "ceoverlapctl: %s: %s: %s%s\n", path, what, strerror(errno),
		errno == ENOENT || errno == ECONNREFUSED
		? "; is ceoverlapd running, and is this its control socket (--control)?"
		: errno == EACCES ? "; root and the daemon's user may ask" : "");
	*ret_status = CTL_ABSENT;
	return -1;
}

static int connect_to(const char *path, int *ret_status)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return fail(path, "cannot connect", ret_status);
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(path, "no socket", ret_status);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (!connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		return fd;
	(void)fail(path, "cannot connect", ret_status);
	close(fd);
	return -1;
}

/* Reads to the end. The caller frees the text. NULL, with errno set. A daemon that refuses who
 * connects may have closed the connection with the command unread: then what it said comes before
 * an error. */
static char *receive(int fd)
{
	size_t n = 0, room = 65536;
	char *text = malloc(room), *more;
	ssize_t r = 1;

	while (text && r > 0) {
		if (n + 1 == room) {
			more = room < ANSWER_MAX ? realloc(text, room *= 2) : NULL;
			if (!more)
				break;
			text = more;
		}
		r = recv(fd, text + n, room - n - 1, 0);
		if (r > 0)
			n += (size_t)r;
		else if (r < 0 && errno == EINTR)
			r = 1;
	}
	if (text && (!r || (n && errno == ECONNRESET))) {
		text[n] = 0;
		return text;
	}
	free(text);
	return NULL;
}

static struct json_object *refuse(const char *path, const char *text, int *ret_status)
{
	fprintf(stderr, "ceoverlapctl: %s: %s\n", path, text);
	*ret_status = CTL_REFUSED;
	return NULL;
}

/* Why the answer is not what was asked for, in words; NULL: it is. */
static const char *fault_of(struct json_object *answer, const struct ctl_command *command)
{
	if (!answer)
		return "an answer that is not JSON";
	if (!json_object_get_boolean(ctl_object(answer, "ok")))
		return *ctl_text(answer, "error") ? ctl_text(answer, "error")
			: "an answer that says neither that it went well nor why it did not";
	return command->yields && !ctl_object(answer, command->yields)
		? "an answer without what was asked for; is the daemon of another version?" : NULL;
}

static struct json_object *understand(const char *path, const char *text,
				      const struct ctl_command *command, int *ret_status)
{
	struct json_object *answer;
	const char *fault;

	if (!*text)
		return refuse(path, "the daemon has closed the connection without an answer",
			      ret_status);
	answer = json_tokener_parse(text);
	fault = fault_of(answer, command);
	if (!fault)
		return answer;
	(void)refuse(path, fault, ret_status);
	json_object_put(answer);
	return NULL;
}

struct json_object *ctl_ask(const char *path, const struct ctl_command *command, int *ret_status)
{
	int fd = connect_to(path, ret_status);
	struct json_object *answer;
	char line[64], *text;
	ssize_t sent;
	int n;

	if (fd < 0)
		return NULL;
	n = snprintf(line, sizeof(line), "%s\n", command->name);
	/* whoever is refused finds the connection closed, and reads why */
	sent = send(fd, line, (size_t)n, MSG_NOSIGNAL);
	text = sent == n || (sent < 0 && errno == EPIPE) ? receive(fd) : NULL;
	if (!text) {
		(void)fail(path, "no answer", ret_status);
		close(fd);
		return NULL;
	}
	close(fd);
	answer = understand(path, text, command, ret_status);
	free(text);
	return answer;
}
