/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TALLY_H
#define CEI_TALLY_H

/*
 * What one engine has moved, for displays: by link and class the bytes, how long chunks waited and
 * how long they were on their lanes; how many wait and move now; and the last chunks one by one.
 * An engine whose works have no tally (works.h) pays one branch for each of a chunk's steps.
 *
 * The engine's thread writes, and any thread reads meanwhile. Counters are relaxed atomics without
 * a partner, since each is a number of its own: a reader may find a chunk in one of them and not
 * yet in another. The last chunks, and which link has which place in the table, are under a lock.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ce_engine/sched/flows.h"
#include "ce_engine/sched/launch.h"

/* Links that are told apart. The last place stands for all others. */
#define CEI_TALLY_LINKS 64u

/* Times are counted by powers of two: bucket i has those below 2^i us that bucket i - 1 has not,
 * the last one all that are longer. */
#define CEI_TALLY_BUCKETS 24u

/* Chunks that are remembered one by one. */
#define CEI_TALLY_RECORDS 256u

struct cei_tally_times {
	_Atomic uint64_t n[CEI_TALLY_BUCKETS];
	_Atomic uint64_t sum_ns;
};

struct cei_tally_class {
	_Atomic uint64_t bytes;
	_Atomic uint64_t n_aimed;       /* chunks whose class had an aim when they were done, ... */
	_Atomic uint64_t n_in_time;     /* ... and those among them that were done in time */
	struct cei_tally_times waited;  /* from ready to chosen */
	struct cei_tally_times moved;   /* from chosen to off the lane */
};

struct cei_tally_link {
	const struct cei_machine_link *link;    /* under the lock; NULL: not known */
	_Atomic uint32_t n_waiting;             /* chunks */
	_Atomic uint32_t n_moving;
	struct cei_tally_class classes[CEI_FLOWS_URGENCIES];
};

struct cei_tally_record {               /* a chunk that has left its lane */
	uint64_t done_ns;               /* point in time */
	uint64_t waited_ns;
	uint64_t moved_ns;
	uint64_t bytes;
	uint64_t launch;                /* its number, as the client counts */
	uint64_t chunk;                 /* in the transfer */
	uint32_t transfer;
	uint32_t client;                /* slot: see flows.h */
	uint16_t lane;
	uint16_t link;                  /* place in the table of links */
	uint8_t  urgency;               /* enum ceov_urgency */
	int      error;                 /* of its launch, when it left */
};

struct cei_tally {
	pthread_mutex_t       lock;
	uint32_t              n_links;          /* under the lock */
	struct cei_tally_link links[CEI_TALLY_LINKS];
	_Atomic uint32_t      n_waiting[CEI_FLOWS_SLOTS];       /* chunks, by client */
	_Atomic uint64_t      aim_ns[CEI_FLOWS_URGENCIES];      /* 0: the class has no aim */
	uint64_t              n_records;        /* ever, under the lock */
	struct cei_tally_record records[CEI_TALLY_RECORDS];     /* likewise; the newest */
};

/* NULL: no memory. */
struct cei_tally *cei_tally_create(void);

/* NULL is allowed. */
void cei_tally_destroy(struct cei_tally *tally);

/* From now on, chunks of the class should be done so long after they became ready; 0: no matter.
 * Any thread. */
void cei_tally_aim(struct cei_tally *tally, uint32_t urgency, uint64_t aim_ns);

/* --- the engine's thread -------------------------------------------------------- */

/* A chunk whose job is filled begins to wait; is chosen; leaves, whatever its state is. */
void cei_tally_wait(struct cei_tally *tally, struct cei_chunk *chunk);
void cei_tally_go(struct cei_tally *tally, struct cei_chunk *chunk, uint64_t now_ns);
void cei_tally_leave(struct cei_tally *tally, const struct cei_chunk *chunk, uint64_t now_ns);

/* --- readers, any thread --------------------------------------------------------- */

struct cei_tally_times_view {
	uint64_t n[CEI_TALLY_BUCKETS];
	uint64_t n_all;
	uint64_t sum_ns;
};

struct cei_tally_class_view {
	uint64_t bytes;
	uint64_t n_aimed;
	uint64_t n_in_time;
	struct cei_tally_times_view waited;
	struct cei_tally_times_view moved;      /* its n_all is the number of chunks */
};

struct cei_tally_link_view {
	const struct cei_machine_link *link;    /* NULL: not known, or one of many */
	uint32_t n_waiting;
	uint32_t n_moving;
	struct cei_tally_class_view classes[CEI_FLOWS_URGENCIES];
};

/* How many places have links; it only grows. */
uint32_t cei_tally_n_links(struct cei_tally *tally);

/* Adds what the table has at a place to the view's numbers, and leaves its link. Returns 0 if there
 * is nothing. */
int cei_tally_read_link(struct cei_tally *tally, uint32_t at, struct cei_tally_link_view *view);

/* The link at a place. NULL: it is not known, or stands for several. */
const struct cei_machine_link *cei_tally_link(struct cei_tally *tally, uint32_t at);

/* How many chunks of a client wait. */
uint32_t cei_tally_waiting(struct cei_tally *tally, uint32_t client);

/* Copies up to n of the last chunks, the oldest first. Returns how many. */
uint32_t cei_tally_read_last(struct cei_tally *tally, uint32_t n,
			     struct cei_tally_record *ret_records);

#endif /* CEI_TALLY_H */
