/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Memory of this process that processes of other nodes write to. */

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "net/network.h"
#include "net/network_private.h"

/* How long a close waits for a piece that is landing. */
#define QUIET_NS UINT64_C(1000000000)

int cei_network_region_open(struct cei_network *network, uint32_t id,
			    const struct cei_network_region *from)
{
	struct cei_far_region region = {
		.id = id,
		.uses = from->kind == CEI_NETWORK_COUNTERS ? CEI_FAR_WORDS : CEI_FAR_BYTES,
		.host = from->base,
		.device = from->device,
		.unit = from->unit,
		.n_bytes = from->size_bytes,
	};

	if (!network->rail || (!from->base && !from->device))
		return 0;
	if (network->in_place.is_staged && region.uses == CEI_FAR_BYTES && from->base) {
		region.device = (uint64_t)(uintptr_t)from->base;
		region.host = NULL;
		region.needs_slots = 1;
	}
	return cei_rail_region_open(network->rail, &region);
}

int cei_network_region_close(struct cei_network *network, uint32_t id)
{
	uint64_t deadline_ns = cei_deadline(QUIET_NS);
	struct cei_backoff backoff;
	int r;

	if (!network->rail)
		return 0;
	cei_backoff_reset(&backoff);
	while ((r = cei_rail_region_close(network->rail, id)) == CEOV_PENDING &&
	       cei_now_ns() < deadline_ns)
		cei_backoff_step(&backoff);
	return r == CEOV_PENDING ? r : 0;
}
