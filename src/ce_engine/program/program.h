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

#include "backend/place.h"
#include "base/report.h"
#include "topology/route.h"

#define CEI_PROGRAM_NONE UINT32_MAX     /* no buffer, no signal, no route */

/* Limits of one program. */
#define CEI_PROGRAM_TRANSFERS_MAX (UINT32_C(1) << 20)   /* and expected marks */
#define CEI_PROGRAM_CHUNKS_MAX    (UINT32_C(1) << 22)
#define CEI_PROGRAM_MOVERS_MAX    16u

enum cei_program_buffer_flags {
	CEI_PROGRAM_FLOATING = 1,       /* each launch names its address */
	CEI_PROGRAM_MAPPED = 2,         /* some member of the movers' process can address it */
	CEI_PROGRAM_PRIVATE = 4,        /* GPUs other than the movers' own cannot access it */
	CEI_PROGRAM_FAR_MEMORY = 8,     /* it is of another node */
};

enum cei_program_mover_flags {
	CEI_PROGRAM_CAN_WAIT = 1,       /* it has lanes that can wait for a counter */
	CEI_PROGRAM_LEAVES_MACHINE = 2,         /* the machine has no link for its copies */
};

/* A mover of copies: one of those that the engine opened for its rank; the preferred one
 * comes first. */
struct cei_program_mover {
	uint32_t flags;                 /* enum cei_program_mover_flags */
	uint32_t moves;                 /* enum cei_moves */
	uint32_t gpu;                   /* the GPU whose copy engines it drives; CEOV_NOBODY:
					 * none */
	uint32_t place;                 /* in the machine; CEOV_NOBODY: not known */
	uint64_t may_drive;             /* bit i: staged paths may use the copy engines of the
					 * machine's GPU i */
};

struct cei_program_buffer {
	uint32_t rank;                  /* the rank that owns the memory */
	uint32_t flags;                 /* enum cei_program_buffer_flags */
	uint32_t reached;               /* bit m: the program's mover m can address it */
	uint32_t kind;                  /* enum ceov_place_kind: of the memory */
	uint32_t gpu;                   /* GPU memory: which; else CEOV_NOBODY */
	uint32_t place;                 /* in the machine; CEOV_NOBODY: not known */
	uint64_t start;                 /* in the program's address space; floating: 0 */
	uint64_t size_bytes;
};

enum cei_program_signal_flags {
	CEI_PROGRAM_SEEN = 1,           /* the movers' engine can poll its counters */
	CEI_PROGRAM_IN_GPU = 2,         /* the counters are in the memory of its owner's GPU */
	CEI_PROGRAM_FAR_COUNTERS = 4,   /* its owner is on another node */
};

struct cei_program_signal {
	uint32_t rank;                  /* its owner */
	uint32_t n_counters;
	uint32_t flags;                 /* enum cei_program_signal_flags */
	uint32_t reached;               /* bit m: the program's mover m can raise its counters */
	char     text[112];             /* names it in messages; "": nothing is known. It is not
					 * written to bytes */
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
	uint64_t                row_bytes;      /* 0: raises a mark without moving bytes ... */
	uint64_t                n_rows;         /* ... and this is 0, too */
	struct cei_program_mark source_ready;
	struct cei_program_mark target_free;
	struct cei_program_mark then;
	uint32_t                is_counted;     /* 1: each launch reads how many rows it moves, ...
						 */
	struct cei_program_spot count;          /* ... here; 0: all of them, and this is all 0 */

	/* of cei_program_route() */
	uint32_t                mover;          /* number of the mover that makes direct copies
						 * and raises the mark */
	uint32_t                has_direct;     /* one copy of the mover can move it */
	uint32_t                direction;      /* enum cei_direction; without bytes its
						 * predecessor's */
	uint32_t                route;          /* CEI_PROGRAM_NONE: goes in one copy */

	/* of cei_program_count() */
	uint32_t                first_chunk;
	uint32_t                n_chunks;
};

/* A route that is shared by transfers of nearly the same size between the same places. */
struct cei_program_route {
	uint32_t         from;          /* places */
	uint32_t         to;
	uint64_t         bytes;         /* size of the class; the shares add up to it */
	uint64_t         may_drive;
	uint32_t         no_direct;     /* the direct path cannot be used */
	struct cei_route route;         /* without paths: there is none, and `why` says the
					 * reason */
};

/* One chunk of a transfer. */
struct cei_cut {
	struct cei_piece piece;         /* n_rows 0: raises a mark without moving bytes */
	uint32_t         step;          /* the transfer */
	uint32_t         path;          /* in a program: of the transfer's route; in a plan:
					 * the engine's (staging.h). UINT32_MAX: direct */
};

