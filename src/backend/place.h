/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLACE_H
#define CEI_PLACE_H

/*
 * Stage 3 of 4: backend - moves bytes.
 *
 *   in:   chunks that the scheduler picked for a lane
 *   out:  the lane's count of finished submits, read by completion
 *
 * A backend serves one member of this process. It knows no plan and no topology: its callers
 * pass addresses that it returned itself (memory_open), or that are mapped for that member
 * (ipc/share.h). It never calls back into the engine.
 *
 * Two tables say what it does: struct cei_place_ops here, and struct cei_lane_ops (lane.h) for its
 * lanes, which are the data path. Lanes know their place; what a place does knows no lane.
 */

#include <stdint.h>

#include "base/site.h"
#include "topology/link.h"

/*
 * A mover deals with three things:
 *
 *   memory      that it moves from and to. An address in a piece or a post is the mover's
 *               own: for most movers a pointer; for memory that is not mapped in this
 *               process, a number that the mover chose. Adding n to it always means n bytes
 *               further, and 0 is no address.
 *   interface   struct cei_backend and its lanes: queues, and the thread or device that
 *               makes them progress.
 *   endpoint    the ranks that a lane reaches. Most movers reach the memory of all ranks by
 *               loads and stores, and have one lane for each direction; with
 *               CEI_CAP_PEER_LANES a lane is for one other rank.
 */

struct cei_piece {                      /* 2-D; one row: pitches are unused */
	uint64_t source;                /* source and target: the mover's addresses */
	uint64_t target;
	uint64_t row_bytes;             /* 0 only with n_rows 0 */
	uint64_t n_rows;
	uint64_t source_pitch_bytes;
	uint64_t target_pitch_bytes;
};

struct cei_post {                       /* raises a counter to value */
	uint64_t counter;               /* the mover's address of the 64-bit counter */
	uint64_t word;                  /* the mover's address of the counter's copy in host
					 * memory; 0: it has none */
	uint64_t value;
};

/* The bit of an abort word that says that the words of all signals of that abort are set: what is
 * let through then finds them. */
#define CEI_ABORT_OPENS (UINT32_C(1) << 31)

struct cei_await {                      /* holds a lane or stream until counter >= value */
	uint64_t        counter;        /* address as it is mapped for the member */
	uint64_t        value;
	const uint32_t *abort_word;     /* host address; a worker thread stops waiting when
					 * CEI_ABORT_OPENS is set there, which no late raise
					 * covers, as it covers a counter's poison. Streams look
					 * at the counter alone */
};

/* Work for a caller's stream: all waits, then all copies, then all posts. Within each of
 * these three groups there is no order. */
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

/* Abilities of a mover. Callers test these, and not which mover it is. The engine needs those
 * of CEI_CAPS_NEEDED; a mover without them is not opened. */
enum cei_cap {
	CEI_CAP_LANE_WAIT = 1u << 0,    /* a lane can wait for a counter itself */
	CEI_CAP_STREAMS   = 1u << 1,    /* stream_queue, events and follow are there */
	CEI_CAP_DEVICE    = 1u << 2,    /* it drives the engines of a real device: its members'
					 * places are in the machine's topology. The members
					 * of a mover without it represent GPUs only if the
					 * topology is read from a file */
	CEI_CAP_ORDERED   = 1u << 3,    /* a reader that sees a post also sees the bytes copied
					 * before it, also in a peer's memory */
	CEI_CAP_DELIVERED = 1u << 4,    /* the copies of submits that reap() counts have
					 * arrived, also in a peer's memory, and their sources
					 * may be overwritten */
	CEI_CAP_CAPTURE   = 1u << 5,    /* stream_queue takes work with value_at */
	CEI_CAP_LEAVES_MACHINE = 1u << 7,       /* it copies to other machines, so the topology
						 * of this one has no link for its copies */
	CEI_CAP_PEER_LANES = 1u << 6,   /* a lane moves to and from one other rank only, the
					 * one that it is opened for (lane->peer). A member's
					 * first mover must not have this */
};

#define CEI_CAPS_NEEDED ((uint32_t)(CEI_CAP_ORDERED | CEI_CAP_DELIVERED))

/* The kinds of memory, as source and target, between which a mover can copy. */
enum cei_moves {
	CEI_MOVES_WITHIN_HOST = 1u << 0,
	CEI_MOVES_HOST_TO_GPU = 1u << 1,
	CEI_MOVES_GPU_TO_HOST = 1u << 2,
	CEI_MOVES_AMONG_GPUS  = 1u << 3,
};

