/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The template broadcast. The root hands its pieces to the ranks of its node in turn. Whoever has
 * one, its carrier, sends it on as if it were its shard of an all-gather: to the others of the
 * node, and to one rank of each other node, which passes it on there (levels.h). */

#include <ceoverlap/collective.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_builder.h"
#include "collective/levels.h"
#include "collective/template.h"

struct broadcast {
	struct cei_template   common;
	struct ceov_broadcast args;
	struct cei_levels     levels;
};

static uint32_t n_carriers(const struct broadcast *broadcast)
{
	const struct cei_levels *levels = &broadcast->levels;

	return levels->n_local[levels->node[broadcast->args.root]];
}

/* Returns the rank of the root's node with this index. */
static uint32_t rank_at(const struct broadcast *broadcast, uint32_t index)
{
	const struct cei_levels *levels = &broadcast->levels;
	uint32_t rank = 0;

	while (levels->node[rank] != levels->node[broadcast->args.root] ||
	       levels->index[rank] != index)
		rank++;
	return rank;
}

/* Whether the rank `from` sends the carrier's pieces to the other one. */
static int sends(const struct broadcast *broadcast, uint32_t from, uint32_t carrier, uint32_t to)
{
	const struct cei_levels *levels = &broadcast->levels;

	if (to == broadcast->args.root || to == from)
		return 0;
	if (from == carrier)
		return cei_levels_sends(levels, carrier, to);
	if (from == broadcast->args.root)
		return to == carrier;
	return cei_levels_passes_on(levels, from, carrier) &&
		cei_levels_passes_to(levels, from, carrier, to);
}

/* The bytes at the root, or in the own target where they have arrived. */
static struct cei_part part_of(const struct broadcast *broadcast)
{
	const struct ceov_broadcast *args = &broadcast->args;
	struct cei_part part = { .bytes = args->bytes, .target_at = args->target_offset_bytes };

	if (broadcast->common.rank == args->root) {
		part.source = args->source;
		part.source_at = args->source_offset_bytes;
		part.ready = args->ready;
	} else {
		part.source = args->targets[broadcast->common.rank];
		part.source_at = args->target_offset_bytes;
		part.ready = args->arrived[broadcast->common.rank];
	}
	return part;
}

static int check_source(const struct broadcast *broadcast)
{
	const struct ceov_broadcast *args = &broadcast->args;
	const struct cei_template *common = &broadcast->common;
	int r = cei_object_check(args->source, &cei_buffer_type, common->name);

	if (r || !args->ready)
		return r;
	return cei_template_check_signal(common, common->rank, "ready", args->ready,
					 common->n_counters);
}

/* Checks the target of a rank to which this one sends the carrier's pieces, and what says that the
 * rank has sent them on. */
static int check_target(const struct broadcast *broadcast, uint32_t carrier, uint32_t rank)
{
	uint32_t to;
	int r = cei_template_check_target(&broadcast->common, rank);

	for (to = 0; !r && to < broadcast->common.n_ranks; to++)
		if (sends(broadcast, rank, carrier, to))
			r = cei_template_check_free(&broadcast->common, to);
	return r;
}

/* Checks the targets of the ranks to which this one sends, and what it sends from. */
static int check_targets(const struct broadcast *broadcast)
{
	const struct cei_template *common = &broadcast->common;
	uint32_t i, rank, carrier, n = n_carriers(broadcast), n_sent = 0;
	int r = 0;

	for (i = 0; i < n && i < common->n_pieces; i++) {
		carrier = rank_at(broadcast, i);
		for (rank = 0; !r && rank < common->n_ranks; rank++) {
			if (!sends(broadcast, common->rank, carrier, rank))
				continue;
			r = check_target(broadcast, carrier, rank);
			n_sent++;
		}
	}
	if (!r && n_sent && common->rank != broadcast->args.root)
		r = cei_template_check_own(common, 1);
	return r;
}

static int check(const struct broadcast *broadcast)
{
	const struct ceov_broadcast *args = &broadcast->args;
	const struct cei_template *common = &broadcast->common;
	int r = cei_template_check(common);

	if (r)
		return r;
	if (!args->bytes)
		return cei_template_refuse(common, common->rank, "no bytes or no pieces");
	if ((args->n_pieces - 1) * cei_template_piece_bytes(args->bytes, args->n_pieces) >=
	    args->bytes)
		return cei_template_refuse(common, common->rank,
					   "more pieces than there are bytes for");
	if (common->rank == args->root)
		r = check_source(broadcast);
	return r ? r : check_targets(broadcast);
}

/* The transfer waits until those have freed their copies to whom the rank sends the piece on, since
 * it reads its own copy for that. */
static int await_readers(const struct broadcast *broadcast, const struct cei_part *part,
			 uint32_t carrier, uint32_t rank, uint32_t piece)
{
	uint32_t to;
	int r = 0;

	for (to = 0; !r && to < broadcast->common.n_ranks; to++)
		if (sends(broadcast, rank, carrier, to))
			r = cei_template_await_also(&broadcast->common, part, to, piece);
	return r;
}

static int add_piece(const struct broadcast *broadcast, const struct cei_part *part,
		     uint32_t piece)
{
	const struct cei_template *common = &broadcast->common;
	uint32_t carrier = rank_at(broadcast, piece % n_carriers(broadcast));
	uint32_t step, rank, n_added = 0;
	int r = 0;

	for (step = 1; !r && step < common->n_ranks; step++) {
		rank = (common->rank + step) % common->n_ranks;
		if (!sends(broadcast, common->rank, carrier, rank))
			continue;
		r = cei_template_add(common, part, rank, piece, !n_added++);
		if (!r)
			r = await_readers(broadcast, part, carrier, rank, piece);
	}
	return r;
}

static int add(struct broadcast *broadcast)
{
	struct cei_template *common = &broadcast->common;
	struct cei_part part;
	uint32_t piece;
	int r;

	common->n_pieces = broadcast->args.n_pieces;
	common->targets = broadcast->args.targets;
	common->arrived = broadcast->args.arrived;
	common->free = broadcast->args.free;
	common->n_counters = common->n_pieces;
	r = check(broadcast);
	if (r)
		return r;
	part = part_of(broadcast);
	for (piece = 0; !r && piece < common->n_pieces; piece++)
		r = add_piece(broadcast, &part, piece);
	if (!r)
		cei_plan_set_template(common->plan, common->name);
	return r;
}

int ceov_plan_add_broadcast(ceov_plan *plan, const struct ceov_broadcast *from)
{
	struct broadcast broadcast = {
		.common = { .plan = plan, .name = "ceov_plan_add_broadcast" } };
	int r = cei_template_begin(&broadcast.common, from, sizeof(*from), sizeof(*from));

	if (r)
		return r;
	broadcast.args = *from;
	if (from->root >= broadcast.common.n_ranks)
		return cei_template_refuse(&broadcast.common, from->root,
					   "the root is no rank of the group");
	r = cei_levels_make(plan->object.context, broadcast.common.n_ranks, &broadcast.levels);
	if (r)
		return r;
	r = add(&broadcast);
	cei_levels_free(&broadcast.levels);
	return r;
}
