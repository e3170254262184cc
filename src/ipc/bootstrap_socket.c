/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sends and receives one message with its descriptors over a unix socket that keeps message
 * boundaries. Uses nothing of the bootstrap's state and raises no errors. */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_MS       UINT64_C(1000000)
#define POLL_MS_MAX     3600000u
#define RETRY_NS        1000000L

union control {                         /* room for a control message, aligned for its header */
	struct cmsghdr head;
	uint8_t        bytes[CMSG_SPACE(CEI_EXPORT_FDS_MAX * sizeof(int))];
};

void cei_fd_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

void cei_received_close_fds(struct cei_received *received)
{
	uint32_t i;

	for (i = 0; i < received->n_fds; i++)
		close(received->fds[i]);
	received->n_fds = 0;
}

int cei_poll_ms(uint64_t deadline_ns)
{
	uint64_t now = cei_now_ns();
	uint64_t ms;

	if (now >= deadline_ns)
		return 0;
	ms = (deadline_ns - now) / NS_PER_MS + 1;
	return (int)(ms < POLL_MS_MAX ? ms : POLL_MS_MAX);
}

int cei_socket_wait(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };

	for (;;) {
		/* if poll() fails for another reason than a signal, the call that follows will
		 * fail, too */
		int n = poll(&poll_fd, 1, cei_poll_ms(deadline_ns));

		if (n > 0 || (n < 0 && errno != EINTR))
			return 0;
		if (cei_now_ns() >= deadline_ns)
			return CEOV_NONE;
	}
}

static int result_of_send(int error)
{
	switch (error) {
	case EAGAIN:
		return CEOV_FULL;
	case EPIPE:
	case ECONNRESET:
	case ENOTCONN:
		return CEOV_ERR_PEER_LOST;
	default:
		return CEOV_ERR_SYSTEM;
	}
}

int cei_socket_send(int fd, const struct cei_message *message, const int *fds,
		    uint32_t n_fds)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct iovec part = { .iov_base = bytes };
	union control control;
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n_sent;

	part.iov_len = cei_message_encode(message, bytes);
	if (n_fds) {
		memset(&control, 0, sizeof(control));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, n_fds * sizeof(int));
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	do
		n_sent = sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n_sent < 0 && errno == EINTR);
	return n_sent < 0 ? result_of_send(errno) : 0;
}

int cei_socket_send_by(int fd, const struct cei_message *message, const int *fds,
		       uint32_t n_fds, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = RETRY_NS };

	for (;;) {
		int r = cei_socket_send(fd, message, fds, n_fds);
		/* Too many descriptors of this user are under way; their receivers will take
		 * them. */
		int is_crowded = r == CEOV_ERR_SYSTEM && errno == ETOOMANYREFS;

		if (r != CEOV_FULL && !is_crowded)
			return r;
		if (cei_now_ns() >= deadline_ns)
			return CEOV_ERR_TIMEOUT;
		if (is_crowded)
			nanosleep(&pause, NULL);
		else
			cei_socket_wait(fd, POLLOUT, deadline_ns);
	}
}

/* Takes the descriptors of all control messages. The kernel closes those for which there is no
 * room, and sets MSG_CTRUNC. */
static void take_fds(struct msghdr *header, struct cei_received *received)
{
	struct cmsghdr *head;
	uint32_t i, n_fds;
	int fd;

	for (head = CMSG_FIRSTHDR(header); head; head = CMSG_NXTHDR(header, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		n_fds = (uint32_t)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (i = 0; i < n_fds; i++) {
			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
			if (received->n_fds < CEI_EXPORT_FDS_MAX)
				received->fds[received->n_fds++] = fd;
			else
				close(fd);
		}
	}
	if (header->msg_flags & MSG_CTRUNC)
		cei_received_close_fds(received);
}

/* If a peer closes its socket and leaves messages unread, receiving yields one ECONNRESET before
 * the last messages that the peer sent, such as its farewell. So this error is skipped once. */
static ssize_t receive_bytes(int fd, struct msghdr *header)
{
	int n_resets = 0;
	ssize_t n_bytes;

	do
		n_bytes = recvmsg(fd, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n_bytes < 0 &&
	       (errno == EINTR || (errno == ECONNRESET && !n_resets++)));
	return n_bytes;
}

int cei_socket_receive(int fd, struct cei_received *ret_received)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct iovec part = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	union control control;
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n_bytes;
	int r;

	ret_received->n_fds = 0;
	n_bytes = receive_bytes(fd, &header);
	if (n_bytes < 0)
		return errno == EAGAIN ? CEOV_NONE : CEOV_ERR_PEER_LOST;
	take_fds(&header, ret_received);
	if (!n_bytes)
		r = CEOV_ERR_PEER_LOST;
	else if (header.msg_flags & MSG_TRUNC)
		r = CEOV_ERR_INVALID;
	else
		r = cei_message_decode(bytes, (size_t)n_bytes, &ret_received->message);
	if (r)
		cei_received_close_fds(ret_received);
	return r;
}

static int peer_credentials(int fd, struct ucred *ret_credentials)
{
	socklen_t n_bytes = sizeof(*ret_credentials);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_credentials, &n_bytes))
		return errno;
	return 0;
}

int cei_socket_peer_uid(int fd, uint32_t *ret_uid)
{
	struct ucred credentials;
	int error = peer_credentials(fd, &credentials);

	if (!error)
		*ret_uid = (uint32_t)credentials.uid;
	return error;
}

int cei_socket_pidfd(int fd)
{
	struct ucred credentials;

	/* pid 0: the process is in a pid namespace that cannot be seen from here */
	if (peer_credentials(fd, &credentials) || credentials.pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, credentials.pid, 0);
}
