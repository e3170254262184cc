/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRANSPORT_CONFORMANCE_H
#define CEI_TRANSPORT_CONFORMANCE_H

/* Tests that every transport must pass. They use struct cei_transport_ops only. */

#include "net/transport.h"

/* Adds the cases that need several transports in one process only. */
struct Suite;
void transport_add_cases(struct Suite *suite, const struct cei_transport_ops *ops,
			 const char *kinds);

/* Adds those where the other transport is in a process that is stopped, killed, or asleep. */
void transport_add_process_cases(struct Suite *suite, const struct cei_transport_ops *ops,
				 const char *kinds);

/* Runs the first cases, and with with_processes the others, too. Returns main()'s exit
 * status; 77 (skipped): the transport cannot be opened here; the reason is printed. */
int transport_run(const struct cei_transport_ops *ops, const char *kinds, int with_processes);

#endif /* CEI_TRANSPORT_CONFORMANCE_H */
