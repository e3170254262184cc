/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The front thread's side of a client: connects it, receives what it says, answers, and begins its
 * end. */

#include "daemon/server/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "daemon/server/client_private.h"
#include "daemon/server/gpus.h"
#include "daemon/server/server.h"

/* A client that connects, and one that was greeted, has to say the next word within this time. */
#define PATIENCE_NS UINT64_C(2000000000)

/* A client may see a launch's last mark, and say farewell, before the engine has seen that the
 * launch is done. So its launches have this time to end. */
#define FAREWELL_NS UINT64_C(100000000)

/* Descriptors of a client beside its bells: its socket, and those of its areas, or of a text, until
 * they are sent. */
#define CLIENT_FDS 3u

/* Messages that one client may have handled before others come. */
#define MESSAGES_AT_ONCE 16u

struct cei_limits cei_client_limits(const struct cei_client *client)
{
	return cei_account_limits(&client->server->accounts, client->account);
}

/* --- answers ---------------------------------------------------------------- */

/* Sends without blocking. 0; CEOV_FULL: the client does not read. CEOV_ERR_PEER_LOST. */
static int say(struct cei_client *client, const struct cei_service_message *message, int *fds,
	       uint32_t n_fds)
{
	uint8_t *bytes = malloc(CEI_SERVICE_BYTES_MAX);
	struct cei_datagram datagram = { .bytes = bytes, .fds = fds, .n_fds = n_fds };
	int r;

	if (!bytes)
		return CEOV_FULL;
	datagram.n_bytes = cei_encode(&cei_service_protocol, message, bytes);
	r = cei_datagram_send(client->fd, &datagram);
	free(bytes);
	return r == CEOV_ERR_SYSTEM && errno == ETOOMANYREFS ? CEOV_FULL : r;
}

static void say_failure(struct cei_client *client, uint32_t type, int error, const char *text)
{
	struct cei_service_message message = { .type = type, .failure = cei_failure(error, 0) };

	snprintf(message.failure.text, sizeof(message.failure.text), "%s", text);
	(void)say(client, &message, NULL, 0);
}

static void close_answer(struct cei_client *client)
{
	uint32_t i;

	client->has_answer = 0;
	if (client->answer_fd >= 0)
		close(client->answer_fd);
	client->answer_fd = -1;
	for (i = 0; i < 2; i++) {
		if (client->area_fds[i] >= 0)
			close(client->area_fds[i]);
		client->area_fds[i] = -1;
	}
}

static uint32_t gather_fds(const struct cei_client *client, int *fds)
{
	uint32_t i, n = 0;

	if (client->answer.type == CEI_SERVICE_EXPLAINED)
		fds[n++] = client->answer_fd;
	if (client->answer.type != CEI_SERVICE_WELCOME)
		return n;
	fds[n++] = client->area_fds[0];
	fds[n++] = client->area_fds[1];
	for (i = 0; i < client->n_mouths; i++)
		fds[n++] = client->mouths[i].bell;
	return n;
}

void cei_client_answer(struct cei_client *client)
{
	int fds[2 + CEI_MEMBERS_MAX];
	int r;

	client->answer.number = client->asked_number;
	r = say(client, &client->answer, fds, gather_fds(client, fds));

	client->has_answer = r == CEOV_FULL;
	if (client->has_answer)
		return;
	close_answer(client);
	if (r)
		cei_client_end(client, CEOV_ERR_PEER_LOST);
}

void cei_client_turn_away(struct cei_client *client, int error, const char *text)
{
	say_failure(client, CEI_SERVICE_REFUSED, error, text);
	cei_log(&client->server->report, CEI_LOG_WARN, "client %u (process %d, user %u): %s",
		client->number, client->pid, client->uid, text);
	cei_client_end(client, CEOV_ERR_ABORTED);
}

/* Gives the porter a task, which carries out the request of that number. */
static void begin(struct cei_client *client, int (*run)(struct cei_task *), uint32_t number)
{
	client->has_task = 1;
	client->task.run = run;
	client->answer_fd = -1;
	client->answer = (struct cei_service_message){ .type = 0 };
	client->asked_number = number;
	cei_porter_give(&client->server->porter, &client->task);
}

