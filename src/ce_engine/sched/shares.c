/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Start-time fair queueing on one lane. */

#include "ce_engine/sched/shares.h"

void cei_shares_begin(const struct cei_shares *shares, uint64_t *start)
{
	if (*start < shares->clock)
		*start = shares->clock;
}

void cei_shares_serve(struct cei_shares *shares, uint64_t *start,
		      const struct cei_shares_use *use)
{
	if (shares->floor > use->credit && *start < shares->floor - use->credit)
		*start = shares->floor - use->credit;
	if (use->is_urgent && *start > shares->clock + use->credit)
		return;
	if (!use->is_urgent && shares->clock < *start)
		shares->clock = *start;
	*start += use->service;
	if (*start > use->credit && shares->floor < *start - use->credit)
		shares->floor = *start - use->credit;
}

int cei_shares_hold(struct cei_shares *shares, uint64_t takes_ns, uint64_t now_ns)
{
	uint64_t used = shares->hold_until_ns > now_ns ? shares->hold_until_ns - now_ns : 0;

	if (shares->held_since_ns)
		used += (now_ns - shares->held_since_ns) * CEI_SHARES_HOLD_PART;
	shares->held_most_ns = takes_ns * CEI_SHARES_HOLD_MOST;
	if (used >= shares->held_most_ns * CEI_SHARES_HOLD_PART)
		return 0;
	if (!shares->held_since_ns)
		shares->held_since_ns = now_ns;
	return 1;
}

void cei_shares_go_on(struct cei_shares *shares, uint64_t now_ns)
{
	uint64_t held = now_ns - shares->held_since_ns;

	if (!shares->held_since_ns)
		return;
	shares->held_since_ns = 0;
	if (held > shares->held_most_ns)        /* meanwhile the job was dropped */
		held = shares->held_most_ns;
	if (shares->hold_until_ns < now_ns)
		shares->hold_until_ns = now_ns;
	shares->hold_until_ns += held * CEI_SHARES_HOLD_PART;
}
