/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_LANE_H
#define CEI_FAR_LANE_H

/*
 * A far lane: the queue of copies and posts from one engine to one other process. The engine's
 * thread appends to it and reaps, the rail's thread carries it out; between them is a ring with one
 * writer and one reader.
 *
 * Unlike other lanes a far lane has no order among its copies: only a post comes behind all
 * copies and posts before it. A submit counts as done when the other process has said that
 * everything before it landed and was raised, and the transport reads none of its sources any
 * more. A lane whose connection is lost keeps its error; the layer above opens another one.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "base/ring.h"
#include "net/bell.h"
#include "net/far_stream.h"

/* As in backend/lane.h: what may be appended between two submits, and submits that are not
 * reaped. A lane has less room than both together. An engine has 64 chunks on a lane at most, each
 * with a copy and a post and in a submit of its own at worst, which is what there is room for. */
#define CEI_FAR_BATCH   64u
#define CEI_FAR_SUBMITS 64u
#define CEI_FAR_OPS     256u            /* a power of two */

struct cei_far_copy {                   /* 2-D; of one row: pitches are unused */
	uint64_t source;                /* host address in memory of the rail */
	uint64_t offset;                /* of the first row in the target's region */
	uint64_t row_bytes;
	uint64_t n_rows;
	uint64_t source_pitch_bytes;
	uint64_t target_pitch_bytes;
	uint32_t region;                /* of the target */
};

struct cei_far_post {
	uint64_t value;
	uint32_t region;
	uint32_t index;                 /* of the 64-bit counter in it */
};

enum cei_far_kind { CEI_FAR_COPY, CEI_FAR_POST, CEI_FAR_SUBMIT };

struct cei_far_op {
	enum cei_far_kind kind;
	union {
		struct cei_far_copy copy;
		struct cei_far_post post;
	};
};

struct cei_far_lane {
	/* of the engine's thread */
	struct cei_far_op *ops;         /* a ring of CEI_FAR_OPS */
	uint64_t           appended;
	uint64_t           n_submits;

	/* between both */
	_Atomic uint64_t   submitted;   /* operations that the engine published */
	_Atomic uint64_t   taken;       /* operations that the rail's thread is through with:
					 * sent or skipped; their places are free */
	_Atomic uint64_t   ended;       /* operations after which no memory is read any more and
					 * everything has arrived */
	_Atomic uint64_t   n_done;      /* submits */
	_Atomic int        error;       /* stays */
	_Atomic uint32_t   has_ended;   /* after an error: the lane touches no memory any more */
	_Atomic uint32_t   must_stop;
	_Atomic uint32_t   is_ready;    /* it is in the ring of lanes that have work */
	struct cei_ring   *ready;       /* of the rail; has room for all lanes */
	struct cei_bell   *bell;
	const struct cei_far_vitals *vitals;    /* of the connection, which outlives the lane;
						 * NULL: nobody tells */

	/* of the rail's thread */
	struct cei_list    link;        /* among the lanes of its peer */
	uint32_t           process;
	uint64_t           row;         /* of the copy that is being sent */
	uint64_t           at;          /* byte in that row */
	uint64_t           last;        /* the last number that the stream gave to this lane */
	uint64_t           behind[CEI_FAR_SUBMITS];     /* ring: the number that each submit
							 * stands behind */
	uint64_t           n_begun;     /* submits that the rail met */
};

/* --- the engine's thread ----------------------------------------------------- */

/* Whether there is room for so many operations. */
int  cei_far_lane_has_room(struct cei_far_lane *lane, uint64_t n);

/* The next three: CEOV_FULL: there is no room for all of it, and nothing was appended. */
int  cei_far_lane_copy(struct cei_far_lane *lane, const struct cei_far_copy *copies,
		       uint32_t n_copies);
int  cei_far_lane_post(struct cei_far_lane *lane, const struct cei_far_post *posts,
		       uint32_t n_posts);
int  cei_far_lane_submit(struct cei_far_lane *lane);

/* The number of submits that are done, and the error of a lane that broke: CEOV_ERR_UNCERTAIN
 * if something of it may or may not have landed, else CEOV_ERR_PEER_LOST. Copies whose shape
 * or source is wrong break a lane with CEOV_ERR_INVALID. */
int  cei_far_lane_reap(struct cei_far_lane *lane, uint64_t *ret_n_done);

/* Any thread: as in backend/lane.h. What was sent cannot be taken back, so a stopped lane is
 * idle when that has landed or its connection has closed. */
void cei_far_lane_stop(struct cei_far_lane *lane);
int  cei_far_lane_is_idle(struct cei_far_lane *lane);

/* --- the rail's thread ------------------------------------------------------- */

/* CEOV_ERR_NO_MEMORY, not raised. */
int  cei_far_lane_init(struct cei_far_lane *lane, uint32_t process, struct cei_ring *ready,
		       struct cei_bell *bell);
void cei_far_lane_fini(struct cei_far_lane *lane);

/* The lane was taken from the ring of those that have work. */
void cei_far_lane_taken(struct cei_far_lane *lane);

/* The next operation that something has to be sent for. Submits before it are counted as begun;
 * everything is skipped if the lane has stopped. NULL: there is none. */
struct cei_far_op *cei_far_lane_next(struct cei_far_lane *lane);

/* Number `number` was sent for the next operation: the whole of it (is_whole), or a part. */
void cei_far_lane_sent(struct cei_far_lane *lane, uint64_t number, int is_whole);

/* Counts submits as done, by the number up to which everything has ended. */
void cei_far_lane_settle(struct cei_far_lane *lane, uint64_t ended);

/* Whether nothing of it is under way or waits: it needs no settling. */
int  cei_far_lane_is_settled(struct cei_far_lane *lane);

/* The lane breaks, and sends nothing more; ended: it touches no memory any more. */
void cei_far_lane_break(struct cei_far_lane *lane, int error);
void cei_far_lane_end(struct cei_far_lane *lane);

#endif /* CEI_FAR_LANE_H */
