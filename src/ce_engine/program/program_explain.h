/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PROGRAM_EXPLAIN_H
#define CEI_PROGRAM_EXPLAIN_H

/* What a program's transfers will do, in words, and how long one of them should take. */

#include "ce_engine/program/program.h"
#include "net/rail.h"

struct cei_explain {
	const struct cei_program *program;      /* routed and counted */
	const struct cei_machine *machine;      /* NULL: not known, and nothing is routed */
	const char *const        *movers;       /* names of the program's movers */
	const char               *trigger;      /* how the program waits for marks, in words */
	struct cei_report        *report;
	int                       fd;           /* the text is written to it */

	/* How long so many bytes should take to a rank of another node. CEOV_NONE: not known. */
	int                     (*far)(const struct cei_explain *explain, uint32_t rank,
				       uint64_t n_bytes, struct cei_rail_expected *ret_expected);
	const void               *arg;          /* for far */
};

/* Writes one line, with its end, to fd. CEOV_ERR_SYSTEM, raised: it cannot be written. */
int __attribute__((format(printf, 2, 3)))
cei_say(const struct cei_explain *explain, const char *format, ...);

/* Writes the lines of one transfer. Fails as above. */
int cei_explain_transfer(const struct cei_explain *explain, uint32_t transfer);

/* Returns the time that the transfer takes when nothing else uses the machine. Without a route that
 * is t0 per chunk + bytes / rate of its link, or of its direction's default if the machine does not
 * know both ends. 0: the transfer moves nothing, or it goes to another node, of which only the
 * network knows a time (struct cei_explain). */
uint64_t cei_program_expected_ns(const struct cei_program *program,
				 const struct cei_machine *machine, uint32_t transfer);

#endif /* CEI_PROGRAM_EXPLAIN_H */
