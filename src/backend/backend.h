/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BACKEND_H
#define CEI_BACKEND_H

/*
 * Stage 3 of 4: backend - moves bytes.
 *
 *   in:   chunks that the scheduler picked for a lane
 *   out:  the lane's done counter, read by completion
 *
 * A backend serves one member of this process. It knows no plan and no topology: it is
 * handed addresses that it gave out itself, or that are mapped for that member
 * (ipc/share.h).
 * It never calls back into the engine. Lane calls come from the engine's thread;
 * the verbs of the data path neither block nor allocate.
 */

#include <stdint.h>

#include "base/site.h"
#include "topology/link.h"

/*
 * The three things that a mover has to do with:
 *
 *   memory      what can be moved from and to, and how the mover addresses it. An address
 *               in a piece or a post is the mover's own: for most a pointer; for memory that
 *               is not mapped here a number of the mover's choice. Whatever it is, n more is
 *               n bytes further, and 0 is no address.
 *   interface   struct cei_backend and its lanes: queues, and who makes them progress.
 *   endpoint    whom a lane moves to. Most movers reach all by loads and stores, so that
 *               their lanes go by direction; with CEI_CAP_PEER_LANES each goes to one rank.
 */

struct cei_piece {                      /* 2-D; one row: pitches are unused */
	uint64_t source;                /* addresses of the mover's */
	uint64_t target;
	uint64_t row_bytes;             /* 0 only with n_rows 0 */
	uint64_t n_rows;
	uint64_t source_pitch_bytes;
	uint64_t target_pitch_bytes;
};

struct cei_post {                       /* raise a counter ... */
	uint64_t counter;               /* address, of the mover's, of the 64-bit counter, */
	uint64_t word;                  /* and of its host word; 0: it has none */
	uint64_t value;
};

struct cei_await {                      /* hold the lane until counter >= value */
	uint64_t        counter;        /* address as it is mapped for the member */
	uint64_t        value;
	const uint32_t *abort_word;     /* host address; non-zero: leave at once. Streams go
					 * by the counter alone */
};

/* What a stream is to do: all waits, then all copies, then all posts. Within each of the
 * three there is no order. */
struct cei_stream_work {
	const struct cei_await *awaits;
	const struct cei_piece *pieces;
	const struct cei_post  *posts;
	uint32_t                n_awaits;
	uint32_t                n_pieces;       /* at most CEI_LANE_BATCH */
	uint32_t                n_posts;
	uint64_t                value_at;       /* not 0, with CEI_CAP_CAPTURE: the work may become
						 * part of a graph. Posts copy their values from
						 * this address, a 64-bit word in memory of the
						 * place, when the stream comes to them; waits
						 * look at no abort word and are not among those
						 * that waits_left counts */
};

/* What a mover can do, which callers ask in place of what it is or where it moves. The
 * engine needs those of CEI_CAPS_NEEDED; a mover without them is not opened. */
enum cei_cap {
	CEI_CAP_LANE_WAIT = 1u << 0,    /* a lane can wait for a counter itself */
	CEI_CAP_STREAMS   = 1u << 1,    /* stream_queue works */
	CEI_CAP_DEVICE    = 1u << 2,    /* it drives a device's own engines: its members are
					 * where the device is in the machine. Without: others
					 * can stand in for a place of a machine's file */
	CEI_CAP_ORDERED   = 1u << 3,    /* who sees a post sees the bytes before it, also in a
					 * peer's memory: marks need no other care */
	CEI_CAP_DELIVERED = 1u << 4,    /* what reap() counts has arrived, also in a peer's
					 * memory, and its source may be written again */
	CEI_CAP_CAPTURE   = 1u << 5,    /* stream_queue takes work with value_at */
	CEI_CAP_PEER_LANES = 1u << 6,   /* a lane moves to and from one other rank only, the
					 * one that it is opened for (lane->peer). Not of a
					 * member's first mover */
};

#define CEI_CAPS_NEEDED ((uint32_t)(CEI_CAP_ORDERED | CEI_CAP_DELIVERED))

/* From which memory to which a mover moves. */
enum cei_moves {
	CEI_MOVES_WITHIN_HOST = 1u << 0,
	CEI_MOVES_HOST_TO_GPU = 1u << 1,
	CEI_MOVES_GPU_TO_HOST = 1u << 2,
	CEI_MOVES_AMONG_GPUS  = 1u << 3,
};

