/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORKS_OPEN_H
#define CEI_WORKS_OPEN_H

/* Begins and ends what moves the bytes of a context. One thread at a time. */

#include <stdint.h>

#include "ce_engine/objects/works.h"

/* Reads the machine, before anything else of the works is used. The works are zeroed before. Raises
 * as cei_topology_open(). */
int  cei_works_open(struct cei_works *works, struct cei_site *site);

/* Opens the members' engines. has_ports 0: transfers go regardless of what other transfers use.
 * Raises. After a failure call cei_works_stop() and cei_works_close_engines(). */
int  cei_works_start(struct cei_works *works, int has_ports);

/* Ends launches in flight as aborted and stops the engines, all at the same time. Gives up after
 * half of timeout_ns what does not come back. Returns how many engines did not stop within
 * timeout_ns: then the works, and all memory that they may access, must stay. Accepts works that
 * were not opened or started. */
uint32_t cei_works_stop(struct cei_works *works, uint64_t timeout_ns);

/* Releases the engines, which have stopped, with their movers and lanes. Before what movers use is
 * closed: the network, and mappings of memory. */
void cei_works_close_engines(struct cei_works *works);

/* Releases the rest, when no mapping needs the topology any more. */
void cei_works_close(struct cei_works *works);

#endif /* CEI_WORKS_OPEN_H */
