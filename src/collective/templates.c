/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The templates all-gather (one shard to every rank) and all-to-all (one block to each rank).
 * Both add transfers in one order: rank r sends to r + 1, r + 2, ... in turn, so that no two
 * senders send to one receiver while all proceed at the same pace. In an all-gather over several
 * nodes, transfers that pass on the shards of other nodes follow (levels.h). */

#include <ceoverlap/collective.h>

#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"
#include "collective/levels.h"

/* Pieces are multiples of this, except the last one. */
#define PIECE_ALIGN_BYTES 16u

struct template {
	ceov_plan             *plan;
	const char            *name;            /* of the public call, for messages */
	uint32_t               rank;            /* the rank that the plan belongs to */
	uint32_t               n_ranks;
	struct ceov_all_gather args;            /* an all-to-all is described by this struct, too,
						 * with its blocks as shards */
	uint64_t               source_step_bytes;/* by how much the source's offset grows from one
						 * target rank to the next: 0 (all-gather), or
						 * a block (all-to-all) */
	uint32_t               ready_step;      /* likewise for the index of the ready counter */
	int                    is_gather;
	struct cei_levels      levels;          /* of an all-gather */
};

static int sends(const struct template *template, uint32_t rank)
{
	return !template->is_gather || cei_levels_sends(&template->levels, template->rank, rank);
}

static int passes_on(const struct template *template, uint32_t source)
{
	return template->is_gather &&
		cei_levels_passes_on(&template->levels, template->rank, source);
}

static int passes_any_on(const struct template *template)
{
	uint32_t source = 0;

	while (source < template->n_ranks && !passes_on(template, source))
		source++;
	return source < template->n_ranks;
}

