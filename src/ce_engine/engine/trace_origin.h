/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRACE_ORIGIN_H
#define CEI_TRACE_ORIGIN_H

#include <stdio.h>

#include "base/site.h"

/*
 * Writes, as a JSON object, whose events a trace file has and by which clock, so that files of
 * several processes can be joined (ceoverlap-trace):
 *
 *   host, node_name, node, nodes     the machine's name; the node's name, number, and how many
 *                                    nodes the group has
 *   process, processes               the process's number; 0 of 0 where there is one node only,
 *                                    since processes have no numbers then
 *   ranks, group_ranks               the ranks of the process; how many ranks the group has
 *   group                            a number of the group, in hexadecimal; 0: one node only
 *   group_name                       the end of the name or path by which its ranks met; "": they
 *                                    have none
 *   pid                              the process's number at the system, by which profilers name it
 *   measurer                         the rank whose process measures the offset of the node's
 *                                    clock; its file has the offsets, others of the node have none
 *   offsets                          how far the clock of rank 0's node is ahead of this one, in
 *                                    nanoseconds: at_ns when this was measured, by this node's
 *                                    clock; ahead_ns; within_ns how much ahead_ns can be wrong
 *   clocks                           two moments, when the context was opened and when the trace
 *                                    was written: realtime_ns by CLOCK_REALTIME, which profilers
 *                                    use, monotonic_ns by the clock of the trace's events;
 *                                    within_ns how far apart the two were read
 */
void cei_trace_write_origin(const struct cei_site *site, FILE *out);

#endif /* CEI_TRACE_ORIGIN_H */
