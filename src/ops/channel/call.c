/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks calls, and divides them into parts. */

#include "ops/channel/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "ops/compute/sum.h"

/* More bytes than any memory has, so that sums of them do not wrap. */
#define BYTES_MAX (UINT64_C(1) << 56)

enum root { NO_ROOT, ROOT, PEER };

struct kind {
	const char *name;
	int         is_sum;
	int         is_shared;          /* as in struct cei_call */
	enum root   root;
	int         takes_sends;        /* lists */
	int         takes_receives;
};

static const struct kind kinds[] = {
	[CEOV_ALL_GATHER]     = { "all_gather", 0, 1, NO_ROOT, 0, 1 },
	[CEOV_REDUCE_SCATTER] = { "reduce_scatter", 1, 0, NO_ROOT, 1, 0 },
	[CEOV_ALL_REDUCE]     = { "all_reduce", 1, 0, NO_ROOT, 0, 0 },
	[CEOV_ALL_TO_ALL]     = { "all_to_all", 0, 0, NO_ROOT, 1, 1 },
	[CEOV_BROADCAST]      = { "broadcast", 0, 1, ROOT, 0, 0 },
	[CEOV_GATHER]         = { "gather", 0, 1, ROOT, 0, 1 },
	[CEOV_SCATTER]        = { "scatter", 0, 0, ROOT, 1, 0 },
	[CEOV_REDUCE]         = { "reduce", 1, 1, ROOT, 0, 0 },
	[CEOV_BARRIER]        = { "barrier", 0, 1, NO_ROOT, 0, 0 },
	[CEOV_SEND]           = { "send", 0, 1, PEER, 0, 0 },
	[CEOV_RECEIVE]        = { "receive", 0, 1, PEER, 0, 0 },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const char *const reductions[] = { "sum", "product", "min", "max", "mean" };

#define REDUCTIONS (sizeof(reductions) / sizeof(reductions[0]))

const char *cei_call_kind_name(enum ceov_call_kind kind)
{
	return (uint32_t)kind < KINDS && kinds[kind].name ? kinds[kind].name : "?";
}

void cei_call_text(uint64_t what, char text[CEI_CALL_TEXT_BYTES])
{
	uint64_t kind = what & 255, dtype = what >> 8 & 255, reduction = what >> 16 & 255;
	uint64_t root = what >> 24 & 0xffff;
	const char *name = cei_call_kind_name((enum ceov_call_kind)kind);
	char of[24] = "", by[24] = "", from[24] = "";

	if (kind != CEOV_BARRIER)
		snprintf(of, sizeof(of), " of %s", cei_dtype_name((enum ceov_dtype)dtype));
	if (kind < KINDS && kinds[kind].is_sum)
		snprintf(by, sizeof(by), ", %s",
			 reduction < REDUCTIONS ? reductions[reduction] : "?");
	if (kind < KINDS && kinds[kind].root == ROOT)
		snprintf(from, sizeof(from), ", root %" PRIu64, root);
	snprintf(text, CEI_CALL_TEXT_BYTES, "%s%s%s%s", name, of, by, from);
}

/* --- checks -------------------------------------------------------------------------------- */

static const char *fault_of(const struct ceov_call *call, uint32_t n_ranks)
{
	const struct kind *kind = &kinds[(uint32_t)call->kind < KINDS ? call->kind : 0];

	if (!kind->name)
		return "kind is none of enum ceov_call_kind";
	if (kind->root == NO_ROOT && call->root)
		return "this kind has no root; set it to 0";
	if (call->root >= n_ranks)
		return "root is no rank";
	if (!kind->is_sum && call->reduction != CEOV_SUM)
		return "this kind has no reduction; set it to 0";
	if ((uint32_t)call->reduction >= REDUCTIONS)
		return "reduction is none of enum ceov_reduction";
	if (call->kind != CEOV_BARRIER && !cei_dtype_bytes(call->dtype))
		return "dtype is none of enum ceov_dtype";
	if (kind->is_sum && !cei_sum_takes(call->dtype, call->reduction))
		return "numbers of this dtype are not added up in that way";
	if ((call->sends && !kind->takes_sends) || (call->receives && !kind->takes_receives))
		return "this kind takes no such list of counts";
	if (call->kind == CEOV_ALL_TO_ALL && !call->sends != !call->receives)
		return "an all_to_all has both lists of counts, or neither";
	if (call->kind == CEOV_BARRIER && (call->source || call->target || call->count))
		return "a barrier has no memory";
	return NULL;
}

/* --- parts --------------------------------------------------------------------------------- */

static uint64_t listed(const uint64_t *list, uint32_t rank, uint64_t count)
{
	return list ? list[rank] : count;
}

/* Items that this rank gives to another one. */
static uint64_t gives(const struct cei_call *call, const struct ceov_call *from, uint32_t to)
{
	int is_root = call->rank == from->root;

	switch (from->kind) {
	case CEOV_ALL_GATHER:
		return listed(from->receives, call->rank, from->count);
	case CEOV_GATHER:
		if (to != from->root)
			return 0;
		return listed(is_root ? from->receives : NULL, call->rank, from->count);
	case CEOV_REDUCE:
	case CEOV_SEND:
		return to == from->root ? from->count : 0;
	case CEOV_BROADCAST:
		return is_root ? from->count : 0;
	case CEOV_SCATTER:
		return is_root ? listed(from->sends, to, from->count) : 0;
	case CEOV_REDUCE_SCATTER:
	case CEOV_ALL_TO_ALL:
		return listed(from->sends, to, from->count);
	case CEOV_ALL_REDUCE:
		return from->count;
	case CEOV_RECEIVE:
	case CEOV_BARRIER:
		break;
	}
	return 0;
}

/* Items that this rank gets from another one. */
static uint64_t gets(const struct cei_call *call, const struct ceov_call *from, uint32_t source)
{
	int is_root = call->rank == from->root;

	switch (from->kind) {
	case CEOV_ALL_GATHER:
	case CEOV_ALL_TO_ALL:
		return listed(from->receives, source, from->count);
	case CEOV_GATHER:
		return is_root ? listed(from->receives, source, from->count) : 0;
	case CEOV_REDUCE:
		return is_root ? from->count : 0;
	case CEOV_BROADCAST:
	case CEOV_RECEIVE:
		return source == from->root ? from->count : 0;
	case CEOV_SCATTER:
		if (source != from->root)
			return 0;
		return listed(is_root ? from->sends : NULL, call->rank, from->count);
	case CEOV_REDUCE_SCATTER:
		return listed(from->sends, call->rank, from->count);
	case CEOV_ALL_REDUCE:
		return from->count;
	case CEOV_SEND:
	case CEOV_BARRIER:
		break;
	}
	return 0;
}

/* Parts lie behind each other in the order of ranks, except in a source whose bytes all get alike,
 * and in a target that one rank's bytes or a sum fill. */
static const char *divide(struct cei_call *call, const struct ceov_call *from)
{
	int is_stacked = from->kind == CEOV_ALL_GATHER || from->kind == CEOV_GATHER ||
		from->kind == CEOV_ALL_TO_ALL;
	int is_divided = !call->is_shared && from->kind != CEOV_ALL_REDUCE;
	uint64_t source_at = 0, target_at = 0, most = BYTES_MAX, to, got;
	struct cei_call_part *part;
	uint32_t rank;

	if (call->item_bytes)
		most /= call->item_bytes;
	for (rank = 0; rank < call->n_ranks; rank++) {
		part = &call->parts[rank];
		to = gives(call, from, rank);
		got = gets(call, from, rank);
		if (to > most || got > most)
			return "the counts are more than any memory holds";
		part->to = to * call->item_bytes;
		part->from = got * call->item_bytes;
		part->source_at = is_divided ? source_at : 0;
		part->target_at = is_stacked ? target_at : 0;
		source_at += part->to;
		target_at += part->from;
	}
	if (source_at > BYTES_MAX || target_at > BYTES_MAX)
		return "the counts are more than any memory holds";
	return NULL;
}

/* --- memory -------------------------------------------------------------------------------- */

/* How far the source, or the target, reaches. */
static uint64_t end_of(const struct cei_call *call, int is_source)
{
	uint64_t end = 0, here;
	uint32_t rank;

	for (rank = 0; rank < call->n_ranks; rank++) {
		here = is_source ? call->parts[rank].source_at + call->parts[rank].to
			: call->parts[rank].target_at + call->parts[rank].from;
		if (here > end)
			end = here;
	}
	return end;
}

/* Whether the rank's own bytes need not be copied, since they lie where they belong. */
static int is_in_place(const struct cei_call *call)
{
	const struct cei_call_part *own = &call->parts[call->rank];

	if (call->call.kind == CEOV_ALL_TO_ALL)
		return 0;
	return (uintptr_t)call->call.source + own->source_at ==
		(uintptr_t)call->call.target + own->target_at;
}

static const char *memory_fault(const struct cei_call *call)
{
	uintptr_t source = (uintptr_t)call->call.source, target = (uintptr_t)call->call.target;
	uint64_t n_source = end_of(call, 1), n_target = end_of(call, 0);

	if ((n_source && !source) || (n_target && !target))
		return "source or target is NULL";
	if (source > UINTPTR_MAX - n_source || target > UINTPTR_MAX - n_target)
		return "source or target reaches beyond the end of memory";
	if (!n_source || !n_target || source >= target + n_target || target >= source + n_source)
		return NULL;
	return is_in_place(call) ? NULL : "source and target overlap";
}

const char *cei_call_make(const struct ceov_call *from, uint32_t rank, uint32_t n_ranks,
			  struct cei_call *ret_call)
{
	struct ceov_call *call = &ret_call->call;
	const char *fault = fault_of(from, n_ranks);

	if (fault)
		return fault;
	*call = *from;
	if (call->kind == CEOV_BARRIER)
		call->dtype = (enum ceov_dtype)0;       /* it has no numbers: any dtype is right */
	ret_call->rank = rank;
	ret_call->n_ranks = n_ranks;
	ret_call->item_bytes = call->kind == CEOV_BARRIER ? 0 : cei_dtype_bytes(call->dtype);
	ret_call->is_sum = kinds[call->kind].is_sum;
	ret_call->is_shared = kinds[call->kind].is_shared;
	ret_call->what = (uint64_t)call->kind | (uint64_t)call->dtype << 8 |
		(uint64_t)call->reduction << 16 | (uint64_t)call->root << 24;
	fault = divide(ret_call, call);
	ret_call->is_listed = call->sends || call->receives;
	call->sends = call->receives = NULL;
	return fault ? fault : memory_fault(ret_call);
}
