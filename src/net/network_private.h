/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_PRIVATE_H
#define CEI_NETWORK_PRIVATE_H

/*
 * Declarations shared by the files of the network:
 *
 *   network.c          open and close; which process holds which rank
 *   network_rail.c     opens the rail
 *   network_direct.c   decides whether it accesses memory of the application itself
 *   network_loss.c     processes that are given up
 *   network_notes.c    says notes to other processes
 *   network_talk.c     notes from other processes, and the network's thread
 *   network_regions.c  memory that others write to
 *   network_exports.c  exports, and finding those of others
 *   network_signals.c  images of signals, raising, aborting and renewing them
 *   network_barrier.c  the barrier of the nodes
 *   network_clock.c    how far the clock of rank 0's process is ahead, for traces
 *
 * Locks: none of this layer is held while an event is told or a rail is called that waits.
 */

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include <ceoverlap/ceoverlap.h>

#include "net/book.h"
#include "net/carrier_rails.h"
#include "net/exchange.h"
#include "net/in_place.h"
#include "net/network.h"
#include "net/network_clock.h"
#include "net/network_wire.h"
#include "net/rail.h"

/* Notes that wait for room in the rail. Each waits for a process that reads too slowly: one that
 * does not read at all is given up by the rail, and its notes with it. */
#define CEI_NETWORK_WAITING_MAX 65536u

/* Region numbers go into 23 bits of an address (backend/net.c), and are not used twice. */
#define CEI_NETWORK_REGION_MAX  ((UINT32_C(1) << 23) - 1)

struct cei_network_use {
	uint32_t process;
	uint32_t n;                     /* finds that were not dropped */
};

/* A process that wants to hear of a counter. */
struct cei_network_listener {
	uint32_t process;
	uint32_t index;
	uint64_t until;                 /* the value to reach */
	uint64_t told;                  /* the last value that it was told */
};

struct cei_network_entry {              /* an export of this process */
	struct cei_list              link;
	uint32_t                     region;
	uint32_t                     generation;        /* of a signal: its renewals */
	int                          is_withdrawn;
	struct cei_network_export    export;
	struct cei_network_use      *uses;
	uint32_t                     n_uses;
	struct cei_network_listener *listeners;
	uint32_t                     n_listeners;
};

struct cei_network_image {              /* of a signal of another node */
	struct cei_list   link;
	uint32_t          process;
	uint32_t          region;
	uint32_t          generation;   /* as last heard */
	uint32_t          n_words;
	_Atomic uint64_t *words;
	uint64_t         *asked;        /* by word: the value that was asked for and is not told
					 * yet; 0: none */
	uint32_t          n_expected;   /* words with such a value */
};

struct cei_network_request {            /* a call that waits for an answer; on its stack */
	struct cei_list          link;
	uint64_t                 number;
	uint32_t                 process;       /* CEOV_NOBODY: several */
	uint32_t                 n_awaited;     /* answers that have not come */
	int                      is_lost;       /* the process was lost */
	int32_t                  result;
	struct cei_network_found found;
};

struct cei_network_clock {
	int                     has_begun;
	uint32_t                n_offsets;      /* the results */
	struct cei_clock_offset offsets[CEI_NETWORK_CLOCK_OFFSETS_MAX];

	uint64_t                last_number;
	int                     has_lost_reference;     /* or it has departed */
	uint64_t                number;         /* of the question without an answer; 0: none */
	uint64_t                asked_ns;
	uint32_t                n_left;         /* answers that are still to come */
	uint32_t                n_taken;
	int                     is_contradicted;
	struct cei_clock_offset best;

	uint8_t                *askers;         /* at the reference, by process: it will ask again;
						 * NULL: nobody has asked */
};

struct cei_network_barrier {            /* see network_barrier.c */
	uint64_t n_passed;              /* barriers of the group that this process has passed */
	int      has_met;               /* of the next one only its last step is left, in which the
					 * processes of each node meet again */
	uint32_t round;                 /* of the next one: the nodes have passed those before */
	uint64_t seen[CEI_NOTE_ROUNDS]; /* by round: the last barrier that the partner is in */
	uint64_t n_possible;            /* no more barriers than this complete, */
	uint32_t missing;               /* because this rank is lost or has closed */
	uint64_t n_told;                /* of these, what others were told last */
};

