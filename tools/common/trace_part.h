/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef TRACE_PART_H
#define TRACE_PART_H

/*
 * A trace file of one process: whose events it has, and what it says of the node's clock. The
 * library describes the fields where it writes them (ce_engine/engine/trace_origin.h).
 */

#include <stdint.h>
#include <sys/types.h>

#include <json-c/json.h>

#include "base/site.h"
#include "net/clock_offset.h"
#include "net/network_clock.h"

struct trace_part {
	const char *path;               /* the caller's */
	dev_t       device;             /* which file this is, */
	ino_t       inode;              /* whatever it is called */
	char        group[20];
	uint32_t    n_group_ranks;
	uint32_t    n_ranks;
	uint32_t    ranks[CEI_MEMBERS_MAX];
	uint32_t    process;
	uint32_t    node;
	uint32_t    n_nodes;
	uint32_t    measurer;           /* the rank whose process measures the node's clock */
	char        node_name[CEI_NETWORK_NODE_NAME_BYTES];
	uint32_t    n_offsets;
	struct cei_clock_offset offsets[CEI_NETWORK_CLOCK_OFFSETS_MAX];
	uint64_t    n_dropped;
	uint64_t    n_unfinished;
	uint64_t    n_timed;            /* events that have a time */
	uint64_t    first_ns;           /* of these, by the node's clock; the end of the last one */
	uint64_t    last_ns;
};

/* Reads the file to its end and checks it. Returns 0, or -1, reported on stderr. */
int trace_part_read(const char *path, struct trace_part *ret_part);

/* The times of an event; 0, or -1: it has none that make sense. *ret_end_ns is its begin for events
 * without a duration. *ret_is_timed 0: it is metadata, which has no time. */
int trace_event_times(struct json_object *event, int *ret_is_timed, uint64_t *ret_begin_ns,
		      uint64_t *ret_end_ns);

#endif /* TRACE_PART_H */
