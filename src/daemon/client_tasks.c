/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the porter does for a client: opens its guest, commits, explains and drops plans, and ends
 * it. Each function but those that begin tasks is called by the porter's thread. */

#include "daemon/client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_import.h"
#include "ce_engine/program/program_wire.h"
#include "daemon/server.h"

/* A launch without a deadline of its own gets at least this one. */
#define DEADLINE_LEAST_NS UINT64_C(1000000)

static struct cei_client *client_of(struct cei_task *task)
{
	return CEI_OWNER(task, struct cei_client, task);
}

static void begin(struct cei_client *client, int (*run)(struct cei_task *))
{
	client->has_task = 1;
	client->task.run = run;
	client->task.done = cei_client_task_done;
	client->answer_fd = -1;
	client->answer = (struct cei_service_message){ .type = 0 };
	cei_porter_give(&client->server->porter, &client->task);
}

/* --- refusals --------------------------------------------------------------- */

static void refuse(struct cei_client *client, int error, const char *text)
{
	struct ceov_failure *failure = &client->answer.failure;

	client->answer.type = CEI_SERVICE_REFUSED;
	memset(failure, 0, sizeof(*failure));
	failure->error = error;
	failure->rank = failure->transfer = CEOV_NOBODY;
	snprintf(failure->text, sizeof(failure->text), "%s", text);
}

static void refuse_limit(struct cei_client *client, const char *limit)
{
	char text[CEOV_FAILURE_TEXT_BYTES];

	snprintf(text, sizeof(text), "ceoverlapd: the limit '%s' of the daemon is reached; its "
		 "operator sets it", limit);
	refuse(client, CEOV_ERR_NO_MEMORY, text);
}

/* With the words of what was raised in the client's guest. */
static void refuse_as_raised(struct cei_client *client, int error)
{
	struct ceov_failure failure;

	if (client->context && !cei_report_take(&client->context->report, &failure) &&
	    failure.error == error) {
		client->answer.type = CEI_SERVICE_REFUSED;
		client->answer.failure = failure;
		return;
	}
	refuse(client, error, ceov_strerror(error));
}

/* --- opening ---------------------------------------------------------------- */

/* The guest's lines: the front thread takes the failure and tells the client. */
static void note_line(void *arg, const char *line)
{
	struct cei_client *client = arg;

	(void)line;
	/* release: pairs with cei_client_look() */
	atomic_store_explicit(&client->has_news, 1, memory_order_release);
	cei_server_notify(client->server);
}

static void launch_ended(void *arg, uint64_t number, int result)
{
	struct cei_client *client = arg;

	/* relaxed: statistics */
	atomic_fetch_add_explicit(&client->n_ended, 1, memory_order_relaxed);
	if (result)
		atomic_fetch_add_explicit(&client->n_failed, 1, memory_order_relaxed);
	cei_service_end(client->up.memory, client->down.memory, number, result);
}

static void note_fault(void *arg)
{
	cei_server_notify(((struct cei_client *)arg)->server);
}

static int open_guest(struct cei_client *client)
{
	const struct cei_service_hello *hello = &client->hello;
	uint64_t most = cei_accounts_limits(&client->server->accounts).max_chunk_bytes;
	struct ceov_member members[CEI_MEMBERS_MAX];
	struct cei_guest guest = {
		.works = &client->server->works,
		.n_ranks = hello->n_ranks, .n_members = hello->n_members,
		.members = members, .engines = client->engines,
		.max_chunk_bytes = hello->max_chunk_bytes < most ? hello->max_chunk_bytes : most,
		.deadline_ns = hello->deadline_ns < DEADLINE_LEAST_NS ? DEADLINE_LEAST_NS
			: hello->deadline_ns,
		.log = note_line, .log_arg = client,
		.ended = launch_ended, .ended_arg = client,
	};
	uint32_t i;

	for (i = 0; i < hello->n_members; i++) {
		members[i].rank = hello->members[i].rank;
		members[i].place = client->server->site.members[client->engines[i]].place;
	}
	return cei_guest_open(&guest, &client->context);
}

/* Makes a sealed memory file; `more` are further seals. Returns it, or -1 with errno set. */
static int make_file(const char *name, size_t n_bytes, int more)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)n_bytes) &&
	    !fallocate(fd, 0, 0, (off_t)n_bytes) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | more))
		return fd;
	close(fd);
	return -1;
}

