/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the porter does for the plans of a client: commits, explains and drops them. Each function
 * but those that begin tasks is called by the porter's thread. */

#include "daemon/client_private.h"

#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_import.h"
#include "ce_engine/program/program_wire.h"
#include "daemon/server.h"

/* --- committing ------------------------------------------------------------- */

/* Returns what is wrong with memory that a client offers, or NULL and its description. Its seals
 * and its size are checked when it is imported. Pages of hugetlbfs may be missing when they are
 * touched, so only files of tmpfs are taken. */
static const char *describe(const struct cei_client *client, int fd,
			    struct cei_region_wire *ret_wire)
{
	struct statfs filesystem;
	struct stat stat;

	if (fstat(fd, &stat) || fstatfs(fd, &filesystem))
		return "cannot be looked at";
	if (filesystem.f_type != TMPFS_MAGIC || !S_ISREG(stat.st_mode) || stat.st_size <= 0)
		return "is no memory file (memfd)";
	memset(ret_wire, 0, sizeof(*ret_wire));
	ret_wire->kind = CEOV_PLACE_HOST;
	ret_wire->has_fd = 1;
	ret_wire->size_bytes = (uint64_t)stat.st_size;
	ret_wire->buffer_id = (uint64_t)stat.st_ino;
	ret_wire->instance[0] = client->number;
	ret_wire->pid = (uint64_t)client->pid;
	return NULL;
}

/* Takes the next descriptor of the assembly, and counts its memory. -1: refused. */
static int take_memory(struct cei_client *client, struct cei_client_plan *plan,
		       uint32_t i, struct cei_region_wire *ret_wire)
{
	struct cei_assembly *assembly = &client->assembly;
	const char *fault = describe(client, assembly->fds[i], ret_wire), *limit;
	char text[CEOV_FAILURE_TEXT_BYTES];
	int fd;

	if (fault) {
		snprintf(text, sizeof(text), "ceoverlapd: memory %u of the plan %s", i, fault);
		cei_client_refuse(client, CEOV_ERR_INVALID, text);
		return -1;
	}
	limit = cei_account_take(&client->server->accounts, client->account, &client->n_bytes,
				 ret_wire->size_bytes);
	if (limit) {
		cei_client_refuse_limit(client, limit);
		return -1;
	}
	plan->n_bytes += ret_wire->size_bytes;
	fd = assembly->fds[i];
	assembly->fds[i] = -1;
	return fd;
}

static int import_buffer(struct cei_client *client, struct cei_client_plan *plan,
			 const struct cei_program *program, uint32_t i)
{
	struct cei_region_wire wire;
	int r, fd = take_memory(client, plan, i, &wire);

	if (fd < 0)
		return CEOV_ERR_INVALID;
	r = cei_buffer_import(client->context, program->buffers[i].rank, &wire, fd,
			      &plan->buffers[i]);
	if (r)
		cei_client_refuse_as_raised(client, r);
	return r;
}

static int import_signal(struct cei_client *client, struct cei_client_plan *plan,
			 const struct cei_program *program, uint32_t i)
{
	struct cei_signal_parts parts = {
		.rank = program->signals[i].rank,
		.n_counters = program->signals[i].n_counters,
	};
	int r;

	parts.fd = take_memory(client, plan, program->n_buffers + i, &parts.control);
	if (parts.fd < 0)
		return CEOV_ERR_INVALID;
	r = cei_signal_import(client->context, &parts, &plan->signals[i]);
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
	client->n_regions -= plan->n_buffers + plan->n_signals;
	memset(plan, 0, sizeof(*plan));
}

static int import_all(struct cei_client *client, struct cei_client_plan *plan,
		      const struct cei_program *program, struct ceov_plan **ret_plan)
{
	const struct cei_plan_handles handles = { plan->buffers, program->n_buffers,
						  plan->signals, program->n_signals };
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < program->n_buffers; i++)
		r = import_buffer(client, plan, program, i);
	for (i = 0; !r && i < program->n_signals; i++)
		r = import_signal(client, plan, program, i);
	if (r)
		return r;
	r = cei_plan_import(client->context, client->assembly.bytes, client->assembly.n_bytes,
			    &handles, ret_plan);
	if (r)
		cei_client_refuse_as_raised(client, r);
	return r;
}

