/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Meets the other processes of the group, and parts from them. */

#include "ce_engine/meet.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/peer_events.h"
#include "ipc/carrier_unix.h"
#include "net/network.h"
#include "net/node_meet.h"

static int has_mates(const ceov_context *context)
{
	return context->site.n_members != cei_site_n_local(&context->site);
}

/* Gets links to the other processes of this node. */
static int get_links(ceov_context *context, const char *group, struct cei_links *links)
{
	char path[CEI_NETWORK_PATH_BYTES];

	if (!group && context->site.network) {
		cei_network_group_path(context->site.network, path);
		group = path;
	}
	if (!group)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_open: the group has %u ranks and this process %u; "
				 "name the group's socket path (config or CEOVERLAP_GROUP)",
				 context->site.n_ranks, context->site.n_members);
	return cei_node_meet(&context->site, group, cei_deadline(context->deadline_ns), links);
}

static int open_peers(ceov_context *context, const struct cei_roster *roster)
{
	struct cei_network *network = context->site.network;
	struct cei_peers_config config = {
		.report = &context->report,
		.roster = roster,
		.timeout_ns = CEI_DEADLINE_DEFAULT_NS,
		.progress_by_caller = context->site.progress_by_caller,
		.events = &cei_peer_events,
		.events_arg = context,
	};
	int r = has_mates(context) ? cei_unix_open(&context->report, roster, &context->mates) : 0;

	if (r)
		return r;
	if (context->mates)
		config.near = cei_unix_carrier(context->mates);
	if (network) {
		config.far = cei_network_carrier(network);
		config.timeout_ns = cei_network_timeout_ns(network);
	}
	return cei_peers_open(&config, &context->peers);
}

/* A group of one node has no roster before its processes have met. */
static int meet_node(ceov_context *context, const char *group, struct cei_links *links)
{
	int r = get_links(context, group, links);

	if (r)
		return r;
	context->roster = calloc(1, sizeof(*context->roster));
	if (!context->roster)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for a roster");
	cei_node_roster_make(&context->site, links, context->roster);
	return open_peers(context, &context->roster->roster);
}

/* Other nodes may ask, or tell of losses, before the processes of this node have met. */
static int meet_nodes(ceov_context *context, const char *group, struct cei_links *links)
{
	struct cei_network *network = context->site.network;
	int r = open_peers(context, cei_network_roster(network));

	if (!r)
		r = cei_network_begin(network, context->peers);
	if (!r && has_mates(context))
		r = get_links(context, group, links);
	return r;
}

int cei_context_meet(ceov_context *context, const char *group)
{
	struct cei_links links = { .n_links = 0 };
	int r = 0;

	if (context->site.network)
		r = meet_nodes(context, group, &links);
	else if (has_mates(context))
		r = meet_node(context, group, &links);
	if (r || !context->mates) {
		cei_links_close(&links);
		return r;
	}
	cei_log(&context->report, CEI_LOG_DEBUG, "the %u processes of this node have met",
		links.n_links + 1);
	return cei_unix_attach(context->mates, context->peers, &links);
}

void cei_context_part(ceov_context *context)
{
	cei_unix_close(context->mates);
	cei_peers_free(context->peers);
	free(context->roster);
}