/* Who moves what a lane was handed. Ends are always polled, by reap(), and an engine does
 * not sleep before it has seen them. */
enum cei_progress {
	CEI_PROGRESS_THREAD,            /* a thread per lane, asleep while the lane is empty;
					 * with the site's progress_by_caller, turn() */
	CEI_PROGRESS_DEVICE,            /* the device alone: turn() is not called */
};

struct cei_backend {
	const struct cei_backend_ops *ops;
	struct cei_site              *site;
	uint32_t                      member;   /* index in the site */
	struct ceov_place             place;    /* whose engines move: the member's, or for
						 * ways of two legs another GPU */
	void                         *private;  /* the backend's, ops->backend_bytes */
};

/* Memory, as movers are asked about it. */
struct cei_memory {
	const struct cei_region *region;        /* ipc/share.h; names the memory */
	uint32_t                 rank;          /* whose it is */
	uint64_t                 address;       /* where it is mapped for the member; 0: it is not,
						 * or for other members only */
	uint64_t                 size_bytes;
};

struct cei_lane {
	struct cei_backend *backend;
	enum cei_direction  direction;  /* what it carries; ANY: behind waits. Others never
					 * wait, and PEER carries LOCAL and HOST, too */
	uint32_t            peer;       /* the only other rank whose memory its pieces name; or
					 * CEOV_NOBODY: any that the mover reaches */
	uint32_t            index;      /* in its engine, for messages */
	uint64_t            n_submitted;/* kept by the lane's caller, see lane.h */
	void               *private;    /* the backend's, ops->lane_bytes */
};

/* A lane takes at most this many waits, pieces and posts together between two
 * submits, and at most CEI_LANE_SUBMITS submits that are not reaped. */
#define CEI_LANE_BATCH   64u
#define CEI_LANE_SUBMITS 64u

struct cei_backend_ops {
	const char          *name;
	uint32_t             serves;        /* members at such places: bit i: of the
					     * enum ceov_place_kind i */
	uint32_t             moves;         /* enum cei_moves */
	uint32_t             caps;          /* enum cei_cap; what an open backend can
					     * do may be less: see live_caps */
	enum cei_progress    progress;
	uint32_t             backend_bytes; /* private state, zeroed before open */
	uint32_t             lane_bytes;    /* likewise, before lane_open */

	/* Life. open: CEOV_NONE, not raised: what it needs is not on this machine, and engines
	 * go without it. close and lane_close accept what open left half done. A lane is closed
	 * when it is idle: see stop and is_idle. */
	int      (*open)(struct cei_backend *backend);
	void     (*close)(struct cei_backend *backend);
	uint32_t (*live_caps)(struct cei_backend *backend);

	/* How many more lanes and streams of this place should be left waiting for marks:
	 * beyond that a GPU may start no kernel any more (backend/waits.h). A hint for who
	 * can poll instead; nothing is refused. UINT32_MAX: there is no bound. Any thread,
	 * no driver call. */
	uint32_t (*waits_left)(struct cei_backend *backend);

	/* Memory that lanes move from and to, at set-up, any thread. All three NULL: it is what
	 * is mapped for the member, by the address that it has there. A mover with addresses
	 * of its own takes mapped ones, too, for what a launch names and for staging slots.
	 * memory_reaches registers nothing. What memory_open registers, of memory that is
	 * reached, stays until memory_close; plans open the same memory each for itself. */
	int      (*memory_reaches)(struct cei_backend *backend,
				   const struct cei_memory *memory);
	int      (*memory_open)(struct cei_backend *backend, const struct cei_memory *memory,
				uint64_t *ret_address);
	void     (*memory_close)(struct cei_backend *backend, uint64_t address);

	/* address is 64 bytes of scratch memory of a peer, mapped for this member
	 * and, until the call returns, used by nobody else. Moves bytes there and
	 * back as lanes will, and tests that a raised counter arrives there (and
	 * chooses how to raise), so that first use costs nothing later. The scratch
	 * ends up with any contents. Any thread, at set-up; every wait in it ends
	 * after 5 s. */
	int      (*warm)(struct cei_backend *backend, uint64_t address);

	int      (*lane_open)(struct cei_lane *lane);
	void     (*lane_close)(struct cei_lane *lane);