static int make_lists(struct cei_client *client, struct cei_client_plan *plan,
		      const struct cei_program *program)
{
	plan->buffers = calloc((size_t)program->n_buffers + 1, sizeof(*plan->buffers));
	plan->signals = calloc((size_t)program->n_signals + 1, sizeof(*plan->signals));
	plan->n_buffers = program->n_buffers;
	plan->n_signals = program->n_signals;
	client->n_regions += plan->n_buffers + plan->n_signals;
	if (plan->buffers && plan->signals)
		return 0;
	cei_client_refuse(client, CEOV_ERR_NO_MEMORY, "ceoverlapd: no memory for a plan");
	return CEOV_ERR_NO_MEMORY;
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
	else if (client->n_regions + assembly->n_fds > limits.n_regions)
		limit = "regions";
	if (limit)
		cei_client_refuse_limit(client, limit);
	else if (program->floating != CEI_PROGRAM_NONE)
		cei_client_refuse(client, CEOV_ERR_INVALID, "ceoverlapd: a daemon cannot reach "
				  "memory that launches name");
	else if (program->n_buffers != assembly->head.n_buffers ||
		 program->n_signals != assembly->head.n_signals)
		cei_client_refuse(client, CEOV_ERR_INVALID, "ceoverlapd: the plan has other "
				  "numbers of buffers and signals than its message");
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
	struct cei_daemon_intake *intake =
		&client->server->intakes[client->engines[plan->member]];

	plan->program.urgency = cei_limits_cap(cei_client_limits(client).most_urgent,
					       plan->program.urgency);
	client->n_plans++;
	client->answer.type = CEI_SERVICE_COMMITTED;
	client->answer.handle.slot = at;
	client->answer.handle.generation = client->slots[at].generation;
	cei_intake_put_plan(intake, &client->slots[at], plan, &client->mouths[plan->member]);
}

static int run_commit(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);
	struct cei_client_plan *plan;
	struct ceov_plan *made = NULL;
	struct cei_program program;
	uint32_t at = free_slot(client);
	int r = cei_program_read(client->assembly.bytes, client->assembly.n_bytes, &program);

	if (r) {
		cei_client_refuse(client, r, r == CEOV_ERR_VERSION
		       ? "ceoverlapd: the plan is of another version of ceoverlap"
		       : "ceoverlapd: the plan's bytes are no plan");
	} else {
		plan = &client->plans[at];
		if (!is_refused(client, &program)) {
			r = make_lists(client, plan, &program);
			if (!r)
				r = import_all(client, plan, &program, &made);
			if (r)
				cei_client_empty_plan(client, plan);
			else
				enter_plan(client, at, made);
		}
		cei_program_fini(&program);
	}
	cei_assembly_clear(&client->assembly);
	return 0;
}

void cei_client_commit(struct cei_client *client)
{
	cei_client_begin(client, run_commit);
}

void cei_assembly_clear(struct cei_assembly *assembly)
{
	uint32_t i;

	for (i = 0; i < assembly->n_fds; i++)
		if (assembly->fds[i] >= 0)
			close(assembly->fds[i]);
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

static int run_explain(struct cei_task *task)
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

void cei_client_explain(struct cei_client *client)
{
	cei_client_begin(client, run_explain);
}

static int run_drop(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);
	struct ceov_plan *plan = asked_plan(client);
	struct cei_daemon_intake *intake;

	if (!plan)
		return 0;
	if (ceov_plan_idle(plan) == CEOV_PENDING) {     /* a client that is right has waited */
		if (!client->must_end)
			return CEOV_PENDING;
		return 0;
	}
	intake = &client->server->intakes[client->engines[plan->member]];
	(void)cei_intake_take_plan(intake, &client->slots[client->asked.slot]);
	ceov_plan_release(plan);
	cei_client_empty_plan(client, &client->plans[client->asked.slot]);
	client->n_plans--;
	return 0;
}

void cei_client_drop(struct cei_client *client)
{
	cei_client_begin(client, run_drop);
}
