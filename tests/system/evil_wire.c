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

#define STORE_MAGIC      UINT32_C(0x54534543)
#define STORE_VERSION    3u
#define STORE_HELLO      1u
#define STORE_JOINED     2u
#define STORE_LINK       6u
#define STORE_HEAD_BYTES 20u
#define MESSAGE_BYTES    2048u          /* room for any message */

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

/* Says HELLO as rank 1 of 2. */
static int say_hello(int fd, const int *fds, uint32_t n_fds)
{
	uint8_t bytes[STORE_HEAD_BYTES + 16];
	struct cei_writer writer = cei_writer_on(bytes, sizeof(bytes));

	cei_wire_put_u32(&writer, STORE_MAGIC);
	cei_wire_put_u32(&writer, STORE_VERSION);
	cei_wire_put_u32(&writer, STORE_HELLO);
	cei_wire_put_u64(&writer, 16);
	cei_wire_put_u32(&writer, 2);
	cei_wire_put_u32(&writer, 1);
	cei_wire_put_u32(&writer, 1);
	cei_wire_put_u32(&writer, 0);           /* bytes of a job's name */
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

/* Returns the bytes that came; 0 at the end of the connection, which may have messages unread. The
 * caller closes the descriptors. */
static size_t receive(int fd, uint8_t *bytes, size_t n_bytes, int *fds, uint32_t *ret_n_fds)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(EVIL_FDS_MAX * sizeof(int))];
	struct iovec part = { .iov_base = bytes, .iov_len = n_bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	const struct cmsghdr *came;
	ssize_t n;

	*ret_n_fds = 0;
	must(poll(&wait, 1, (int)(TESTING_PATIENCE / TESTING_MS)) == 1);
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	must(n >= 0 || errno == ECONNRESET);
	came = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (came) {
		*ret_n_fds = (uint32_t)((came->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		must(came->cmsg_type == SCM_RIGHTS && *ret_n_fds <= EVIL_FDS_MAX);
		memcpy(fds, CMSG_DATA(came), *ret_n_fds * sizeof(int));
	}
	return n <= 0 ? 0 : (size_t)n;
}

/* Receives a message of the store, with whose head the descriptors come. */
static void hear_of_store(int fd, uint32_t type, size_t n_body, int *fds, uint32_t *ret_n_fds)
{
	uint8_t bytes[STORE_HEAD_BYTES + 8];
	struct cei_reader reader = cei_reader_on(bytes, STORE_HEAD_BYTES);
	uint32_t n_none;

	must(receive(fd, bytes, STORE_HEAD_BYTES, fds, ret_n_fds) == STORE_HEAD_BYTES);
	must(cei_wire_get_u32(&reader) == STORE_MAGIC);
	must(cei_wire_get_u32(&reader) == STORE_VERSION);
	must(cei_wire_get_u32(&reader) == type && cei_wire_get_u64(&reader) == n_body);
	must(!n_body || receive(fd, bytes, n_body, NULL, &n_none) == n_body);
}

int evil_come(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timespec pause = { .tv_nsec = 1000000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), tries = 0;
	int fds[EVIL_FDS_MAX];
	uint32_t n_fds;

	must(fd >= 0 && strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		must(tries++ < 20000);
		nanosleep(&pause, NULL);
	}
	must(!say_hello(fd, NULL, 0));
	hear_of_store(fd, STORE_JOINED, 0, fds, &n_fds);
	hear_of_store(fd, STORE_LINK, 8, fds, &n_fds);
	must(n_fds >= 1);
	while (n_fds > 1)
		close(fds[--n_fds]);
	hear_of_store(fd, STORE_JOINED, 0, fds + 1, &n_fds);
	close(fd);
	return fds[0];
}

uint32_t evil_hear(int fd, struct evil_reply *ret_reply)
{
	uint8_t bytes[MESSAGE_BYTES];
	int fds[EVIL_FDS_MAX];
	uint32_t n_fds, type;
	size_t n = receive(fd, bytes, sizeof(bytes), fds, &n_fds);
	struct cei_reader reader = cei_reader_on(bytes, n);

	while (n_fds)
		close(fds[--n_fds]);
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
