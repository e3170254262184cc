/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REPEATS_H
#define CEI_REPEATS_H

/*
 * Decides which lines of a log are written and which are only counted: a lane that fails,
 * or a caller that ignores results, makes thousands of equal lines.
 *
 * Lines of one kind come from one place in the source and report one error. Within a
 * period, up to CEI_REPEATS_LINES of a kind are written and the others are held back. A
 * period is a second. As long as lines are held back, the next period is twice as long, and
 * only its first line is written, which says how many were held back before it. Takes no
 * locks and reads no clock.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_REPEATS_KINDS        16u    /* kinds that are remembered; the one unused for longest
					 * is replaced */
#define CEI_REPEATS_LINES        16u    /* lines of one kind written per period */
#define CEI_REPEATS_WHILE_NS     UINT64_C(1000000000)
#define CEI_REPEATS_WHILE_MAX_NS UINT64_C(64000000000)

struct cei_repeat {                     /* one kind of line */
	const char *format;             /* NULL: unused */
	int         code;
	uint32_t    n_left;             /* lines that may still be written in this period */
	uint64_t    n_held;             /* lines held back since the last one that was written */
	uint64_t    begun_ns;           /* begin of the period */
	uint64_t    while_ns;           /* length of the period */
	uint64_t    seen_ns;
	char        text[CEOV_FAILURE_TEXT_BYTES];      /* the last line written */
};

struct cei_repeats {
	struct cei_repeat kinds[CEI_REPEATS_KINDS];
};

/* Returns whether a line of the kind (format, code) is to be written, and in *ret_n_held
 * how many like it were held back before it. ret_gone: a kind that was replaced; where its
 * n_held is not 0, the caller reports that number now. */
int cei_repeats_pass(struct cei_repeats *repeats, const struct cei_repeat *line,
		     uint64_t now_ns, uint64_t *ret_n_held, struct cei_repeat *ret_gone);

#endif /* CEI_REPEATS_H */
