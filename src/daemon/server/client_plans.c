/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the porter does for the plans of a client: commits, explains and drops them. */

#include "daemon/server/client_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cuda_driver.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_import.h"
#include "ce_engine/program/program_wire.h"
#include "daemon/server/gpus.h"
#include "daemon/server/server.h"
#include "ipc/service_wire.h"
#include "ipc/wire.h"

/* --- committing ------------------------------------------------------------- */

/* Returns what is wrong with a file that a client offers as host memory, or NULL. Its description
 * is made anew of what the file is. */
static const char *describe_file(int fd, struct cei_region_wire *wire)
{
	struct stat stat;
	const char *fault = cei_share_host_fault(fd, &stat);

	if (fault)
		return fault;
	memset(wire, 0, sizeof(*wire));
	wire->kind = CEOV_PLACE_HOST;
	wire->has_fd = 1;
	wire->size_bytes = (uint64_t)stat.st_size;
	wire->buffer_id = (uint64_t)stat.st_ino;
	return NULL;
}

/* Returns what is wrong with GPU memory, or NULL. That it is as large as it says is checked when it
 * is mapped. It is never taken for this process's own memory. */
static const char *describe_gpu(const struct cei_client *client, struct cei_region_wire *wire)
{
	struct cei_server *server = client->server;
	uint32_t engine = cei_gpus_member(&server->site, wire->uuid);
	char text[CEOV_FAILURE_TEXT_BYTES];

	wire->device = 0;
	if (engine != CEOV_NOBODY && cei_fences_refuse(&server->fences, engine, text))
		return "it is of a GPU that the daemon has fenced; ceoverlapctl status says why";
	return cei_cuda_gpu_of(server->site.cuda, wire->uuid) == CEOV_NOBODY
		? "it is of a GPU that the daemon does not see" : NULL;
}

static const char *describe(const struct cei_client *client, int fd, struct cei_region_wire *wire)
{
	const char *fault = wire->kind == CEOV_PLACE_HOST ? describe_file(fd, wire)
		: describe_gpu(client, wire);

	wire->instance[0] = client->number;
	wire->instance[1] = 0;
	wire->pid = wire->kind == CEOV_PLACE_HOST ? (uint64_t)client->pid : 0;
	return fault;
}

/* The plan that is being committed. */
struct commit {
	struct cei_client         *client;
	struct cei_client_plan    *plan;
	struct cei_program         program;
	struct cei_service_taken   memories;
};

/* Takes the next memory of the plan, and counts it. CEOV_ERR_INVALID: refused. */
static int take_memory(struct commit *commit, struct cei_region_wire *ret_wire, int *ret_fd)
{
	struct cei_client *client = commit->client;
	char text[CEOV_FAILURE_TEXT_BYTES];
	const char *fault = "it is not described", *limit = NULL;
	uint32_t number = commit->memories.next_memory;

	*ret_fd = -1;
	if (!cei_offer_take(&commit->memories, ret_wire, ret_fd))
		fault = describe(client, *ret_fd, ret_wire);
	if (!fault)
		limit = cei_account_take(&client->server->accounts, client->account,
					 &client->n_bytes, ret_wire->size_bytes);
	if (!fault && !limit) {
		commit->plan->n_bytes += ret_wire->size_bytes;
		return 0;
	}
	if (*ret_fd >= 0)
		close(*ret_fd);
	*ret_fd = -1;
	if (limit) {
		cei_client_refuse_limit(client, limit);
		return CEOV_ERR_INVALID;
	}
	snprintf(text, sizeof(text), "ceoverlapd: memory %u of the plan is refused: %s",
		 number, fault);
	cei_client_refuse(client, CEOV_ERR_INVALID, text);
	return CEOV_ERR_INVALID;
}

