/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LANE_H
#define CEI_LANE_H

/*
 * Lanes: queues that move bytes from, to or within the memory that a place reaches (place.h). The
 * engine's data path calls them through struct cei_lane_ops.
 */

#include "backend/place.h"

struct cei_lane {
	const struct cei_lane_ops *ops; /* backend->ops->lanes */
	struct cei_backend *backend;
	enum cei_direction  direction;  /* of its copies. Only a lane of direction ANY waits for
					 * marks, and it carries all directions; a lane of
					 * PEER carries LOCAL and HOST, too */
	uint32_t            peer;       /* the only other rank whose memory its pieces name; or
					 * CEOV_NOBODY: any that the mover reaches */
	uint32_t            index;      /* in its engine, for messages */
	uint64_t            n_submitted;/* kept by the lane's caller */
	void               *private;    /* the backend's state, ops->lane_bytes */
};

/* A lane takes at most this many waits, pieces and posts together between two
 * submits, and at most CEI_LANE_SUBMITS submits that are not reaped. */
#define CEI_LANE_BATCH   64u
#define CEI_LANE_SUBMITS 64u

/* What a lane does. Called by the thread that drives the lane, an engine's, unless a function says
 * otherwise. None blocks or allocates but open, close and drain. The end of submits is always
 * polled, by reap, and an engine does not sleep before it has seen it. */
struct cei_lane_ops {
	uint32_t lane_bytes;            /* private state of a lane, zeroed before open */

	/* At set-up. close accepts what a failed open left behind; the lane is idle: see stop and
	 * is_idle. */
	int      (*open)(struct cei_lane *lane);
	void     (*close)(struct cei_lane *lane);

	/* Data path. wait, follow, copy and post append operations to the lane: each begins
	 * when the earlier ones are done and their writes visible. The pieces of one copy call
	 * have no order among them, nor have the posts of one call. CEOV_FULL: there is no room
	 * for all of them, and nothing was appended. submit starts all that was appended since
	 * the last submit. reap gives the number of submits that are done since the lane was
	 * opened, and returns the error of a lane that broke: after a failure the lane copies
	 * and posts nothing. wait is NULL without CEI_CAP_LANE_WAIT, follow without
	 * CEI_CAP_STREAMS. */
	int      (*wait)(struct cei_lane *lane, const struct cei_await *await);
	int      (*follow)(struct cei_lane *lane, void *event);
	int      (*copy)(struct cei_lane *lane, const struct cei_piece *pieces,
			 uint32_t n_pieces);
	int      (*post)(struct cei_lane *lane, const struct cei_post *posts,
			 uint32_t n_posts);
	int      (*submit)(struct cei_lane *lane);
	int      (*reap)(struct cei_lane *lane, uint64_t *ret_n_done);

	/* NULL: a device alone executes the lane's operations. Else a thread does, asleep while the
	 * lane is empty; with the site's progress_by_caller there is none, and turn does its work,
	 * without blocking. CEOV_PENDING: it did something. An engine calls it while submits
	 * are not reaped, and when it has given up a lane that is not idle. */
	int      (*turn)(struct cei_lane *lane);

	/* Waits until all submitted operations are done, so that the lane touches no memory any
	 * more. Before, the caller releases the lane's waits by poisoning their counters.
	 * CEOV_ERR_TIMEOUT: this was not so at deadline_ns (a point in time). */
	int      (*drain)(struct cei_lane *lane, uint64_t deadline_ns);

	/* Both from any thread, without blocking, on a lane to which nothing is appended any
	 * more. stop asks the lane to begin no further operation; a lane that cannot prevent
	 * it may still do so. is_idle: all operations that have begun have ended, and none
	 * will begin. Until then their memory, the lane and its backend must stay. */
	void     (*stop)(struct cei_lane *lane);
	int      (*is_idle)(struct cei_lane *lane);

	/* Makes a lane that broke and was stopped usable again, if it has executed nothing yet;
	 * reap then counts all lane->n_submitted submits so far as done, though what they moved is
	 * lost. The engine's thread, without blocking. Errors, not raised: it stays broken. NULL:
	 * lanes that break stay broken. */
	int      (*mend)(struct cei_lane *lane);

	/* Says in words how the rank at the lane's other end does, for which submits that are not
	 * reaped wait: "is slow: ...". The engine's thread. NULL: no rank has to do anything for
	 * the lane's copies. */
	void     (*describe_peer)(struct cei_lane *lane, char *ret_text, uint32_t n_bytes);
};

/* Zeroes the lane, gives it its private state, and opens it. On failure the lane is
 * zeroed again. peer: see struct cei_lane. */
int  cei_lane_open(struct cei_lane *lane, struct cei_backend *backend,
		   enum cei_direction direction, uint32_t peer, uint32_t index);

/* Stops the lane and waits until it is idle, bounded. CEOV_ERR_TIMEOUT, not raised: it
 * was not at deadline_ns, a point in time. Accepts a zeroed lane. */
int  cei_lane_stop(struct cei_lane *lane, uint64_t deadline_ns);

/* Gives the lane a bounded time to finish its operations, stops it and closes it. A lane that
 * cannot be stopped stays as it is, with its memory, and an error is logged. Accepts a zeroed
 * lane. */
void cei_lane_close(struct cei_lane *lane);

#endif /* CEI_LANE_H */
