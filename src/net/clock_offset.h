/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CLOCK_OFFSET_H
#define CEI_CLOCK_OFFSET_H

/*
 * How far the monotonic clock of another process, the reference, is ahead of the own one: from the
 * four times of a question and its answer, as in NTP. Pure functions. Times may come from another
 * process, so no value is trusted. tools/trace/ceoverlap-trace.py converts times by offsets.
 */

#include <stdint.h>

/* Times are below this, 146 years in nanoseconds, so that sums of two fit. */
#define CEI_CLOCK_NS_MAX (UINT64_C(1) << 62)

#define CEI_CLOCK_OFFSETS_MAX 2u        /* that a context measures: at its open and its close */

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

/* Whether both offsets, of the same two clocks, can be true. */
int cei_clock_offsets_agree(const struct cei_clock_offset *one,
			    const struct cei_clock_offset *other);

#endif /* CEI_CLOCK_OFFSET_H */
