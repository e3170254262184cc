/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_H
#define CEI_FAR_H

/*
 * Memory and signals of other nodes, as a context knows them. Each is used once and counted, so
 * that two handles of one signal are the same signal for a plan.
 *
 * A signal of another node has an image here: host memory laid out like a signal's control
 * region. Its counters are those of the signal as last heard, its abort word is set by aborts
 * of either side. So whatever polls counters and abort words works on images, too; only raising
 * a counter takes the way to its owner.
 *
 * Any thread.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/objects/export.h"
#include "ipc/share.h"

struct cei_far {
	struct cei_list   link;         /* in the context's list `far`, guarded by far_lock */
	uint32_t          rank;         /* the owner */
	uint64_t          use;          /* of its export: the find that is told to the owner */
	uint32_t          n_users;      /* finds that were not put; guarded by far_lock */
	struct cei_region region;       /* of origin CEI_REGION_FAR */
	struct cei_region image;        /* of a signal; else zeroed */
};

struct cei_far_find {                   /* what a find brought from another node */
	const struct cei_lookup         *lookup;
	const struct cei_wire_described *described;
	uint32_t                         id;            /* of the export */
	uint64_t                         use;           /* that has begun */
};

/* Fills the rest of *found in, and takes over the find's use on success. CEOV_ERR_NO_ROUTE, raised:
 * it is a signal in the memory of a GPU. */
int  cei_far_use(ceov_context *context, const struct cei_far_find *find, struct cei_found *found);

/* Ends one use of what a find gave. NULL is allowed. */
void cei_far_put(ceov_context *context, struct cei_far *far);

#endif /* CEI_FAR_H */
