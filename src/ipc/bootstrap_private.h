/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOTSTRAP_PRIVATE_H
#define CEI_BOOTSTRAP_PRIVATE_H

/*
 * Declarations shared by the files of the bootstrap:
 *
 *   bootstrap.c         open, close, barrier
 *   bootstrap_export.c  publishes, withdraws, finds and drops exports
 *   bootstrap_meet.c    meets the others, see bootstrap_links.h
 *   bootstrap_listen.c  in the first rank's process: gathers the group, sends out links
 *   bootstrap_path.c    the path of the socket at which the first rank's process listens
 *   bootstrap_join.c    in the other processes: connects, says hello, receives links
 *   bootstrap_link.c    links in operation: their thread, messages received and sent
 *   bootstrap_socket.c  sends or receives one message, with descriptors
 *
 * No send blocks. A thread with a message to send records it in the link as owed, under
 * the lock, and tries to send it at once; the bootstrap thread sends the remaining
 * messages as soon as the peer reads again. So a stopped peer delays only threads that
 * wait for its answer, and these have deadlines.
 */

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/rank_set.h"
#include "ipc/bootstrap.h"
#include "ipc/bootstrap_links.h"
#include "ipc/wire.h"

#define CEI_EXPORTS_MAX      4096u      /* exports of one process, including withdrawn ones that
					 * are still in use */
#define CEI_FINDS_QUEUED_MAX 64u        /* unanswered requests of one peer */

/* If a peer does not read, a farewell is tried again for this long. After that the peer sees this
 * process as lost. */
#define CEI_BYE_WAIT_NS      UINT64_C(1000000000)
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

/* A received message. The receiver closes its descriptors. If this process could not take the
 * descriptors that were sent, because it has too many open, n_fds is 0. */
struct cei_received {
	struct cei_message message;
	uint32_t           n_fds;
	int                fds[CEI_EXPORT_FDS_MAX];
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

/* cei_socket_pidfd() returns a descriptor that becomes readable when the process at the other end
 * of a connected unix socket ends; -1: the system cannot make one. cei_socket_peer_uid() finds that
 * process's user, and returns 0 or an errno. */
int cei_socket_pidfd(int fd);
int cei_socket_peer_uid(int fd, uint32_t *ret_uid);

/* --- links --------------------------------------------------------------- */

enum cei_link_state { CEI_LINK_UP, CEI_LINK_DEPARTED, CEI_LINK_LOST };

struct cei_use {                        /* one use that this process makes of a peer's export */
	struct cei_list link;           /* in cei_link.uses or cei_link.drops_owed */
	uint64_t        id;             /* the owner's number of the export */
};

enum cei_request_state { CEI_REQUEST_OWED, CEI_REQUEST_SENT, CEI_REQUEST_ANSWERED };

/* A find that waits for its reply, on the stack of the thread that called it. */
struct cei_request {
	enum cei_request_state state;
	struct cei_wire_find find;
	struct cei_use      *use;       /* goes to the link when the reply brings an export */
	struct cei_received  answer;
};

/* The connection to one other process. Guarded by the bootstrap's lock. */
struct cei_link {
	enum cei_link_state   state;
	int                   fd;               /* -1: the link has ended */
	int                   pidfd;            /* of the peer, or -1. The socket alone would
						 * stay open as long as a forked child of
						 * a dead peer lives */
	int                   is_mute;          /* 1: a send failed. Nothing more is sent, and
						 * the link ends at its end of file */
	struct cei_wire_party party;            /* the ranks of the peer */

	struct cei_request   *request;          /* the find in progress, or NULL */
	uint64_t              n_finds;          /* number of the last request sent */
	uint64_t              n_finds_answered; /* number of the last request answered */
	uint64_t              n_finds_dropped;  /* the peer's requests that were dropped because
						 * too many waited */
	struct cei_list       uses;             /* of struct cei_use: what this process uses */

	uint64_t              n_calls_seen;     /* calls of the barrier that the peer told us */
	uint64_t              n_calls_told;     /* calls of the barrier that we told the peer */

	struct cei_list       drops_owed;       /* of struct cei_use: uses that have ended, of
						 * which the owner has not been told yet */
	struct cei_wire_find  asked[CEI_FINDS_QUEUED_MAX]; /* ring of the peer's requests to
							    * which we have not replied */
	uint32_t              asked_first;
	uint32_t              n_asked;
	uint32_t              n_lost_told;      /* of bootstrap.lost */
	uint32_t              missing;          /* the rank without which the peer's barriers
						 * cannot complete, or CEOV_NOBODY */
	int                   missing_told;     /* 1: the peer was told of the rank that is
						 * missing here */
	int                   bye_owed;         /* 1: the farewell is still to be sent */
	int                   bye_told;         /* 1: the farewell was sent */
};

struct cei_export_entry {
	uint64_t         id;
	int              is_withdrawn;
	uint32_t         n_users;
	uint32_t         users[CEI_LINKS_MAX];  /* [link]: uses by its process */
	struct cei_export export;
};

/* How many messages of one link are handled before other links get their turn. */
#define CEI_TURN_MESSAGES 64u

struct cei_bootstrap {
	struct cei_site          *site;
	struct cei_bootstrap_config config;     /* path is valid only while opening */
	struct cei_link          *links;        /* room for CEI_LINKS_MAX */
	uint32_t                  n_links;      /* does not change after opening */
	int                       wake_fd;      /* an eventfd that wakes the thread */

