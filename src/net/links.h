/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LINKS_H
#define CEI_LINKS_H

/* Sockets to the other processes of this node. */

#include <stdint.h>

#include "base/site.h"

#define CEI_LINKS_MAX (CEI_LOCAL_MAX - 1)

struct cei_links {
	uint32_t n_links;
	struct cei_node_link {
		struct cei_party party;
		int              fd;    /* a socket that keeps message boundaries */
		int              pidfd; /* of that process; -1: the system cannot make one */
	} links[CEI_LINKS_MAX];
};

void cei_links_close(struct cei_links *links);

#endif /* CEI_LINKS_H */
