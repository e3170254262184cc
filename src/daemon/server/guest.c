/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Contexts that use the engines of others. */

#include "daemon/server/guest.h"

#include <stdlib.h>
#include <string.h>

#include "ce_engine/context_life.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"

/* The site is that of the works, with the guest's ranks instead of theirs. */
static void take_site(ceov_context *context, const struct cei_guest *guest)
{
	struct cei_site *site = &context->site;
	uint32_t i;

	*site = *guest->works->site;
	site->report = &context->report;
	site->network = NULL;
	site->nodes = NULL;
	site->trace_path[0] = 0;
	site->n_ranks = guest->n_ranks;
	site->n_members = guest->n_members;
	for (i = 0; i < guest->n_members; i++)
		site->members[i] = guest->members[i];
}

static void take_engines(ceov_context *context, const struct cei_guest *guest)
{
	uint32_t i;

	for (i = 0; i < guest->n_members; i++) {
		context->engines[i] = &guest->works->engines[guest->engines[i]];
		context->backends[i] = context->engines[i]->backend;
	}
}

static int build(ceov_context *context, const struct cei_guest *guest)
{
	int r = cei_context_make_alive(context);

	if (r)
		return r;
	take_site(context, guest);
	take_engines(context, guest);
	context->report.rank = guest->members[0].rank;
	context->max_chunk_bytes = guest->max_chunk_bytes;
	context->deadline_ns = guest->deadline_ns;
	context->rule = CEI_ROUTE_RULE_NEEDED;
	context->ended = guest->ended;
	context->ended_arg = guest->ended_arg;
	context->is_lost = calloc(guest->n_ranks, sizeof(*context->is_lost));
	if (!context->is_lost)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for %u ranks", guest->n_ranks);
	return cei_mappings_init(&context->mappings, &context->site);
}

int cei_guest_open(const struct cei_guest *guest, ceov_context **ret_context)
{
	ceov_context *context = calloc(1, sizeof(*context));
	int r;

	if (!context)
		return CEOV_ERR_NO_MEMORY;
	cei_context_begin(context, guest->log, guest->log_arg);
	r = build(context, guest);
	if (r)
		cei_guest_close(context);
	else
		*ret_context = context;
	return r;
}

void cei_guest_close(ceov_context *context)
{
	cei_context_destroy_objects(context);
	cei_mappings_fini(&context->mappings);
	cei_context_end(context);
}

void cei_guest_abort(ceov_context *context, int error, uint32_t rank)
{
	const struct cei_abort abort = { error, rank };
	struct cei_report_hold hold;
	struct cei_list *node;

	cei_report_hold_begin(&context->report, &hold);
	pthread_mutex_lock(&context->lock);
	for (node = context->plans.next; node != &context->plans; node = node->next)
		cei_abort_plan(CEI_OWNER(node, struct ceov_plan, object.link), &abort);
	cei_abort_end(context, 0);
	pthread_mutex_unlock(&context->lock);
	cei_report_hold_end(&context->report, &hold);
}
