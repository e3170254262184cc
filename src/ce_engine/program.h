/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_H
#define CEI_PROGRAM_H

/*
 * What a plan does, as a table of constants: transfers that name ranks, buffers, signals and
 * counters by number. A program points to nothing outside of itself: no context, no engine,
 * no address of a process. So it can be checked, cut into chunks and played by whoever has
 * it, and can be written to bytes and read in another process (program_wire.h).
 *
 * Buffers stand in an address space of the program's own: those that share memory overlap
 * there as they do in the process that compiled the plan, and no others do.
 */

#include <stdint.h>

#include "backend/backend.h"
#include "base/report.h"
#include "topology/route.h"

#define CEI_PROGRAM_NONE UINT32_MAX     /* no buffer, no signal, no route */

/* What one program may hold. */
#define CEI_PROGRAM_TRANSFERS_MAX (UINT32_C(1) << 20)   /* and expected marks */
#define CEI_PROGRAM_CHUNKS_MAX    (UINT32_C(1) << 22)
#define CEI_PROGRAM_MOVERS_MAX    16u

enum cei_program_buffer_flags {
	CEI_PROGRAM_FLOATING = 1,       /* each launch names its address */
	CEI_PROGRAM_MAPPED = 2,         /* somebody in the movers' process can address it */
	CEI_PROGRAM_PRIVATE = 4,        /* GPUs other than the movers' own cannot touch it */
};

enum cei_program_mover_flags {
	CEI_PROGRAM_CAN_WAIT = 1,       /* it has lanes that can wait for a counter */
};

/* What carries out copies: one of the movers that the engine opened for its rank, the first
 * of them before the others. */
struct cei_program_mover {
	uint32_t flags;                 /* enum cei_program_mover_flags */
	uint32_t moves;                 /* enum cei_moves */
	uint32_t gpu;                   /* whose copy engines it drives; CEOV_NOBODY: none's */
	uint32_t place;                 /* in the machine; CEOV_NOBODY: not known */
	uint64_t may_drive;             /* bit i: ways of two legs may use the copy engines of
					 * the machine's GPU i */
};

struct cei_program_buffer {
	uint32_t rank;                  /* whose memory it is */
	uint32_t flags;                 /* enum cei_program_buffer_flags */
	uint32_t reached;               /* bit m: the program's mover m can address it */
	uint32_t kind;                  /* enum ceov_place_kind: of the memory */
	uint32_t gpu;                   /* GPU memory: which; else CEOV_NOBODY */
	uint32_t place;                 /* in the machine; CEOV_NOBODY: not known */
	uint64_t start;                 /* in the program's address space; floating: 0 */
	uint64_t size_bytes;
};

enum cei_program_signal_flags {
	CEI_PROGRAM_SEEN = 1,           /* the movers' engine can look at its counters */
	CEI_PROGRAM_IN_GPU = 2,         /* they are in the memory of its owner's GPU */
};

struct cei_program_signal {
	uint32_t rank;                  /* its owner */
	uint32_t n_counters;
	uint32_t flags;                 /* enum cei_program_signal_flags */
	uint32_t reached;               /* bit m: the program's mover m can raise its counters */
};

struct cei_program_mark {
	uint32_t signal;                /* CEI_PROGRAM_NONE: no mark, all else is 0 */
	uint32_t counter;
	uint64_t value;                 /* relative to the launch's base */
};

struct cei_program_spot {
	uint32_t buffer;                /* CEI_PROGRAM_NONE: moves nothing, all else is 0 */
	uint64_t offset_bytes;
	uint64_t pitch_bytes;           /* of one row: 0 */
};

struct cei_program_transfer {
	struct cei_program_spot source;
	struct cei_program_spot target;
	uint64_t                row_bytes;      /* 0: moves nothing, only raises ... */
	uint64_t                n_rows;         /* ... and this is 0, too */
	struct cei_program_mark source_ready;
	struct cei_program_mark target_free;
	struct cei_program_mark then;

	/* of cei_program_route() */
	uint32_t                mover;          /* its number: of the copies that go directly, and
						 * of the mark */
	uint32_t                has_direct;     /* one copy of the mover can move it */
	uint32_t                direction;      /* enum cei_direction; of one that moves
						 * nothing: its predecessor's */
	uint32_t                route;          /* CEI_PROGRAM_NONE: goes in one copy */

	/* of cei_program_count() */
	uint32_t                first_chunk;
	uint32_t                n_chunks;
};

/* A route that transfers of nearly the same size between the same places share. */
struct cei_program_route {
	uint32_t         from;          /* places */
	uint32_t         to;
	uint64_t         bytes;         /* of the class; the shares are parts of it */
	uint64_t         may_drive;
	uint32_t         no_direct;     /* the direct way cannot be taken */
	struct cei_route route;         /* no ways: there is none, and why */
};

