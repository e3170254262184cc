/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The order of transfers that all templates use: rank r sends to r + 1, r + 2, ... in turn,
 * so that no two senders send to one receiver while all proceed at the same pace. */

#include "collective/rotation.h"

#include "base/sized.h"
#include "ce_engine/buffer.h"
#include "ce_engine/context.h"
#include "ce_engine/plan_builder.h"
#include "ce_engine/signal.h"

/* Pieces are multiples of this, except the last one. */
#define PIECE_ALIGN_BYTES 16u

static int refuse(const struct cei_fan *fan, uint32_t rank, const char *what)
{
	return cei_raise(cei_object_report(&fan->plan->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: %s", fan->name, rank, what);
}

int cei_fan_check_struct(const struct cei_fan *fan, const void *from, size_t known_bytes)
{
	int r = cei_object_check(fan->plan, &cei_plan_type, fan->name);

	return r ? r : cei_sized_check(cei_object_report(&fan->plan->object), from,
				       known_bytes, known_bytes, fan->name);
}

static uint64_t piece_bytes(const struct cei_fan *fan)
{
	uint64_t bytes = fan->bytes / fan->n_pieces + (fan->bytes % fan->n_pieces != 0);

	return (bytes + PIECE_ALIGN_BYTES - 1) / PIECE_ALIGN_BYTES * PIECE_ALIGN_BYTES;
}

/* Whether the rank's own shard is at its place in the target already. */
static int is_in_place(const struct cei_fan *fan, uint32_t rank)
{
	const struct ceov_buffer *target = fan->targets[rank];

	return rank == fan->plan->program.rank && target->region == fan->source->region &&
		fan->source_offset_bytes + rank * fan->source_step_bytes ==
		fan->target_offset_bytes + rank * fan->bytes;
}

static int skips(const struct cei_fan *fan, uint32_t rank)
{
	return rank == fan->plan->program.rank && (!fan->targets[rank] || is_in_place(fan, rank));
}

/* The fault of a signal that needs n counters, in words; NULL: none. */
static const char *fault_of(const struct cei_fan *fan, const struct ceov_signal *signal,
			    uint64_t n_counters)
{
	if (!signal || cei_object_check(signal, &cei_signal_type, fan->name))
		return "is missing";
	return signal->n_counters < n_counters ? "has too few counters" : NULL;
}

static int check_signal(const struct cei_fan *fan, uint32_t rank, const char *which,
			const struct ceov_signal *signal, uint64_t n_counters)
{
	const char *fault = fault_of(fan, signal, n_counters);

	if (!fault)
		return 0;
	return cei_raise(cei_object_report(&fan->plan->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: its %s signal %s (%llu needed)", fan->name, rank,
			 which, fault, (unsigned long long)n_counters);
}

static int check_target(const struct cei_fan *fan, uint32_t rank)
{
	uint64_t n_counters = (uint64_t)fan->n_pieces *
		fan->plan->object.context->site.n_ranks;
	int r;

	if (!fan->targets[rank])
		return rank == fan->plan->program.rank ? 0 : refuse(fan, rank, "no target buffer");
	if (cei_object_check(fan->targets[rank], &cei_buffer_type, fan->name))
		return refuse(fan, rank, "the target is no buffer");
	if (fan->targets[rank]->rank != rank)
		return refuse(fan, rank, "targets must be in the order of ranks");
	if (skips(fan, rank))
		return 0;
	r = check_signal(fan, rank, "arrived", fan->arrived[rank], n_counters);
	if (!r && fan->free)
		r = check_signal(fan, rank, "free", fan->free[rank], n_counters);
	return r;
}

static int check(const struct cei_fan *fan)
{
	uint32_t n_ranks, rank;
	int r;

	if (!fan->targets || !fan->arrived)
		return refuse(fan, fan->plan->program.rank, "targets or arrived is NULL");
	if (!fan->n_pieces || !fan->bytes)
		return refuse(fan, fan->plan->program.rank, "no bytes or no pieces");
	r = cei_object_check(fan->source, &cei_buffer_type, fan->name);
	if (r)
		return r;
	n_ranks = fan->plan->object.context->site.n_ranks;
	if (fan->bytes > UINT64_MAX / 2 / n_ranks)
		return refuse(fan, fan->plan->program.rank, "the size overflows");
	if ((fan->n_pieces - 1) * piece_bytes(fan) >= fan->bytes)
		return refuse(fan, fan->plan->program.rank, "more pieces than there are bytes for");
	if (fan->ready)
		r = check_signal(fan, fan->plan->program.rank, "ready", fan->ready, fan->ready_step
				 ? (uint64_t)fan->n_pieces * n_ranks : fan->n_pieces);
	for (rank = 0; !r && rank < n_ranks; rank++)
		r = check_target(fan, rank);
	return r;
}

static struct ceov_mark mark(ceov_signal *signal, uint32_t index, uint64_t value)
{
	struct ceov_mark made = { signal, index, value };

	return made;
}

static int expect(const struct cei_fan *fan, const struct ceov_mark *expected)
{
	return expected->signal ? ceov_plan_expect(fan->plan, expected) : 0;
}

static int add_piece(const struct cei_fan *fan, uint32_t rank, uint32_t piece)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer), .n_rows = 1 };
	uint32_t counter = fan->plan->program.rank * fan->n_pieces + piece;
	uint64_t at = piece * piece_bytes(fan);
	int r;

	transfer.row_bytes = fan->bytes - at < piece_bytes(fan) ? fan->bytes - at
		: piece_bytes(fan);
	transfer.source.buffer = fan->source;
	transfer.source.offset_bytes = fan->source_offset_bytes +
		rank * fan->source_step_bytes + at;
	transfer.target.buffer = fan->targets[rank];
	transfer.target.offset_bytes = fan->target_offset_bytes +
		fan->plan->program.rank * fan->bytes + at;
	transfer.source_ready = mark(fan->ready, rank * fan->ready_step + piece, 1);
	transfer.target_free = mark(fan->free ? fan->free[rank] : NULL, counter, 0);
	transfer.then = mark(fan->arrived[rank], counter, 1);
	r = ceov_plan_add(fan->plan, &transfer);
	if (!r && (fan->ready_step || rank == (fan->plan->program.rank + 1) %
		   fan->plan->object.context->site.n_ranks))
		r = expect(fan, &transfer.source_ready);
	if (!r)
		r = expect(fan, &transfer.target_free);
	return r;
}

int cei_fan_add(const struct cei_fan *fan)
{
	uint32_t n_ranks, piece, step, rank;
	int r = check(fan);

	if (r)
		return r;
	n_ranks = fan->plan->object.context->site.n_ranks;
	for (piece = 0; !r && piece < fan->n_pieces; piece++) {
		for (step = 1; !r && step <= n_ranks; step++) {
			rank = (fan->plan->program.rank + step) % n_ranks;
			if (!skips(fan, rank))
				r = add_piece(fan, rank, piece);
		}
	}
	if (!r)
		cei_plan_set_template(fan->plan);
	return r;
}
