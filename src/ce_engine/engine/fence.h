/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FENCE_H
#define CEI_FENCE_H

/*
 * Whether an engine is fenced: its member's place is lost to this process
 * (cei_place_ops.lost()). Its launches in flight end with an error that names the place and what
 * its driver said, and so does each later one before it begins. Other engines go on. A fence stays
 * until the process ends.
 */

#include <pthread.h>

#include "backend/place.h"

#define CEI_FENCE_LOOK_NS UINT64_C(250000000)

struct cei_movers;                      /* ce_engine/exec/movers.h */

struct cei_fence {
	uint64_t        look_at_ns;     /* when to look next; CEI_FOREVER: only after a lane has
					 * broken. The engine's thread alone */
	pthread_mutex_t lock;           /* guards what follows, for readers: the engine's thread
					 * alone writes it, once, and reads it without */
	int             error;          /* 0: the engine is not fenced */
	char            text[CEI_LOST_BYTES];
};

/* The struct is zeroed before. looks 0: cei_fence_look_at() does nothing. */
void cei_fence_init(struct cei_fence *fence, int looks);
void cei_fence_fini(struct cei_fence *fence);

/* Fences the engine if one of its own movers says that the place is lost. The engine's thread. */
void cei_fence_look(struct cei_fence *fence, struct cei_movers *movers);

/* The same, but at most four times a second: for an engine that waits for marks or sleeps, so that
 * no lane breaks. */
static inline void cei_fence_look_at(struct cei_fence *fence, struct cei_movers *movers,
				     uint64_t now_ns)
{
	if (now_ns < fence->look_at_ns)
		return;
	fence->look_at_ns = now_ns + CEI_FENCE_LOOK_NS;
	cei_fence_look(fence, movers);
}

/* The engine's thread. */
static inline int cei_fence_is_up(const struct cei_fence *fence)
{
	return fence->error != 0;
}

/* Returns the error, and the text that says why; 0: the engine is not fenced. Any thread. */
int  cei_fence_read(struct cei_fence *fence, char ret_text[CEI_LOST_BYTES]);

#endif /* CEI_FENCE_H */
