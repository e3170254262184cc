/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef INFO_RAIL_H
#define INFO_RAIL_H

/* The rail to other nodes that a process of a group of several nodes would open on this machine, if
 * it had a rank on each GPU, the first one on GPU 0: tried by opening its transport, which is
 * closed again. */

#include <stdint.h>

#include "topology/machine.h"
#include "topology/nics.h"

struct info_left {                      /* a NIC of the machine that the process would not use */
	char name[64];
	char why[CEI_NIC_WHY_BYTES];
};

struct info_rail {
	char     name[64];              /* the network interface; "any": UCX chooses */
	char     text[200];             /* what its transport says of itself; if it cannot be
					 * opened: why */
	char     why[CEI_NIC_WHY_BYTES];        /* it would be this one */
	int      is_usable;
	uint32_t n_left;                /* 0 also where CEOVERLAP_NICS names one interface */
	struct info_left left[CEI_MACHINE_NICS_MAX];
};

/* machine: whose topology chooses; NULL: this machine's is read. */
void info_rail_try(const struct cei_machine *machine, struct info_rail *ret_rail);

#endif /* INFO_RAIL_H */
