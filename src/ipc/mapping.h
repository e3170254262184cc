/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MAPPING_H
#define CEI_MAPPING_H

/*
 * The regions of peers that are mapped in this process. Each is mapped once and counts its users:
 * memory that is found twice, or under two names, is imported only once. A region is identified by
 * its whole description and, for host memory, by the file that came with it, because a description
 * alone could be forged. Any thread may call these functions.
 */

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include "ipc/share.h"

/* The most regions that a context maps at the same time. */
#define CEI_MAPPINGS_MAX 16384u

struct cei_mappings {
	struct cei_site *site;          /* NULL: not initialised; fini then does nothing */
	pthread_mutex_t  lock;          /* guards list and n_mappings; held while mapping */
	struct cei_list  list;          /* of struct mapping */
	uint32_t         n_mappings;
};

int  cei_mappings_init(struct cei_mappings *mappings, struct cei_site *site);

/* Unmaps all regions, even if they are still referenced. */
void cei_mappings_fini(struct cei_mappings *mappings);

/* Maps the region for all members, or returns the mapping that exists. Takes ownership of fd (which
 * may be -1) in any case. */
int  cei_mapping_get(struct cei_mappings *mappings, const struct cei_region_wire *wire,
		     int fd, struct cei_region **ret_region);

/* Drops one reference; the last one unmaps. NULL is allowed. */
void cei_mapping_put(struct cei_mappings *mappings, struct cei_region *region);

#endif /* CEI_MAPPING_H */
