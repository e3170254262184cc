/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sends and receives bytes with descriptors, and asks the kernel who is at the other end. */

#include "base/datagram.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

union control {                         /* room for a control message, aligned for its header */
	struct cmsghdr head;
	uint8_t        bytes[CMSG_SPACE(CEI_DATAGRAM_FDS_MAX * sizeof(int))];
};

void cei_datagram_close_fds(struct cei_datagram *datagram)
{
	uint32_t i;

	for (i = 0; i < datagram->n_fds; i++)
		close(datagram->fds[i]);
	datagram->n_fds = 0;
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

static void put_fds(struct msghdr *header, union control *control,
		    const struct cei_datagram *datagram)
{
	memset(control, 0, sizeof(*control));
	control->head.cmsg_level = SOL_SOCKET;
	control->head.cmsg_type = SCM_RIGHTS;
	control->head.cmsg_len = CMSG_LEN(datagram->n_fds * sizeof(int));
	memcpy(CMSG_DATA(&control->head), datagram->fds, datagram->n_fds * sizeof(int));
	header->msg_control = control;
	header->msg_controllen = CMSG_SPACE(datagram->n_fds * sizeof(int));
}

int cei_datagram_send(int fd, const struct cei_datagram *datagram)
{
	struct iovec part = { .iov_base = datagram->bytes, .iov_len = datagram->n_bytes };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	union control control;
	ssize_t n_sent;

	if (datagram->n_fds > CEI_DATAGRAM_FDS_MAX) {
		errno = EINVAL;
		return CEOV_ERR_SYSTEM;
	}
	if (datagram->n_fds)
		put_fds(&header, &control, datagram);
	do
		n_sent = sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n_sent < 0 && errno == EINTR);
	return n_sent < 0 ? result_of_send(errno) : 0;
}

/* Takes the descriptors of all control messages, at most n_room. The kernel closes those for which
 * there is no room in the control message, and sets MSG_CTRUNC. */
static void take_fds(struct msghdr *header, struct cei_datagram *datagram, uint32_t n_room)
{
	struct cmsghdr *head;
	uint32_t i, n_fds;
	int fd, is_cut = (header->msg_flags & MSG_CTRUNC) != 0;

	for (head = CMSG_FIRSTHDR(header); head; head = CMSG_NXTHDR(header, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		n_fds = (uint32_t)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (i = 0; i < n_fds; i++) {
			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
			if (datagram->n_fds < n_room) {
				datagram->fds[datagram->n_fds++] = fd;
				continue;
			}
			close(fd);
			is_cut = 1;
		}
	}
	if (is_cut)
		cei_datagram_close_fds(datagram);
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

int cei_datagram_receive(int fd, struct cei_datagram *datagram)
{
	struct iovec part = { .iov_base = datagram->bytes, .iov_len = datagram->n_bytes };
	union control control;
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	uint32_t n_room = datagram->n_fds;
	ssize_t n_bytes;

	datagram->n_fds = 0;
	n_bytes = receive_bytes(fd, &header);
	if (n_bytes < 0)
		return errno == EAGAIN ? CEOV_NONE : CEOV_ERR_PEER_LOST;
	take_fds(&header, datagram, n_room);
	datagram->n_bytes = (size_t)n_bytes;
	if (n_bytes && !(header.msg_flags & MSG_TRUNC))
		return 0;
	cei_datagram_close_fds(datagram);
	return n_bytes ? CEOV_ERR_INVALID : CEOV_ERR_PEER_LOST;
}

static int peer_credentials(int fd, struct ucred *ret_credentials)
{
	socklen_t n_bytes = sizeof(*ret_credentials);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_credentials, &n_bytes))
		return errno;
	return 0;
}

int cei_peer_uid(int fd, uint32_t *ret_uid)
{
	struct ucred credentials;
	int error = peer_credentials(fd, &credentials);

	if (!error)
		*ret_uid = (uint32_t)credentials.uid;
	return error;
}

int cei_peer_pidfd(int fd)
{
	struct ucred credentials;

	/* pid 0: the process is in a pid namespace that cannot be seen from here */
	if (peer_credentials(fd, &credentials) || credentials.pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, credentials.pid, 0);
}
