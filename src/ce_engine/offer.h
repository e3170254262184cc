/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OFFER_H
#define CEI_OFFER_H

/*
 * What buffers and signals offer to the group, and how they are found: at another
 * process through the meeting, in this process by a list of the context.
 */

#include <stdint.h>

#include "base/list.h"
#include "ce_engine/object.h"
#include "ipc/meeting.h"
#include "ipc/share.h"
#include "ipc/wire.h"

#include <ceoverlap/ceoverlap.h>

struct cei_offer_body {
	struct cei_object *owner;       /* the handle that offers */
	uint32_t           kind;        /* enum cei_offer_kind */
	uint32_t           place_kind;  /* signals: where the counters live, ... */
	uint32_t           n_counters;
	uint32_t           flags;       /* ... how many, enum ceov_signal_flags */
	uint32_t           n_regions;
	struct cei_region *regions[CEI_OFFER_REGIONS_MAX];
};

/* One offer of this process. In the context's list; guarded by its lock. */
struct cei_local_offer {
	struct cei_list       link;
	uint64_t              id;       /* names it here */
	uint64_t              meeting_id; /* 0: alone */
	uint32_t              rank;
	int                   is_withdrawn;     /* nobody finds it; peers may still use it */
	char                  name[CEI_NAME_BYTES];
	struct cei_offer_body body;
};

struct cei_found {
	struct cei_object *owner;       /* an offer of this process: its handle, which
					 * counts the finder as a user; else NULL */
	uint32_t           place_kind;
	uint32_t           n_counters;
	uint32_t           flags;
	uint64_t           id;          /* for cei_offer_drop() */
	uint32_t           n_regions;
	struct cei_region *regions[CEI_OFFER_REGIONS_MAX]; /* mapped */
};

/* Offers under a name that the rank has not used yet. *ret_id is not 0; it is written with
 * the context's lock held, under which the meeting's thread reads it. */
int  cei_offer_make(ceov_context *context, uint32_t rank, const char *name,
		    const struct cei_offer_body *body, uint64_t *ret_id);

/* From now on nobody new finds it. 0 where id is 0 or is withdrawn already. CEOV_PENDING:
 * peers still use it; call again. */
int  cei_offer_withdraw(ceov_context *context, uint64_t id);

/* Withdraws what the owner offers (*offer_id, 0: nothing) and claims the owner for its
 * release: no find can come in between. CEOV_PENDING: it has users in this process, or at
 * peers, and lives on; in the latter case nobody new finds it. */
int  cei_offer_release(struct cei_object *owner, uint64_t *offer_id, const char *call);

/* No find waits longer for a peer's answer. */
#define CEI_FIND_MOST_NS UINT64_C(10000000000)

/* The question that a find of the public API asks: with the context's deadline. */
struct cei_question cei_offer_question(const ceov_context *context, uint32_t rank,
				       const char *name);

/* CEOV_NONE: not offered yet. CEOV_ERR_INVALID: offered as another kind. */
int  cei_offer_find(ceov_context *context, const struct cei_question *question,
		    enum cei_offer_kind kind, struct cei_found *ret_found);
void cei_offer_drop(ceov_context *context, uint32_t rank, uint64_t id);

#endif /* CEI_OFFER_H */
