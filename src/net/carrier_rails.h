/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CARRIER_RAILS_H
#define CEI_CARRIER_RAILS_H

/*
 * The carrier (ipc/peers/carrier.h) to processes of other nodes: each message is a NOTE of the
 * rail, which brings them once and in order.
 *
 *   FULL         the rail has no event for room, so turn() tries again, less and less often
 *   give_up      REFUSE, by which the other side learns it; when its connection has ended, quiet
 *   farewell     a BYE of the group is told when the rail's connection has ended in order, too:
 *                until then bytes of the process may land
 */

#include "ipc/peers/carrier.h"
#include "net/rail.h"

struct cei_carrier_rails;

/* It is opened before its rail, whose events are passed on to it. CEOV_ERR_NO_MEMORY, not
 * raised. */
int  cei_carrier_rails_open(uint32_t n_processes, int progress_by_caller,
			    struct cei_carrier_rails **ret_rails);

/* The rail has been closed, and the peers have left. NULL is allowed. */
void cei_carrier_rails_close(struct cei_carrier_rails *rails);

/* The rail is open; before the peers are. */
void cei_carrier_rails_attach(struct cei_carrier_rails *rails, struct cei_rail *rail);

/* The peers are open, and the rail is about to begin. */
void cei_carrier_rails_begin(struct cei_carrier_rails *rails, struct cei_peers *peers);

const struct cei_carrier *cei_carrier_rails_base(const struct cei_carrier_rails *rails);

/* Whether the connection to the process has ended. */
int  cei_carrier_rails_has_ended(const struct cei_carrier_rails *rails, uint32_t process);

/* The events of the rail, see net/rail_config.h. */
void cei_carrier_rails_heard(struct cei_carrier_rails *rails, uint32_t process,
			     const struct cei_far_note *note);
void cei_carrier_rails_losing(struct cei_carrier_rails *rails, uint32_t process, const char *why,
			      int is_refusal);
void cei_carrier_rails_lost(struct cei_carrier_rails *rails, uint32_t process);
void cei_carrier_rails_departed(struct cei_carrier_rails *rails, uint32_t process);

#endif /* CEI_CARRIER_RAILS_H */
