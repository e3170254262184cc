/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "system/evil_wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cursor.h"
#include "testing.h"

#define MAGIC         UINT32_C(0x564f4543)
#define VERSION       3u
#define HEAD_BYTES    16u
#define MESSAGE_BYTES 2048u             /* room for any message */

void evil_must(int holds, const char *file, int line, const char *condition)
{
	if (holds)
		return;
	fprintf(stderr, "peer, %s, line %d: %s\n", file, line, condition);
	_exit(99);
}

/* Returns 0, or -1 if rank 0 has closed the connection. */
static int send_bytes(int fd, const void *bytes, size_t n_bytes, const int *fds, uint32_t n_fds)
{
	union {
		struct cmsghdr head;
		uint8_t        bytes[CMSG_SPACE(EVIL_FDS_MAX * sizeof(int))];
	} control;
	struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = n_bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	memset(&control, 0, sizeof(control));
	if (n_fds) {
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, n_fds * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	n = sendmsg(fd, &message, MSG_NOSIGNAL);
	must(n == (ssize_t)n_bytes || errno == EPIPE || errno == ECONNRESET);
	return n < 0 ? -1 : 0;
}

static int send_message(int fd, uint32_t type, const struct cei_writer *body, const int *fds,
			uint32_t n_fds)
{
	uint8_t bytes[MESSAGE_BYTES];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));

	cei_wire_put_u32(&writer, MAGIC);
	cei_wire_put_u32(&writer, VERSION);
	cei_wire_put_u32(&writer, type);
	cei_wire_put_u32(&writer, (uint32_t)body->at);
	cei_wire_put_bytes(&writer, body->bytes, body->at);
	must(!body->failed && !writer.failed);
	return send_bytes(fd, bytes, writer.at, fds, n_fds);
}

/* Rank 1 of 2. */
static void put_hello(struct cei_writer *body)
{
	cei_wire_put_u32(body, 2);
	cei_wire_put_u32(body, 1);
	cei_wire_put_u32(body, 1);
}

int evil_come(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timespec pause = { .tv_nsec = 1000000 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), tries = 0;
	uint8_t bytes[HEAD_BYTES];
	struct cei_writer body = cei_writer_on(bytes, sizeof(bytes));

	must(fd >= 0 && strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		must(tries++ < 20000);
		nanosleep(&pause, NULL);
	}
	put_hello(&body);
	must(!send_message(fd, EVIL_HELLO, &body, NULL, 0));
	return fd;
}

static void close_fds(const struct msghdr *message)
{
	const struct cmsghdr *part = CMSG_FIRSTHDR(message);
	int fds[EVIL_FDS_MAX];
	size_t i, n;

	if (!part)
		return;
	n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	must(part->cmsg_type == SCM_RIGHTS && n <= EVIL_FDS_MAX);
	memcpy(fds, CMSG_DATA(part), n * sizeof(int));
	for (i = 0; i < n; i++)
		close(fds[i]);
}

/* Returns 0 at the end of the connection, which may have messages unread. */
static size_t receive(int fd, uint8_t bytes[MESSAGE_BYTES])
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(EVIL_FDS_MAX * sizeof(int))];
	struct iovec part = { .iov_base = bytes, .iov_len = MESSAGE_BYTES };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	ssize_t n;

	must(poll(&wait, 1, (int)(TESTING_PATIENCE / TESTING_MS)) == 1);
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	must(n >= 0 || errno == ECONNRESET);
	if (n <= 0)
		return 0;
	close_fds(&message);
	return (size_t)n;
}

uint32_t evil_hear(int fd, struct evil_reply *ret_reply)
{
	uint8_t bytes[MESSAGE_BYTES];
	size_t n = receive(fd, bytes);
	struct cei_reader reader = cei_reader_on(bytes, n);
	uint32_t type;

	if (!n)
		return EVIL_BYE;
	must(cei_wire_get_u32(&reader) == MAGIC && cei_wire_get_u32(&reader) == VERSION);
	type = cei_wire_get_u32(&reader);
	must(cei_wire_get_u32(&reader) == n - HEAD_BYTES);
	if (type == EVIL_BARRIER && send_bytes(fd, bytes, n, NULL, 0))
		return EVIL_BYE;
	if (type != EVIL_FIND)
		return type;
	memset(ret_reply, 0, sizeof(*ret_reply));
	ret_reply->number = cei_wire_get_u64(&reader);
	ret_reply->rank = cei_wire_get_u32(&reader);
	cei_wire_get_bytes(&reader, ret_reply->name, sizeof(ret_reply->name));
	must(!cei_reader_end(&reader));
	return type;
}

void evil_answer(int fd, const struct evil_reply *reply, const int *fds, uint32_t n_fds)
{
	uint8_t bytes[MESSAGE_BYTES];
	struct cei_writer body = cei_writer_on(bytes, sizeof(bytes));

	cei_wire_put_u64(&body, reply->number);
	cei_wire_put_u32(&body, (uint32_t)reply->result);
	cei_wire_put_u32(&body, 0);             /* a native error's code */
	if (!reply->result) {
		cei_wire_put_u64(&body, 1);     /* the export's number */
		cei_wire_put_u32(&body, reply->rank);
		cei_wire_put_bytes(&body, reply->name, sizeof(reply->name));
		cei_wire_put_u32(&body, reply->n_fds);
		cei_wire_put_u32(&body, reply->n_bytes);
		cei_wire_put_bytes(&body, reply->bytes, reply->n_bytes);
	}
	/* Rank 0 may have closed the connection because of a reply before. */
	if (send_message(fd, EVIL_REPLY, &body, fds, n_fds))
		_exit(0);
}

void evil_say_odd(int fd, uint32_t type, const int *fds)
{
	uint8_t bytes[HEAD_BYTES];
	struct cei_writer body = cei_writer_on(bytes, sizeof(bytes));

	if (type == EVIL_HELLO)
		put_hello(&body);
	else if (type != EVIL_NONE)
		cei_wire_put_u64(&body, 12345); /* an export's number, or a count of calls */
	must(!send_message(fd, type, &body, fds, type == EVIL_NONE ? 0 : EVIL_FDS_MAX));
}