static int import_buffer(struct commit *commit, uint32_t i)
{
	struct cei_client *client = commit->client;
	struct cei_region_wire wire;
	int fd, r = take_memory(commit, &wire, &fd);

	if (r)
		return r;
	r = cei_buffer_import(client->context, commit->program.buffers[i].rank, &wire, fd,
			      &commit->plan->buffers[i]);
	if (r)
		cei_client_refuse_as_raised(client, r);
	return r;
}

static int take_parts(struct commit *commit, const struct cei_program_signal *from,
		      struct cei_signal_parts *parts)
{
	int r = take_memory(commit, &parts->control, &parts->fd);

	if (!r && parts->is_in_gpu)
		r = take_memory(commit, &parts->gpu, &parts->gpu_fd);
	if (r)
		return r;
	if (parts->is_in_gpu && from->flags & CEI_PROGRAM_SEEN)
		parts->flags = CEOV_SIGNAL_HOST_VISIBLE;
	if (parts->control.kind == CEOV_PLACE_HOST &&
	    (!parts->is_in_gpu || parts->gpu.kind == CEOV_PLACE_GPU))
		return 0;
	cei_client_refuse(commit->client, CEOV_ERR_INVALID, "ceoverlapd: a signal is in the wrong "
			  "kind of memory");
	return CEOV_ERR_INVALID;
}

static int import_signal(struct commit *commit, uint32_t i)
{
	const struct cei_program_signal *from = &commit->program.signals[i];
	struct cei_client *client = commit->client;
	struct cei_signal_parts parts = {
		.rank = from->rank,
		.n_counters = from->n_counters,
		.fd = -1,
		.is_in_gpu = (from->flags & CEI_PROGRAM_IN_GPU) != 0,
		.gpu_fd = -1,
	};
	int r = take_parts(commit, from, &parts);

	if (r) {
		cei_signal_parts_close(&parts);
		return r;
	}
	r = cei_signal_import(client->context, &parts, &commit->plan->signals[i]);
	if (r)
		cei_client_refuse_as_raised(client, r);
	return r;
}

void cei_client_empty_plan(struct cei_client *client, struct cei_client_plan *plan)
{
	uint32_t i;

	for (i = 0; i < plan->n_signals; i++)
		(void)ceov_signal_release(plan->signals[i]);
	for (i = 0; i < plan->n_buffers; i++)
		(void)ceov_buffer_release(plan->buffers[i]);
	free(plan->signals);
	free(plan->buffers);
	cei_account_give_back(&client->server->accounts, client->account, &client->n_bytes,
			      plan->n_bytes);
	client->n_regions -= plan->n_memories;
	client->n_chunks -= plan->n_chunks;
	memset(plan, 0, sizeof(*plan));
}

/* Into how many chunks a plan is cut is known when it is committed. Releases a plan that has too
 * many. */
static int count_chunks(struct commit *commit, struct ceov_plan **plan)
{
	struct cei_client *client = commit->client;
	uint32_t n_chunks = (*plan)->program.n_chunks;

	if (client->n_chunks + n_chunks > cei_client_limits(client).n_chunks) {
		ceov_plan_release(*plan);
		*plan = NULL;
		cei_client_refuse_limit(client, "chunks");
		return CEOV_ERR_INVALID;
	}
	commit->plan->n_chunks = n_chunks;
	client->n_chunks += n_chunks;
	return 0;
}

static int import_all(struct commit *commit, struct ceov_plan **ret_plan)
{
	const struct cei_program *program = &commit->program;
	const struct cei_assembly *assembly = &commit->client->assembly;
	const struct cei_plan_handles handles = { commit->plan->buffers, program->n_buffers,
						  commit->plan->signals, program->n_signals };
	size_t at = (size_t)assembly->head.n_memories * CEI_WIRE_REGION_BYTES;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < program->n_buffers; i++)
		r = import_buffer(commit, i);
	for (i = 0; !r && i < program->n_signals; i++)
		r = import_signal(commit, i);
	if (r)
		return r;
	if (!cei_offer_is_taken(&commit->memories)) {
		cei_client_refuse(commit->client, CEOV_ERR_INVALID,
				  "ceoverlapd: the plan came with memory that it does not name");
		return CEOV_ERR_INVALID;
	}
	r = cei_plan_import(commit->client->context, assembly->bytes + at, assembly->n_bytes - at,
			    &handles, ret_plan);
	if (r)
		cei_client_refuse_as_raised(commit->client, r);
	return r ? r : count_chunks(commit, ret_plan);
}

