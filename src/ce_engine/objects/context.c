/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queries of a context; open.c opens and closes it. */

#include "ce_engine/objects/context.h"

#include "backend/place.h"
#include "base/clock.h"

uint32_t cei_context_member(const ceov_context *context, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < context->site.n_members; i++)
		if (context->site.members[i].rank == rank)
			return i;
	return CEOV_NOBODY;
}

struct cei_backend *cei_context_backend(ceov_context *context, uint32_t rank)
{
	return context->backends[cei_context_member(context, rank)];
}

int cei_context_own_rank(ceov_context *context, uint32_t rank, const char *call,
			 uint32_t *ret_member)
{
	*ret_member = cei_context_member(context, rank);
	if (*ret_member != CEOV_NOBODY)
		return 0;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "%s: rank %u is not one of this process", call, rank);
}

int cei_context_stream(ceov_context *context, uint32_t rank, const void *stream,
		       const char *call, struct cei_backend **ret_backend)
{
	uint32_t member;
	int r = cei_context_check(context, call);

	if (!r)
		r = cei_context_own_rank(context, rank, call, &member);
	if (r)
		return r;
	*ret_backend = context->backends[member];
	if (!((*ret_backend)->ops->caps & CEI_CAP_STREAMS))
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: rank %u is on the host, which has no streams; use "
				 "ceov_signal_raise(), ceov_signal_wait() and ceov_launch()",
				 call, rank);
	if (!stream)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: the NULL stream cannot be used", call);
	return 0;
}

int ceov_barrier(ceov_context *context, uint64_t timeout_ns)
{
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	int r = cei_context_check(context, "ceov_barrier");

	return r || !context->peers ? r : cei_peers_barrier(context->peers, deadline_ns);
}

int ceov_n_ranks(ceov_context *context, uint32_t *ret_n_ranks)
{
	int r = cei_context_check(context, "ceov_n_ranks");

	if (r)
		return r;
	if (!ret_n_ranks)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_n_ranks: no ret_n_ranks");
	*ret_n_ranks = context->site.n_ranks;
	return 0;
}

int ceov_members(ceov_context *context, struct ceov_member *ret_members, uint32_t n,
		 uint32_t *ret_n_members)
{
	int r = cei_context_check(context, "ceov_members");
	uint32_t i;

	if (r)
		return r;
	if (!ret_n_members || (n && !ret_members))
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_members: no ret_n_members, or no room for %u members", n);
	for (i = 0; i < n && i < context->site.n_members; i++)
		ret_members[i] = context->site.members[i];
	*ret_n_members = context->site.n_members;
	return 0;
}

int ceov_rank_node(ceov_context *context, uint32_t rank, uint32_t *ret_node)
{
	const struct cei_roster *roster;
	int r = cei_context_check(context, "ceov_rank_node");

	if (r)
		return r;
	if (!ret_node || rank >= context->site.n_ranks)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_rank_node: rank %u of %u, or no ret_node", rank,
				 context->site.n_ranks);
	*ret_node = 0;
	if (!context->peers)
		return 0;
	roster = cei_peers_roster(context->peers);
	*ret_node = roster->node_of[roster->process_of[rank]];
	return 0;
}

int ceov_last_failure(ceov_context *context, struct ceov_failure *ret_failure)
{
	static const char fault[] = "ceov_last_failure: no ret_failure";
	int r = context ? cei_context_check(context, "ceov_last_failure") : 0;

	if (r)
		return r;
	if (!context)
		return ret_failure ? cei_report_take_own(ret_failure)
			: cei_raise_unlogged(CEOV_ERR_INVALID, "%s", fault);
	return ret_failure ? cei_report_take(&context->report, ret_failure)
		: cei_raise(&context->report, CEOV_ERR_INVALID, 0, "%s", fault);
}