struct cei_network {
	struct cei_site                 *site;
	const struct cei_network_events *events;
	void                            *events_arg;
	const struct cei_transport_ops  *transport;
	const char                      *kinds;
	const struct cei_far_copier_ops *copier;
	void                            *copier_arg;
	const struct cei_machine        *machine;       /* NULL: not known */
	struct cei_in_place              in_place;
	char                             gpu_bytes[64];         /* cei_network_gpu_bytes() */
	struct cei_book                 *book;
	uint64_t                        *nodes;         /* by rank, for site->nodes */
	struct cei_rail                 *rail;          /* NULL: this machine has no transport */
	struct cei_carrier_rails        *carrier;       /* NULL: likewise */
	struct cei_peers                *peers;         /* NULL: not begun */
	char                             rail_why[CEI_NIC_WHY_BYTES];   /* it is on its NIC */
	char                             unreachable[CEI_NIC_WHY_BYTES];   /* by then: why */
	struct cei_network_left         *left;          /* NICs that are not used */
	uint32_t                         n_left;
	uint64_t                         timeout_ns;    /* of silent processes */
	char                             node_name[CEI_NETWORK_NODE_NAME_BYTES];

	pthread_mutex_t  lock;          /* guards what follows, and what is in the lists */
	pthread_cond_t   changed;       /* an answer has come, or a process was lost */
	pthread_cond_t   work;          /* the thread has something to do */
	int              has_lock;
	pthread_t        thread;
	int              has_thread;
	int              must_stop;
	int              is_ready;      /* the rail has begun */
	int              has_left;

	uint8_t         *has_gone;      /* by process: it is lost or has departed */
	uint8_t         *has_closed;    /* by process: it is of this node and has closed, as the
					 * bootstrap says */
	uint8_t         *has_departed;  /* by process: it has closed in order */
	uint8_t         *is_parting;    /* by process: it is given up, and not quiet yet; see
					 * network_loss.c */
	uint32_t         n_parting;
	struct cei_list  entries;       /* struct cei_network_entry */
	uint32_t         last_region;
	uint32_t         n_listeners;   /* of all entries */
	struct cei_list  images;        /* struct cei_network_image */
	struct cei_list  requests;      /* struct cei_network_request */
	uint64_t         last_request;
	struct cei_list *waiting;       /* by process: notes that are not said yet, */
	uint32_t         n_waiting;     /* and how many they are to all processes */

	struct cei_network_barrier barrier;

	struct cei_network_clock clock;
};

/* What opening needs, and what is not needed any more afterwards. */
struct cei_network_opening {
	struct cei_network        *network;
	struct ceov_network        public;
	const struct cei_exchange *exchange;
};

/* --- network_rail.c -------------------------------------------------------------------- */

/* Opens the rail, when the number of this process is known. CEOV_NONE: there is none, because this
 * machine has no transport, which a group of one node does not need. Errors are raised. */
int  cei_network_open_rail(struct cei_network *network,
			   const struct cei_network_opening *opening);

/* Refuses a group of several nodes of which a process has no rail. Errors are raised. */
int  cei_network_check_rail(const struct cei_network *network);

/* Choose, once the rail is open, in this order. Errors are raised. */
int  cei_network_choose_in_place(struct cei_network *network);
int  cei_network_choose_direct(struct cei_network *network);

/* --- network_loss.c, with the lock held but where it is said ------------------------------ */

/* Gives a process up. When nothing of it lands any more, it counts as lost. With the lock held. */
void cei_network_part(struct cei_network *network, uint32_t process, const char *why);

/* Tells other processes which ones this one has given up, each once. Without the lock. */
void cei_network_tell_losses(struct cei_network *network);

/* Ends processes that are parting and have no connection any more. Returns whether there were any.
 * The network's thread, or with progress_by_caller the caller's; without the lock. */
int  cei_network_end_parted(struct cei_network *network);

/* --- network_notes.c, with the lock held but where it is said ---------------------------- */