static int make_lists(struct commit *commit)
{
	const struct cei_program *program = &commit->program;
	struct cei_client_plan *plan = commit->plan;

	plan->buffers = calloc((size_t)program->n_buffers + 1, sizeof(*plan->buffers));
	plan->signals = calloc((size_t)program->n_signals + 1, sizeof(*plan->signals));
	plan->n_buffers = program->n_buffers;
	plan->n_signals = program->n_signals;
	plan->n_memories = commit->memories.n_memories;
	commit->client->n_regions += plan->n_memories;
	if (plan->buffers && plan->signals)
		return 0;
	cei_client_refuse(commit->client, CEOV_ERR_NO_MEMORY, "ceoverlapd: no memory for a plan");
	return CEOV_ERR_NO_MEMORY;
}

/* Refuses a plan of a rank whose engine is fenced. That the client has such a rank is checked when
 * the plan is imported. */
static void look_at_fence(struct cei_client *client, uint32_t rank)
{
	char text[CEOV_FAILURE_TEXT_BYTES];
	uint32_t i;
	int error;

	for (i = 0; i < client->hello.n_members; i++) {
		if (client->hello.members[i].rank != rank)
			continue;
		error = cei_fences_refuse(&client->server->fences, client->engines[i], text);
		if (error)
			cei_client_refuse(client, error, text);
	}
}

/* Checks what only the daemon has to check. Returns 1 if it was refused. */
static int is_refused(struct cei_client *client, const struct cei_program *program)
{
	struct cei_limits limits = cei_client_limits(client);
	const struct cei_assembly *assembly = &client->assembly;
	const char *limit = NULL;

	if (program->n_transfers > limits.n_transfers)
		limit = "transfers_per_plan";
	else if (client->n_plans >= limits.n_plans)
		limit = "plans";
	else if (client->n_regions + assembly->head.n_memories > limits.n_regions)
		limit = "regions";
	if (limit)
		cei_client_refuse_limit(client, limit);
	else if (program->floating != CEI_PROGRAM_NONE)
		cei_client_refuse(client, CEOV_ERR_INVALID, "ceoverlapd: a daemon cannot reach "
				  "memory that launches name");
	else
		look_at_fence(client, program->rank);
	return client->answer.type == CEI_SERVICE_REFUSED;
}

static uint32_t free_slot(const struct cei_client *client)
{
	uint32_t i;

	for (i = 0; i < CEI_CLIENT_PLANS_MAX - 1; i++)
		if (!client->slots[i].plan)     /* only this thread and the engines' see it, and
						 * engines change nothing */
			break;
	return i;
}

static void enter_plan(struct cei_client *client, uint32_t at, struct ceov_plan *plan)
{
	struct cei_intake *intake =
		&client->server->intakes[client->engines[plan->member]];

	plan->program.urgency = cei_limits_cap(cei_client_limits(client).most_urgent,
					       plan->program.urgency);
	client->n_plans++;
	client->answer.type = CEI_SERVICE_COMMITTED;
	client->answer.handle.slot = at;
	client->answer.handle.generation = client->slots[at].generation;
	cei_intake_put_plan(intake, &client->slots[at], plan, &client->mouths[plan->member]);
}

