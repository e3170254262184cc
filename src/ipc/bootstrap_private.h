/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOTSTRAP_PRIVATE_H
#define CEI_BOOTSTRAP_PRIVATE_H

/*
 * Declarations shared by the files of the bootstrap:
 *
 *   bootstrap.c         open, close, barrier
 *   bootstrap_export.c  publishes, withdraws, finds and drops exports
 *   bootstrap_listen.c  the first rank's process: gathers the group, sends out links
 *   bootstrap_path.c    the path of the socket at which the first rank's process listens
 *   bootstrap_join.c    the other processes: connect, say hello, receive links
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
#include "ipc/wire.h"

#define CEI_LINKS_MAX        (CEI_LOCAL_MAX - 1)
#define CEI_EXPORTS_MAX      4096u      /* of one process, those in use included */
#define CEI_FINDS_QUEUED_MAX 64u        /* requests of one peer that are not answered yet */

/* How long a farewell is retried for a peer that does not read; afterwards that peer sees
 * this process as lost. */
#define CEI_BYE_WAIT_NS      UINT64_C(1000000000)
/* A connection that sends no hello message for this long is closed. */
#define CEI_HELLO_WAIT_NS    UINT64_C(1000000000)
/* How much longer than its own deadline a joined process waits for the first rank's process, whose
 * deadline passed at about the same time and which names the missing ranks. */
#define CEI_GRACE_NS         UINT64_C(250000000)

/* --- bootstrap_socket.c ---------------------------------------------------- */

/* Sends a message without blocking. Returns 0; CEOV_FULL if the socket cannot take it now;
 * CEOV_ERR_PEER_LOST if the other end is closed; CEOV_ERR_SYSTEM, with errno set. Does not report
 * errors: there is no cei_raise() here. */
int cei_socket_send(int fd, const struct cei_message *message, const int *fds,
		    uint32_t n_fds);

/* Sends a message, trying until the deadline; then CEOV_ERR_TIMEOUT. */
int cei_socket_send_by(int fd, const struct cei_message *message, const int *fds,
		       uint32_t n_fds, uint64_t deadline_ns);

/* A received message. The receiver closes its descriptors. n_fds is 0 if this process could
 * not take the descriptors that were sent, because too many are open. */
struct cei_received {
	struct cei_message message;
	uint32_t           n_fds;
	int                fds[CEI_EXPORT_FDS_MAX];
};

/* Receives a message without blocking. 0; CEOV_NONE: there is none now; CEOV_ERR_PEER_LOST:
 * none will come any more; other errors as from cei_message_decode(). Only with 0 are there
 * descriptors to close. Not raised. */
int cei_socket_receive(int fd, struct cei_received *ret_received);

/* Waits for events, as in poll(2), of a socket. CEOV_NONE: the deadline passed. */
int cei_socket_wait(int fd, short events, uint64_t deadline_ns);

/* Milliseconds for poll(2), rounded up, bounded. */
int cei_poll_ms(uint64_t deadline_ns);

void cei_received_close_fds(struct cei_received *received);
void cei_fd_close(int fd);              /* -1 is allowed */

/* The first returns a pidfd, which is readable when the process at the other end of a connected
 * unix socket has ended; -1: the system has none. The second gives that process's user. */
int cei_socket_pidfd(int fd);
int cei_socket_peer_uid(int fd, uint32_t *ret_uid);     /* 0, or an errno */

/* --- links --------------------------------------------------------------- */

enum cei_link_state { CEI_LINK_UP, CEI_LINK_DEPARTED, CEI_LINK_LOST };

struct cei_use {                        /* one of our uses of a peer's export */
	struct cei_list link;
	uint64_t        id;             /* the owner's number of the export */
};

enum cei_request_state { CEI_REQUEST_OWED, CEI_REQUEST_SENT, CEI_REQUEST_ANSWERED };

struct cei_request {                    /* a find that waits for its reply; lives on the calling
					 * thread's stack */
	enum cei_request_state state;
	struct cei_wire_find find;
	struct cei_use      *use;       /* moves to the link when the reply brings an export */
	struct cei_received  answer;
};

/* The connection to one other process. Guarded by the bootstrap's lock. */
struct cei_link {
	enum cei_link_state   state;
	int                   fd;               /* -1: ended */
	int                   pidfd;            /* or -1. The socket alone would stay
						 * open while a forked child of a dead
						 * peer lives */
	int                   is_mute;          /* a send failed: nothing more is sent, and the
						 * link ends at its end of file */
	struct cei_wire_party party;

	struct cei_request   *request;          /* the find in progress, or NULL */
	uint64_t              n_finds;
	uint64_t              n_finds_answered; /* number of the last request that was answered */
	uint64_t              n_finds_dropped;  /* requests of the peer that were dropped because
						 * too many waited */
	struct cei_list       uses;             /* struct cei_use */

	uint64_t              n_calls_seen;     /* barrier calls that the peer announced */
	uint64_t              n_calls_told;