/* --- messages ---------------------------------------------------------------- */

/* The engine that serves a member of a client; CEOV_NOBODY: none does. It is fenced only where no
 * other one can take its place. */
static uint32_t engine_for(struct cei_server *server, const struct cei_service_member *member)
{
	uint32_t i, engine = 0, n = server->config.settings.n_host_engines;
	char text[CEOV_FAILURE_TEXT_BYTES];

	if (member->kind != CEOV_PLACE_HOST)
		return cei_gpus_member(&server->site, member->uuid);
	for (i = 0; i < n; i++) {
		engine = server->next_host_engine++ % n;
		if (!cei_fences_refuse(&server->fences, engine, text))
			break;
	}
	return engine;
}

/* Keeps the members that there are engines for which work. */
static void take_members(struct cei_client *client, const struct cei_service_hello *hello)
{
	uint32_t i, engine, n = 0;
	int r;

	client->hello = *hello;
	client->serves = 0;
	for (i = 0; i < hello->n_members; i++) {
		engine = engine_for(client->server, &hello->members[i]);
		if (engine == CEOV_NOBODY)
			continue;
		r = cei_fences_refuse(&client->server->fences, engine, client->fence_text);
		if (r) {
			client->fence_error = r;
			continue;
		}
		client->serves |= UINT32_C(1) << i;
		client->engines[n] = engine;
		client->hello.members[n++] = hello->members[i];
	}
	client->hello.n_members = n;
}

static void get_hello(struct cei_client *client, const struct cei_service_hello *hello)
{
	char text[CEOV_FAILURE_TEXT_BYTES];

	take_members(client, hello);
	if (!client->hello.n_members && client->fence_error) {
		cei_client_turn_away(client, client->fence_error, client->fence_text);
		return;
	}
	if (!client->hello.n_members) {
		cei_client_turn_away(client, CEOV_ERR_NO_ROUTE, "ceoverlapd: this daemon serves "
				     "none of the GPUs of this process; its option --gpus says "
				     "which ones it serves, or open the context without a daemon");
		return;
	}
	if (client->server->is_draining) {
		cei_client_turn_away(client, CEOV_ERR_STATE, "ceoverlapd: the daemon is about to "
				     "end and takes no new clients");
		return;
	}
	if (!cei_client_take_fds(client, client->hello.n_members, text)) {
		cei_client_turn_away(client, CEOV_ERR_NO_MEMORY, text);
		return;
	}
	client->state = CEI_CLIENT_OPENING;
	begin(client, cei_client_run_open, 0);
}

static void watch_ended(void *arg, int is_orderly)
{
	struct cei_client *client = arg;

	(void)is_orderly;
	/* release: pairs with cei_client_look() */
	atomic_store_explicit(&client->has_died, 1, memory_order_release);
	cei_client_notify(client);
}

/* A fence is a failure that the client logs; its launches and plans say the same by themselves. */
void cei_client_tell_fence(struct cei_client *client, uint32_t engine)
{
	char text[CEOV_FAILURE_TEXT_BYTES];
	int error = cei_fences_refuse(&client->server->fences, engine, text);
	uint32_t i;

	for (i = 0; error && client->state == CEI_CLIENT_OPEN && i < client->hello.n_members; i++)
		if (client->engines[i] == engine) {
			say_failure(client, CEI_SERVICE_FAILURE, error, text);
			return;
		}
}

/* Of engines that were fenced after the hello, and of which the others have been told already. */
static void tell_fences_since_hello(struct cei_client *client)
{
	uint32_t engine, told = 0, i;

	for (i = 0; i < client->hello.n_members; i++) {
		engine = client->engines[i];
		if (!(told >> engine & 1) && client->server->fences.since_ns[engine])
			cei_client_tell_fence(client, engine);
		told |= UINT32_C(1) << engine;
	}
}

