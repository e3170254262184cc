/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What handles tell of themselves: ceov_context_query() and its like. */

#include <stdio.h>

#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/plan/plan_release.h"
#include "ce_engine/remote/remote.h"
#include "net/network.h"

_Static_assert(CEOV_NAME_BYTES == CEI_GROUP_NAME_BYTES, "names of exports fit");

int ceov_context_query(ceov_context *context, struct ceov_context_info *ret_info)
{
	struct ceov_context_info info = CEOV_CONTEXT_INFO_INIT;
	const struct cei_roster *roster;
	int r = cei_context_check(context, "ceov_context_query");

	if (r)
		return r;
	info.n_ranks = context->site.n_ranks;
	info.n_members = context->site.n_members;
	info.n_processes = info.n_nodes = 1;
	if (context->peers) {
		roster = cei_peers_roster(context->peers);
		info.n_processes = roster->n_processes;
		info.n_nodes = roster->n_nodes;
		info.node = roster->node_of[roster->own];
	}
	info.bootstrap = context->site.network ? cei_network_means(context->site.network)
		: (uint32_t)CEOV_BOOTSTRAP_ALONE;
	info.deadline_ns = context->deadline_ns;
	info.has_daemon = cei_remote_is_connected(context);
	return cei_sized_answer(&context->report, ret_info, &info, sizeof(info),
				"ceov_context_query: ret_info");
}

/* Memory of another node is not described as to where it is there. */
static struct ceov_place place_of(const struct cei_region *region)
{
	struct ceov_place place = { region->kind, 0 };

	if (region->kind == CEOV_PLACE_GPU)
		place.index = region->gpu;
	else if (region->origin == CEI_REGION_FAR)
		place.index = CEOV_NOBODY;
	return place;
}

int ceov_buffer_query(const ceov_buffer *buffer, struct ceov_buffer_info *ret_info)
{
	struct ceov_buffer_info info = CEOV_BUFFER_INFO_INIT;
	int r = cei_object_check(buffer, &cei_buffer_type, "ceov_buffer_query");

	if (r)
		return r;
	info.size_bytes = buffer->region->size_bytes;
	info.rank = buffer->rank;
	info.place = place_of(buffer->region);
	info.is_found = buffer->region != &buffer->own;
	info.is_floating = buffer->is_floating;
	snprintf(info.name, sizeof(info.name), "%s", cei_shared_name_text(&buffer->name));
	return cei_sized_answer(cei_object_report(&buffer->object), ret_info, &info, sizeof(info),
				"ceov_buffer_query: ret_info");
}

int ceov_signal_query(const ceov_signal *signal, struct ceov_signal_info *ret_info)
{
	struct ceov_signal_info info = CEOV_SIGNAL_INFO_INIT;
	int r = cei_object_check(signal, &cei_signal_type, "ceov_signal_query");

	if (r)
		return r;
	info.n_counters = signal->n_counters;
	info.rank = signal->rank;
	info.place = signal->place;
	info.is_found = signal->control != &signal->own_control;
	info.is_visible = cei_signal_is_visible(signal);
	info.error = cei_signal_blame(signal, &info.blamed);
	snprintf(info.name, sizeof(info.name), "%s", cei_shared_name_text(&signal->name));
	return cei_sized_answer(cei_object_report(&signal->object), ret_info, &info, sizeof(info),
				"ceov_signal_query: ret_info");
}

int ceov_plan_query(const ceov_plan *plan, struct ceov_plan_info *ret_info)
{
	struct ceov_plan_info info = CEOV_PLAN_INFO_INIT;
	int r = cei_object_check(plan, &cei_plan_type, "ceov_plan_query");
	uint32_t i;

	if (r)
		return r;
	info.rank = plan->program.rank;
	info.n_transfers = plan->program.n_transfers;
	for (i = 0; i < info.n_transfers; i++)
		info.bytes += plan->program.transfers[i].row_bytes *
			plan->program.transfers[i].n_rows;
	info.is_committed = !plan->builder;
	pthread_mutex_lock(cei_plan_lock_of(plan));
	info.n_in_flight = plan->object.context->door->n_in_flight(plan);
	info.is_by_daemon = cei_remote_has(plan);
	pthread_mutex_unlock(cei_plan_lock_of(plan));
	return cei_sized_answer(cei_object_report(&plan->object), ret_info, &info, sizeof(info),
				"ceov_plan_query: ret_info");
}
