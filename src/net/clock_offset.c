/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Offsets of clocks. */

#include "net/clock_offset.h"

#include <ceoverlap/ceoverlap.h>

static int are_times(const struct cei_clock_stamps *stamps)
{
	return stamps->asked_ns < CEI_CLOCK_NS_MAX && stamps->heard_ns < CEI_CLOCK_NS_MAX &&
		stamps->told_ns < CEI_CLOCK_NS_MAX && stamps->back_ns < CEI_CLOCK_NS_MAX;
}

/* The question was said before it was heard, and the answer likewise. The first says how much the
 * reference's clock can be ahead at most, the second how much at least. */
int cei_clock_offset_of(const struct cei_clock_stamps *stamps,
			struct cei_clock_offset *ret_offset)
{
	uint64_t delay_ns;
	int64_t least;

	if (!are_times(stamps) || stamps->told_ns < stamps->heard_ns ||
	    stamps->back_ns < stamps->asked_ns ||
	    stamps->told_ns - stamps->heard_ns > stamps->back_ns - stamps->asked_ns)
		return CEOV_ERR_INVALID;
	least = (int64_t)stamps->told_ns - (int64_t)stamps->back_ns;
	delay_ns = (stamps->back_ns - stamps->asked_ns) - (stamps->told_ns - stamps->heard_ns);
	ret_offset->at_ns = stamps->asked_ns + (stamps->back_ns - stamps->asked_ns) / 2;
	ret_offset->ahead_ns = least + (int64_t)(delay_ns / 2);
	ret_offset->within_ns = delay_ns - delay_ns / 2;
	return 0;
}

int cei_clock_offsets_agree(const struct cei_clock_offset *one,
			    const struct cei_clock_offset *other)
{
	uint64_t apart_ns = one->ahead_ns > other->ahead_ns ?
		(uint64_t)one->ahead_ns - (uint64_t)other->ahead_ns :
		(uint64_t)other->ahead_ns - (uint64_t)one->ahead_ns;
	uint64_t elapsed_ns = one->at_ns > other->at_ns ?
		one->at_ns - other->at_ns : other->at_ns - one->at_ns;

	return apart_ns <= one->within_ns + other->within_ns +
		elapsed_ns / (1000000 / CEI_CLOCK_DRIFT_PPM) + 1;
}
