/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CALL_H
#define CEI_CALL_H

/*
 * A call of a channel, checked and divided into what goes between this rank and each other one. All
 * kinds are one scheme: rank r gives a part of its source to each rank and gets a part for its
 * target from each. A part may be empty. Sums add up what comes instead of storing it side by side.
 */

#include <stdint.h>

#include <ceoverlap/channel.h>

#include "ops/shape.h"

struct cei_call_part {                  /* between this rank and another one, or itself; in bytes */
	uint64_t to;
	uint64_t from;
	uint64_t source_at;             /* where it begins in the source: 0 where all ranks get the
					 * same bytes */
	uint64_t target_at;             /* in the target */
};

struct cei_call {
	struct ceov_call     call;      /* the caller's, without its lists */
	uint32_t             rank;
	uint32_t             n_ranks;
	uint64_t             what;      /* the same at all ranks, see cei_call_text() */
	uint64_t             item_bytes;
	int                  is_sum;
	int                  is_shared; /* all ranks get the same bytes of this rank */
	int                  is_listed; /* counts came as lists */
	struct cei_call_part parts[CEI_OP_RANKS_MAX];
};

/* Checks a call or message of a rank, of which all fields are known, and divides it. Returns what
 * is wrong with it, or NULL. */
const char *cei_call_make(const struct ceov_call *from, uint32_t rank, uint32_t n_ranks,
			  struct cei_call *ret_call);

#define CEI_CALL_TEXT_BYTES 80u

/* Writes what a rank calls: "all_reduce of fp32, sum". `what` may be a peer's lie. */
void cei_call_text(uint64_t what, char text[CEI_CALL_TEXT_BYTES]);

/* Returns the name of the kind: "all_gather". */
const char *cei_call_kind_name(enum ceov_call_kind kind);

#endif /* CEI_CALL_H */
