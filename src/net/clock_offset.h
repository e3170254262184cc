/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CLOCK_OFFSET_H
#define CEI_CLOCK_OFFSET_H

/*
 * How far the monotonic clock of another process, the reference, is ahead of the own one: from the
 * four times of a question and its answer, as in NTP, and from offsets to times on the reference's
 * clock. Pure functions. Times and offsets may come from another process or from a file, so no
 * value is trusted.
 */

#include <stdint.h>

/* Times are below this, 146 years in nanoseconds, so that sums of two fit. */
#define CEI_CLOCK_NS_MAX (UINT64_C(1) << 62)

/* The rates of two monotonic clocks differ by at most this: the kernel corrects each by up to 500
 * parts in a million, and a bad crystal is off by a few hundred. */
#define CEI_CLOCK_DRIFT_PPM 2000u

struct cei_clock_stamps {
	uint64_t asked_ns;              /* own clock: the question was said */
	uint64_t heard_ns;              /* the reference's clock: the question was heard */
	uint64_t told_ns;               /* the reference's clock: the answer was said */
	uint64_t back_ns;               /* own clock: the answer was heard */
};

struct cei_clock_offset {
	uint64_t at_ns;                 /* own clock: when it was measured */
	int64_t  ahead_ns;              /* how far the reference's clock is ahead of the own one */
	uint64_t within_ns;             /* the true value differs from that by at most this */
};

/* Makes the offset of one question and its answer. Nothing is assumed about how the delay is
 * divided among the two ways: within_ns is half of it. CEOV_ERR_INVALID, not raised: no two clocks
 * show such times, so the reference does not tell the truth. */
int cei_clock_offset_of(const struct cei_clock_stamps *stamps,
			struct cei_clock_offset *ret_offset);

/* Whether the values are within the bounds that the calls below need. */
int cei_clock_offset_is_valid(const struct cei_clock_offset *offset);

/* Whether both valid offsets, of the same two clocks, can be true. */
int cei_clock_offsets_agree(const struct cei_clock_offset *one,
			    const struct cei_clock_offset *other);

/* Converts a time of the own clock to the reference's clock, by valid offsets that agree and that
 * were measured in this order: between them the offset is taken to change evenly, outside as the
 * nearer one says. Both may be the same one. CEOV_ERR_INVALID, not raised: own_ns is not below
 * CEI_CLOCK_NS_MAX, or the reference's clock did not run yet at that time. */
int cei_clock_convert(const struct cei_clock_offset *first, const struct cei_clock_offset *last,
		      uint64_t own_ns, uint64_t *ret_ns);

#endif /* CEI_CLOCK_OFFSET_H */
