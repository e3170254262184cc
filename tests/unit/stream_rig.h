/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STREAM_RIG_H
#define CEI_STREAM_RIG_H

/*
 * A plan that is queued on a stream. Host ranks have no streams, so the rig plays one: it executes
 * operations at once and records them.
 */

#include <stdint.h>

#include "backend/place.h"
#include "testing.h"

#define STREAM_RIG_BYTES UINT64_C(96)   /* of a part of the buffers */
#define STREAM_RIG_PARTS 8u             /* counters of `ready` */
#define STREAM_RIG_MARKS 150u           /* counters of `arrived`: more than two batches hold; as
					 * many parts the buffers have */
#define STREAM_RIG_SIZE  (STREAM_RIG_MARKS * STREAM_RIG_BYTES)  /* of a buffer */
#define STREAM_RIG_BASE  UINT64_C(40)   /* of the marks of a queued plan */

struct played_stream {
	char     log[512];              /* for each call its operations: a letter for their kind (w:
					 * waits, c: copies, r: raises), and how many */
	int      is_capturing;
	int      is_dry;                /* copies are recorded but not made */
	uint64_t n_pieces;
};

struct stream_rig {
	ceov_context          *context;
	struct cei_place_ops ops;     /* the host's table with streams */
	struct played_stream   stream;
	ceov_signal           *ready;
	ceov_signal           *arrived;
	ceov_buffer           *source;  /* buffer of rank 1 */
	ceov_buffer           *target;  /* of rank 0, which owns the plan */
	ceov_plan             *plan;
	unsigned char          bytes[STREAM_RIG_SIZE];  /* copy of the source's content */
};

void stream_rig_open(struct stream_rig *rig);
void stream_rig_close(struct stream_rig *rig);

/* Returns the transfer that moves part i of the buffers; and one that waits for a counter of
 * `ready`. */
struct ceov_transfer stream_rig_part(const struct stream_rig *rig, uint32_t i);
struct ceov_transfer stream_rig_part_behind(const struct stream_rig *rig, uint32_t i,
					    uint32_t ready);

/* Adds a transfer that moves nothing and raises a counter of `arrived`. */
void stream_rig_add_raise(const struct stream_rig *rig, uint32_t index);

void stream_rig_commit(const struct stream_rig *rig);

/* Queues the plan on the stream, whose log begins anew. */
int  stream_rig_queue(struct stream_rig *rig);

/* Raises all counters of `ready` to 1, queues the plan, and asserts what the stream recorded. */
void stream_rig_queue_ready(struct stream_rig *rig, const char *log);

/* Returns the value of a counter of `arrived`. */
uint64_t stream_rig_arrived(const struct stream_rig *rig, uint32_t index);

#endif /* CEI_STREAM_RIG_H */
