/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

/* Trace files that the library has written (CEOVERLAP_TRACE). */

#include <stdint.h>

#define BENCH_TRACE_SPANS_MAX 4096u

/* Makes one file at path of those that processes left beside it (path.rankN), and takes
 * them away. 0, also where there is only the one; -1, said on stderr. */
int bench_trace_merge(const char *path, uint32_t n_ranks);

struct bench_trace_span {               /* what one lane moved in one go */
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

/* Of each rank's last launch. -1, said on stderr. */
int bench_trace_read_last(const char *path, struct bench_trace *ret_trace);

#endif /* BENCH_TRACE_H */
