/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Creates, exports, finds and releases the memory and signals of a workspace that ranks share. */

#include "ops/core/workspace.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "kernels/direct_ll.h"

struct part {                           /* a kind of buffer or signal that each rank has */
	const char *name;               /* suffix of the name under which it is exported */
	size_t      at;                 /* offset in struct ceov_workspace of an array with one
					 * pointer for each rank */
	uint32_t    n_counters;         /* the signal has n_counters + n_per_rank * ranks */
	uint32_t    n_per_rank;
	int         is_on_host;         /* 1: in host memory; 0: at the rank's place, but in host
					 * memory where other nodes raise it */
	int       (*exists)(const ceov_workspace *workspace);   /* NULL: in all workspaces */
};

static int is_on_one_node(const ceov_workspace *workspace)
{
	return !cei_workspace_has_nodes(workspace);
}

static const struct part parts[] = {
	{ "arrived0", offsetof(struct ceov_workspace, arrived[0]), 0,
	  CEI_OP_STAGES_MAX * CEI_OP_PIECES_MAX, 0, NULL },
	{ "arrived1", offsetof(struct ceov_workspace, arrived[1]), 0,
	  CEI_OP_STAGES_MAX * CEI_OP_PIECES_MAX, 0, NULL },
	{ "here", offsetof(struct ceov_workspace, here), 0, CEI_OP_HALVES, 1, NULL },
	{ "tune", offsetof(struct ceov_workspace, allreduce.signals),
	  CEI_ALLREDUCE_COUNTERS + CEI_AGREE_COUNTERS, 0, 1, NULL },
	{ "met", offsetof(struct ceov_workspace, met), 0, 1, 0, is_on_one_node },
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

static int has(const ceov_workspace *workspace, const struct part *part)
{
	return !part->exists || part->exists(workspace);
}

static ceov_signal **slot(const ceov_workspace *workspace, const struct part *part,
			  uint32_t rank)
{
	return (ceov_signal **)((uintptr_t)workspace + part->at) + rank;
}

/* Writes the name under which a part is exported into buffer, and returns it. */
static const char *name_of(const ceov_workspace *workspace, const char *part, char *buffer)
{
	snprintf(buffer, CEI_GROUP_NAME_BYTES, "ws.%s.%s", workspace->name, part);
	return buffer;
}

/* --- this rank's scratch and signals --------------------------------------- */

/* Returns how much mail is behind the scratch of a rank at such a place. */
static uint64_t mail_bytes(const ceov_workspace *workspace, enum ceov_place_kind kind)
{
	if (kind != CEOV_PLACE_GPU || cei_workspace_has_nodes(workspace) ||
	    workspace->n_ranks < 2 || workspace->n_ranks > CEI_DIRECT_LL_RANKS_MAX)
		return 0;
	return CEI_OP_HALVES * cei_direct_ll_half_bytes(workspace->n_ranks);
}

/* Creates scratch, with mail behind its halves: zero, since no run has that number. */
static int create_scratch(ceov_workspace *workspace, enum ceov_place_kind kind)
{
	uint64_t halves_bytes = CEI_OP_HALVES * workspace->half_bytes;
	uint64_t n_mail = mail_bytes(workspace, kind);
	ceov_context *context = workspace->object.context;
	uint32_t rank = workspace->rank;
	struct cei_backend *backend = cei_context_backend(context, rank);
	ceov_buffer **scratch = &workspace->scratch[rank];
	void *zeros;
	int r = ceov_buffer_create(context, rank, halves_bytes + n_mail, scratch);

	if (r || !n_mail)
		return r;
	zeros = calloc(1, n_mail);
	if (!zeros)
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_NO_MEMORY, 0,
				 "workspace '%s': no memory", workspace->name);
	r = backend->ops->store(backend, (uint64_t)(uintptr_t)ceov_buffer_base(*scratch, rank) +
				halves_bytes, zeros, n_mail);
	free(zeros);
	return r;
}

int cei_shared_create(ceov_workspace *workspace, const struct ceov_place *place)
{
	static const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	int has_nodes = cei_workspace_has_nodes(workspace);
	ceov_context *context = workspace->object.context;
	uint32_t rank = workspace->rank, i;
	int r = create_scratch(workspace, place->kind);

	for (i = 0; !r && i < PARTS; i++)
		if (has(workspace, &parts[i]))
			r = ceov_signal_create(context, rank,
					       parts[i].is_on_host || has_nodes
					       ? host : *place,
					       parts[i].n_counters + parts[i].n_per_rank *
					       workspace->n_ranks, 0,
					       slot(workspace, &parts[i], rank));
	return r;
}