	struct cei_list       drops_owed;       /* struct cei_use: uses that have ended, which
						 * the owner has not been told yet */
	struct cei_wire_find  asked[CEI_FINDS_QUEUED_MAX]; /* ring of requests that wait for our
							    * reply */
	uint32_t              asked_first;
	uint32_t              n_asked;
	int                   bye_owed;
	int                   bye_told;
};

struct cei_export_entry {
	uint64_t         id;
	int              is_withdrawn;
	uint32_t         n_users;
	uint32_t         users[CEI_LINKS_MAX];  /* links that use it */
	struct cei_export export;
};

struct cei_bootstrap {
	struct cei_site          *site;
	struct cei_bootstrap_config config;     /* path: valid in open only */
	uint32_t                  first;        /* the lowest rank of the node; its process
						 * listens */
	struct cei_link          *links;        /* CEI_LINKS_MAX of them */
	uint32_t                  n_links;      /* fixed when open returns */
	int                       wake_fd;      /* eventfd: makes the thread look again */

	pthread_mutex_t           lock;         /* guards all below, and the links */
	pthread_cond_t            changed;      /* something came, or a link ended */
	int                       has_lock;     /* lock and changed are initialised */
	int                       has_thread;
	pthread_t                 thread;
	int                       is_closing;
	int                       must_stop;
	struct cei_export_entry  *exports[CEI_EXPORTS_MAX];
	uint32_t                  n_exports;
	uint64_t                  n_ids;        /* given out */
	uint64_t                  n_calls;      /* of the barrier */
	int                       in_barrier;   /* the last barrier timed out and is not
						 * passed yet */
};

/* The link to the process that holds the rank. NULL: this process, or no such rank. */
struct cei_link *cei_link_of(struct cei_bootstrap *bootstrap, uint32_t rank);

/* Adds a link. Takes ownership of fd and pidfd. */
void cei_link_add(struct cei_bootstrap *bootstrap, const struct cei_wire_party *party,
		  int fd, int pidfd);

/* Sends queued messages as far as the socket takes them. With the lock held. */
void cei_link_flush(struct cei_bootstrap *bootstrap, struct cei_link *link);

/* Whether messages are queued that a later flush would send. With the lock held. */
int cei_link_owes(const struct cei_bootstrap *bootstrap, const struct cei_link *link);

/* Closes the link and frees its uses and queued messages. With the lock held. */
void cei_link_end(struct cei_bootstrap *bootstrap, struct cei_link *link,
		  enum cei_link_state state);

/* Wakes the thread to send queued messages. */
void cei_bootstrap_wake(struct cei_bootstrap *bootstrap);

/* 0; CEOV_NONE: the deadline has passed. May return early. With the lock. */
int cei_bootstrap_wait(struct cei_bootstrap *bootstrap, uint64_t deadline_ns);

/* Sends what it can now; the thread sends the rest. With the lock held. */
void cei_bootstrap_send_owed(struct cei_bootstrap *bootstrap, struct cei_link *link);

/* Raises CEOV_ERR_PEER_LOST with the rank, how it went, and the call (what). Without the
 * lock. */
int cei_bootstrap_raise_gone(struct cei_bootstrap *bootstrap, uint32_t rank,
			     enum cei_link_state state, const char *what);

/* The export of that rank and name that is not withdrawn, or NULL. With the lock held. */
struct cei_export_entry *cei_export_entry_find(struct cei_bootstrap *bootstrap, uint32_t rank,
					       const char *name);

/* Closes the descriptors and frees the entry. With the lock held. */
void cei_export_entry_free(struct cei_bootstrap *bootstrap, uint32_t index);

/* The thread: argument and result are pthread_create()'s. */
void *cei_bootstrap_run(void *bootstrap);

/* --- the rendezvous ------------------------------------------------------ */

void cei_party_of_site(const struct cei_site *site, struct cei_wire_party *ret_party);
int  cei_party_has(const struct cei_wire_party *party, uint32_t rank);

/* Adds the party's ranks to the set. */
void cei_party_add(const struct cei_wire_party *party, struct cei_rank_set *set);

/* Adds the ranks of other nodes, for which nobody waits here. */
void cei_ranks_elsewhere_add(const struct cei_site *site, struct cei_rank_set *set);

/* The listening socket. Its path was checked to be short enough. */
struct cei_listener {
	const char *path;
	int         fd;
	int         is_bound;           /* the path is ours to unlink */
	dev_t       device;             /* of the file that we bound, so that no other file is
					 * unlinked */
	ino_t       inode;
};

/* CEOV_ERR_STATE: another process listens there. Close it after a failure, too. */
int  cei_listener_open(struct cei_listener *listener, struct cei_report *report,
		       const char *path, uint64_t deadline_ns);
void cei_listener_close(struct cei_listener *listener, struct cei_report *report);

/* Establish the links. Each raises what it returns. */
int cei_bootstrap_listen(struct cei_bootstrap *bootstrap);
int cei_bootstrap_join(struct cei_bootstrap *bootstrap);

#endif /* CEI_BOOTSTRAP_PRIVATE_H */
