/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RAIL_CONFIG_H
#define CEI_RAIL_CONFIG_H

/* What a rail is opened with, and what it tells the layer above. */

#include <stdint.h>

#include "base/report.h"
#include "net/far_copier.h"
#include "net/far_wire.h"

#define CEI_RAIL_TIMEOUT_NS UINT64_C(10000000000)       /* the default of timeout_ns */
#define CEI_RAIL_CLOSE_NS   UINT64_C(1000000000)        /* that a closing connection gets until
							 * its receives are given up */
#define CEI_RAIL_WHY_BYTES  CEI_FAR_TEXT_BYTES

/* The layer above is told by the rail's thread. It must not block there; it may call
 * cei_rail_say(), cei_rail_give_up() and the functions of regions. */
struct cei_rail_events {
	/* Writes the address of a process' transport on this rail, at most
	 * CEI_TRANSPORT_ADDRESS_MAX bytes. CEOV_NONE: it has none. */
	int  (*find)(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes);

	/* A mark is due whose counter is not in host memory: everything before it has landed,
	 * and it counts as raised when this returns. */
	void (*raised)(void *arg, uint32_t region, uint32_t index, uint64_t value);

	/* The connection to a process is lost: nothing more is accepted from it, but bytes may
	 * still land. Raise the abort words of signals now; poison no counter yet. The rail itself
	 * logs nothing. why stays until the rail is closed. is_refusal: the process lives and has
	 * given this one up. */
	void (*losing)(void *arg, uint32_t process, const char *why, int is_refusal);

	/* Nothing lands any more, and lanes to it have ended. is_uncertain: the transport did not
	 * end its receives in CEI_RAIL_CLOSE_NS; until it does, regions of this process that it
	 * was writing to cannot be closed, and their contents are unknown. */
	void (*lost)(void *arg, uint32_t process, const char *why, int is_uncertain);

	/* A process has closed in order. */
	void (*departed)(void *arg, uint32_t process);

	/* A NOTE has come, or a CLOCK; valid during the call. NOTEs come in the order in which they
	 * were said. */
	void (*heard)(void *arg, uint32_t process, const struct cei_far_message *message);
};

struct cei_rail_config {
	struct cei_report              *report;
	const struct cei_transport_ops *transport;
	const char                     *device;         /* as struct cei_transport_config */
	const char                     *kinds;
	uint64_t                        group;          /* the same in all processes; 0:
							 * cei_rail_begin() brings it */
	uint32_t                        process;        /* this one */
	uint32_t                        n_processes;
	uint64_t                        instance[2];    /* of struct cei_site */
	uint64_t                        timeout_ns;     /* a process that is silent for so long
							 * while it owes something is lost; 0:
							 * the default */
	uint32_t                        window;         /* pieces under way to one process; 0:
							 * CEI_FAR_WINDOW */
	uint64_t                        piece_max;      /* bytes; 0: CEI_FAR_PIECE_MAX */
	int                             progress_by_caller;     /* no thread: cei_rail_turn() */
	const struct cei_rail_events   *events;
	void                           *events_arg;
	const struct cei_far_copier_ops *copier;        /* for memory that the transport does not
							 * access; NULL: there is none */
	void                           *copier_arg;
};

/* What a rail counted that no honest process of its group sends, and what came too late. */
struct cei_rail_counts {
	uint64_t n_strange;     /* not decodable, of another group, or not from who it says */
	uint64_t n_old;         /* of a connection that is not up yet, or is closing */
	uint64_t n_refused;     /* pieces and marks that name what they may not */
	uint64_t n_duplicates;
	uint64_t n_lowering;    /* marks below their counter's value */
};

#endif /* CEI_RAIL_CONFIG_H */
