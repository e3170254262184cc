/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MEETING_H
#define CEI_MEETING_H

/*
 * Where the group's processes find each other, exchange what they offer, and
 * notice who has gone.
 *
 * The process that holds rank 0 listens on a unix socket (mode 0600, same user
 * only). The others connect and say who they are. When all ranks have come, rank
 * 0 hands every pair of processes a socket pair of their own, unlinks the path and
 * stops listening: afterwards all are equal and nothing is left in the file
 * system. One thread per process serves its links; a link that ends without a
 * farewell is a lost process, which that thread reports at once.
 *
 *   offer     "under this name I have these bytes and these descriptors"
 *   find      asks a rank for an offer
 *   use       the finder holds it; the owner counts its users
 */

#include <stdint.h>

#include "base/site.h"

#define CEI_NAME_BYTES        64u       /* with the final 0 */
#define CEI_OFFER_BYTES_MAX   1024u
#define CEI_OFFER_FDS_MAX     4u

struct cei_meeting;

struct cei_offer {
	uint32_t rank;                          /* who offers */
	char     name[CEI_NAME_BYTES];
	uint32_t n_bytes;
	uint32_t n_fds;
	uint8_t  bytes[CEI_OFFER_BYTES_MAX];
	int      fds[CEI_OFFER_FDS_MAX];
};

struct cei_meeting_config {
	const char *path;
	uint64_t    deadline_ns;                /* point in time, cei_now_ns() */
	/* From the meeting's thread, once per lost or departed process and rank of
	 * it; departed: it closed its context in order. May come before
	 * cei_meeting_open() has returned; never after cei_meeting_close(). */
	void      (*gone)(void *gone_arg, uint32_t rank, int departed);
	void       *gone_arg;
};

/* Blocks until all ranks have come or the deadline passes (TIMEOUT names the
 * missing ranks). Refusals name both sides' values: other version, other number
 * of ranks, a rank that is taken, another user, another group on the path. */
int  cei_meeting_open(struct cei_site *site, const struct cei_meeting_config *config,
		      struct cei_meeting **ret_meeting);

/* Says farewell and joins the thread. */
void cei_meeting_close(struct cei_meeting *meeting);

/* Offers; the descriptors are duplicated. CEOV_ERR_STATE: the name is taken by
 * that rank. *ret_id names the offer to the two calls below. */
int  cei_meeting_offer(struct cei_meeting *meeting, const struct cei_offer *offer,
		       uint64_t *ret_id);

/* Withdraws, so that nobody new finds it. CEOV_PENDING: it still has users in
 * living processes; it is withdrawn all the same. 0 again for one that is gone. */
int  cei_meeting_withdraw(struct cei_meeting *meeting, uint64_t id);

struct cei_question {
	uint32_t    rank;                       /* not of this process */
	const char *name;
	uint64_t    deadline_ns;                /* point in time, cei_now_ns() */
};

/* Asks the process that holds the rank. ret_offer's descriptors become the
 * caller's. CEOV_NONE: not offered yet. PEER_LOST, TIMEOUT. *ret_id is the owner's
 * id, for cei_meeting_drop(). */
int  cei_meeting_find(struct cei_meeting *meeting, const struct cei_question *question,
		      struct cei_offer *ret_offer, uint64_t *ret_id);

/* The finder uses the offer no longer. */
void cei_meeting_drop(struct cei_meeting *meeting, uint32_t rank, uint64_t id);

/* See ceov_barrier(). After a TIMEOUT the next call goes on with the same round. */
int  cei_meeting_barrier(struct cei_meeting *meeting, uint64_t deadline_ns);

#endif /* CEI_MEETING_H */
