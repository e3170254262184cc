/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SPREAD_H
#define CEI_SPREAD_H

/* Who passes news on to whom. Pure functions. */

#include <stdint.h>

#define CEI_SPREAD_MAX 64u              /* processes that one tells at most */

/* Writes the nodes that node `own` of n tells what it has learned: those that are 1, 2, 4
 * and so on away in either direction, in a circle. Returns how many; each is there once. If
 * everybody tells news once, all hear them in about log2(n) steps, and also if any log2(n)
 * processes, rounded down, tell nothing (tests/unit/test_spread.c). */
uint32_t cei_spread(uint32_t own, uint32_t n, uint32_t ret_told[CEI_SPREAD_MAX]);

#endif /* CEI_SPREAD_H */
