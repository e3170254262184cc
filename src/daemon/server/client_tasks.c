/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the porter does for a client: opens its guest, and ends it; client_plans.c has the rest.
 * The porter's thread calls these functions, but for the shares and usage that the front thread
 * asks for. */

#include "daemon/server/client_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/engine/clients.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/plan/plan_release.h"
#include "daemon/server/server.h"

/* A launch without a deadline of its own gets at least this one. */
#define DEADLINE_LEAST_NS UINT64_C(1000000)

/* To unmap so much takes a few dozen milliseconds, in which the porter does nothing else. */
#define UNMAP_BYTES (UINT64_C(256) << 20)

struct cei_client *cei_client_of_task(struct cei_task *task)
{
	return CEI_OWNER(task, struct cei_client, task);
}

/* --- refusals --------------------------------------------------------------- */

void cei_client_refuse(struct cei_client *client, int error, const char *text)
{
	client->answer.type = CEI_SERVICE_REFUSED;
	client->answer.failure = cei_failure(error, 0);
	snprintf(client->answer.failure.text, CEOV_FAILURE_TEXT_BYTES, "%s", text);
}

void cei_client_refuse_limit(struct cei_client *client, const char *limit)
{
	char text[CEOV_FAILURE_TEXT_BYTES];

	snprintf(text, sizeof(text), LIMIT_TEXT, limit);
	cei_client_refuse(client, CEOV_ERR_NO_MEMORY, text);
}

void cei_client_refuse_as_raised(struct cei_client *client, int error)
{
	struct ceov_failure failure;

	if (client->context && !cei_report_take(&client->context->report, &failure) &&
	    failure.error == error) {
		client->answer.type = CEI_SERVICE_REFUSED;
		client->answer.failure = failure;
		return;
	}
	cei_client_refuse(client, error, ceov_strerror(error));
}

/* --- opening ---------------------------------------------------------------- */

void cei_client_notify(void *client)
{
	cei_ring_eventfd(((struct cei_client *)client)->server->news);
}

/* The guest's lines: the front thread takes the failure and tells the client. */
static void note_line(void *arg, const char *line)
{
	struct cei_client *client = arg;

	(void)line;
	/* release: pairs with cei_client_look() */
	atomic_store_explicit(&client->has_news, 1, memory_order_release);
	cei_client_notify(client);
}

static void count_error(struct cei_server *server, int error)
{
	if (error < 0 && error >= CEI_ERROR_LOWEST)     /* relaxed: statistics */
		atomic_fetch_add_explicit(&server->n_errors[-error], 1, memory_order_relaxed);
}

static void launch_ended(void *arg, uint64_t number, int result)
{
	struct cei_client *client = arg;

	/* relaxed: statistics */
	atomic_fetch_add_explicit(&client->n_ended, 1, memory_order_relaxed);
	if (result) {
		atomic_fetch_add_explicit(&client->n_failed, 1, memory_order_relaxed);
		count_error(client->server, result);
	}
	cei_service_end(client->up.memory, client->down.memory, number, result);
}

static int open_guest(struct cei_client *client)
{
	const struct cei_service_hello *hello = &client->hello;
	uint64_t most = cei_client_limits(client).max_chunk_bytes;
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
		mouth->faulty = cei_client_notify;
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
	struct cei_limits limits = cei_client_limits(client);
	struct cei_service_welcome *welcome = &client->answer.welcome;

	client->answer.type = CEI_SERVICE_WELCOME;
	welcome->instance[0] = client->server->instance[0];
	welcome->instance[1] = client->server->instance[1];
	welcome->serves = client->serves;
	welcome->n_rings = client->hello.n_members;
	welcome->n_plans_max = limits.n_plans;
	welcome->n_transfers_max = limits.n_transfers;
	welcome->n_bytes_max = limits.n_bytes;
}

static struct cei_flows_limits share_of(const struct cei_client *client)
{
	const struct cei_limits limits = cei_client_limits(client);

	return (struct cei_flows_limits){ limits.weight, limits.bytes_per_s };
}

/* Gives the client a share of the engines of its own. When all shares are given away, clients that
 * come then have one together. */
