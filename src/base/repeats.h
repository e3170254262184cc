/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REPEATS_H
#define CEI_REPEATS_H

/*
 * Decides which lines of a log are written and which are only counted. It is needed because a lane
 * that fails, or a caller that ignores results, makes thousands of equal lines.
 *
 * Lines are of one kind if they come from one place in the source and report one error. In each
 * period up to CEI_REPEATS_LINES lines of a kind are written, and further ones are held back. The
 * first period is one second. If lines were held back in a period, the next one is twice as long,
 * and only its first line is written, which says how many were held back before it. The functions
 * take no locks and read no clock.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_REPEATS_KINDS        16u    /* kinds that are remembered; a new one replaces the
					 * kind that was unused for longest */
#define CEI_REPEATS_LINES        16u    /* lines of one kind that are written in a period */
#define CEI_REPEATS_WHILE_NS     UINT64_C(1000000000)   /* the first period */
#define CEI_REPEATS_WHILE_MAX_NS UINT64_C(64000000000)  /* the longest period */

struct cei_repeat {                     /* one kind of line */
	const char *format;             /* of the line's text; NULL: this entry is unused */
	int         code;               /* the error, or the level of the log */
	uint32_t    n_left;             /* lines that may still be written in this period */
	uint64_t    n_held;             /* lines held back since the last one that was written */
	uint64_t    begun_ns;           /* when the period began */
	uint64_t    while_ns;           /* length of the period */
	uint64_t    seen_ns;            /* when a line of this kind last came */
	char        text[CEOV_FAILURE_TEXT_BYTES];      /* the last line written */
};

struct cei_repeats {
	struct cei_repeat kinds[CEI_REPEATS_KINDS];
};

/* Returns whether to write a line of the kind (format, code). If so, *ret_n_held is how many lines
 * of that kind were held back before it. ret_gone is a kind whose entry was replaced; if its n_held
 * is not 0, the caller reports that number now. */
int cei_repeats_pass(struct cei_repeats *repeats, const struct cei_repeat *line,
		     uint64_t now_ns, uint64_t *ret_n_held, struct cei_repeat *ret_gone);

#endif /* CEI_REPEATS_H */
