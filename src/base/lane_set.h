/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LANE_SET_H
#define CEI_LANE_SET_H

/*
 * A set of the lanes of one engine, by their numbers. Zeroed it is empty. A second level of bits
 * tells which words have members, so the next member is found without a look at every word. Not
 * for threads.
 */

#include <stdint.h>

/* Most lanes of an engine: those that every engine has, those for other GPUs' copy engines that its
 * routes need, and for movers that keep ranks apart one for each rank and direction. */
#define CEI_LANES_MAX 1024u

#define CEI_NO_LANE        UINT32_MAX
#define CEI_LANE_SET_WORDS (CEI_LANES_MAX / 64u)

struct cei_lane_set {
	uint64_t used;                          /* bit i: words[i] is not 0 */
	uint64_t words[CEI_LANE_SET_WORDS];     /* a bit for each lane */
};

/* Adding a lane that is in the set, and removing one that is not, have no effect. All lanes are
 * below CEI_LANES_MAX. */
static inline void cei_lane_set_add(struct cei_lane_set *set, uint32_t lane)
{
	set->words[lane / 64] |= UINT64_C(1) << lane % 64;
	set->used |= UINT64_C(1) << lane / 64;
}

static inline void cei_lane_set_remove(struct cei_lane_set *set, uint32_t lane)
{
	set->words[lane / 64] &= ~(UINT64_C(1) << lane % 64);
	if (!set->words[lane / 64])
		set->used &= ~(UINT64_C(1) << lane / 64);
}

static inline int cei_lane_set_is_empty(const struct cei_lane_set *set)
{
	return !set->used;
}

/* Returns the first member from lane `from` on, or CEI_NO_LANE. `from` may be CEI_LANES_MAX. A
 * loop over the set may remove the members that it has met. */
static inline uint32_t cei_lane_set_next(const struct cei_lane_set *set, uint32_t from)
{
	uint32_t at = from / 64;
	uint64_t members, used;

	if (from >= CEI_LANES_MAX)
		return CEI_NO_LANE;
	members = set->words[at] >> from % 64;
	if (members)
		return from + (uint32_t)__builtin_ctzll(members);
	used = set->used >> at >> 1;
	if (!used)
		return CEI_NO_LANE;
	at += 1 + (uint32_t)__builtin_ctzll(used);
	return at * 64 + (uint32_t)__builtin_ctzll(set->words[at]);
}

#endif /* CEI_LANE_SET_H */
