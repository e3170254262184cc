/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Memory of the application that the transport reads and writes itself, without slots. */

#include "net/rail_private.h"

static int is_tried(struct cei_rail *rail, void *arg)
{
	struct cei_transport *transport = &rail->nic.transport;

	return !transport->ops->is_tried_in_place ||
		transport->ops->is_tried_in_place(transport, arg);
}

int cei_rail_is_tried_in_place(struct cei_rail *rail, const char **ret_why)
{
	return cei_rail_run(rail, is_tried, ret_why) == 1;
}

static int takes(struct cei_rail *rail, void *arg)
{
	struct cei_transport *transport = &rail->nic.transport;
	const char **ret_why = arg;

	*ret_why = "it never does";
	return transport->ops->takes_gpu_memory &&
		transport->ops->takes_gpu_memory(transport, ret_why);
}

int cei_rail_takes_gpu_memory(struct cei_rail *rail, const char **ret_why)
{
	return cei_rail_run(rail, takes, ret_why) == 1;
}

static int go_direct(struct cei_rail *rail, void *arg)
{
	const uint32_t *unit = arg;
	const struct cei_rail_config *config = &rail->nic.config;
	int r = config->copier->bind(config->copier_arg, *unit);

	if (!r)
		rail->nic.table.is_direct = 1;
	return r;
}

int cei_rail_go_direct(struct cei_rail *rail, uint32_t unit)
{
	return cei_rail_run(rail, go_direct, &unit);
}

int cei_rail_use_unit(struct cei_rail *rail, uint32_t unit, int needs_slots)
{
	if (rail->nic.table.is_direct && !needs_slots)
		return 0;
	return cei_far_slots_use(&rail->nic.slots, unit);
}
