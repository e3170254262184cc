/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Hands the book of the group from one process of a node to the others, by the node's bootstrap. */

#include "ce_engine/node_book.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ipc/bootstrap.h"
#include "net/network.h"

/* No name of an application, since it cannot be typed. */
#define NAME "\001book"

/* Offers the book, or nothing if it cannot be sealed, so that nobody waits for it. */
static int offer(ceov_context *context, uint32_t rank)
{
	struct cei_network *network = context->site.network;
	struct cei_export export;
	uint64_t id;
	int fd = -1, r;

	memset(&export, 0, sizeof(export));
	export.rank = rank;
	snprintf(export.name, sizeof(export.name), "%s", NAME);
	if (!cei_network_seal_book(network, &fd)) {
		export.n_fds = 1;
		export.fds[0] = fd;
	}
	r = cei_bootstrap_export(context->bootstrap, &export, &id);
	if (!r && fd >= 0)
		r = cei_network_share_book(network, fd);
	if (fd >= 0)
		close(fd);
	return r;
}

static int find(ceov_context *context, const struct cei_lookup *lookup,
		struct cei_export *ret_export, uint64_t *ret_id)
{
	struct cei_backoff backoff;
	int r;

	cei_backoff_reset(&backoff);
	while ((r = cei_bootstrap_find(context->bootstrap, lookup, ret_export, ret_id)) ==
	       CEOV_NONE) {
		if (cei_now_ns() >= lookup->deadline_ns)
			return cei_raise(&context->report, CEOV_ERR_TIMEOUT, 0,
					 "ceov_open: rank %u does not offer the group's addresses "
					 "to the other processes of its node", lookup->rank);
		cei_backoff_step(&backoff);
	}
	return r;
}

static int take(ceov_context *context, uint32_t rank)
{
	const struct cei_lookup lookup = { rank, NAME, cei_deadline(context->deadline_ns) };
	struct cei_export export;
	uint64_t id;
	uint32_t i;
	int r = find(context, &lookup, &export, &id);

	if (r)
		return r;
	if (export.n_fds == 1)
		r = cei_network_share_book(context->site.network, export.fds[0]);
	for (i = 0; i < export.n_fds; i++)
		close(export.fds[i]);
	cei_bootstrap_drop(context->bootstrap, rank, id);
	return r;
}

int cei_node_book_share(ceov_context *context)
{
	uint32_t rank = cei_site_first_local(&context->site), i;

	if (!context->site.network || !context->bootstrap)
		return 0;
	for (i = 0; i < context->site.n_members; i++)
		if (context->site.members[i].rank == rank)
			return offer(context, rank);
	return take(context, rank);
}