/* From now on the client's rings are looked at, and its death is. */
static void get_ready(struct cei_client *client)
{
	uint32_t i;
	int r = 0;

	client->watched.word = cei_alive_word(&client->down);
	client->watched.ended = watch_ended;
	client->watched.arg = client;
	client->has_mouths = 1;
	for (i = 0; !r && i < client->n_mouths; i++)
		r = cei_intake_add(&client->server->intakes[client->engines[i]],
				   &client->mouths[i]);
	if (!r)
		r = cei_alive_watch_add(client->server->watch, &client->watched);
	if (r) {
		cei_client_turn_away(client, CEOV_ERR_SYSTEM, "ceoverlapd: no room to watch "
				     "another client");
		return;
	}
	client->state = CEI_CLIENT_OPEN;
	cei_log(&client->server->report, CEI_LOG_INFO, "client %u (process %d, user %u) has come "
		"with %u ranks", client->number, client->pid, client->uid,
		client->hello.n_members);
	if (client->fence_error)
		say_failure(client, CEI_SERVICE_FAILURE, client->fence_error, client->fence_text);
	tell_fences_since_hello(client);
}

/* It only rises, and sums over clients do not overflow, whatever the client says. */
static void note_stayed(struct cei_client *client, uint64_t n_plans)
{
	if (n_plans > client->n_stayed)
		client->n_stayed = n_plans < UINT32_MAX ? n_plans : UINT32_MAX;
}

/* What an open client says. */
static void get_request(struct cei_client *client, const struct cei_service_message *message,
			struct cei_datagram *datagram)
{
	switch (message->type) {
	case CEI_SERVICE_PLAN:
		cei_client_plan_comes(client, &message->plan, message->number);
		return;
	case CEI_SERVICE_PART:
		if (cei_client_part_comes(client, &message->part, datagram))
			begin(client, cei_client_run_commit, client->assembly.number);
		return;
	case CEI_SERVICE_EXPLAIN:
		client->asked = message->handle;
		begin(client, cei_client_run_explain, message->number);
		return;
	case CEI_SERVICE_DROP:
		client->asked = message->handle;
		begin(client, cei_client_run_drop, message->number);
		return;
	case CEI_SERVICE_STAYED:
		note_stayed(client, message->stayed.n_plans);
		return;
	case CEI_SERVICE_BYE:
		cei_client_end(client, CEOV_ERR_ABORTED);
		return;
	default:
		cei_client_turn_away(client, CEOV_ERR_INVALID, "ceoverlapd: a message that no "
				     "client sends here");
	}
}

static void get_message(struct cei_client *client, const struct cei_service_message *message,
			struct cei_datagram *datagram)
{
	if (client->state == CEI_CLIENT_NEW && message->type == CEI_SERVICE_HELLO)
		get_hello(client, &message->hello);
	else if (client->state == CEI_CLIENT_GREETED && message->type == CEI_SERVICE_READY)
		get_ready(client);
	else if (client->state == CEI_CLIENT_OPEN)
		get_request(client, message, datagram);
	else
		cei_client_turn_away(client, CEOV_ERR_INVALID, "ceoverlapd: a message out of turn");
}

static void get_datagram(struct cei_client *client, const uint8_t *bytes,
			 struct cei_datagram *datagram)
{
	struct cei_service_message message;
	char text[CEOV_FAILURE_TEXT_BYTES];
	int r = cei_decode(&cei_service_protocol, bytes, datagram->n_bytes, &message);

	if (r == CEOV_ERR_VERSION) {
		snprintf(text, sizeof(text), "ceoverlapd: the daemon speaks version %u of its "
			 "protocol and the client version %u (magic %x): install one version of "
			 "ceoverlap", CEI_SERVICE_VERSION, message.version, message.magic);
		cei_client_turn_away(client, r, text);
	} else if (r) {
		cei_client_turn_away(client, r, "ceoverlapd: bytes that are no message");
	} else {
		get_message(client, &message, datagram);
	}
}

