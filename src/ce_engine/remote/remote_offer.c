/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Which plans a daemon can reach, and what it gets of them. */

#include "ce_engine/remote/remote_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_driver.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/program/program_wire.h"

/* Whether the daemon cannot see the counter of a mark that a transfer waits for. Its lanes do not
 * wait for memory of clients, since one that is stopped would stop a stream for all. */
static int is_hidden(const struct ceov_plan *plan, const struct cei_program_mark *mark)
{
	return mark->signal != CEI_PROGRAM_NONE &&
	       !cei_signal_is_visible(plan->signals[mark->signal]);
}

static int waits_for_hidden(const struct ceov_plan *plan)
{
	const struct cei_program_transfer *transfer;
	uint32_t i;

	for (i = 0; i < plan->program.n_transfers; i++) {
		transfer = &plan->program.transfers[i];
		if (is_hidden(plan, &transfer->source_ready) ||
		    is_hidden(plan, &transfer->target_free))
			return 1;
	}
	return 0;
}

static int is_signal_shareable(const struct ceov_signal *signal)
{
	return cei_region_is_shareable(signal->control) &&
	       (!signal->gpu || cei_region_is_shareable(signal->gpu));
}

const char *cei_remote_cannot(const struct ceov_plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->program.n_buffers; i++) {
		if (plan->buffers[i]->is_floating)
			return "each launch names memory that the daemon does not know";
		if (!cei_region_is_shareable(plan->buffers[i]->region))
			return "it names memory that was not made by ceov_buffer_create() or "
				"cudaMalloc(), or that is not on this node";
	}
	for (i = 0; i < plan->program.n_signals; i++)
		if (!is_signal_shareable(plan->signals[i]))
			return "it names a signal that is not on this node";
	if (plan->n_also)
		return "a transfer waits until several ranks have freed what it overwrites";
	if (waits_for_hidden(plan))
		return "it waits for marks that only a GPU sees; signals made with "
			"CEOV_SIGNAL_HOST_VISIBLE can be seen by the daemon";
	return NULL;
}

/* --- sending ------------------------------------------------------------------ */

void cei_remote_hello(const ceov_context *context, struct cei_service_hello *hello)
{
	const struct cei_site *site = &context->site;
	uint32_t i;

	memset(hello, 0, sizeof(*hello));
	hello->n_ranks = site->n_ranks;
	hello->deadline_ns = context->deadline_ns;
	hello->max_chunk_bytes = context->max_chunk_bytes;
	hello->urgency = context->urgency;
	strncpy(hello->name, program_invocation_short_name, sizeof(hello->name) - 1);
	for (i = 0; i < site->n_members; i++) {
		hello->members[i].rank = site->members[i].rank;
		hello->members[i].kind = site->members[i].place.kind;
		if (site->members[i].place.kind == CEOV_PLACE_GPU)
			cei_cuda_uuid_of(site->cuda, site->members[i].place.index,
					 hello->members[i].uuid);
	}
	hello->n_members = site->n_members;
}

static int offer_all(const struct ceov_plan *plan, struct cei_service_offer *offer)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < plan->program.n_buffers; i++)
		r = cei_offer_add(offer, plan->buffers[i]->region);
	for (i = 0; !r && i < plan->program.n_signals; i++) {
		r = cei_offer_add(offer, plan->signals[i]->control);
		if (!r && plan->signals[i]->gpu)
			r = cei_offer_add(offer, plan->signals[i]->gpu);
	}
	return r;
}

/* A plan that was also committed here, on a GPU, has routes over this process's machine. The daemon
 * finds its own, and allows no more bytes of a plan than transfers without routes take. */
static int write_plan(const struct ceov_plan *plan, const struct cei_service_offer *offer,
		      struct cei_service_program *ret_wire)
{
	size_t n_bytes = cei_offer_bytes(offer);
	struct cei_program program;
	uint8_t *bytes = NULL;
	int r = cei_program_copy_unrouted(&plan->program, &program);

	if (!r)
		bytes = malloc(n_bytes + cei_program_bytes(&program));
	if (!bytes) {
		if (!r)
			free(program.transfers);
		return cei_raise(&plan->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_plan_commit: no memory for a plan");
	}
	ret_wire->n_bytes = n_bytes + cei_program_bytes(&program);
	cei_offer_write(offer, bytes);
	cei_program_write(&program, bytes + n_bytes);
	free(program.transfers);
	ret_wire->bytes = bytes;
	return 0;
}

static int send_offer(struct cei_remote_plan *record, const struct cei_service_offer *offer)
{
	struct cei_service_program wire = { .offer = offer };
	int r = write_plan(record->plan, offer, &wire);

	if (r)
		return r;
	r = cei_service_commit(record->plan->object.context->remote->link, &wire, &record->handle);
	free((void *)(uintptr_t)wire.bytes);
	return r;
}

int cei_remote_send(struct cei_remote_plan *record)
{
	const struct ceov_plan *plan = record->plan;
	const struct cei_program *program = &plan->program;
	struct cei_service_offer offer;
	int r = cei_offer_init(&offer, program->n_buffers + 2 * program->n_signals);

	if (r)
		(void)cei_raise(&plan->object.context->report, r, 0,
				"ceov_plan_commit: no memory for a plan");
	if (!r)
		r = offer_all(plan, &offer);
	if (!r)
		r = send_offer(record, &offer);
	cei_offer_fini(&offer);
	return r;
}
