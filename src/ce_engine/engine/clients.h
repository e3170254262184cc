/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CLIENTS_H
#define CEI_CLIENTS_H

/*
 * Clients that share the engines of one process. Each has a slot in works->flows, which its
 * contexts name (ceov_context.slot); sched/flows.h says what clients may use, changes and closes
 * slots, and tells what they have used. Without this, all work of the engines is one client's.
 *
 * One thread at a time; engines may run, and commits may go on.
 */

#include <stdint.h>

#include "ce_engine/objects/works.h"
#include "ce_engine/sched/flows.h"

/* Lets the works have clients: after cei_works_open(), before cei_works_start().
 * CEOV_ERR_NO_MEMORY, raised. */
int  cei_clients_share(struct cei_works *works);

/* Opens a slot, with room in all engines, which are open. Room stays for the slot's next client.
 * CEOV_FULL: there are CEI_FLOWS_CLIENTS clients. CEOV_ERR_INVALID, not raised: the limits are out
 * of range. CEOV_ERR_NO_MEMORY, raised. */
int  cei_clients_open(struct cei_works *works, const struct cei_flows_limits *limits,
		      uint32_t *ret_slot);

#endif /* CEI_CLIENTS_H */
