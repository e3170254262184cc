/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks of what callers give to plan templates, and the transfer of one piece. */

#include "collective/template.h"

#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_builder.h"

/* Pieces are multiples of this, except the last one. */
#define PIECE_ALIGN_BYTES 16u

int cei_template_begin(struct cei_template *template, const void *args, size_t first_bytes,
		       size_t known_bytes)
{
	ceov_plan *plan = template->plan;
	int r = cei_object_check(plan, &cei_plan_type, template->name);

	if (r)
		return r;
	template->rank = plan->program.rank;
	template->n_ranks = plan->program.n_ranks;
	return cei_sized_check(cei_object_report(&plan->object), args, first_bytes, known_bytes,
			       template->name);
}

int cei_template_refuse(const struct cei_template *template, uint32_t rank, const char *what)
{
	return cei_raise(cei_object_report(&template->plan->object), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: %s", template->name, rank, what);
}

int cei_template_check(const struct cei_template *template)
{
	if (!template->targets || !template->arrived)
		return cei_template_refuse(template, template->rank,
					   "targets or arrived is NULL");
	if (!template->n_pieces)
		return cei_template_refuse(template, template->rank, "no bytes or no pieces");
	return 0;
}

int cei_template_check_signal(const struct cei_template *template, uint32_t rank,
			      const char *which, const struct ceov_signal *signal,
			      uint64_t n_counters)
{
	struct cei_report *report = cei_object_report(&template->plan->object);
	unsigned long long n = n_counters;

	if (!signal || cei_object_check(signal, &cei_signal_type, template->name))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "%s: rank %u: its %s signal is missing (%llu counters needed)",
				 template->name, rank, which, n);
	if (signal->n_counters >= n)
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "%s: rank %u: its %s signal has too few counters (%llu needed): it is %s",
			 template->name, rank, which, n, cei_signal_text(signal).text);
}

static int check_buffer(const struct cei_template *template, uint32_t rank)
{
	const ceov_buffer *target = template->targets[rank];

	if (cei_object_check(target, &cei_buffer_type, template->name))
		return cei_template_refuse(template, rank, "the target is no buffer");
	if (target->rank != rank)
		return cei_template_refuse(template, rank,
					   "targets must be in the order of ranks");
	return 0;
}

int cei_template_check_free(const struct cei_template *template, uint32_t rank)
{
	if (!template->free)
		return 0;
	return cei_template_check_signal(template, rank, "free", template->free[rank],
					 template->n_counters);
}

int cei_template_check_target(const struct cei_template *template, uint32_t rank)
{
	int r;

	if (!template->targets[rank])
		return cei_template_refuse(template, rank, "no target buffer");
	r = check_buffer(template, rank);
	if (!r)
		r = cei_template_check_signal(template, rank, "arrived",
					      template->arrived[rank], template->n_counters);
	return r ? r : cei_template_check_free(template, rank);
}

int cei_template_check_own(const struct cei_template *template, int passes_on)
{
	uint32_t rank = template->rank;
	int r;

	if (!template->targets[rank])
		return !passes_on ? 0
			: cei_template_refuse(template, rank, "no target buffer, from which this "
					      "rank passes on what arrives");
	r = check_buffer(template, rank);
	if (!r && passes_on)
		r = cei_template_check_signal(template, rank, "arrived",
					      template->arrived[rank], template->n_counters);
	return r;
}

uint64_t cei_template_piece_bytes(uint64_t bytes, uint32_t n_pieces)
{
	uint64_t piece = bytes / n_pieces + (bytes % n_pieces != 0);

	return (piece + PIECE_ALIGN_BYTES - 1) / PIECE_ALIGN_BYTES * PIECE_ALIGN_BYTES;
}

static int expect(ceov_plan *plan, const struct ceov_mark *expected)
{
	return expected->signal ? ceov_plan_expect(plan, expected) : 0;
}

/* Says which bytes the piece has; it may have none. */
static void place(const struct cei_template *template, const struct cei_part *part,
		  uint32_t piece, struct ceov_transfer *transfer)
{
	uint64_t bytes = cei_template_piece_bytes(part->bytes, template->n_pieces);
	uint64_t at = piece * bytes, left = at < part->bytes ? part->bytes - at : 0;

	transfer->n_rows = 1;
	transfer->row_bytes = left < bytes ? left : bytes;
	transfer->source.buffer = part->source;
	transfer->source.offset_bytes = part->source_at + at;
	transfer->target.offset_bytes = part->target_at + at;
}

int cei_template_add(const struct cei_template *template, const struct cei_part *part,
		     uint32_t rank, uint32_t piece, int is_first)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	uint32_t counter = part->counter + piece;
	int r;

	place(template, part, piece, &transfer);
	transfer.target.buffer = template->targets[rank];
	transfer.source_ready = (struct ceov_mark){ part->ready, part->ready_at + piece, 1 };
	transfer.target_free = (struct ceov_mark){
		template->free ? template->free[rank] : NULL, counter, 0 };
	transfer.then = (struct ceov_mark){ template->arrived[rank], counter, 1 };
	r = ceov_plan_add(template->plan, &transfer);
	if (!r && is_first)
		r = expect(template->plan, &transfer.source_ready);
	return r ? r : expect(template->plan, &transfer.target_free);
}

int cei_template_await_also(const struct cei_template *template, const struct cei_part *part,
			    uint32_t rank, uint32_t piece)
{
	struct ceov_mark mark = { NULL, part->counter + piece, 0 };

	if (!template->free)
		return 0;
	mark.signal = template->free[rank];
	return cei_plan_await_also(template->plan, &mark);
}