/* Returns whether more may come. */
static int receive(struct cei_client *client, uint8_t *bytes)
{
	int fds[CEI_DATAGRAM_FDS_MAX];
	struct cei_datagram datagram = { bytes, CEI_SERVICE_BYTES_MAX, fds,
					 CEI_DATAGRAM_FDS_MAX };
	int r = cei_datagram_receive(client->fd, &datagram);

	if (r == CEOV_NONE)
		return 0;
	if (r == CEOV_ERR_INVALID) {
		cei_client_turn_away(client, r, "ceoverlapd: a message that is too long");
	} else if (r) {
		cei_client_end(client, CEOV_ERR_PEER_LOST);
	} else {
		get_datagram(client, bytes, &datagram);
		cei_datagram_close_fds(&datagram);
	}
	return client->state != CEI_CLIENT_ENDING && !client->has_task && !client->has_answer &&
		!client->must_end;
}

static void listen_to(struct cei_client *client, int is_on)
{
	if (client->source)
		(void)sd_event_source_set_enabled(client->source, is_on ? SD_EVENT_ON
						  : SD_EVENT_OFF);
}

/* A client that does not read its answer gets no further one. */
static void listen_when_answered(struct cei_client *client)
{
	if (!client->has_task && !client->must_end)
		listen_to(client, !client->has_answer);
}

static int can_read(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct cei_client *client = arg;
	uint8_t *bytes = malloc(CEI_SERVICE_BYTES_MAX);
	uint32_t n;

	(void)source;
	(void)fd;
	(void)events;
	for (n = 0; bytes && n < MESSAGES_AT_ONCE && receive(client, bytes); n++)
		;
	free(bytes);
	if (client->has_task || client->has_answer)     /* not read until that is done */
		listen_to(client, 0);
	return 0;
}

/* --- life ------------------------------------------------------------------- */

void cei_client_end(struct cei_client *client, int error)
{
	if (client->state == CEI_CLIENT_ENDING)
		return;
	if (!client->must_end)
		client->end_error = error;
	client->must_end = 1;
	listen_to(client, 0);
	if (client->has_task)
		return;                 /* it ends when that is done */
	client->state = CEI_CLIENT_ENDING;
	cei_alive_watch_remove(client->server->watch, &client->watched);
	close_answer(client);
	client->abort_at_ns = cei_deadline(FAREWELL_NS);
	begin(client, cei_client_run_close, 0);
}

static void free_client(struct cei_client *client)
{
	struct cei_server *server = client->server;
	struct cei_usage usage;

	if (client->end_error == CEOV_ERR_PEER_LOST && client->hello.n_members)
		cei_log(&server->report, CEI_LOG_WARN, "client %u (process %d, user %u) has gone "
			"without a farewell", client->number, client->pid, client->uid);
	sd_event_source_disable_unref(client->source);
	close(client->fd);
	if (client->account) {          /* else it was refused */
		usage = cei_client_usage(client);
		cei_usage_add(&server->usage, client->uid, &usage);
		cei_account_give_back_fds(&server->accounts, client->account, &client->n_fds,
					  client->n_fds);
		cei_account_leave(&server->accounts, client->account);
	}
	cei_list_remove(&client->link);
	free(client);
}

/* Sends the answer, and reads the socket again. */
static void task_done(struct cei_task *task)
{
	struct cei_client *client = cei_client_of_task(task);

	client->has_task = 0;
	client->shown_slot = client->slot;
	client->shown_plans = client->n_plans;
	client->shown_regions = client->n_regions;
	client->shown_bytes = client->n_bytes;
	if (client->state == CEI_CLIENT_ENDING) {
		free_client(client);
		return;
	}
	if (client->must_end) {
		cei_client_end(client, client->end_error);
		return;
	}
	if (client->answer.type)
		cei_client_answer(client);
	listen_when_answered(client);
	if (client->state != CEI_CLIENT_OPENING)
		return;
	client->since_ns = cei_now_ns();
	client->state = CEI_CLIENT_GREETED;
	if (client->answer.type == CEI_SERVICE_REFUSED)
		cei_client_end(client, CEOV_ERR_ABORTED);
}

