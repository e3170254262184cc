/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The templates all-gather (one shard to every rank) and all-to-all (one block to each rank).
 * Both add transfers in one order: rank r sends to r + 1, r + 2, ... in turn, so that no two
 * senders send to one receiver while all proceed at the same pace. In an all-gather over several
 * nodes, transfers that pass on the shards of other nodes follow (levels.h). */

#include <ceoverlap/collective.h>

#include <stddef.h>

#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"
#include "collective/levels.h"
#include "collective/template.h"

/* Offsets and sizes of blocks below this can be added without an overflow. */
#define BLOCK_LIMIT (UINT64_MAX / 8)

struct sending {
	struct cei_template      common;
	struct ceov_all_gather   args;          /* an all-to-all is described by this struct, too,
						 * with its blocks as shards */
	const struct ceov_block *blocks;        /* of an all-to-all; NULL: all of one size */
	uint64_t                 source_step_bytes;     /* by how much the source's offset grows
						 * from one target rank to the next: 0
						 * (all-gather), or a block (all-to-all) */
	uint32_t                 ready_step;    /* likewise for the index of the ready counter */
	int                      is_gather;
	struct cei_levels        levels;        /* of an all-gather */
};

static int sends(const struct sending *sending, uint32_t rank)
{
	return !sending->is_gather ||
		cei_levels_sends(&sending->levels, sending->common.rank, rank);
}

static int passes_on(const struct sending *sending, uint32_t source)
{
	return sending->is_gather &&
		cei_levels_passes_on(&sending->levels, sending->common.rank, source);
}

static int passes_any_on(const struct sending *sending)
{
	uint32_t source = 0;

	while (source < sending->common.n_ranks && !passes_on(sending, source))
		source++;
	return source < sending->common.n_ranks;
}

/* Whether the rank, which gets the shard of the source, passes it on to the other one. */
static int passes_to(const struct sending *sending, uint32_t rank, uint32_t source, uint32_t to)
{
	return sending->is_gather && cei_levels_passes_on(&sending->levels, rank, source) &&
		cei_levels_passes_to(&sending->levels, rank, source, to);
}

/* The plan's rank's shard, or its block for the rank. */
static struct cei_part own_part(const struct sending *sending, uint32_t rank)
{
	const struct ceov_all_gather *args = &sending->args;
	const struct ceov_block *block = sending->blocks ? &sending->blocks[rank] : NULL;
	struct cei_part part = {
		.bytes = args->shard_bytes,
		.source = args->source,
		.source_at = args->source_offset_bytes + rank * sending->source_step_bytes,
		.target_at = args->target_offset_bytes + sending->common.rank * args->shard_bytes,
		.ready = args->ready,
		.ready_at = rank * sending->ready_step,
		.counter = sending->common.rank * args->n_pieces,
	};

	if (block) {
		part.bytes = block->bytes;
		part.source_at += block->source_offset_bytes;
		part.target_at += block->target_offset_bytes;
	}
	return part;
}

/* A shard of another node, in the plan's rank's own target. */
static struct cei_part passed_part(const struct sending *sending, uint32_t source)
{
	const struct ceov_all_gather *args = &sending->args;
	uint64_t at = args->target_offset_bytes + source * args->shard_bytes;
	uint32_t counter = source * args->n_pieces;

	return (struct cei_part){
		.bytes = args->shard_bytes,
		.source = args->targets[sending->common.rank],
		.source_at = at,
		.target_at = at,
		.ready = args->arrived[sending->common.rank],
		.ready_at = counter,
		.counter = counter,
	};
}

/* Returns whether no transfer to this rank is needed: it is the plan's rank, and has no
 * target or has its own shard at its place in the target already. */
static int skips(const struct sending *sending, uint32_t rank)
{
	const struct ceov_all_gather *args = &sending->args;
	struct cei_part part;

	if (rank != sending->common.rank)
		return 0;
	part = own_part(sending, rank);
	return !args->targets[rank] || (args->targets[rank]->region == args->source->region &&
					part.source_at == part.target_at);
}

/* Checks what says that the rank has passed the source's shard on. */
static int check_readers(const struct sending *sending, uint32_t rank, uint32_t source)
{
	uint32_t to;
	int r = 0;

	for (to = 0; !r && to < sending->common.n_ranks; to++)
		if (passes_to(sending, rank, source, to))
			r = cei_template_check_free(&sending->common, to);
	return r;
}

