/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

/* Trace files that the library has written (CEOVERLAP_TRACE). */

#include <stdint.h>

/* Has ceoverlap-trace join the files that the processes wrote beside path (path.rankN) into path,
 * and removes them. Returns 0, also if there is only one file; -1, reported: they are left. */
int bench_trace_merge(const char *path, uint32_t n_ranks);

#endif /* BENCH_TRACE_H */
