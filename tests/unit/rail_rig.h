/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RAIL_RIG_H
#define CEI_RAIL_RIG_H

/*
 * Rails of several processes within one, joined by a simulated network (loop_transport.h) in
 * virtual time. Each process has a source, a region of bytes and one of counters, and notes
 * what its rail tells it.
 *
 * While time passes, the rig asserts after every turn that no counter stands for bytes that are
 * not there: block b of a region is full of its sender's pattern once counter b is not 0; and that
 * nothing changes in regions of a process after it was told that another one is lost.
 */

#include "net/rail.h"
#include "testing.h"
#include "unit/device_copier.h"
#include "unit/loop_transport.h"

#define RAILS_MAX       3u
#define RAILS_BLOCKS      64u
#define RAILS_BLOCK_BYTES 4096u
#define RAILS_BYTES       (RAILS_BLOCKS * RAILS_BLOCK_BYTES)
#define RAILS_TIMEOUT_NS  (1000 * TESTING_MS)
#define RAILS_BYTES_REGION 7u
#define RAILS_WORDS_REGION 8u
#define RAILS_FAR_REGION   9u     /* counters that are not in host memory */
#define RAILS_FIRSTS       128u
#define RAILS_GROUP        UINT64_C(0x1122334455667788)

struct rails_process {
	struct cei_report      report;
	struct cei_rail       *rail;
	int                    is_stopped;      /* its rail makes no progress */
	uint8_t               *source;          /* RAILS_BYTES of a pattern of this process */
	uint8_t               *target;          /* RAILS_BYTES */
	uint8_t               *kept;            /* the target when a process was lost */
	_Atomic uint64_t      *words;           /* RAILS_BLOCKS counters */
	struct cei_far_memory *memory;
	struct cei_far_lane   *lanes[RAILS_MAX];        /* to the others; NULL: none yet */
	int                    is_seen[RAILS_BLOCKS];     /* the block was found complete */
	uint64_t               far_raised;      /* the last value that `raised` told */
	uint32_t               n_losing[RAILS_MAX];
	uint32_t               n_lost[RAILS_MAX];
	uint32_t               n_uncertain;
	uint64_t               lost_ns[RAILS_MAX];
	char                   why[CEI_RAIL_WHY_BYTES]; /* the last one was lost */
	uint32_t               n_departed[RAILS_MAX];
	uint32_t               n_refusals;      /* of the losing ones */
	uint32_t               n_heard;
	uint8_t                firsts[RAILS_FIRSTS];    /* the first bytes of notes, in turn */
	uint8_t                note[CEI_FAR_NOTE_MAX];
	uint32_t               n_note;
};

struct rails {
	struct loop_net        net;
	struct cei_rail_config config;          /* for rails that are opened; this and the next
						 * four are for one open and close */
	int                    has_device_sources;      /* on the double of a GPU */
	int                    has_device_targets;
	int                    is_direct;       /* the network accesses the "GPU" itself */
	struct device_copier   copier;
	uint32_t               n;
	uint32_t               n_processes;     /* of the group */
	uint64_t               n_steps;
	uint32_t               wanted;          /* blocks that process 1 is to get; a test's own */
	int                    expects_late;    /* the net breaks its contract */
	int                    saw_late;        /* bytes changed after `lost` */
	struct rails_process     processes[RAILS_MAX];
};

extern struct rails rails;

/* Opens n rails, from the seed. The second one opens the first n rails of a larger group. */
void rails_open(uint32_t n, uint64_t seed);
void rails_open_some(uint32_t n, uint32_t n_processes, uint64_t seed);

/* Ends all connections, in order if it can. Closes everything. */
void rails_leave(void);
void rails_close(void);

/* Time passes by one event at most. */
void rails_step(void);

/* Steps until the condition holds; returns whether it did before so much time has passed. */
int  rails_until(int (*holds)(void), uint64_t within_ns);
void rails_pass(uint64_t ns);

struct cei_far_lane *rails_lane(uint32_t from, uint32_t to);

/* The connection is given up at once, without a refusal. */
void rails_give_up(uint32_t at, uint32_t of);

/* Queues blocks with their marks, from one process to another: block b, and then counter b as 1.
 * Asserts that there was room. */
void rails_send(uint32_t from, uint32_t to, uint32_t first, uint32_t n_blocks);

/* Submits of the lane that are done; asserts that it has not broken. */
uint64_t rails_done(uint32_t from, uint32_t to);
int  rails_error(uint32_t from, uint32_t to);

/* Blocks that have come, by their counters. */
uint32_t rails_arrived(uint32_t at);

/* Both are conditions for rails_until(): process 1 has got the wanted blocks, and process 0 knows
 * it; and what process 0 has queued for process 1 has ended, well or not. */
int  rails_all_arrived(void);
int  rails_has_ended(void);

struct cei_rail_status rails_status(uint32_t at, uint32_t of);

#endif /* CEI_RAIL_RIG_H */