struct cei_backend {
	const struct cei_place_ops *ops;
	struct cei_site              *site;
	uint32_t                      member;   /* index in the site */
	struct ceov_place             place;    /* whose engines move: the member's, or for
						 * paths of two legs another GPU */
	void                         *private;  /* the backend's state, ops->backend_bytes */
};

/* Memory that a mover is asked to reach. */
struct cei_memory {
	const struct cei_region *region;        /* ipc/share.h; names the memory */
	uint32_t                 rank;          /* the rank that owns it */
	uint64_t                 address;       /* where it is mapped for the member; 0: it is not
						 * mapped for this member */
	uint64_t                 size_bytes;
	uint64_t                 host;          /* host memory: where this process has it; 0: it
						 * has not */
	uint64_t                 device;        /* device address of memory on the member's own
						 * GPU that this process allocated or was given;
						 * other memory: 0 */
	uint32_t                 far_id;        /* memory of another node: its number there; 0:
						 * it is of this node */
	int                      is_floating;   /* 1: it stands for memory at the member's place,
						 * whose address each launch names; a piece's
						 * address is then that one added to what
						 * memory_open gives. host and device are 0 */
};

#define CEI_LOST_BYTES 64u              /* of the text of lost(), with its NUL */

/* What a mover is, what memory it reaches, and what its place offers. */
struct cei_lane_ops;                    /* lane.h */
struct cei_place_ops {
	const char          *name;
	uint32_t             serves;        /* bit i: it serves members at places of
					     * enum ceov_place_kind i */
	uint32_t             moves;         /* enum cei_moves */
	uint32_t             caps;          /* enum cei_cap; an open backend may lack
					     * some of them: see live_caps */
	uint32_t             backend_bytes; /* private state, zeroed before open */
	const struct cei_lane_ops *lanes;   /* what its lanes do */

	/* Opening and closing. open returns CEOV_NONE, not raised, if this machine lacks
	 * what the backend needs; engines then do without it. close accepts what a failed open
	 * left behind; all lanes are closed. */
	int      (*open)(struct cei_backend *backend);
	void     (*close)(struct cei_backend *backend);

	/* What an open backend can do of its caps. NULL: all of it. */
	uint32_t (*live_caps)(struct cei_backend *backend);

	/* Whether the backend's place is lost to this process until it ends: each call for it fails
	 * from now on, as on a GPU whose context its driver has given up. 0: it is not. Else the
	 * error; ret_text says which place, and what its driver said. Asks the driver, which also
	 * knows of a loss by somebody else's work, and may let the call wait for what other threads
	 * of the process ask of it. Any thread. NULL: places are never lost. */
	int      (*lost)(struct cei_backend *backend, char ret_text[CEI_LOST_BYTES]);

	/* Memory that lanes move from and to; at set-up, any thread. If all three are NULL, the
	 * mover reaches the memory that is mapped for the member, by its mapped address. A
	 * mover with addresses of its own accepts mapped ones, too, for staging slots, and for
	 * memory that a launch names if it says that it does not reach floating memory.
	 * memory_reaches only tells whether the mover reaches the
	 * memory. memory_open registers memory that is reached, and memory_close ends that;
	 * each plan opens its memory for itself, even if another plan has opened it. */
	int      (*memory_reaches)(struct cei_backend *backend,
				   const struct cei_memory *memory);
	int      (*memory_open)(struct cei_backend *backend, const struct cei_memory *memory,
				uint64_t *ret_address);
	void     (*memory_close)(struct cei_backend *backend, uint64_t address);

	/* What follows is of places alone. A mover with CEI_CAP_PEER_LANES has lanes and memory,
	 * and none of it: it is never a member's first mover, which is the one that is asked. */

	/* How many more lanes and streams of this place may be left waiting for marks: with
	 * more of them a GPU may not start kernels any more (backend/waits.h). A hint for
	 * callers that can poll instead; nothing is refused. NULL: there is no bound. Any thread,
	 * no driver call. */
	uint32_t (*waits_left)(struct cei_backend *backend);