/* The same for all ranks to which this one passes the source's shard on. Those on its node pass
 * nothing on. */
static int check_passing(const struct sending *sending, uint32_t source)
{
	uint32_t rank;
	int r = 0;

	for (rank = 0; !r && rank < sending->common.n_ranks; rank++)
		if (passes_to(sending, sending->common.rank, source, rank))
			r = check_readers(sending, rank, source);
	return r;
}

static int check_targets(const struct sending *sending)
{
	uint32_t rank, own = sending->common.rank;
	int r = cei_template_check_own(&sending->common, passes_any_on(sending));

	for (rank = 0; !r && rank < sending->common.n_ranks; rank++) {
		if (!sends(sending, rank) || skips(sending, rank))
			continue;
		r = cei_template_check_target(&sending->common, rank);
		if (!r)
			r = check_readers(sending, rank, own);
	}
	for (rank = 0; !r && rank < sending->common.n_ranks; rank++)
		r = check_passing(sending, rank);
	return r;
}

static int check_blocks(const struct sending *sending)
{
	const struct ceov_block *block;
	uint32_t rank;

	if (sending->args.shard_bytes)
		return cei_template_refuse(&sending->common, sending->common.rank,
					   "block_bytes must be 0 where there are blocks");
	for (rank = 0; rank < sending->common.n_ranks; rank++) {
		block = &sending->blocks[rank];
		if (block->bytes > BLOCK_LIMIT || block->source_offset_bytes > BLOCK_LIMIT ||
		    block->target_offset_bytes > BLOCK_LIMIT)
			return cei_template_refuse(&sending->common, rank,
						   "the size or offset of its block overflows");
	}
	return 0;
}

/* Checks the size that all shards or blocks have. */
static int check_size(const struct sending *sending)
{
	const struct ceov_all_gather *args = &sending->args;
	const struct cei_template *common = &sending->common;

	if (!args->shard_bytes)
		return cei_template_refuse(common, common->rank, "no bytes or no pieces");
	if (args->shard_bytes > UINT64_MAX / 2 / common->n_ranks)
		return cei_template_refuse(common, common->rank, "the size overflows");
	if ((args->n_pieces - 1) * cei_template_piece_bytes(args->shard_bytes, args->n_pieces) >=
	    args->shard_bytes)
		return cei_template_refuse(common, common->rank,
					   "more pieces than there are bytes for");
	return 0;
}

static int check(const struct sending *sending)
{
	const struct ceov_all_gather *args = &sending->args;
	const struct cei_template *common = &sending->common;
	int r = cei_template_check(common);

	if (!r)
		r = sending->blocks ? check_blocks(sending) : check_size(sending);
	if (!r)
		r = cei_object_check(args->source, &cei_buffer_type, common->name);
	if (!r && args->ready)
		r = cei_template_check_signal(common, common->rank, "ready", args->ready,
					      sending->ready_step
					      ? (uint64_t)args->n_pieces * common->n_ranks
					      : args->n_pieces);
	return r ? r : check_targets(sending);
}

/* Adds the transfer of a piece of the source's shard to the rank. It waits until those have freed
 * their copies to whom the rank passes the piece on, since it reads its own copy for that. */
static int add_piece(const struct sending *sending, const struct cei_part *part, uint32_t rank,
		     uint32_t piece, int is_first)
{
	uint32_t to, source = part->counter / sending->common.n_pieces;
	int r = cei_template_add(&sending->common, part, rank, piece, is_first);

	for (to = 0; !r && to < sending->common.n_ranks; to++)
		if (passes_to(sending, rank, source, to))
			r = cei_template_await_also(&sending->common, part, to, piece);
	return r;
}

/* Sends a piece of this rank's shard, or of its blocks. */
static int send_piece(const struct sending *sending, uint32_t piece)
{
	uint32_t step, rank, n_added = 0;
	struct cei_part part;
	int r = 0;

	for (step = 1; !r && step <= sending->common.n_ranks; step++) {
		rank = (sending->common.rank + step) % sending->common.n_ranks;
		if (skips(sending, rank) || !sends(sending, rank))
			continue;
		part = own_part(sending, rank);
		r = add_piece(sending, &part, rank, piece,
			      sending->ready_step || !n_added++);
	}
	return r;
}

