/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RANGES_H
#define CEI_RANGES_H

/*
 * Ranges of time for tools that show them beside kernels (NVTX, of Nsight Systems and others): what
 * a thread does in a call, under the domain "ceoverlap". Off without CEOVERLAP_NVTX=1. Nothing is
 * linked: NVTX's headers open the tool's library, if a tool has started the process.
 */

#include <stdint.h>

#include "base/report.h"

struct cei_ranges;                      /* the domain of one context */

/* Reads CEOVERLAP_NVTX. *ret_ranges is NULL where it is unset or 0, and where the library was built
 * without NVTX's headers, which a warning says. CEOV_ERR_INVALID, raised: it is something else.
 * CEOV_ERR_NO_MEMORY, raised. */
int  cei_ranges_open(struct cei_report *report, struct cei_ranges **ret_ranges);

/* NULL is allowed. */
void cei_ranges_close(struct cei_ranges *ranges);

/* Begins a range on this thread, within those that have begun and not ended; value is shown with
 * it. */
void cei_ranges_push(struct cei_ranges *ranges, const char *name, uint64_t value);

/* Ends the one that began last on this thread. */
void cei_ranges_pop(struct cei_ranges *ranges);

/* The same where ranges may be NULL, which costs one branch. */
static inline void cei_range_begin(struct cei_ranges *ranges, const char *name, uint64_t value)
{
	if (__builtin_expect(ranges != NULL, 0))
		cei_ranges_push(ranges, name, value);
}

static inline void cei_range_end(struct cei_ranges *ranges)
{
	if (__builtin_expect(ranges != NULL, 0))
		cei_ranges_pop(ranges);
}

#endif /* CEI_RANGES_H */
