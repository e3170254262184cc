/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The all-to-all template: one block to each rank. */

#include <ceoverlap/collective.h>

#include "ce_engine/signal.h"
#include "collective/rotation.h"

int ceov_plan_add_all_to_all(ceov_plan *plan, const struct ceov_all_to_all *exchange)
{
	struct cei_fan fan = {
		.plan = plan,
		.name = "ceov_plan_add_all_to_all",
	};
	int r;

	r = cei_fan_check_struct(&fan, exchange, sizeof(*exchange));
	if (r)
		return r;
	if (exchange->ready && cei_object_check(exchange->ready, &cei_signal_type, fan.name))
		return CEOV_ERR_INVALID;
	fan.bytes = exchange->block_bytes;
	fan.n_pieces = exchange->n_pieces;
	fan.source = exchange->source;
	fan.source_offset_bytes = exchange->source_offset_bytes;
	fan.source_step_bytes = exchange->block_bytes;
	/* a signal of n_pieces counters serves all targets */
	if (exchange->ready && exchange->ready->n_counters > exchange->n_pieces)
		fan.ready_step = exchange->n_pieces;
	fan.targets = exchange->targets;
	fan.target_offset_bytes = exchange->target_offset_bytes;
	fan.ready = exchange->ready;
	fan.arrived = exchange->arrived;
	fan.free = exchange->free;
	return cei_fan_add(&fan);
}
