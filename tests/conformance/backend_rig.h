/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BACKEND_RIG_H
#define CEI_BACKEND_RIG_H

/*
 * Set-up of the backend cases: an open backend with lanes, memory and counters, and helpers
 * that assert success.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/lane.h"
#include "ipc/share.h"
#include "testing.h"

#define LANES    4u             /* 0 and 1: PEER, which never wait; 2 and 3: GATED */
#define GATE     2u
#define OTHER    3u
#define COUNTERS 128u
#define BYTES    (UINT64_C(4) << 20)

/* the pieces, posts and waits that the engine queues between two submits */
#define GROUP    (CEI_LANE_BATCH / 2u - 1u)

/* Streams of the rig's place, and graphs of what they are told while they are captured.
 * Whoever has them knows what they are; all calls succeed. */
struct rig_streams {
	void *(*open)(void);
	void  (*close)(void *stream);           /* it is idle, or will be */
	void  (*idle)(void *stream);            /* when it is; at most TESTING_PATIENCE */
	void  (*capture_begin)(void *stream);
	void *(*capture_end)(void *stream);     /* a graph */
	void  (*launch)(void *graph, void *stream);
	void  (*free)(void *graph);             /* it does not run */
};

struct rig {
	enum ceov_place_kind kind;              /* kind of place of the members that it serves */
	struct cei_report  report;
	struct cei_site    site;
	struct cei_backend backend;
	const struct cei_backend_ops *ops;      /* as conformance_run() was told */
	const struct rig_streams *streams;      /* set before it; NULL: there are none */
	struct cei_region  memory[2];
	struct cei_region  counters;    /* in the place */
	struct cei_region  words;       /* in host memory, mapped for the place */
	struct cei_lane    lane[LANES];
	uint64_t           n_submitted[LANES];
	_Atomic uint32_t   abort_word;
	uint64_t           random;
};

/* Shared with the cases, because Check's tests take no arguments. */
extern struct rig rig;

/* Allocates memory of a kind and maps it for the rig's member. */
void rig_make_region(struct cei_region *region, enum ceov_place_kind kind,
		     uint64_t size_bytes);

/* Check's fixture functions: Check forks for each case, and each opens the backend anew. */
void rig_open(void);
void rig_close(void);

/* Whether lanes can wait; cases of waiting lanes pass at once where they cannot. */
int      rig_has_gates(void);

/* The address at an offset of region 0 or 1, and that of a counter. */
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
void     rig_wait(uint32_t lane, uint32_t counter, uint64_t value);

/* Submits; returns the number that reap must reach. */
uint64_t rig_submit(uint32_t lane);
uint64_t rig_reaped(uint32_t lane);
void     rig_reap(uint32_t lane, uint64_t n_done);

/* Waits until the counter has reached the value. */
void     rig_reach(uint32_t counter, uint64_t value);

/* Waits long enough for something forbidden to happen. */
void     rig_pause(void);

/* backend_gates.c */
void     rig_add_gate_cases(Suite *suite);

/* backend_streams.c */
void     rig_add_stream_cases(Suite *suite);

/* backend_caps.c */
void     rig_add_cap_cases(Suite *suite);

#endif /* CEI_BACKEND_RIG_H */
