/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_RAIL_PAIR_H
#define CEI_RAIL_PAIR_H

/*
 * Tests of two rails within one process, in real time and with their threads, over any
 * transport: several engines and readers at once, messages beside them, and a lane that is full.
 */

#include <check.h>

struct cei_transport_ops;

/* kinds: as struct cei_transport_config. */
void rail_pair_add_cases(Suite *suite, const struct cei_transport_ops *ops, const char *kinds);

/* Whether the transport cannot be opened here; prints why. The simulated network always can. */
int rail_pair_is_absent(const struct cei_transport_ops *ops, const char *kinds);

/* Runs them. Returns main()'s exit status; 77 (skipped): the transport cannot be opened here; the
 * reason is printed. */
int rail_pair_run(const struct cei_transport_ops *ops, const char *kinds);

#endif /* CEI_RAIL_PAIR_H */
