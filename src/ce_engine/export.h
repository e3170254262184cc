/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXPORT_H
#define CEI_EXPORT_H

/*
 * What buffers and signals export to the group, and how they are found: at another
 * process through the bootstrap, in this process by a list of the context.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/object.h"
#include "ipc/bootstrap.h"
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

/* One export of this process. In the context's list; guarded by its lock. */
struct cei_local_export {
	struct cei_list       link;
	uint64_t              id;       /* names it here */
	uint64_t              bootstrap_id; /* 0: alone */
	uint32_t              rank;
	int                   is_withdrawn;     /* nobody finds it; peers may still use it */
	char                  name[CEI_NAME_BYTES];
	struct cei_export_body body;
};

struct cei_found {
	struct cei_object *owner;       /* an export of this process: its handle, which
					 * counts the finder as a user; else NULL */
	uint32_t           place_kind;
	uint32_t           n_counters;
	uint32_t           flags;
	uint64_t           id;          /* for cei_export_drop() */
	uint32_t           n_regions;
	struct cei_region *regions[CEI_EXPORT_REGIONS_MAX]; /* mapped */
};

/* Exports under a name that the rank has not used yet. *ret_id is not 0; it is written with
 * the context's lock held, under which the bootstrap thread reads it. */
int  cei_export_make(ceov_context *context, uint32_t rank, const char *name,
		     const struct cei_export_body *body, uint64_t *ret_id);

/* From now on nobody new finds it. 0 where id is 0 or is withdrawn already. CEOV_PENDING:
 * peers still use it; call again. */
int  cei_export_withdraw(ceov_context *context, uint64_t id);

/* Withdraws what the owner exports (*export_id, 0: nothing) and claims the owner for its
 * release: no find can come in between. CEOV_PENDING: it has users in this process, or at
 * peers, and lives on; in the latter case nobody new finds it. */
int  cei_export_release(struct cei_object *owner, uint64_t *export_id, const char *call);

/* No find waits longer for a peer's answer. */
#define CEI_FIND_MOST_NS UINT64_C(10000000000)

/* A lookup by a find of the public API, with the context's deadline. */
struct cei_lookup cei_export_lookup(const ceov_context *context, uint32_t rank,
				    const char *name);

/* CEOV_NONE: not exported yet. CEOV_ERR_INVALID: exported as another kind. */
int  cei_export_find(ceov_context *context, const struct cei_lookup *lookup,
		     enum cei_export_kind kind, struct cei_found *ret_found);
void cei_export_drop(ceov_context *context, uint32_t rank, uint64_t id);

#endif /* CEI_EXPORT_H */
