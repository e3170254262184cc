/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef INFO_RAILS_H
#define INFO_RAILS_H

/* The rails that a process of a group of several nodes would open on this machine, if it had a rank
 * on each GPU: tried by opening each one's transport, which is closed again. */

#include <stdint.h>

#include "net/network.h"
#include "topology/machine.h"

struct info_rail {
	char name[64];                  /* the network interface; "any": UCX chooses */
	char text[200];                 /* what its transport says of itself; of one that cannot
					 * be opened: why */
	char why[160];                  /* why it would be opened */
	int  is_usable;
};

struct info_left {                      /* a NIC of the machine that gets no rail */
	char name[64];
	char why[160];
};

struct info_rails {
	uint32_t         n;             /* at least 1 */
	uint32_t         n_usable;
	uint32_t         n_left;        /* 0 also where CEOVERLAP_NICS names the interfaces */
	struct info_rail rails[CEI_NETWORK_RAILS_MAX];
	struct info_left left[CEI_MACHINE_NICS_MAX];
};

/* machine: whose topology chooses; NULL: this machine's is read. */
void info_rails_try(const struct cei_machine *machine, struct info_rails *ret_rails);

#endif /* INFO_RAILS_H */
