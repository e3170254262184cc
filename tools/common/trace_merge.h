/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef TRACE_MERGE_H
#define TRACE_MERGE_H

#include <stdint.h>

/*
 * Joins the trace files of a group's processes into one, in which all times are of the clock of
 * rank 0's node. Each node's clock is converted by the offsets in the file of the process that
 * measured them. Where that file is not among them, or has no offsets, the node's events keep the
 * times of their own clock, and stderr says so.
 *
 * All files are read and checked before the first byte is written; then they are read again, so
 * memory grows with the number of files only. The new file replaces an older one when it is
 * complete. Returns 0, or -1, reported on stderr; then an older file is still as it was.
 */
int trace_merge(const char *const *paths, uint32_t n_paths, const char *path);

#endif /* TRACE_MERGE_H */