/* One chunk of a transfer. */
struct cei_cut {
	struct cei_piece piece;         /* n_rows 0: moves nothing, only raises */
	uint32_t         step;          /* the transfer */
	uint32_t         way;           /* in a program: of the transfer's route; in a plan:
					 * the engine's (staging.h). UINT32_MAX: direct */
};

struct cei_program {
	uint32_t rank;                          /* whose engine carries it out */
	uint32_t n_ranks;                       /* of the group */
	uint64_t max_chunk_bytes;
	uint64_t mark_group_bytes;              /* marks of copies that add up to more are
						 * raised in several batches */
	uint32_t urgency;                       /* enum ceov_urgency; of polled launches */
	uint32_t has_template;                  /* a template made it: transfers go in the
						 * order in which they stand here, which
						 * keeps receivers apart; and there may be
						 * none */
	uint32_t keeps_order;                   /* they go in that order because a mark speaks
						 * for earlier transfers, too */
	uint32_t rule;                          /* enum cei_route_rule */
	uint32_t floating;                      /* the one floating buffer, or
						 * CEI_PROGRAM_NONE */
	uint32_t n_movers;
	uint32_t n_buffers;
	uint32_t n_signals;
	uint32_t n_transfers;
	uint32_t n_expected;
	uint32_t n_routes;
	uint32_t n_chunks;                      /* of all transfers */
	struct cei_program_mover    *movers;
	struct cei_program_buffer   *buffers;
	struct cei_program_signal   *signals;
	struct cei_program_transfer *transfers;
	struct cei_program_mark     *expected;  /* marks that are raised outside */
	struct cei_program_route    *routes;
};

/* Room for as many entries as the numbers say, zeroed; transfers that are there stay.
 * CEOV_ERR_NO_MEMORY, not raised; then strip or fini. */
int  cei_program_alloc(struct cei_program *program);

/* Frees all lists but the transfers, and all of them. Both accept zeroes. */
void cei_program_strip(struct cei_program *program);
void cei_program_fini(struct cei_program *program);

/* The transfer's bytes as one piece, in the program's address space; of a floating buffer
 * the offset alone. All 0 where it moves nothing. */
struct cei_piece cei_program_piece(const struct cei_program *program, uint32_t transfer);

/* Bytes from the first of a spot to behind its last; 0: more than 64 bits can say. */
uint64_t cei_program_extent(const struct cei_program_transfer *transfer,
			    const struct cei_program_spot *spot);

/* Whether it is a program at all: all numbers in range, what is unused 0, every spot within
 * its buffer. 0 or CEOV_ERR_INVALID, not raised: for what another process sent. */
int  cei_program_verify(const struct cei_program *program);

/* What a commit refuses of each transfer alone: raises CEOV_ERR_INVALID and names it. Finds
 * program->floating. */
int  cei_program_check_spots(struct cei_program *program, struct cei_report *report);

/* How transfers of a program may wait, and go. */
struct cei_triggers {
	int         is_direct;          /* one copy of the first mover can move each */
	int         is_gateable;        /* source_ready marks can be left to a lane ... */
	const char *why_polled;         /* ... or why not */
	int         is_pollable;        /* the engine can see all of them */
	int         keeps_order;        /* chunks go as transfers stand in the program; else
					 * as ports are free (queues.h) */
	uint32_t    waits_ahead;        /* the first transfer that waits for a mark of one
					 * behind it, or CEOV_NOBODY */
	uint64_t    largest_value;      /* of a mark; with a base below the limit */
};

struct cei_order;                       /* ce_engine/program_order.h */

/* Of a program that is routed. Raises what nobody can see or raise, and names the transfer.
 * What needs the order of transfers is not found yet. */
int  cei_program_check_triggers(const struct cei_program *program, struct cei_report *report,
				struct cei_triggers *ret_triggers);

/* The rest, by the order of the same program; raises what can neither be gated nor polled. */
int  cei_triggers_follow(struct cei_triggers *triggers, const struct cei_order *order);

/* Finds mover, has_direct, direction and route of each transfer, and the routes, on the machine,
 * which may be NULL where no place is known; what was found before is forgotten. Raises
 * CEOV_ERR_NO_ROUTE, CEOV_ERR_NO_MEMORY. */
int  cei_program_route(struct cei_program *program, const struct cei_machine *machine,
		       struct cei_report *report);

/* After routes may have lost ways: what has none goes directly, or is refused as above. */
int  cei_program_keep_routes(struct cei_program *program, struct cei_report *report);

/* Finds first_chunk and n_chunks of each transfer. Raises CEOV_ERR_INVALID: too many. */
int  cei_program_count(struct cei_program *program, struct cei_report *report);

/* The transfer's n_chunks chunks, in the program's address space. */
void cei_program_cut(const struct cei_program *program, uint32_t transfer,
		     struct cei_cut *ret_cuts);

#endif /* CEI_PROGRAM_H */