/* UP is sealed against writing by others when this process has mapped it. */
static int make_areas(struct cei_client *client)
{
	struct cei_report *report = &client->context->report;
	size_t n_down = cei_service_down_bytes(client->hello.n_members);
	int r = 0;

	client->area_fds[0] = make_file("ceoverlapd-down", n_down, F_SEAL_SEAL);
	client->area_fds[1] = make_file("ceoverlapd-up", sizeof(struct cei_service_up), 0);
	if (client->area_fds[0] < 0 || client->area_fds[1] < 0)
		return cei_raise(report, CEOV_ERR_SYSTEM, errno, "ceoverlapd: a client's areas: "
				 "%s", strerror(errno));
	r = cei_alive_map(report, client->area_fds[0], n_down, PROT_READ, &client->down);
	if (!r)
		r = cei_alive_map(report, client->area_fds[1], sizeof(struct cei_service_up),
				  PROT_READ | PROT_WRITE, &client->up);
	if (!r && fcntl(client->area_fds[1], F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		r = cei_raise(report, CEOV_ERR_SYSTEM, errno, "ceoverlapd: F_SEAL_FUTURE_WRITE "
			      "(Linux 5.1 or newer): %s", strerror(errno));
	return r ? r : cei_alive_hold(client->server->alive, &client->up);
}

static int make_mouths(struct cei_client *client)
{
	struct cei_service_down *down = client->down.memory;
	struct cei_service_up *up = client->up.memory;
	struct cei_mouth *mouth;
	uint32_t i;

	client->slots = calloc(CEI_CLIENT_PLANS_MAX, sizeof(*client->slots));
	client->plans = calloc(CEI_CLIENT_PLANS_MAX, sizeof(*client->plans));
	if (!client->slots || !client->plans)
		return cei_raise(&client->context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceoverlapd: no memory for a client's plans");
	for (i = 0; i < client->hello.n_members; i++) {
		mouth = &client->mouths[i];
		cei_list_init(&mouth->link);
		mouth->reader.ring = &down->rings[i];
		mouth->reader.line = &up->lines[i];
		mouth->plans = client->slots;
		mouth->is_faulty = &client->is_faulty;
		mouth->faulty = note_fault;
		mouth->arg = client;
		mouth->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (mouth->bell < 0)
			return cei_raise(&client->context->report, CEOV_ERR_SYSTEM, errno,
					 "ceoverlapd: a client's bell: %s", strerror(errno));
		client->n_mouths++;
	}
	return 0;
}

static void fill_welcome(struct cei_client *client)
{
	struct cei_limits limits = cei_accounts_limits(&client->server->accounts);
	struct cei_service_welcome *welcome = &client->answer.welcome;

	client->answer.type = CEI_SERVICE_WELCOME;
	welcome->instance[0] = client->server->instance[0];
	welcome->instance[1] = client->server->instance[1];
	welcome->n_rings = client->hello.n_members;
	welcome->n_plans_max = limits.n_plans;
	welcome->n_transfers_max = limits.n_transfers;
	welcome->n_bytes_max = limits.n_bytes;
}

static int run_open(struct cei_task *task)
{
	struct cei_client *client = client_of(task);
	int r = open_guest(client);

	if (!r)
		r = make_areas(client);
	if (!r)
		r = make_mouths(client);
	if (r)
		refuse_as_raised(client, r);
	else
		fill_welcome(client);
	return 0;
}

void cei_client_open(struct cei_client *client)
{
	begin(client, run_open);
}

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
		refuse(client, CEOV_ERR_INVALID, text);
		return -1;
	}
	limit = cei_account_take(&client->server->accounts, client->account, &client->n_bytes,
				 ret_wire->size_bytes);
	if (limit) {
		refuse_limit(client, limit);
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
		refuse_as_raised(client, r);
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
		refuse_as_raised(client, r);
	return r;
}

/* Releases what was made for a plan, and the plan itself, which is not in flight. */
static void empty_plan(struct cei_client *client, struct cei_client_plan *plan)
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
		refuse_as_raised(client, r);
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
	refuse(client, CEOV_ERR_NO_MEMORY, "ceoverlapd: no memory for a plan");
	return CEOV_ERR_NO_MEMORY;
}

/* Checks what only the daemon has to check. Returns 1 if it was refused. */
static int is_refused(struct cei_client *client, const struct cei_program *program)
{
	struct cei_limits limits = cei_accounts_limits(&client->server->accounts);
	const struct cei_assembly *assembly = &client->assembly;
	const char *limit = NULL;

	if (program->n_transfers > limits.n_transfers)
		limit = "transfers_per_plan";
	else if (client->n_plans >= limits.n_plans)
		limit = "plans";
	else if (client->n_regions + assembly->n_fds > limits.n_regions)
		limit = "regions";
	if (limit)
		refuse_limit(client, limit);
	else if (program->floating != CEI_PROGRAM_NONE)
		refuse(client, CEOV_ERR_INVALID, "ceoverlapd: a daemon cannot reach memory that "
		       "launches name");
	else if (program->n_buffers != assembly->head.n_buffers ||
		 program->n_signals != assembly->head.n_signals)
		refuse(client, CEOV_ERR_INVALID, "ceoverlapd: the plan has other numbers of "
		       "buffers and signals than its message");
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

	client->n_plans++;
	client->answer.type = CEI_SERVICE_COMMITTED;
	client->answer.handle.slot = at;
	client->answer.handle.generation = client->slots[at].generation;
	cei_intake_put_plan(intake, &client->slots[at], plan, &client->mouths[plan->member]);
}

static int run_commit(struct cei_task *task)
{
	struct cei_client *client = client_of(task);
	struct cei_client_plan *plan;
	struct ceov_plan *made = NULL;
	struct cei_program program;
	uint32_t at = free_slot(client);
	int r = cei_program_read(client->assembly.bytes, client->assembly.n_bytes, &program);

	if (r) {
		refuse(client, r, r == CEOV_ERR_VERSION
		       ? "ceoverlapd: the plan is of another version of ceoverlap"
		       : "ceoverlapd: the plan's bytes are no plan");
	} else {
		plan = &client->plans[at];
		if (!is_refused(client, &program)) {
			r = make_lists(client, plan, &program);
			if (!r)
				r = import_all(client, plan, &program, &made);
			if (r)
				empty_plan(client, plan);
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
	begin(client, run_commit);
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
	const struct cei_intake_plan *slot = &client->slots[client->asked.slot];

	if (client->asked.slot >= CEI_CLIENT_PLANS_MAX ||
	    slot->generation != client->asked.generation)
		return NULL;
	return slot->plan;
}

static int run_explain(struct cei_task *task)
{
	struct cei_client *client = client_of(task);
	struct ceov_plan *plan = asked_plan(client);
	int r, fd;

	if (!plan) {
		refuse(client, CEOV_ERR_INVALID, "ceoverlapd: there is no such plan");
		return 0;
	}
	fd = memfd_create("ceoverlapd-text", MFD_CLOEXEC);
	if (fd < 0) {
		refuse(client, CEOV_ERR_SYSTEM, "ceoverlapd: no file for a text");
		return 0;
	}
	r = ceov_plan_explain(plan, fd);
	if (r) {
		close(fd);
		refuse_as_raised(client, r);
		return 0;
	}
	(void)lseek(fd, 0, SEEK_SET);
	client->answer.type = CEI_SERVICE_EXPLAINED;
	client->answer_fd = fd;
	return 0;
}

void cei_client_explain(struct cei_client *client)
{
	begin(client, run_explain);
}

static int run_drop(struct cei_task *task)
{
	struct cei_client *client = client_of(task);
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
	empty_plan(client, &client->plans[client->asked.slot]);
	client->n_plans--;
	return 0;
}

void cei_client_drop(struct cei_client *client)
{
	begin(client, run_drop);
}

/* --- ending ----------------------------------------------------------------- */

static void stop_launching(struct cei_client *client)
{
	uint32_t i;

	for (i = 0; client->has_mouths && i < client->n_mouths; i++)
		cei_intake_remove(&client->server->intakes[client->engines[i]],
				  &client->mouths[i]);
	client->has_mouths = 0;
}

static void unmap_areas(struct cei_client *client)
{
	uint32_t i;

	cei_alive_unmap(&client->down);
	cei_alive_unmap(&client->up);
	for (i = 0; i < client->n_mouths; i++)
		close(client->mouths[i].bell);
	client->n_mouths = 0;
}

/* Aborts what is in flight, again and again, since lanes may write over the poison, until nothing
 * is. A lane that does not come back keeps the client, and what it has mapped, until it does. */
static int run_close(struct cei_task *task)
{
	struct cei_client *client = client_of(task);
	uint32_t i;

	stop_launching(client);
	if (client->context && cei_guest_is_busy(client->context)) {
		cei_guest_abort(client->context, client->end_error, client->hello.members[0].rank);
		return CEOV_PENDING;
	}
	for (i = 0; client->plans && i < CEI_CLIENT_PLANS_MAX; i++) {
		if (!client->slots[i].plan)
			continue;
		ceov_plan_release(client->slots[i].plan);
		client->slots[i].plan = NULL;
		empty_plan(client, &client->plans[i]);
	}
	if (client->context)
		cei_guest_close(client->context);
	client->context = NULL;
	unmap_areas(client);
	cei_assembly_clear(&client->assembly);
	free(client->slots);
	free(client->plans);
	client->slots = NULL;
	client->plans = NULL;
	return 0;
}

void cei_client_close(struct cei_client *client)
{
	begin(client, run_close);
}