static int take_share(struct cei_client *client)
{
	struct cei_server *server = client->server;
	struct cei_flows_limits share;
	int r;

	pthread_mutex_lock(&server->shares_lock);
	share = share_of(client);
	r = cei_clients_open(&server->works, &share, &client->slot);
	if (r)
		client->slot = 0;
	client->context->slot = client->slot;
	pthread_mutex_unlock(&server->shares_lock);
	return r == CEOV_FULL ? 0 : r;
}

/* With the server's shares_lock held. */
static void read_used(const struct cei_client *client, uint64_t used[CEI_FLOWS_URGENCIES])
{
	uint32_t i;

	for (i = 0; i < CEI_FLOWS_URGENCIES; i++) {
		used[i] = client->used[i];
		if (client->slot)
			used[i] += cei_flows_read(client->server->works.flows, CEI_FLOWS_ALL_PORTS,
						  client->slot, i).bytes;
	}
}

struct cei_usage cei_client_usage(struct cei_client *client)
{
	struct cei_usage usage;

	memset(&usage, 0, sizeof(usage));
	pthread_mutex_lock(&client->server->shares_lock);
	read_used(client, usage.bytes);
	pthread_mutex_unlock(&client->server->shares_lock);
	/* relaxed: statistics */
	usage.n_launches = atomic_load_explicit(&client->n_ended, memory_order_relaxed);
	usage.n_failed = atomic_load_explicit(&client->n_failed, memory_order_relaxed);
	usage.n_stayed = client->n_stayed;
	return usage;
}

static void give_share_back(struct cei_client *client)
{
	struct cei_server *server = client->server;

	pthread_mutex_lock(&server->shares_lock);
	read_used(client, client->used);
	if (client->slot)
		(void)cei_flows_close(server->works.flows, client->slot);
	client->slot = client->context->slot = 0;
	pthread_mutex_unlock(&server->shares_lock);
}

void cei_client_set_share(struct cei_client *client)
{
	struct cei_server *server = client->server;
	struct cei_flows_limits share;

	pthread_mutex_lock(&server->shares_lock);
	if (client->slot) {             /* one that was refused has no account either */
		share = share_of(client);
		(void)cei_flows_change(server->works.flows, client->slot, &share);
	}
	pthread_mutex_unlock(&server->shares_lock);
}

int cei_client_run_open(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);
	int r = open_guest(client);

	if (!r)
		r = take_share(client);
	if (!r)
		r = make_areas(client);
	if (!r)
		r = make_mouths(client);
	if (r)
		cei_client_refuse_as_raised(client, r);
	else
		fill_welcome(client);
	return 0;
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
 * is. The signals of a client that has died are aborted in any case: others may wait for marks of
 * launches that it will not make any more. Returns whether to look again. */
static int abort_launches(struct cei_client *client)
{
	int is_first = client->end_error == CEOV_ERR_PEER_LOST && !client->has_aborted;

	if (!client->context || (!is_first && !cei_plans_are_moving(client->context)))
		return 0;
	if (client->end_error == CEOV_ERR_ABORTED && cei_now_ns() < client->abort_at_ns)
		return 1;
	client->has_aborted = 1;
	cei_guest_abort(client->context, client->end_error, client->hello.members[0].rank);
	return 1;
}

/* Unmaps about UNMAP_BYTES. Returns whether there is more. */
static int release_plans(struct cei_client *client)
{
	uint64_t n_before = client->n_bytes;
	uint32_t i;

	cei_client_end_drop(client);
	for (i = 0; client->plans && i < CEI_CLIENT_PLANS_MAX; i++) {
		if (!client->slots[i].plan)
			continue;
		if (n_before - client->n_bytes >= UNMAP_BYTES)
			return 1;
		ceov_plan_release(client->slots[i].plan);
		client->slots[i].plan = NULL;
		cei_client_empty_plan(client, &client->plans[i]);
	}
	return 0;
}

/* Comes to its end in parts, because the same thread aborts the signals of others who die
 * meanwhile. A lane that does not come back keeps the client, and what it has mapped, until it
 * does. */
int cei_client_run_close(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);

	stop_launching(client);
	if (abort_launches(client) || release_plans(client))
		return CEOV_PENDING;
	if (client->context) {
		give_share_back(client);
		cei_guest_close(client->context);
	}
	client->context = NULL;
	unmap_areas(client);
	cei_client_clear_assembly(client);
	free(client->slots);
	free(client->plans);
	client->slots = NULL;
	client->plans = NULL;
	return 0;
}
