/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REPEATS_H
#define CEI_REPEATS_H

/*
 * Which lines of a log are written, and which are only counted: a lane that fails, or a
 * caller that does not look at results, makes thousands of lines that say the same.
 *
 * Lines of one kind come from one place in the source and tell one error. Of a kind, some are
 * written in a while, and the rest is held back. A while is a second; as long as lines go on
 * to be held back, the next is twice as long, and only its first line is written, which says
 * how many were held back before it.
 * Nothing here locks, and nothing knows a clock.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_REPEATS_KINDS        16u    /* remembered; the one unused for longest goes */
#define CEI_REPEATS_LINES        16u    /* of a kind that are written in a while */
#define CEI_REPEATS_WHILE_NS     UINT64_C(1000000000)
#define CEI_REPEATS_WHILE_MAX_NS UINT64_C(64000000000)

struct cei_repeat {                     /* one kind */
	const char *format;             /* NULL: unused */
	int         code;
	uint32_t    n_left;             /* to be written in this while */
	uint64_t    n_held;             /* back, since the last that was written */
	uint64_t    begun_ns;           /* the while, and ... */
	uint64_t    while_ns;           /* ... how long it is */
	uint64_t    seen_ns;
	char        text[CEOV_FAILURE_TEXT_BYTES];      /* the last one written */
};

struct cei_repeats {
	struct cei_repeat kinds[CEI_REPEATS_KINDS];
};

/* A line of the kind (format, code). Whether to write it: then *ret_n_held like it were not
 * written before. ret_gone is a kind that was forgotten for it, whose n_held, if not 0, has
 * to be told now. */
int cei_repeats_pass(struct cei_repeats *repeats, const struct cei_repeat *line,
		     uint64_t now_ns, uint64_t *ret_n_held, struct cei_repeat *ret_gone);

#endif /* CEI_REPEATS_H */
