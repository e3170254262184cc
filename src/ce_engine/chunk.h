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
 * While ARMED the first chunk of a transfer stands for all of its chunks.
 */

#include <stdint.h>

#include "base/list.h"

enum cei_chunk_state {
	CEI_CHUNK_ARMED,
	CEI_CHUNK_READY,
	CEI_CHUNK_ROUTED,
	CEI_CHUNK_MOVING,
	CEI_CHUNK_DONE,
	CEI_CHUNK_DROPPED,
};

struct cei_launch;

struct cei_chunk {
	struct cei_list      link;      /* in the list of the stage that has it */
	struct cei_launch   *launch;
	uint32_t             index;     /* in the plan's cuts */
	uint16_t             state;     /* enum cei_chunk_state */
	uint16_t             lane;      /* from ROUTED on */
	uint64_t             sequence;  /* from MOVING on: the lane's submit it is in */
};

#endif /* CEI_CHUNK_H */