/* Exports scratch last, so that a peer that has found scratch finds the signals, too. */
int cei_shared_offer(ceov_workspace *workspace)
{
	uint32_t rank = workspace->rank, i;
	char name[CEI_GROUP_NAME_BYTES];
	int r = 0;

	for (i = 0; !r && i < PARTS; i++)
		if (has(workspace, &parts[i]))
			r = ceov_signal_share(*slot(workspace, &parts[i], rank),
					      name_of(workspace, parts[i].name, name));
	return r ? r : ceov_buffer_share(workspace->scratch[rank],
					 name_of(workspace, "scratch", name));
}

/* --- scratch and signals of peers ------------------------------------------ */

static int release_buffer(ceov_buffer **buffer)
{
	int r = ceov_buffer_release(*buffer);

	if (!r)
		*buffer = NULL;
	return r;
}

/* Returns the size of both halves of a rank's scratch, without the mail that only GPUs have. */
static uint64_t halves_of(const ceov_workspace *workspace, uint32_t rank)
{
	const struct cei_region *region = workspace->scratch[rank]->region;
	uint64_t n_mail = mail_bytes(workspace, region->kind);

	return region->size_bytes > n_mail ? region->size_bytes - n_mail : 0;
}

static int check_size(ceov_workspace *workspace, uint32_t rank)
{
	uint64_t own = halves_of(workspace, workspace->rank), peer = halves_of(workspace, rank);

	if (own == peer)
		return 0;
	(void)release_buffer(&workspace->scratch[rank]);
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
			 "ceov_workspace_connect: '%s': scratch of rank %u has 2 x %" PRIu64
			 " bytes, that of rank %u 2 x %" PRIu64 "; give all ranks the same "
			 "scratch_bytes", workspace->name, workspace->rank, own / 2, rank,
			 peer / 2);
}

/* Looks for the scratch of a peer. CEOV_NONE: the peer has not exported it yet. */
static int find_scratch(ceov_workspace *workspace, uint32_t rank, uint64_t by_ns)
{
	char name[CEI_GROUP_NAME_BYTES];
	struct cei_lookup lookup = { rank, name, by_ns };
	int r;

	if (workspace->scratch[rank])
		return 0;
	name_of(workspace, "scratch", name);
	r = cei_buffer_find(workspace->object.context, &lookup,
			    &workspace->scratch[rank]);
	return r ? r : check_size(workspace, rank);
}

int cei_shared_find(ceov_workspace *workspace, uint32_t rank, uint64_t by_ns)
{
	char name[CEI_GROUP_NAME_BYTES];
	struct cei_lookup lookup = { rank, name, by_ns };
	ceov_signal **signal;
	uint32_t i;
	int r = find_scratch(workspace, rank, by_ns);

	for (i = 0; !r && i < PARTS; i++) {
		signal = slot(workspace, &parts[i], rank);
		if (*signal || !has(workspace, &parts[i]))
			continue;
		name_of(workspace, parts[i].name, name);
		r = cei_signal_find(workspace->object.context, &lookup, signal);
	}
	return r;
}

int cei_shared_is_found(const ceov_workspace *workspace, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < PARTS; i++)
		if (has(workspace, &parts[i]) && !*slot(workspace, &parts[i], rank))
			return 0;
	return 1;                       /* scratch was found after all signals */
}

/* --- release, and the list for aborts -------------------------------------- */

static int release_of(ceov_workspace *workspace, uint32_t rank)
{
	ceov_signal **signal;
	uint32_t i;
	int r = release_buffer(&workspace->scratch[rank]);

	for (i = 0; !r && i < PARTS; i++) {
		signal = slot(workspace, &parts[i], rank);
		r = ceov_signal_release(*signal);
		if (!r)
			*signal = NULL;
	}
	return r;
}

int cei_shared_release(ceov_workspace *workspace)
{
	uint32_t i;
	int r = 0;

	for (i = 1; !r && i <= workspace->n_ranks; i++)
		r = release_of(workspace, (workspace->rank + i) % workspace->n_ranks);
	return r;
}

uint32_t cei_shared_signals(const ceov_workspace *workspace, ceov_signal **ret_signals)
{
	uint32_t rank, i, n = 0;

	for (rank = 0; rank < workspace->n_ranks; rank++)
		for (i = 0; i < PARTS; i++)
			if (*slot(workspace, &parts[i], rank))
				ret_signals[n++] = *slot(workspace, &parts[i], rank);
	return n;
}