static int refuse(const struct template *template, uint32_t rank, const char *what)
{
	return cei_raise(cei_object_report(&template->plan->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: %s", template->name, rank, what);
}

/* Checks the plan, and the struct that the caller filled. */
static int begin(struct template *template, const void *args, size_t known_bytes)
{
	ceov_plan *plan = template->plan;
	int r = cei_object_check(plan, &cei_plan_type, template->name);

	if (r)
		return r;
	template->rank = plan->program.rank;
	template->n_ranks = plan->program.n_ranks;
	return cei_sized_check(cei_object_report(&plan->object), args, known_bytes, known_bytes,
			       template->name);
}

static uint64_t piece_bytes(const struct ceov_all_gather *args)
{
	uint64_t bytes = args->shard_bytes / args->n_pieces +
		(args->shard_bytes % args->n_pieces != 0);

	return (bytes + PIECE_ALIGN_BYTES - 1) / PIECE_ALIGN_BYTES * PIECE_ALIGN_BYTES;
}

/* Returns whether no transfer to this rank is needed: it is the plan's rank, and has no
 * target or has its own shard at its place in the target already. */
static int skips(const struct template *template, uint32_t rank)
{
	const struct ceov_all_gather *args = &template->args;

	if (rank != template->rank)
		return 0;
	return !args->targets[rank] || (args->targets[rank]->region == args->source->region &&
		args->source_offset_bytes + rank * template->source_step_bytes ==
		args->target_offset_bytes + rank * args->shard_bytes);
}

/* Says in words why the signal is not one with at least n_counters; NULL: it is. */
static const char *fault_of(const struct template *template, const struct ceov_signal *signal,
			    uint64_t n_counters)
{
	if (!signal || cei_object_check(signal, &cei_signal_type, template->name))
		return "is missing";
	return signal->n_counters < n_counters ? "has too few counters" : NULL;
}

static int check_signal(const struct template *template, uint32_t rank, const char *which,
			const struct ceov_signal *signal, uint64_t n_counters)
{
	const char *fault = fault_of(template, signal, n_counters);

	if (!fault)
		return 0;
	return cei_raise(cei_object_report(&template->plan->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: its %s signal %s (%llu needed)", template->name, rank,
			 which, fault, (unsigned long long)n_counters);
}

/* Checks the target of a rank that this one sends to, or its own. */
static int check_target(const struct template *template, uint32_t rank)
{
	const struct ceov_all_gather *args = &template->args;
	uint64_t n_counters = (uint64_t)args->n_pieces * template->n_ranks;
	int is_source = rank == template->rank && passes_any_on(template), r = 0;

	if (!args->targets[rank] && is_source)
		return refuse(template, rank, "no target buffer, from which this rank passes on "
			      "what arrives from other nodes");
	if (!args->targets[rank])
		return rank == template->rank ? 0 : refuse(template, rank, "no target buffer");
	if (cei_object_check(args->targets[rank], &cei_buffer_type, template->name))
		return refuse(template, rank, "the target is no buffer");
	if (args->targets[rank]->rank != rank)
		return refuse(template, rank, "targets must be in the order of ranks");
	if (is_source || !skips(template, rank))
		r = check_signal(template, rank, "arrived", args->arrived[rank], n_counters);
	if (!r && args->free && !skips(template, rank))
		r = check_signal(template, rank, "free", args->free[rank], n_counters);
	return r;
}

static int check(const struct template *template)
{
	const struct ceov_all_gather *args = &template->args;
	uint32_t rank = template->rank, n_ranks = template->n_ranks;
	int r;

	if (!args->targets || !args->arrived)
		return refuse(template, rank, "targets or arrived is NULL");
	if (!args->n_pieces || !args->shard_bytes)
		return refuse(template, rank, "no bytes or no pieces");
	r = cei_object_check(args->source, &cei_buffer_type, template->name);
	if (r)
		return r;
	if (args->shard_bytes > UINT64_MAX / 2 / n_ranks)
		return refuse(template, rank, "the size overflows");
	if ((args->n_pieces - 1) * piece_bytes(args) >= args->shard_bytes)
		return refuse(template, rank, "more pieces than there are bytes for");
	if (args->ready)
		r = check_signal(template, rank, "ready", args->ready, template->ready_step
				 ? (uint64_t)args->n_pieces * n_ranks : args->n_pieces);
	for (rank = 0; !r && rank < n_ranks; rank++)
		if (sends(template, rank))
			r = check_target(template, rank);
	return r;
}

static int expect(ceov_plan *plan, const struct ceov_mark *expected)
{
	return expected->signal ? ceov_plan_expect(plan, expected) : 0;
}

/* A transfer of a piece of the source rank's shard to a rank, from where the caller says. */
static struct ceov_transfer transfer_of(const struct template *template, uint32_t source,
					uint32_t rank, uint32_t piece)
{
	const struct ceov_all_gather *args = &template->args;
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer), .n_rows = 1 };
	uint32_t counter = source * args->n_pieces + piece;
	uint64_t at = piece * piece_bytes(args), left = args->shard_bytes - at;

	transfer.row_bytes = left < piece_bytes(args) ? left : piece_bytes(args);
	transfer.target.buffer = args->targets[rank];
	transfer.target.offset_bytes = args->target_offset_bytes + source * args->shard_bytes + at;
	transfer.target_free = (struct ceov_mark){
		args->free ? args->free[rank] : NULL, counter, 0 };
	transfer.then = (struct ceov_mark){ args->arrived[rank], counter, 1 };
	return transfer;
}

/* Adds the transfer, and declares the marks that it awaits; is_first: no transfer before it awaits
 * its source_ready. */
static int add_transfer(const struct template *template, const struct ceov_transfer *transfer,
			int is_first)
{
	int r = ceov_plan_add(template->plan, transfer);

	if (!r && is_first)
		r = expect(template->plan, &transfer->source_ready);
	return r ? r : expect(template->plan, &transfer->target_free);
}

/* Sends a piece of this rank's shard, or of its blocks. */
static int send_piece(const struct template *template, uint32_t piece)
{
	const struct ceov_all_gather *args = &template->args;
	uint32_t step, rank, n_added = 0;
	struct ceov_transfer transfer;
	int r = 0;

	for (step = 1; !r && step <= template->n_ranks; step++) {
		rank = (template->rank + step) % template->n_ranks;
		if (skips(template, rank) || !sends(template, rank))
			continue;
		transfer = transfer_of(template, template->rank, rank, piece);
		transfer.source.buffer = args->source;
		transfer.source.offset_bytes = args->source_offset_bytes +
			rank * template->source_step_bytes + piece * piece_bytes(args);
		transfer.source_ready = (struct ceov_mark){
			args->ready, rank * template->ready_step + piece, 1 };
		r = add_transfer(template, &transfer, template->ready_step || !n_added++);
	}
	return r;
}

/* Passes a piece that has arrived from another node on to the other ranks of this node. */
static int pass_piece_on(const struct template *template, uint32_t source, uint32_t piece)
{
	const struct ceov_all_gather *args = &template->args;
	const struct cei_levels *levels = &template->levels;
	uint32_t step, rank, n_added = 0;
	struct ceov_transfer transfer;
	int r = 0;

	for (step = 1; !r && step < template->n_ranks; step++) {
		rank = (template->rank + step) % template->n_ranks;
		if (levels->node[rank] != levels->node[template->rank])
			continue;
		transfer = transfer_of(template, source, rank, piece);
		transfer.source.buffer = args->targets[template->rank];
		transfer.source.offset_bytes = transfer.target.offset_bytes;
		transfer.source_ready = (struct ceov_mark){
			args->arrived[template->rank], source * args->n_pieces + piece, 1 };
		r = add_transfer(template, &transfer, !n_added++);
	}
	return r;
}

/* Adds a transfer for every piece to every target, piece by piece, and declares the expected
 * marks. All checks come first: on a refusal nothing was added. */
static int add(const struct template *template)
{
	uint32_t piece, step, source;
	int r = check(template);

	for (piece = 0; !r && piece < template->args.n_pieces; piece++) {
		r = send_piece(template, piece);
		for (step = 1; !r && step < template->n_ranks; step++) {
			source = (template->rank + step) % template->n_ranks;
			if (passes_on(template, source))
				r = pass_piece_on(template, source, piece);
		}
	}
	if (!r)
		cei_plan_set_template(template->plan);
	return r;
}

int ceov_plan_add_all_gather(ceov_plan *plan, const struct ceov_all_gather *gather)
{
	struct template template = { .plan = plan, .name = "ceov_plan_add_all_gather" };
	int r = begin(&template, gather, sizeof(*gather));

	if (r)
		return r;
	template.args = *gather;
	template.is_gather = 1;
	r = cei_levels_make(plan->object.context, template.n_ranks, &template.levels);
	if (!r)
		r = add(&template);
	cei_levels_free(&template.levels);
	return r;
}

int ceov_plan_add_all_to_all(ceov_plan *plan, const struct ceov_all_to_all *exchange)
{
	struct template template = { .plan = plan, .name = "ceov_plan_add_all_to_all" };
	int r = begin(&template, exchange, sizeof(*exchange));

	if (r)
		return r;
	if (exchange->ready &&
	    cei_object_check(exchange->ready, &cei_signal_type, template.name))
		return CEOV_ERR_INVALID;
	template.args = (struct ceov_all_gather){
		.shard_bytes = exchange->block_bytes, .n_pieces = exchange->n_pieces,
		.source = exchange->source, .source_offset_bytes = exchange->source_offset_bytes,
		.targets = exchange->targets,
		.target_offset_bytes = exchange->target_offset_bytes,
		.ready = exchange->ready, .arrived = exchange->arrived, .free = exchange->free };
	template.source_step_bytes = exchange->block_bytes;
	/* with n_pieces counters only, one counter stands for that piece of all blocks */
	if (exchange->ready && exchange->ready->n_counters > exchange->n_pieces)
		template.ready_step = exchange->n_pieces;
	return add(&template);
}
