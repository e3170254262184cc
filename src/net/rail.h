/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RAIL_H
#define CEI_RAIL_H

/*
 * A rail: the network interface of this process, its transport, and the thread that drives it.
 * Engines give it work through far lanes (net/far_lane.h), the layer above gives it messages; it
 * connects to a process when that is first used, and tells the layer above what comes
 * (net/rail_config.h).
 *
 *   engine:  cei_far_lane_copy, _post, _submit, _reap
 *               |  a ring per lane, and a bell
 *   rail's thread: pieces and marks of all lanes to a process are numbered in one stream
 *               |  transport
 *   other process' rail: pieces land in its regions, marks are raised behind them, ACK
 *
 * The functions below are for any thread but where it is said otherwise. Those at set-up are
 * carried out by the rail's thread while the caller waits, 10 s at most.
 */

#include <stdint.h>

#include "net/far_lane.h"
#include "net/far_memory.h"
#include "net/rail_config.h"

#define CEI_RAIL_LANES_MAX  4096u       /* of a rail */
#define CEI_RAIL_NOTES_MAX  64u         /* messages to one process that are not said yet */

struct cei_rail;

/* Opens the transport and, if the configuration has the group, starts the thread. The
 * configuration is copied; what it points to stays until the rail is closed. CEOV_NONE, not
 * raised: this machine has not got what the transport needs, *ret_why says what. Other errors are
 * raised. */
int  cei_rail_open(const struct cei_rail_config *config, struct cei_rail **ret_rail,
		   const char **ret_why);

/* Brings the group's number, which is not 0, to a rail that was opened without it, and starts its
 * thread. What has come to the rail before waits in the transport. CEOV_ERR_SYSTEM, raised: then
 * only close remains. */
int  cei_rail_begin(struct cei_rail *rail, uint64_t group);

/* Begins to close all connections in order; nothing new is begun. */
void cei_rail_leave(struct cei_rail *rail);

/* Whether no connection is open. */
int  cei_rail_is_quiet(struct cei_rail *rail);

/* Leaves, gives connections that are still open at the deadline up, closes the regions that are
 * open, and frees the rail. All lanes are closed. CEOV_ERR_TIMEOUT, raised: a connection does not
 * close, so memory may still be written to; the rail stays, without its thread, and is lost.
 * Accepts NULL. */
int  cei_rail_close(struct cei_rail *rail, uint64_t deadline_ns);

/* The address by which other processes reach this rail, for their `find`. */
int  cei_rail_address(struct cei_rail *rail, uint8_t *ret_address, uint32_t *ret_n_bytes);

/* One line about the transport. Valid until close. */
const char *cei_rail_describe(struct cei_rail *rail);

/* --- memory, at set-up ------------------------------------------------------- */

/* Host memory that copies read. Opened memory may overlap; the same memory may be opened several
 * times. close: CEOV_PENDING: a copy still reads it; ask again. */
int  cei_rail_memory_open(struct cei_rail *rail, void *base, uint64_t n_bytes,
			  struct cei_far_memory **ret_memory);
int  cei_rail_memory_close(struct cei_rail *rail, struct cei_far_memory *memory);

/* The same for memory of a unit, of which base, n_bytes, unit, above and needs_slots are
 * described. It goes through slots, which are opened with the first such memory, unless
 * cei_rail_go_direct() was called and it does not need them. */
int  cei_rail_device_memory_open(struct cei_rail *rail, const struct cei_far_memory *described,
				 struct cei_far_memory **ret_memory);

/* Whether the transport was tried in place, on memory of the application; else *ret_why says over
 * what it was not. */
int  cei_rail_is_tried_in_place(struct cei_rail *rail, const char **ret_why);

/* Whether the transport can access the memory of GPUs itself; else *ret_why says why not. */
int  cei_rail_takes_gpu_memory(struct cei_rail *rail, const char **ret_why);

/* From now on the transport accesses the memory of units itself, but for what needs slots.
 * All units are on the GPU of this one. No memory and no region of a unit is open; the rail has a
 * thread of its own. Errors are raised. */
int  cei_rail_go_direct(struct cei_rail *rail, uint32_t unit);

/* Memory that other processes write to. The layer above gives it a number, and tells it to the
 * other processes. close: CEOV_PENDING: something still lands in it; ask again. */
int  cei_rail_region_open(struct cei_rail *rail, const struct cei_far_region *region);
int  cei_rail_region_close(struct cei_rail *rail, uint32_t id);

/* --- lanes ------------------------------------------------------------------- */

/* Opens a lane to a process, and connects to that if it was never used. CEOV_ERR_PEER_LOST: it is
 * lost. A lane is closed when it is idle, see cei_far_lane_stop(). */
int  cei_rail_lane_open(struct cei_rail *rail, uint32_t process,
			struct cei_far_lane **ret_lane);
void cei_rail_lane_close(struct cei_rail *rail, struct cei_far_lane *lane);

/* --- messages and processes ---------------------------------------------------- */

/* Says a NOTE or a CLOCK; the head and a NOTE's number are filled here, and everything is
 * copied. NOTEs arrive once, in the order in which they were said, or the connection is lost.
 * CLOCKs overtake others. CEOV_FULL: CEI_RAIL_NOTES_MAX are waiting, or many to other
 * processes. Never blocks. */
int  cei_rail_say(struct cei_rail *rail, uint32_t process,
		  const struct cei_far_message *message);

/* Gives the connection to a process up as soon as it was told so, or cannot be told: it has a
 * tenth of the timeout. From now on nothing is accepted from it. One that was never used is
 * not begun any more, and is told as losing and lost, too. CEOV_FULL as above. Never blocks. */
int  cei_rail_refuse(struct cei_rail *rail, uint32_t process, const char *why);

struct cei_rail_status {
	uint32_t connection;            /* enum cei_far_connection */
	uint32_t health;                /* enum cei_far_health */
	uint32_t n_under_way;           /* pieces and marks to the process */
	uint32_t n_parked;              /* pieces that wait there for room or a copy, as
					 * it says */
	uint64_t n_acked_bytes;         /* that landed there */
	uint64_t n_landed_bytes;        /* that landed here from there */
	uint64_t piece_bytes;           /* how large pieces are made now */
	struct cei_rail_counts counts;  /* of the whole rail */
};

struct cei_rail_expected {
	uint64_t ns;
	int      is_measured;           /* by what this rail has sent; else the transport says it */
};

/* How long so many bytes should take to the process, when nothing else is under way.
 * CEOV_NONE: too few were sent, and the transport does not know, or is not connected. */
int  cei_rail_expected(struct cei_rail *rail, uint32_t process, uint64_t n_bytes,
		       struct cei_rail_expected *ret_expected);

int  cei_rail_look(struct cei_rail *rail, uint32_t process, struct cei_rail_status *ret_status);

/* --- progress by the caller ---------------------------------------------------- */

/* Does the work of the rail's thread, which there is not with progress_by_caller, without blocking;
 * one thread at a time, which also makes all calls above that do not say "never blocks". now_ns
 * never falls. CEOV_PENDING: it did something, or has more to do at once. */
int  cei_rail_turn(struct cei_rail *rail, uint64_t now_ns);

/* When to call it next though nothing arrives; CEI_FOREVER: never. */
uint64_t cei_rail_due(const struct cei_rail *rail);

#endif /* CEI_RAIL_H */