	pthread_mutex_t           lock;         /* guards the links and all fields below */
	pthread_cond_t            changed;      /* signalled when a message came or a link
						 * ended */
	int                       has_lock;     /* 1: lock and changed are initialised */
	int                       has_thread;
	pthread_t                 thread;
	int                       is_closing;
	uint32_t                 *lost;         /* ranks of other nodes of whose loss the peers
						 * are told */
	uint32_t                  n_lost;
	uint32_t                  heard[CEI_TURN_MESSAGES];     /* lost ranks of which a link
								 * told in this turn */
	uint32_t                  n_heard;
	uint32_t                  missing;      /* the rank of which the peers are told, or
						 * CEOV_NOBODY */
	int                       must_stop;
	struct cei_export_entry  *exports[CEI_EXPORTS_MAX];
	uint32_t                  n_exports;
	uint64_t                  n_ids;        /* ids that were assigned to exports so far */
	uint64_t                  n_calls;      /* how often this process called the barrier */
	int                       in_barrier;   /* 1: the last barrier timed out, and its end is
						 * still to be awaited */
};

/* Returns the link to the process that holds the rank. NULL: this process holds it, or there is no
 * such rank. */
struct cei_link *cei_link_of(struct cei_bootstrap *bootstrap, uint32_t rank);

/* Sends queued messages as far as the socket takes them. The caller holds the lock. */
void cei_link_flush(struct cei_bootstrap *bootstrap, struct cei_link *link);

/* Returns whether messages are queued that a later flush would send. The caller holds the lock. */
int cei_link_owes(const struct cei_bootstrap *bootstrap, const struct cei_link *link);

/* Closes the link, and frees its uses and queued messages. The caller holds the lock. */
void cei_link_end(struct cei_bootstrap *bootstrap, struct cei_link *link,
		  enum cei_link_state state);

/* Wakes the bootstrap thread, which then sends queued messages. */
void cei_bootstrap_wake(struct cei_bootstrap *bootstrap);

/* Waits until something changed. May return early. CEOV_NONE: the deadline has passed. The caller
 * holds the lock. */
int cei_bootstrap_wait(struct cei_bootstrap *bootstrap, uint64_t deadline_ns);

/* Sends what the socket takes now; the bootstrap thread sends the remaining messages. The caller
 * holds the lock. */
void cei_bootstrap_send_owed(struct cei_bootstrap *bootstrap, struct cei_link *link);

/* Raises CEOV_ERR_PEER_LOST; the message names the rank, how it ended (state) and the call (what).
 * The caller does not hold the lock. */
int cei_bootstrap_raise_gone(struct cei_bootstrap *bootstrap, uint32_t rank,
			     enum cei_link_state state, const char *what);

/* Returns the export of that rank and name that is not withdrawn, or NULL. The caller holds the
 * lock. */
struct cei_export_entry *cei_export_entry_find(struct cei_bootstrap *bootstrap, uint32_t rank,
					       const char *name);

/* Closes the descriptors of an entry and frees the entry. The caller holds the lock. */
void cei_export_entry_free(struct cei_bootstrap *bootstrap, uint32_t index);

/* The function that the bootstrap thread runs; argument and result are those of
 * pthread_create(). */
void *cei_bootstrap_run(void *bootstrap);

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
void cei_meeting_add(struct cei_meeting *meeting, const struct cei_wire_party *party, int fd,
		     int pidfd);

/* Fills in the ranks of this process, and returns whether a party holds a rank. */
void cei_party_of_site(const struct cei_site *site, struct cei_wire_party *ret_party);
int  cei_party_has(const struct cei_wire_party *party, uint32_t rank);

/* Adds the party's ranks to the set. */
void cei_party_add(const struct cei_wire_party *party, struct cei_rank_set *set);

/* Adds the ranks of other nodes, for which nobody waits here. */
void cei_ranks_elsewhere_add(const struct cei_site *site, struct cei_rank_set *set);

/* The listening socket. Its path has been checked to be short enough. */
struct cei_listener {
	const char *path;
	int         fd;
	int         is_bound;           /* 1: we created the file and must remove it */
	dev_t       device;             /* with inode: identifies the file that we created, so
					 * that no other file is removed */
	ino_t       inode;
};

/* Creates the socket file and listens. CEOV_NONE: another process listens there. Call
 * cei_listener_close() after a failure, too. */
int  cei_listener_open(struct cei_listener *listener, struct cei_report *report,
		       const char *path, uint64_t deadline_ns);
void cei_listener_close(struct cei_listener *listener, struct cei_report *report);

/* Establish the links to all other processes of the node. Errors are raised. */
int cei_meeting_listen(struct cei_meeting *meeting);
int cei_meeting_join(struct cei_meeting *meeting);

/* Another process listens where this one is to listen. If both have the same rank, both hear of
 * each other. Returns CEOV_ERR_STATE, raised. */
int cei_meeting_find_twin(struct cei_meeting *meeting);

#endif /* CEI_BOOTSTRAP_PRIVATE_H */
