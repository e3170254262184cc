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
#define VERSION       4u
#define HELLO         1u
#define JOINED        3u
#define WELCOME       5u
#define MEET_BYTES    16u               /* of the head of a message of those who meet */
#define HEAD_BYTES    12u               /* of the head of one of the group */
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

/* Rank 1 of 2. */
static int say_hello(int fd, const int *fds, uint32_t n_fds)
{
	uint8_t bytes[MEET_BYTES + 12];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));

	cei_wire_put_u32(&writer, MAGIC);
	cei_wire_put_u32(&writer, VERSION);
	cei_wire_put_u32(&writer, HELLO);
	cei_wire_put_u32(&writer, 12);
	cei_wire_put_u32(&writer, 2);
	cei_wire_put_u32(&writer, 1);
	cei_wire_put_u32(&writer, 1);
	must(!writer.failed);
	return send_bytes(fd, bytes, writer.at, fds, n_fds);
}

/* Begins a message of the group, with its number: this process counts none but its replies. */
static struct cei_writer begin(uint8_t bytes[MESSAGE_BYTES], uint32_t type, uint64_t number)
{
	struct cei_writer writer = cei_writer_on(bytes, MESSAGE_BYTES);

	cei_wire_put_u32(&writer, type);
	cei_wire_put_u64(&writer, number);
	return writer;
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

static void hear_of_meeting(int fd, uint32_t type)
{
	uint8_t bytes[MESSAGE_BYTES];
	struct cei_reader reader = cei_reader_on(bytes, receive(fd, bytes));

	must(cei_wire_get_u32(&reader) == MAGIC && cei_wire_get_u32(&reader) == VERSION);
	must(cei_wire_get_u32(&reader) == type && !reader.failed);
}

int evil_come(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timespec pause = { .tv_nsec = 1000000 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), tries = 0;

	must(fd >= 0 && strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		must(tries++ < 20000);
		nanosleep(&pause, NULL);
	}
	must(!say_hello(fd, NULL, 0));
	hear_of_meeting(fd, JOINED);
	hear_of_meeting(fd, WELCOME);
	return fd;
}

uint32_t evil_hear(int fd, struct evil_reply *ret_reply)
{
	uint8_t bytes[MESSAGE_BYTES];
	size_t n = receive(fd, bytes);
	struct cei_reader reader = cei_reader_on(bytes, n);
	uint32_t type;

	if (!n)
		return EVIL_BYE;
	type = cei_wire_get_u32(&reader);
	if (type == EVIL_BARRIER && send_bytes(fd, bytes, n, NULL, 0))
		return EVIL_BYE;
	if (type != EVIL_FIND)
		return type;
	memset(ret_reply, 0, sizeof(*ret_reply));
	ret_reply->number = cei_wire_get_u64(&reader);
	must(cei_wire_get_u32(&reader) == 1);   /* the rank that is asked */
	cei_wire_get_bytes(&reader, ret_reply->name, sizeof(ret_reply->name));
	must(!cei_reader_end(&reader));
	ret_reply->id = 1;
	ret_reply->generation = 1;
	return type;
}

void evil_answer(int fd, const struct evil_reply *reply, const int *fds, uint32_t n_fds)
{
	uint8_t bytes[MESSAGE_BYTES];
	struct cei_writer writer = begin(bytes, EVIL_REPLY, reply->result ? 0 : 1);

	cei_wire_put_u64(&writer, reply->number);
	cei_wire_put_u32(&writer, (uint32_t)reply->result);
	cei_wire_put_u32(&writer, 0);           /* a native error's code */
	if (!reply->result) {
		cei_wire_put_u32(&writer, reply->id);
		cei_wire_put_u32(&writer, reply->generation);
		cei_wire_put_u32(&writer, reply->n_fds);
		cei_wire_put_u32(&writer, reply->n_bytes);
		cei_wire_put_bytes(&writer, reply->bytes, reply->n_bytes);
	}
	must(!writer.failed);
	/* Rank 0 may have closed the connection because of a reply before. */
	if (send_bytes(fd, bytes, writer.at, fds, n_fds))
		_exit(0);
}

void evil_say_odd(int fd, uint32_t type, const int *fds)
{
	uint8_t bytes[MESSAGE_BYTES];
	struct cei_writer writer = begin(bytes, type, 1);

	if (type == EVIL_HELLO) {
		must(!say_hello(fd, fds, EVIL_FDS_MAX));
		return;
	}
	if (type != EVIL_NONE)
		cei_wire_put_u64(&writer, 12345);       /* a use, or a count of calls */
	if (type == EVIL_BARRIER)
		cei_wire_put_u32(&writer, 0);           /* the step */
	must(!send_bytes(fd, bytes, writer.at, fds, type == EVIL_NONE ? 0 : EVIL_FDS_MAX));
}
