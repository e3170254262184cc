/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COMPLETION_H
#define CEI_COMPLETION_H

/*
 * Stage 5 of 5: completion - reaps lanes and retires launches.
 *   in:   chunks MOVING, from lanes
 *   out:  tickets, to whoever waits for them
 *
 * Marks are raised by the lanes themselves, right behind the bytes.
 */

#include <stdint.h>

struct cei_engine;

/* Returns how many chunks came back. */
uint32_t cei_completion_reap(struct cei_engine *engine);

#endif /* CEI_COMPLETION_H */