	/* Staging memory for lanes, at set-up: pinned host memory that the engines of all
	 * GPUs reach, or memory of the backend's place. Any thread. NULL-safe close. */
	int      (*staging_open)(struct cei_backend *backend, enum ceov_place_kind kind,
				 uint64_t n_bytes, uint64_t *ret_address);
	void     (*staging_close)(struct cei_backend *backend, enum ceov_place_kind kind,
				  uint64_t address);

	/* Opens the memory of another place of this process to the backend's lanes.
	 * CEOV_ERR_NO_ROUTE, not raised: there is no direct way. At set-up. */
	int      (*reach)(struct cei_backend *backend, struct ceov_place place);

	/* Small accesses from application threads, any thread, synchronous: they
	 * neither wait for lanes nor for streams. store writes up to 1 KiB of
	 * 8-byte words in order of rising address, more in any order. A GPU's
	 * member is handed GPU memory only. */
	int      (*store)(struct cei_backend *backend, uint64_t address,
			  const void *bytes, uint64_t n_bytes);
	int      (*load)(struct cei_backend *backend, uint64_t address,
			 void *ret_bytes, uint64_t n_bytes);

	/* Queues work on a caller's stream. Any thread. CEOV_ERR_INVALID without
	 * CEI_CAP_STREAMS. Empty work only tests whether the stream can be used. A stream that
	 * is being captured always takes waits and posts; it takes copies and empty work only
	 * if the work has value_at. */
	int      (*stream_queue)(struct cei_backend *backend, void *stream,
				 const struct cei_stream_work *work);

	/* A point of a caller's stream, for lanes to follow. Any thread; record as
	 * the stream calls above. */
	int      (*event_open)(struct cei_backend *backend, void **ret_event);
	void     (*event_close)(struct cei_backend *backend, void *event);
	int      (*event_record)(struct cei_backend *backend, void *event, void *stream);

	/* Data path: each verb appends to the lane, in order: later ones begin
	 * when earlier ones are done and visible. Within one copy call and within
	 * one post call there is no order. CEOV_FULL: no room for all of them, and
	 * nothing was appended. submit makes what was appended since the last one
	 * go; reap returns how many submits are done, ever, and the error of a
	 * lane that broke (nothing after the failure is copied or posted). */
	int      (*wait)(struct cei_lane *lane, const struct cei_await *await);
	int      (*follow)(struct cei_lane *lane, void *event);
	int      (*copy)(struct cei_lane *lane, const struct cei_piece *pieces,
			 uint32_t n_pieces);
	int      (*post)(struct cei_lane *lane, const struct cei_post *posts,
			 uint32_t n_posts);
	int      (*submit)(struct cei_lane *lane);
	int      (*reap)(struct cei_lane *lane, uint64_t *ret_n_done);

	/* CEI_PROGRESS_THREAD with progress_by_caller: does what worker threads would do,
	 * without blocking. CEOV_PENDING: it did something. NULL with CEI_PROGRESS_DEVICE. */
	int      (*turn)(struct cei_lane *lane);

	/* Returns when the lane touches no memory of what it held: what was gated
	 * has been opened (the caller poisoned the counters) and ran to its end.
	 * Bounded: CEOV_ERR_TIMEOUT after deadline_ns (a point in time). */
	int      (*drain)(struct cei_lane *lane, uint64_t deadline_ns);

	/* Both from any thread, without blocking, on a lane that takes no more. stop:
	 * the lane begins nothing more of what it was handed, as far as it can help it.
	 * is_idle: it touches no memory of what it was handed: all that it has begun is
	 * at its end, and nothing will begin. Until then that memory, the lane and its
	 * backend stay as they are. */
	void     (*stop)(struct cei_lane *lane);
	int      (*is_idle)(struct cei_lane *lane);
};

/* registry.c: the movers of this build, the preferred ones first; NULL ends the table. An
 * engine opens those of its site's table, which is this one unless a test hands in another. */
extern const struct cei_backend_ops *const cei_backends[];

/* The one of that name in this build; NULL: there is none. */
const struct cei_backend_ops *cei_backend_named(const char *name);

/* Whether it serves members at such a place. */
int cei_backend_serves(const struct cei_backend_ops *ops, enum ceov_place_kind kind);

/* What moves from the one kind of memory to the other, and whether the mover does. */
enum cei_moves cei_moves_between(enum ceov_place_kind source, enum ceov_place_kind target);
int cei_backend_moves(const struct cei_backend_ops *ops, enum ceov_place_kind source,
		      enum ceov_place_kind target);

#endif /* CEI_BACKEND_H */
