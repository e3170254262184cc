/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_AREA_H
#define CEI_SERVICE_AREA_H

/*
 * The memory that a daemon shares with each of its clients: two sealed memory files, which the
 * daemon makes.
 *
 *   DOWN   the client writes it: its launches, in one ring for each of its ranks
 *   UP     the daemon writes it, the client cannot: how far each ring was read, and the result of
 *          each launch
 *
 * Each begins with a word that tells whether who writes the area is alive (alive.h). The daemon
 * trusts nothing in DOWN: it copies an entry once and checks the copy.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/site.h"

#define CEI_SERVICE_ENTRIES 256u        /* of a ring */
#define CEI_SERVICE_TICKETS 4096u       /* launches of a client that may be in flight */
#define CEI_SERVICE_PAGE    4096u

struct cei_service_entry {              /* a launch. All but `turn` are relaxed: turn orders them */
	_Alignas(64) _Atomic uint64_t turn;     /* one more than the entry's index since the begin;
						 * release: pairs with cei_service_take() */
	_Atomic uint64_t plan;          /* slot, and from bit 32 on generation */
	_Atomic uint64_t number;        /* of the launch; the client counts */
	_Atomic uint64_t base;
	_Atomic uint64_t deadline_ns;   /* a duration, since clocks may differ between time
					 * namespaces; 0: the context's */
	_Atomic uint64_t zero[3];       /* for fields to come */
};

struct cei_service_ring {
	struct cei_service_entry entries[CEI_SERVICE_ENTRIES];
};

struct cei_service_down {
	_Atomic uint32_t alive;
	_Alignas(64) _Atomic uint32_t n_waiters;        /* threads that sleep on a word of `done` */
	_Alignas(CEI_SERVICE_PAGE) struct cei_service_ring rings[]; /* one for each rank */
};

struct cei_service_line {               /* about one ring */
	_Alignas(64) _Atomic uint32_t is_asleep; /* 1: who launches has to ring the engine's bell */
	_Atomic uint64_t taken;         /* entries that were taken out so far */
};

struct cei_service_up {
	_Atomic uint32_t alive;
	struct cei_service_line lines[CEI_MEMBERS_MAX];
	/* [number % CEI_SERVICE_TICKETS]: the number of the last launch there that has ended, from
	 * bit 8 on, and its negated result. Its lower half is a futex. */
	_Alignas(64) _Atomic uint64_t done[CEI_SERVICE_TICKETS];
};

/* Size of DOWN for a client with so many ranks. */
static inline size_t cei_service_down_bytes(uint32_t n_rings)
{
	return sizeof(struct cei_service_down) + n_rings * sizeof(struct cei_service_ring);
}

#endif /* CEI_SERVICE_AREA_H */
