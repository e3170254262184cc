/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef INFO_RAILS_H
#define INFO_RAILS_H

/* The rails that a process of a group of several nodes would open on this machine: tried by opening
 * each one's transport, which is closed again. */

#include <stdint.h>

#include "net/network.h"

struct info_rail {
	char name[64];                  /* the network interface; "any": UCX chooses */
	char text[200];                 /* what its transport says of itself; of one that cannot
					 * be opened: why */
	int  is_usable;
};

struct info_rails {
	uint32_t         n;             /* at least 1 */
	uint32_t         n_usable;
	struct info_rail rails[CEI_NETWORK_RAILS_MAX];
};

void info_rails_try(struct info_rails *ret_rails);

#endif /* INFO_RAILS_H */