struct cei_program {
	uint32_t rank;                          /* the rank whose engine executes it */
	uint32_t n_ranks;                       /* of the group */
	uint64_t max_chunk_bytes;
	uint64_t mark_group_bytes;              /* marks of copies that add up to more are
						 * raised in several batches */
	uint32_t urgency;                       /* enum ceov_urgency; of polled launches */
	uint32_t has_template;                  /* made by a template: transfers go in this order,
						 * which keeps receivers apart; there may be no
						 * transfer */
	uint32_t keeps_order;                   /* transfers go in this order because a mark
						 * covers earlier transfers, too */
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

/* Allocates zeroed lists of the numbers of entries that the program has; existing transfers
 * stay. CEOV_ERR_NO_MEMORY, not raised; then call strip or fini. */
int  cei_program_alloc(struct cei_program *program);

/* strip frees all lists except the transfers, fini all lists. Both accept zeroes. */
void cei_program_strip(struct cei_program *program);
void cei_program_fini(struct cei_program *program);

/* Copies a program as it was before cei_program_route(): that chose paths of this process's
 * machine. Its transfers are the copy's, to be freed; all other lists are the program's own.
 * CEOV_ERR_NO_MEMORY, not raised. */
int  cei_program_copy_unrouted(const struct cei_program *program, struct cei_program *ret_copy);

/* The transfer as one piece in the program's address space; for a floating buffer only its
 * offset. All 0 without bytes. */
struct cei_piece cei_program_piece(const struct cei_program *program, uint32_t transfer);

/* Whether the transfer goes to another node; its mover is known. */
static inline int cei_program_leaves_node(const struct cei_program *program, uint32_t transfer)
{
	return program->movers[program->transfers[transfer].mover].flags &
		CEI_PROGRAM_LEAVES_MACHINE ? 1 : 0;
}

/* The rank whose memory a transfer writes to; without bytes, the owner of the signal whose mark it
 * raises. */
uint32_t cei_program_target_rank(const struct cei_program *program, uint32_t transfer);

/* Names the signal in messages. */
static inline const char *cei_program_signal_text(const struct cei_program *program,
						  uint32_t signal)
{
	return program->signals[signal].text[0] ? program->signals[signal].text : "a signal";
}

/* Bytes from the first row's begin to the last row's end; 0: more than fit 64 bits. */
uint64_t cei_program_extent(const struct cei_program_transfer *transfer,
			    const struct cei_program_spot *spot);

/* Whether the engine of the rank can read the number of rows of a transfer there. */
int cei_program_holds_count(const struct cei_program_buffer *buffer, uint32_t rank,
			    uint64_t offset_bytes);

/* Verifies a program from another process: numbers in range, unused fields 0, every spot
 * within its buffer. 0 or CEOV_ERR_INVALID, not raised. */
int  cei_program_verify(const struct cei_program *program);

/* Checks each transfer by itself: raises CEOV_ERR_INVALID, or CEOV_ERR_NO_ROUTE where the memory
 * of another node would be read, and names the transfer. Sets program->floating. */
int  cei_program_check_spots(struct cei_program *program, struct cei_report *report);

/* How the transfers of a program may wait for marks, and in which order they go. */
struct cei_triggers {
	int         is_direct;          /* the first mover can move each transfer in one copy */
	int         is_gateable;        /* lanes can wait for the source_ready marks ... */
	const char *why_polled;         /* ... or why they cannot */
	int         is_pollable;        /* the engine can poll all of the marks */
	uint32_t    leaves_node;        /* the first transfer that goes to another node, or
					 * CEOV_NOBODY */
	int         keeps_order;        /* chunks go in the program's order; else in the order in
					 * which ports are free (queues.h) */
	uint32_t    waits_ahead;        /* the first transfer that waits for a mark of a later
					 * one, or CEOV_NOBODY */
	uint64_t    largest_value;      /* largest value of a mark; with the base it must stay
					 * below the limit */
};

struct cei_order;                       /* ce_engine/program/program_order.h */

/* Checks the marks of a routed program: raises, and names the transfer, where a mark can be
 * neither polled nor awaited by a lane, or cannot be raised. Results that depend on the
 * order of transfers are computed by the next function. */
int  cei_program_check_triggers(const struct cei_program *program, struct cei_report *report,
				struct cei_triggers *ret_triggers);

/* Completes the triggers by the order of the same program; raises where a mark can be
 * neither gated nor polled. */
int  cei_triggers_follow(struct cei_triggers *triggers, const struct cei_order *order);

/* Computes mover, has_direct, direction and route of each transfer, and the list of routes,
 * for the machine, which may be NULL where no place is known. Earlier results are replaced.
 * Raises CEOV_ERR_NO_ROUTE, CEOV_ERR_NO_MEMORY. */
int  cei_program_route(struct cei_program *program, const struct cei_machine *machine,
		       struct cei_report *report);

/* Called after paths were removed from routes: transfers without a path go directly, or are
 * refused as above. */
int  cei_program_keep_routes(struct cei_program *program, struct cei_report *report);

/* Computes first_chunk and n_chunks of each transfer. Raises CEOV_ERR_INVALID: too many. */
int  cei_program_count(struct cei_program *program, struct cei_report *report);

/* Computes the transfer's n_chunks chunks, in the program's address space. */
void cei_program_cut(const struct cei_program *program, uint32_t transfer,
		     struct cei_cut *ret_cuts);

#endif /* CEI_PROGRAM_H */
