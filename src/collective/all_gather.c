/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The all-gather template: one shard to every rank. */

#include <ceoverlap/collective.h>

#include "collective/rotation.h"

int ceov_plan_add_all_gather(ceov_plan *plan, const struct ceov_all_gather *gather)
{
	struct cei_fan fan = {
		.plan = plan,
		.name = "ceov_plan_add_all_gather",
	};
	int r;

	r = cei_fan_check_struct(&fan, gather, sizeof(*gather));
	if (r)
		return r;
	fan.bytes = gather->shard_bytes;
	fan.n_pieces = gather->n_pieces;
	fan.source = gather->source;
	fan.source_offset_bytes = gather->source_offset_bytes;
	fan.targets = gather->targets;
	fan.target_offset_bytes = gather->target_offset_bytes;
	fan.ready = gather->ready;
	fan.arrived = gather->arrived;
	fan.free = gather->free;
	return cei_fan_add(&fan);
}