int cei_client_run_commit(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);
	const struct cei_assembly *assembly = &client->assembly;
	size_t behind = (size_t)assembly->head.n_memories * CEI_WIRE_REGION_BYTES;
	struct commit commit = {
		.client = client,
		.memories = { .bytes = assembly->bytes, .n_memories = assembly->head.n_memories,
			      .fds = assembly->fds, .n_fds = assembly->n_fds },
	};
	struct ceov_plan *made = NULL;
	uint32_t at = free_slot(client);
	int r = cei_program_read(assembly->bytes + behind, assembly->n_bytes - behind,
				 &commit.program);

	if (r) {
		cei_client_refuse(client, r, r == CEOV_ERR_VERSION
		       ? "ceoverlapd: the plan is of another version of ceoverlap"
		       : "ceoverlapd: the plan's bytes are no plan");
	} else {
		commit.plan = &client->plans[at];
		if (!is_refused(client, &commit.program)) {
			r = make_lists(&commit);
			if (!r)
				r = import_all(&commit, &made);
			if (r)
				cei_client_empty_plan(client, commit.plan);
			else
				enter_plan(client, at, made);
		}
		cei_program_fini(&commit.program);
	}
	cei_client_clear_assembly(client);
	return 0;
}

void cei_client_clear_assembly(struct cei_client *client)
{
	struct cei_assembly *assembly = &client->assembly;
	uint32_t i;

	for (i = 0; i < assembly->n_fds; i++)
		if (assembly->fds[i] >= 0)
			close(assembly->fds[i]);
	if (assembly->n_promised)
		cei_account_give_back_fds(&client->server->accounts, client->account,
					  &client->n_fds, assembly->n_promised);
	free(assembly->fds);
	free(assembly->bytes);
	memset(assembly, 0, sizeof(*assembly));
}

/* --- explaining and dropping ------------------------------------------------ */

/* Returns the plan that the client means, or NULL. */
static struct ceov_plan *asked_plan(const struct cei_client *client)
{
	const struct cei_intake_plan *slot;

	if (client->asked.slot >= CEI_CLIENT_PLANS_MAX)
		return NULL;
	slot = &client->slots[client->asked.slot];
	return slot->generation == client->asked.generation ? slot->plan : NULL;
}

int cei_client_run_explain(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);
	struct ceov_plan *plan = asked_plan(client);
	int r, fd;

	if (!plan) {
		cei_client_refuse(client, CEOV_ERR_INVALID, "ceoverlapd: there is no such plan");
		return 0;
	}
	fd = memfd_create("ceoverlapd-text", MFD_CLOEXEC);
	if (fd < 0) {
		cei_client_refuse(client, CEOV_ERR_SYSTEM, "ceoverlapd: no file for a text");
		return 0;
	}
	r = ceov_plan_explain(plan, fd);
	if (r) {
		close(fd);
		cei_client_refuse_as_raised(client, r);
		return 0;
	}
	(void)lseek(fd, 0, SEEK_SET);
	client->answer.type = CEI_SERVICE_EXPLAINED;
	client->answer_fd = fd;
	return 0;
}

int cei_client_run_drop(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);
	struct ceov_plan *plan = client->dropping ? client->dropping : asked_plan(client);

	if (!plan) {
		cei_client_refuse(client, CEOV_ERR_INVALID, "ceoverlapd: there is no such plan");
		return 0;
	}
	if (!client->dropping)          /* from now on no launch of it begins */
		(void)cei_intake_take_plan(
			&client->server->intakes[client->engines[plan->member]],
			&client->slots[client->asked.slot]);
	client->dropping = plan;
	if (ceov_plan_idle(plan) == CEOV_PENDING)       /* a client that is right has waited */
		return client->must_end ? 0 : CEOV_PENDING;
	cei_client_end_drop(client);
	client->answer.type = CEI_SERVICE_DROPPED;
	return 0;
}

void cei_client_end_drop(struct cei_client *client)
{
	if (!client->dropping)
		return;
	ceov_plan_release(client->dropping);
	client->dropping = NULL;
	cei_client_empty_plan(client, &client->plans[client->asked.slot]);
	client->n_plans--;
}