/* Passes a piece that has arrived from another node on. */
static int pass_piece_on(const struct sending *sending, uint32_t source, uint32_t piece)
{
	const struct cei_template *common = &sending->common;
	struct cei_part part = passed_part(sending, source);
	uint32_t step, rank, n_added = 0;
	int r = 0;

	for (step = 1; !r && step < common->n_ranks; step++) {
		rank = (common->rank + step) % common->n_ranks;
		if (cei_levels_passes_to(&sending->levels, common->rank, source, rank))
			r = add_piece(sending, &part, rank, piece, !n_added++);
	}
	return r;
}

/* Adds a transfer for every piece to every target, piece by piece, and declares the expected
 * marks. All checks come first: on a refusal nothing was added. */
static int add(struct sending *sending)
{
	struct cei_template *common = &sending->common;
	uint32_t piece, step, source;
	int r;

	common->n_pieces = sending->args.n_pieces;
	common->targets = sending->args.targets;
	common->arrived = sending->args.arrived;
	common->free = sending->args.free;
	common->n_counters = (uint64_t)common->n_pieces * common->n_ranks;
	r = check(sending);
	for (piece = 0; !r && piece < common->n_pieces; piece++) {
		r = send_piece(sending, piece);
		for (step = 1; !r && step < common->n_ranks; step++) {
			source = (common->rank + step) % common->n_ranks;
			if (passes_on(sending, source))
				r = pass_piece_on(sending, source, piece);
		}
	}
	if (!r)
		cei_plan_set_template(common->plan, common->name);
	return r;
}

/* Returns the way between nodes, for ceov_plan_explain(); NULL: there is one node only. */
static const char *way_of(const struct sending *sending)
{
	if (sending->levels.n_nodes < 2)
		return NULL;
	if (sending->levels.is_ring)
		return "as a ring, as the caller said";
	return sending->args.nodes == CEOV_NODES_DIRECT ? "directly, as the caller said"
		: "directly, which is the default: a ring has as many bytes and more hops";
}

int ceov_plan_add_all_gather(ceov_plan *plan, const struct ceov_all_gather *gather)
{
	struct sending sending = {
		.common = { .plan = plan, .name = "ceov_plan_add_all_gather" }, .is_gather = 1 };
	int r = cei_template_begin(&sending.common, gather,
				   offsetof(struct ceov_all_gather, nodes), sizeof(*gather));

	if (r)
		return r;
	cei_sized_take(&sending.args, gather, sizeof(*gather));
	if (sending.args.nodes > CEOV_NODES_RING)
		return cei_template_refuse(&sending.common, sending.common.rank,
					   "nodes must be 0 to 2 (enum ceov_nodes)");
	r = cei_levels_make(plan->object.context, sending.common.n_ranks, &sending.levels);
	if (r)
		return r;
	sending.levels.is_ring = sending.args.nodes == CEOV_NODES_RING;
	r = add(&sending);
	if (!r)
		cei_plan_set_between_nodes(plan, way_of(&sending));
	cei_levels_free(&sending.levels);
	return r;
}

int ceov_plan_add_all_to_all(ceov_plan *plan, const struct ceov_all_to_all *from)
{
	struct sending sending = {
		.common = { .plan = plan, .name = "ceov_plan_add_all_to_all" } };
	struct ceov_all_to_all exchange;
	int r = cei_template_begin(&sending.common, from,
				   offsetof(struct ceov_all_to_all, blocks), sizeof(*from));

	if (r)
		return r;
	cei_sized_take(&exchange, from, sizeof(exchange));
	if (exchange.ready &&
	    cei_object_check(exchange.ready, &cei_signal_type, sending.common.name))
		return CEOV_ERR_INVALID;
	sending.args = (struct ceov_all_gather){
		.shard_bytes = exchange.block_bytes, .n_pieces = exchange.n_pieces,
		.source = exchange.source, .source_offset_bytes = exchange.source_offset_bytes,
		.targets = exchange.targets, .target_offset_bytes = exchange.target_offset_bytes,
		.ready = exchange.ready, .arrived = exchange.arrived, .free = exchange.free };
	sending.blocks = exchange.blocks;
	sending.source_step_bytes = exchange.block_bytes;
	/* with n_pieces counters only, one counter stands for that piece of all blocks */
	if (exchange.ready && exchange.ready->n_counters > exchange.n_pieces)
		sending.ready_step = exchange.n_pieces;
	return add(&sending);
}
