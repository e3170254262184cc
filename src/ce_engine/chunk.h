/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHUNK_H
#define CEI_CHUNK_H

/*
 * The record that travels. Each stage makes one step, on the engine's thread:
 *
 *   ARMED --doorbell--> READY --router--> ROUTED --lanes--> MOVING --completion--> DONE
 *     |                   |                 |                 |
 *     +-------------------+-----------------+-----------------+--> DROPPED (its
 *                                                       launch failed, or its lane)
 *
 * While ARMED the first chunk of a transfer stands for all of its chunks; it may be parked
 * (parking.h), where the doorbell does not look at it. A chunk whose
 * way has two legs (staging.h) goes from MOVING back to READY once, for the second.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/queues.h"

enum cei_chunk_state {
	CEI_CHUNK_ARMED,
	CEI_CHUNK_READY,
	CEI_CHUNK_ROUTED,
	CEI_CHUNK_MOVING,
	CEI_CHUNK_DONE,
	CEI_CHUNK_DROPPED,
};

#define CEI_NO_SLOT UINT16_MAX

struct cei_launch;

struct cei_chunk {
	struct cei_list      link;      /* in the list of the stage that has it */
	struct cei_launch   *launch;
	uint32_t             index;     /* in the plan's cuts */
	uint16_t             state;     /* enum cei_chunk_state */
	uint16_t             lane;      /* from ROUTED on */
	uint8_t              leg;       /* 0 or 1: of its way */
	uint8_t              parked;    /* while ARMED: enum cei_parked */
	uint16_t             slot;      /* staging slot that it holds, or CEI_NO_SLOT */
	uint32_t             trace;     /* its record, where there is a trace */
	uint64_t             sequence;  /* from MOVING on: the lane's submit it is in */
	struct cei_job       job;       /* what the scheduler decides by */
};

#endif /* CEI_CHUNK_H */