static const char *enter(struct cei_client *client)
{
	struct cei_server *server = client->server;
	const struct cei_usage none = { .n_launches = 0 };
	struct ucred credentials;
	socklen_t n_bytes = sizeof(credentials);
	const char *limit;

	if (getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &n_bytes))
		return "who connects";
	client->uid = credentials.uid;
	client->pid = credentials.pid;
	limit = cei_account_enter(&server->accounts, client->uid, &client->account);
	if (limit)
		return limit;
	/* its user has a row of its own from now on, or none */
	cei_usage_add(&server->usage, client->uid, &none);
	return cei_account_take_fds(&server->accounts, client->account, &client->n_fds,
				    CLIENT_FDS);
}

struct cei_client *cei_client_new(struct cei_server *server, int fd)
{
	struct cei_client *client = calloc(1, sizeof(*client));
	char text[CEOV_FAILURE_TEXT_BYTES];
	const char *limit;

	if (!client) {
		close(fd);
		return NULL;
	}
	client->server = server;
	client->fd = fd;
	client->task.done = task_done;
	client->number = ++server->n_clients_ever;
	client->area_fds[0] = client->area_fds[1] = client->answer_fd = -1;
	client->since_ns = cei_now_ns();
	cei_list_append(&server->clients, &client->link);
	limit = enter(client);
	if (limit) {
		snprintf(text, sizeof(text), LIMIT_TEXT, limit);
		cei_client_turn_away(client, CEOV_ERR_NO_MEMORY, text);
		return NULL;
	}
	if (sd_event_add_io(server->event, &client->source, fd, EPOLLIN, can_read, client) < 0) {
		cei_client_end(client, CEOV_ERR_ABORTED);
		return NULL;
	}
	return client;
}

/* Tells the client the failures of its launches. */
static void tell_failures(struct cei_client *client)
{
	struct cei_service_message message = { .type = CEI_SERVICE_FAILURE };

	/* acquire: pairs with note_line() in client_tasks.c */
	if (!atomic_exchange_explicit(&client->has_news, 0, memory_order_acquire))
		return;
	while (!cei_report_take(&client->context->report, &message.failure)) {
		cei_log(&client->server->report, CEI_LOG_WARN, "client %u (process %d, user %u): "
			"%s", client->number, client->pid, client->uid, message.failure.text);
		(void)say(client, &message, NULL, 0);   /* the result of the launch tells, too */
		if (message.failure.error == CEOV_ERR_TIMEOUT)
			client->server->timed_out = client->number;
	}
}

void cei_client_look(struct cei_client *client, uint64_t now_ns)
{
	int is_new = client->state == CEI_CLIENT_NEW || client->state == CEI_CLIENT_GREETED;

	if (client->state == CEI_CLIENT_ENDING)
		return;
	/* acquire, both: pair with watch_ended() and take_from() in intake.c */
	if (atomic_load_explicit(&client->has_died, memory_order_acquire))
		cei_client_end(client, CEOV_ERR_PEER_LOST);
	else if (atomic_load_explicit(&client->is_faulty, memory_order_acquire))
		cei_client_turn_away(client, CEOV_ERR_INVALID, "ceoverlapd: a launch that no "
				     "client writes");
	else if (is_new && !client->has_task && now_ns >= client->since_ns + PATIENCE_NS)
		cei_client_turn_away(client, CEOV_ERR_TIMEOUT, "ceoverlapd: nothing was said in "
				     "time");
	else if (cei_client_plan_is_late(client, now_ns))
		cei_client_turn_away(client, CEOV_ERR_TIMEOUT, "ceoverlapd: the rest of a plan did "
				     "not come in time");
	if (client->has_task || client->must_end)
		return;
	if (client->has_answer) {
		cei_client_answer(client);
		listen_when_answered(client);
	}
	if (client->context && !client->must_end)
		tell_failures(client);
}