	/* Prepares copies to a peer, so that the first use is not slower: moves bytes there
	 * and back as lanes will, tests that a raised counter arrives there, and chooses how
	 * counters are raised. address is 64 bytes of scratch memory of the peer, mapped for
	 * this member and used by nobody else until the call returns; its contents are
	 * undefined afterwards. Any thread, at set-up; every wait in it ends after 5 s. NULL:
	 * the first use is not slower. */
	int      (*warm)(struct cei_backend *backend, uint64_t address);

	/* Allocates and frees staging memory for lanes, at set-up: pinned host memory that the
	 * engines of all GPUs reach, or memory of the backend's place. Any thread. close accepts
	 * address 0. */
	int      (*staging_open)(struct cei_backend *backend, enum ceov_place_kind kind,
				 uint64_t n_bytes, uint64_t *ret_address);
	void     (*staging_close)(struct cei_backend *backend, enum ceov_place_kind kind,
				  uint64_t address);

	/* Opens the memory of another place of this process to the backend's lanes.
	 * CEOV_ERR_NO_ROUTE, not raised: there is no direct path. At set-up. NULL: lanes reach
	 * all memory of the process. */
	int      (*reach)(struct cei_backend *backend, struct ceov_place place);

	/* Small, synchronous accesses from any thread: they wait neither for lanes nor for
	 * streams. store writes 8-byte words in order of rising address if there is at most
	 * 1 KiB of them, and more in any order. With a GPU's member, address is in GPU
	 * memory. */
	int      (*store)(struct cei_backend *backend, uint64_t address,
			  const void *bytes, uint64_t n_bytes);
	int      (*load)(struct cei_backend *backend, uint64_t address,
			 void *ret_bytes, uint64_t n_bytes);

	/* Makes the calling thread, until it ends, one in which libraries that access the memory
	 * of the place themselves find what they need: on a GPU, its primary context is the
	 * current one. NULL: nothing is needed. */
	int      (*bind)(struct cei_backend *backend);

	/* Makes bytes that a network interface has written to the memory of the place visible to
	 * copies and kernels that begin afterwards. The thread is bound. NULL: they always are. */
	int      (*landed)(struct cei_backend *backend);

	/* Queues work on a caller's stream. Any thread. NULL, as the functions of events, without
	 * CEI_CAP_STREAMS. Empty work only tests whether the stream can be used. A stream that
	 * is being captured always takes waits and posts; it takes copies and empty work only
	 * if the work has value_at. */
	int      (*stream_queue)(struct cei_backend *backend, void *stream,
				 const struct cei_stream_work *work);

	/* Events mark a point of a caller's stream, behind which lanes can continue (follow).
	 * Any thread. event_record refuses a stream that is being captured. */
	int      (*event_open)(struct cei_backend *backend, void **ret_event);
	void     (*event_close)(struct cei_backend *backend, void *event);
	int      (*event_record)(struct cei_backend *backend, void *event, void *stream);
};

/* Return what live_caps and waits_left say; where there are none, all abilities of the table, and
 * UINT32_MAX. */
static inline uint32_t cei_backend_caps(struct cei_backend *backend)
{
	return backend->ops->live_caps ? backend->ops->live_caps(backend) : backend->ops->caps;
}

static inline uint32_t cei_backend_waits_left(struct cei_backend *backend)
{
	return backend->ops->waits_left ? backend->ops->waits_left(backend) : UINT32_MAX;
}

/* Fills the backend, allocates its private state and opens it. close accepts a zeroed
 * backend. */
int  cei_backend_open(struct cei_backend *backend, const struct cei_place_ops *ops,
		      struct cei_site *site, uint32_t member, struct ceov_place place);
void cei_backend_close(struct cei_backend *backend);

/* Returns whether the backend reaches the memory: by memory_reaches, or, if that is NULL,
 * whether the memory is mapped for its member. */
int  cei_backend_reaches(struct cei_backend *backend, const struct cei_memory *memory);

/* registry.c: the movers of this build, the preferred ones first; NULL ends the table. An
 * engine opens the movers of its site's table, which is this one except in some tests. */
extern const struct cei_place_ops *const cei_backends[];

/* Returns the mover of that name in this build; NULL: there is none. */
const struct cei_place_ops *cei_backend_named(const char *name);

/* Returns whether the mover serves members at places of that kind. */
int cei_backend_serves(const struct cei_place_ops *ops, enum ceov_place_kind kind);

/* Returns the bit of enum cei_moves for copies between these kinds of memory. */
enum cei_moves cei_moves_between(enum ceov_place_kind source, enum ceov_place_kind target);

#endif /* CEI_PLACE_H */
