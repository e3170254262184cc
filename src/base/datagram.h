/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DATAGRAM_H
#define CEI_DATAGRAM_H

/* Bytes with descriptors beside them, as one message over a unix socket that keeps message
 * boundaries (SOCK_SEQPACKET), and who is at the other end. Over another socket as many bytes come
 * as there is room for, and descriptors with the first of the bytes beside which they were sent.
 * Nothing here blocks or raises errors; any thread may call it, one at a time for each direction of
 * a socket. */

#include <stddef.h>
#include <stdint.h>

/* Most descriptors in one datagram; the kernel's own limit is 253 (SCM_MAX_FD). */
#define CEI_DATAGRAM_FDS_MAX 64u

struct cei_datagram {
	void    *bytes;
	size_t   n_bytes;       /* to send, or the room; received: how many came */
	int     *fds;
	uint32_t n_fds;         /* likewise */
};

/* 0; CEOV_FULL: the socket cannot take it now; CEOV_ERR_PEER_LOST: the other end is closed;
 * CEOV_ERR_SYSTEM, with errno set, ETOOMANYREFS among others: too many descriptors of this user
 * are under way. The descriptors stay the caller's. */
int  cei_datagram_send(int fd, const struct cei_datagram *datagram);

/* 0, and the counts are those of what came; the caller closes the descriptors. Without any if this
 * process could not take all that were sent, because it has too many open, or more came than there
 * is room for. CEOV_NONE: there is none now. CEOV_ERR_PEER_LOST: none can come any more.
 * CEOV_ERR_INVALID: it is longer than the room. */
int  cei_datagram_receive(int fd, struct cei_datagram *datagram);

void cei_datagram_close_fds(struct cei_datagram *datagram);

/* cei_peer_pidfd() returns a descriptor that becomes readable when the process at the other end of
 * a connected unix socket ends; -1: the system cannot make one. cei_peer_uid() finds that process's
 * user, and returns 0 or an errno. */
int cei_peer_pidfd(int fd);
int cei_peer_uid(int fd, uint32_t *ret_uid);

#endif /* CEI_DATAGRAM_H */
