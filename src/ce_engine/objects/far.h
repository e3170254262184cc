/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_H
#define CEI_FAR_H

/*
 * Memory and signals of other nodes, as a context knows them. Each is found once and counted, so
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
#include "net/network.h"

struct cei_far {
	struct cei_list   link;         /* in the context's list `far`, guarded by far_lock */
	uint32_t          rank;         /* the owner */
	uint32_t          n_users;      /* finds that were not put; guarded by far_lock */
	struct cei_region region;       /* of origin CEI_REGION_FAR */
	struct cei_region image;        /* of a signal; else zeroed */
};

/* Exports the first region of an export to other nodes, if there are any, and sets its far_id.
 * Bytes in memory of GPUs are reached from there by way of slots (net/far_slots.h), signals there
 * are not. */
int  cei_far_export(ceov_context *context, const struct cei_local_export *export);

/* Ends the export of a region. 0 also if it has none. CEOV_PENDING: other nodes still use it. */
int  cei_far_withdraw(ceov_context *context, struct cei_region *region);

/* Ends the export of a region whose handle ends in any case. If bytes still land in its memory,
 * the memory stays until the process ends, and an error line says so. */
void cei_far_revoke(ceov_context *context, struct cei_region *region);

/* Finds an export of a rank of another node, as cei_export_find() does for either kind.
 * CEOV_ERR_NO_ROUTE, raised: it is a signal in the memory of a GPU. */
int  cei_far_find(ceov_context *context, const struct cei_lookup *lookup,
		  struct cei_found *found, uint32_t *ret_kind);

/* The process waits, by as many waits more or less, for counters of its own: while it does, nodes
 * that may raise them and fall silent are lost. Never blocks. */
void cei_far_await(const ceov_context *context, int by);

/* Ends one use of what a find gave. NULL is allowed. */
void cei_far_put(ceov_context *context, struct cei_far *far);

#endif /* CEI_FAR_H */