/* Makes what is there for each process. CEOV_ERR_NO_MEMORY, not raised. Without the lock; the book
 * is there. */
int  cei_network_notes_open(struct cei_network *network);
void cei_network_notes_close(struct cei_network *network);

/* Says the note to a process, at once or as soon as there is room. It arrives once, in any order
 * with others, unless the process is lost. Does nothing if the process has gone. */
void cei_network_note(struct cei_network *network, uint32_t process, const struct cei_note *note);

/* Says what waits, as far as there is room. Returns whether anything was said. */
int  cei_network_notes_flush(struct cei_network *network);

/* The process has gone: nothing is said to it any more. */
void cei_network_notes_forget(struct cei_network *network, uint32_t process);

/* --- network_barrier.c --------------------------------------------------------------------- */

void cei_network_barrier_init(struct cei_network_barrier *barrier);

/* The process is lost: no barrier completes any more. With the lock held. */
void cei_network_barrier_lost(struct cei_network *network, uint32_t process);

/* This process closes: tells those that may wait for it in a barrier. */
void cei_network_barrier_leave(struct cei_network *network);

/* --- network_talk.c -------------------------------------------------------------------- */

/* Enters a request, whose number is set here, and waits until it is answered; leave it in any case.
 * 0; CEOV_NONE: the deadline passed; CEOV_ERR_PEER_LOST, not raised. With the lock held. */
void cei_network_enter(struct cei_network *network, struct cei_network_request *request);
int  cei_network_await(struct cei_network *network, struct cei_network_request *request,
		       uint64_t deadline_ns);

/* Waits for a change, until the deadline. CEOV_NONE: it has passed. With the lock held; with
 * progress_by_caller it makes progress instead. */
int  cei_network_wait(struct cei_network *network, uint64_t deadline_ns);

struct cei_network_request *cei_network_request(struct cei_network *network, uint64_t number,
						uint32_t process);

/* Begins the rail: the book and all tables are there. Errors are raised. */
int  cei_network_begin_talk(struct cei_network *network);

/* Begins and ends the thread. */
int  cei_network_start(struct cei_network *network);
void cei_network_stop(struct cei_network *network);

/* The events of the rail. */
extern const struct cei_rail_events cei_network_rail_events;

/* Notes that a process has gone, tells the layer above, and passes it on. Without the lock. */
void cei_network_process_gone(struct cei_network *network, uint32_t process, int departed);

/* --- the notes that each file handles, with the lock held -------------------------------- */

void cei_network_heard_find(struct cei_network *network, uint32_t process,
			    const struct cei_note_find *find);
void cei_network_heard_drop(struct cei_network *network, uint32_t process, uint32_t region);
void cei_network_forget_process(struct cei_network *network, uint32_t process);

struct cei_network_entry *cei_network_entry(struct cei_network *network, uint32_t region);

/* The signal was renewed: what was asked for before does not come any more. */
void cei_network_image_renewed(struct cei_network *network,
			       const struct cei_note_signal *signal);


void cei_network_heard_raise(struct cei_network *network, const struct cei_note_counter *raise);
void cei_network_heard_ask(struct cei_network *network, uint32_t process,
			   const struct cei_note_counter *ask);
void cei_network_heard_value(struct cei_network *network, uint32_t process,
			     const struct cei_note_counter *told);

void cei_network_heard_barrier(struct cei_network *network, const struct cei_note_barrier *note);

/* A process has closed in order, as that process or another one says. */
void cei_network_heard_departed(struct cei_network *network, uint32_t process,
				const struct cei_note_gone *gone);

void cei_network_heard_clock(struct cei_network *network, uint32_t process,
			     const struct cei_far_clock *message);

/* The process is lost or has departed. */
void cei_network_clock_gone(struct cei_network *network, uint32_t process);

/* At the close of the reference: waits, 2 seconds at most, for processes that have asked for the
 * time and have not said that they will not ask again. Without the lock. */
void cei_network_clock_leave(struct cei_network *network);

/* Tells listeners what has changed. Returns whether anything did. */
int  cei_network_look_at_counters(struct cei_network *network);

#endif /* CEI_NETWORK_PRIVATE_H */
