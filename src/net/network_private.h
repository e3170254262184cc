/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NETWORK_PRIVATE_H
#define CEI_NETWORK_PRIVATE_H

/*
 * Declarations shared by the files of the network:
 *
 *   network.c          open and close
 *   network_rail.c     opens the rail, and passes on what it tells
 *   network_direct.c   decides whether it accesses memory of the application itself
 *   network_regions.c  memory that others write to
 *   network_clock.c    how far the clock of rank 0's process is ahead, for traces
 *
 * The lock is held by none who calls anything that waits.
 */

#include <pthread.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "net/book.h"
#include "net/carrier_rails.h"
#include "net/clock_offset.h"
#include "net/exchange.h"
#include "net/in_place.h"
#include "net/rail.h"
#include "topology/nics.h"

struct cei_network_clock {
	int                     has_begun;
	uint32_t                n_offsets;      /* the results */
	struct cei_clock_offset offsets[CEI_CLOCK_OFFSETS_MAX];

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

struct cei_network {
	struct cei_site                 *site;
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
	char                             rail_why[CEI_NIC_WHY_BYTES];   /* it is on its NIC */
	char                             unreachable[CEI_NIC_WHY_BYTES];   /* by then: why */
	struct cei_network_left         *left;          /* NICs that are not used */
	uint32_t                         n_left;
	uint64_t                         timeout_ns;    /* of silent processes */
	char                             node_name[64];         /* for traces */
	uint32_t                         means;         /* enum cei_means: of the exchange */

	int                              has_left;

	pthread_mutex_t                  lock;          /* guards what follows */
	pthread_cond_t                   changed;       /* an answer has come, or a process has
							 * gone */
	int                              has_lock;
	struct cei_network_clock         clock;
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

/* --- network_clock.c, with the lock held ------------------------------------------------- */

void cei_network_heard_clock(struct cei_network *network, uint32_t process,
			     const struct cei_far_clock *message);

/* The process is lost or has departed. */
void cei_network_clock_gone(struct cei_network *network, uint32_t process);

/* At the close of the reference: waits, 2 seconds at most, for processes that have asked for the
 * time and have not said that they will not ask again. Without the lock. */
void cei_network_clock_leave(struct cei_network *network);

#endif /* CEI_NETWORK_PRIVATE_H */
