/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Sends and receives one message with its descriptors over a unix socket that keeps message
 * boundaries. Uses nothing of the bootstrap's state and raises no errors. */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"

#define NS_PER_MS       UINT64_C(1000000)
#define POLL_MS_MAX     3600000u
#define RETRY_NS        1000000L

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

int cei_socket_send(int fd, const struct cei_message *message, const int *fds,
		    uint32_t n_fds)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_datagram datagram = { .bytes = bytes, .fds = (int *)(uintptr_t)fds,
					 .n_fds = n_fds };

	datagram.n_bytes = cei_message_encode(message, bytes);
	return cei_datagram_send(fd, &datagram);
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

int cei_socket_receive(int fd, struct cei_received *ret_received)
{
	uint8_t bytes[CEI_MESSAGE_BYTES_MAX];
	struct cei_datagram datagram = { .bytes = bytes, .n_bytes = sizeof(bytes),
					 .fds = ret_received->fds,
					 .n_fds = CEI_RECEIVED_FDS_MAX };
	int r = cei_datagram_receive(fd, &datagram);

	ret_received->n_fds = datagram.n_fds;
	if (!r)
		r = cei_message_decode(bytes, datagram.n_bytes, &ret_received->message);
	if (r)
		cei_received_close_fds(ret_received);
	return r;
}
