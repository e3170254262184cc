/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

/* Trace files that the library has written (CEOVERLAP_TRACE). */

#include <stdint.h>

#define BENCH_TRACE_SPANS_MAX 4096u

/* Has ceoverlap-trace join the files that the processes wrote beside path (path.rankN) into path,
 * and removes them. Returns 0, also if there is only one file; -1, reported: they are left. */
int bench_trace_merge(const char *path, uint32_t n_ranks);

struct bench_trace_span {               /* the copies that one lane made in one batch */
	uint32_t rank;
	uint32_t lane;
	uint64_t launch;
	uint32_t transfer;
	uint64_t bytes;
	double   begin_us;
	double   end_us;
	char     route[40];
};

struct bench_trace {
	uint32_t                n;
	struct bench_trace_span spans[BENCH_TRACE_SPANS_MAX];
};

/* Reads the spans of each rank's last launch. Returns 0, or -1, reported on stderr. */
int bench_trace_read_last(const char *path, struct bench_trace *ret_trace);

#endif /* BENCH_TRACE_H */
