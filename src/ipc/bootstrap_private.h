/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOTSTRAP_PRIVATE_H
#define CEI_BOOTSTRAP_PRIVATE_H

/*
 * Declarations shared by the files of the bootstrap:
 *
 *   bootstrap_meet.c    meets the other processes, see bootstrap.h
 *   bootstrap_listen.c  in the first rank's process: gathers the group, sends out links
 *   bootstrap_join.c    in the other processes: connects, says hello, receives links
 *   bootstrap_socket.c  sends or receives one message, with descriptors
 */

#include <stdint.h>
#include <sys/types.h>

#include "base/rank_set.h"
#include "ipc/bootstrap.h"
#include "ipc/wire.h"

/* A connection on which no hello arrives for this long is closed. */
#define CEI_HELLO_WAIT_NS    UINT64_C(1000000000)
/* How much longer than its own deadline a process that has joined waits for the first rank's
 * process. That process has its deadline at about the same time, and then names the missing
 * ranks. */
#define CEI_GRACE_NS         UINT64_C(250000000)

/* --- bootstrap_socket.c ---------------------------------------------------- */

/* Sends a message without blocking. Returns 0; CEOV_FULL if the socket cannot take it now;
 * CEOV_ERR_PEER_LOST if the other end is closed; CEOV_ERR_SYSTEM, with errno set. Errors are not
 * raised. */
int cei_socket_send(int fd, const struct cei_message *message, const int *fds,
		    uint32_t n_fds);

/* Sends a message, and tries again until the deadline if the socket is full; then
 * CEOV_ERR_TIMEOUT. */
int cei_socket_send_by(int fd, const struct cei_message *message, const int *fds,
		       uint32_t n_fds, uint64_t deadline_ns);

#define CEI_RECEIVED_FDS_MAX 3u         /* a socket, a pidfd, and one too many */

/* A received message. The receiver closes its descriptors. If this process could not take the
 * descriptors that were sent, because it has too many open, n_fds is 0. */
struct cei_received {
	struct cei_message message;
	uint32_t           n_fds;
	int                fds[CEI_RECEIVED_FDS_MAX];
};

/* Receives a message without blocking. Returns 0; CEOV_NONE if there is none now;
 * CEOV_ERR_PEER_LOST if no further one can come; or an error of cei_message_decode(). Only if it
 * returns 0 are there descriptors to close. Errors are not raised. */
int cei_socket_receive(int fd, struct cei_received *ret_received);

/* Waits until one of the events, as in poll(2), occurs at the socket. CEOV_NONE: the deadline
 * passed. */
int cei_socket_wait(int fd, short events, uint64_t deadline_ns);

/* Returns the milliseconds until the deadline as an argument of poll(2), rounded up and bounded. */
int cei_poll_ms(uint64_t deadline_ns);

void cei_received_close_fds(struct cei_received *received);

/* Closes a descriptor; -1 is allowed. */
void cei_fd_close(int fd);

/* --- the rendezvous ------------------------------------------------------ */

struct cei_meeting {
	struct cei_site            *site;
	const char                 *path;
	uint64_t                    deadline_ns;
	uint32_t                    first;      /* the lowest rank of the node; its process
						 * listens */
	struct cei_bootstrap_links *links;      /* those that were made so far */
};

/* Adds a link. Takes ownership of fd and pidfd. */
void cei_meeting_add(struct cei_meeting *meeting, const struct cei_party *party, int fd,
		     int pidfd);

/* Adds the party's ranks to the set. */
void cei_party_add(const struct cei_party *party, struct cei_rank_set *set);

/* Adds the ranks of other nodes, for which nobody waits here. */
void cei_ranks_elsewhere_add(const struct cei_site *site, struct cei_rank_set *set);

/* Establish the links to all other processes of the node. Errors are raised. */
int cei_meeting_listen(struct cei_meeting *meeting);
int cei_meeting_join(struct cei_meeting *meeting);

/* Another process listens where this one is to listen. If both have the same rank, both hear of
 * each other. Returns CEOV_ERR_STATE, raised. */
int cei_meeting_find_twin(struct cei_meeting *meeting);

#endif /* CEI_BOOTSTRAP_PRIVATE_H */
