/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXPORT_H
#define CEI_EXPORT_H

/*
 * Exports of buffers and signals to the group, and finding them: at another process through
 * the peers, in this process in a list of the context.
 *
 * An export has one number, by which processes of all nodes know it, and the rail its memory: that
 * of the peers or, where there are none, of the context.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/objects/object.h"
#include "ipc/peers/peers.h"
#include "ipc/share.h"
#include "ipc/wire.h"

#include <ceoverlap/ceoverlap.h>

struct cei_export_body {
	struct cei_object *owner;       /* the handle that exports */
	uint32_t           kind;        /* enum cei_export_kind */
	uint32_t           place_kind;  /* signals: where the counters live, ... */
	uint32_t           n_counters;
	uint32_t           flags;       /* ... how many, enum ceov_signal_flags */
	uint32_t           n_regions;
	struct cei_region *regions[CEI_EXPORT_REGIONS_MAX];
};

/* An export of this process, in the context's list and guarded by its lock. */
struct cei_local_export {
	struct cei_list       link;
	uint32_t              id;       /* 0: it has none yet */
	uint32_t              rank;
	int                   is_withdrawn;     /* no longer found, but peers may still use it */
	char                  name[CEI_GROUP_NAME_BYTES];
	struct cei_export_body body;
};

struct cei_far;                         /* ce_engine/objects/far.h */

struct cei_found {
	struct cei_object *owner;       /* the handle, where this process exports it, counted as
					 * used by the finder; else NULL */
	uint32_t           kind;        /* enum cei_export_kind */
	uint32_t           place_kind;
	uint32_t           n_counters;
	uint32_t           flags;
	uint64_t           use;         /* for cei_export_drop(); 0: this process or another node
					 * exports it */
	struct cei_far    *far;         /* found at another node, used until cei_far_put(); else
					 * NULL */
	uint32_t           n_regions;
	struct cei_region *regions[CEI_EXPORT_REGIONS_MAX]; /* mapped; of another node: its region,
							     * or the image of its signal */
};

/* Exports under a name that the rank does not use yet. *ret_id is not 0, and is written
 * with the context's lock held, under which events of the peers read it. */
int  cei_export_make(ceov_context *context, uint32_t rank, const char *name,
		     const struct cei_export_body *body, uint32_t *ret_id);

/* Withdraws an export: it can no longer be found. 0 also if id is 0 or withdrawn already.
 * CEOV_PENDING: peers still use it; call again. */
int  cei_export_withdraw(ceov_context *context, uint32_t id);

/* Withdraws the export, if there is one, of a region whose handle ends in any case. If bytes of
 * another node still land in its memory, the memory stays until the process ends, and an error line
 * says so. */
void cei_export_revoke(ceov_context *context, uint32_t id, struct cei_region *region);

/* Withdraws the owner's export (*export_id; 0: there is none) and claims the owner for its
 * release, atomically with respect to finds. CEOV_PENDING: it has users in this process or
 * at peers, and is not released; in the latter case it can no longer be found. */
int  cei_export_release(struct cei_object *owner, uint32_t *export_id, const char *call);

/* A lookup by a find of the public API, with the context's deadline. */
struct cei_lookup cei_export_lookup(const ceov_context *context, uint32_t rank,
				    const char *name);

/* Finds an export of that kind, and uses it: until cei_object_unuse() of ret_found->owner,
 * cei_far_put() of ret_found->far, or else cei_export_drop(). CEOV_NONE: it is not exported yet.
 * CEOV_ERR_INVALID: it is of another kind. */
int  cei_export_find(ceov_context *context, const struct cei_lookup *lookup,
		     enum cei_export_kind kind, struct cei_found *ret_found);
void cei_export_drop(ceov_context *context, uint32_t rank, uint64_t use);

#endif /* CEI_EXPORT_H */
