/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_OFFER_H
#define CEI_SERVICE_OFFER_H

/*
 * The memory that a plan names, as a client offers it to a daemon: a description of each region,
 * and descriptors beside. On the way the descriptions stand in front of the program's bytes.
 *
 *   descriptions   CEI_WIRE_REGION_BYTES each: buffers, then of each signal its control region and,
 *                  of one in a GPU, the region there
 *   descriptors    one for each description that has one, in the same order
 */

#include <stddef.h>
#include <stdint.h>

#include "ipc/share.h"

struct cei_service_offer {
	struct cei_region_wire *memories;
	int                    *fds;            /* the regions' */
	uint32_t                n_memories;
	uint32_t                n_fds;
	uint32_t                n_room;         /* of both */
};

/* fini accepts an offer that is zeroed. CEOV_ERR_NO_MEMORY, not raised. */
int  cei_offer_init(struct cei_service_offer *offer, uint32_t n_room);
void cei_offer_fini(struct cei_service_offer *offer);

/* Adds a region, which has to be shareable (cei_region_is_shareable()). Raises. */
int  cei_offer_add(struct cei_service_offer *offer, struct cei_region *region);

/* Size of the descriptions, and writes them. */
size_t cei_offer_bytes(const struct cei_service_offer *offer);
void   cei_offer_write(const struct cei_service_offer *offer, uint8_t *bytes);

/* What came of an offer, read by the daemon one region after the other. */
struct cei_service_taken {
	const uint8_t *bytes;           /* descriptions */
	uint32_t       n_memories;
	int           *fds;             /* those that are taken become -1 */
	uint32_t       n_fds;
	uint32_t       next_memory;
	uint32_t       next_fd;
};

/* Takes the next region. *ret_fd: the caller's, or -1. CEOV_ERR_INVALID, not raised: there is none,
 * it is no description, or a descriptor is missing. */
int  cei_offer_take(struct cei_service_taken *taken, struct cei_region_wire *ret_wire, int *ret_fd);

/* Whether all regions and descriptors were taken. */
int  cei_offer_is_taken(const struct cei_service_taken *taken);

#endif /* CEI_SERVICE_OFFER_H */
