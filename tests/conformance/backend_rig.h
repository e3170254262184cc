/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BACKEND_RIG_H
#define CEI_BACKEND_RIG_H

/*
 * Rig of the backend cases: an open backend with lanes, memory and counters, and helpers that
 * assert success.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/lane.h"
#include "ipc/share.h"
#include "testing.h"

#define LANES    4u             /* lanes 0 and 1: PEER, which never wait; lanes 2 and 3: GATED */
#define GATE     2u
#define OTHER    3u
#define COUNTERS 128u
#define BYTES    (UINT64_C(4) << 20)

/* the most pieces, posts and waits that the engine queues between two submits */
#define GROUP    (CEI_LANE_BATCH / 2u - 1u)

/* Calls for streams of the rig's place, and for graphs captured from them. The caller treats both
 * as opaque pointers; all calls assert success. */
struct rig_streams {
	void *(*open)(void);
	void  (*close)(void *stream);           /* the stream must be idle, or become so by
						 * itself */
	void  (*idle)(void *stream);            /* waits until the stream is idle, at most
						 * TESTING_PATIENCE */
	void  (*capture_begin)(void *stream);
	void *(*capture_end)(void *stream);     /* returns the captured graph */
	void  (*launch)(void *graph, void *stream);
	void  (*free)(void *graph);             /* the graph must not be running */
};

struct rig {
	enum ceov_place_kind kind;              /* kind of the places that the backend serves */
	struct cei_report  report;
	struct cei_site    site;
	struct cei_backend backend;
	const struct cei_place_ops *ops;      /* as given to conformance_run() */
	const struct rig_streams *streams;      /* set before conformance_run(); NULL: the backend
						 * has no streams */
	struct cei_region  memory[2];
	struct cei_region  counters;    /* in memory of the backend's place */
	struct cei_region  words;       /* in host memory, mapped for the place */
	struct cei_lane    lane[LANES];
	uint64_t           n_submitted[LANES];
	_Atomic uint32_t   abort_word;
	uint64_t           random;
};

/* The rig is global because Check's tests take no arguments. */
extern struct rig rig;

/* Allocates memory of a kind and maps it for the rig's member. */
void rig_make_region(struct cei_region *region, enum ceov_place_kind kind,
		     uint64_t size_bytes);

/* Check's fixture functions: Check forks for each case, and each opens the backend anew. */
void rig_open(void);
void rig_close(void);

/* Returns whether lanes can wait. Cases of waiting lanes pass at once if they cannot. */
int      rig_has_gates(void);

/* Return the address at an offset of region 0 or 1, and the address of a counter. */
uint64_t rig_at(uint32_t region, uint64_t offset);
uint64_t rig_counter_at(uint32_t i);

uint64_t rig_value(uint32_t i);
void     rig_raise(uint32_t i, uint64_t value);
uint64_t rig_word(uint32_t i);
void     rig_fill(uint64_t address, uint64_t n_bytes, uint64_t seed);
void     rig_check(uint64_t address, uint64_t n_bytes, uint64_t seed);
struct cei_piece rig_piece(uint64_t target, uint64_t source, uint64_t n_bytes);

void     rig_copy(uint32_t lane, uint64_t target, uint64_t source, uint64_t n_bytes);
void     rig_post(uint32_t lane, uint32_t counter, uint64_t value);
void     rig_await(uint32_t lane, uint32_t counter, uint64_t value);

/* Submits the lane's work; returns the number that reap must reach. */
uint64_t rig_submit(uint32_t lane);
uint64_t rig_reaped(uint32_t lane);
void     rig_reap(uint32_t lane, uint64_t n_done);

/* Waits until the counter has reached the value. */
void     rig_reach(uint32_t counter, uint64_t value);

/* Waits long enough that a forbidden event would have happened. */
void     rig_pause(void);

/* in backend_gates.c */
void     rig_add_gate_cases(Suite *suite);

/* in backend_streams.c */
void     rig_add_stream_cases(Suite *suite);

/* in backend_caps.c */
void     rig_add_cap_cases(Suite *suite);

#endif /* CEI_BACKEND_RIG_H */
