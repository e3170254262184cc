/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Turns the daemon's state into JSON. */

#include "daemon/operator/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/clock.h"
#include "base/urgency.h"
#include "daemon/operator/fields.h"
#include "daemon/operator/links.h"
#include "daemon/server/client.h"
#include "daemon/server/server.h"

#define NS_PER_S UINT64_C(1000000000)

static void add_classes(struct json_object *object, const char *name,
			const uint64_t numbers[CEI_FLOWS_URGENCIES])
{
	struct json_object *classes = json_object_new_object();
	uint32_t i;

	for (i = 0; i < CEI_FLOWS_URGENCIES; i++)
		cei_fields_add_number(classes, cei_urgency_name(i), numbers[i]);
	cei_fields_add(object, name, classes);
}

/* --- users ------------------------------------------------------------------ */

void cei_picture_usage(struct cei_server *server, struct cei_usage_table *ret_table)
{
	struct cei_client *client;
	struct cei_usage usage;
	struct cei_list *node;

	*ret_table = server->usage;
	for (node = server->clients.next; node != &server->clients; node = node->next) {
		client = CEI_OWNER(node, struct cei_client, link);
		if (!client->account)   /* it is refused, and has no row */
			continue;
		usage = cei_client_usage(client);
		usage.n_clients = 1;
		usage.n_mapped = client->shown_bytes;
		cei_usage_add(ret_table, client->uid, &usage);
	}
}

/* --- clients ---------------------------------------------------------------- */

static const char *state_of(const struct cei_client *client)
{
	switch (client->state) {
	case CEI_CLIENT_NEW:     return "new";
	case CEI_CLIENT_OPENING: return "opening";
	case CEI_CLIENT_GREETED: return "greeted";
	case CEI_CLIENT_OPEN:    return "open";
	case CEI_CLIENT_ENDING:  return "ending";
	}
	return "?";
}

/* A client says any bytes. */
static void add_name(struct json_object *object, const struct cei_client *client)
{
	char name[sizeof(client->hello.name)];
	uint32_t i;

	memcpy(name, client->hello.name, sizeof(name));
	for (i = 0; i < sizeof(name) && name[i]; i++)
		if (name[i] < ' ' || name[i] > '~')
			name[i] = '?';
	name[sizeof(name) - 1] = 0;
	cei_fields_add_text(object, "name", name);
}

static uint32_t waiting_of(const struct cei_server *server, uint32_t slot)
{
	uint32_t i, n = 0;

	for (i = 0; slot && i < server->site.n_members; i++)
		n += cei_tally_waiting(server->works.tallies[i], slot);
	return n;
}

static struct json_object *client_json(struct cei_client *client)
{
	const struct cei_limits limits = cei_client_limits(client);
	const struct cei_usage usage = cei_client_usage(client);
	uint32_t urgency = cei_limits_cap(limits.most_urgent, client->hello.urgency);
	struct json_object *object = json_object_new_object();

	cei_fields_add_number(object, "number", client->number);
	cei_fields_add_number(object, "pid", (uint64_t)client->pid);
	cei_fields_add_number(object, "uid", client->uid);
	add_name(object, client);
	cei_fields_add_text(object, "state", state_of(client));
	cei_fields_add_text(object, "class", cei_urgency_name(urgency));
	cei_fields_add_number(object, "weight", limits.weight);
	cei_fields_add_number(object, "bytes_per_second_limit", limits.bytes_per_s);
	cei_fields_add(object, "has_share", json_object_new_boolean(client->shown_slot != 0));
	cei_fields_add_number(object, "ranks", client->hello.n_members);
	cei_fields_add_number(object, "plans", client->shown_plans);
	cei_fields_add_number(object, "unarbitrated_plans", client->n_stayed);
	cei_fields_add_number(object, "regions", client->shown_regions);
	cei_fields_add_number(object, "mapped_bytes", client->shown_bytes);
	cei_fields_add_number(object, "launches", usage.n_launches);
	cei_fields_add_number(object, "failed_launches", usage.n_failed);
	cei_fields_add_number(object, "waiting_chunks",
			      waiting_of(client->server, client->shown_slot));
	cei_fields_add_number(object, "bytes_per_second", client->bytes_per_s);
	add_classes(object, "bytes", usage.bytes);
	return object;
}

static struct json_object *clients_json(struct cei_server *server)
{
	struct json_object *list = json_object_new_array();
	struct cei_client *client;
	struct cei_list *node;

	for (node = server->clients.next; node != &server->clients; node = node->next) {
		client = CEI_OWNER(node, struct cei_client, link);
		if (client->account)    /* it may connect */
			json_object_array_add(list, client_json(client));
	}
	return list;
}

/* --- links ------------------------------------------------------------------ */

static struct json_object *class_json(const struct cei_tally_class_view *class)
{
	struct json_object *object = json_object_new_object();

	cei_fields_add_number(object, "bytes", class->bytes);
	cei_fields_add_number(object, "chunks", class->moved.n_all);
	cei_fields_add_number(object, "wait_p50_us", cei_links_quantile_us(&class->waited, 50));
	cei_fields_add_number(object, "wait_p99_us", cei_links_quantile_us(&class->waited, 99));
	cei_fields_add_number(object, "copy_p50_us", cei_links_quantile_us(&class->moved, 50));
	cei_fields_add_number(object, "copy_p99_us", cei_links_quantile_us(&class->moved, 99));
	return object;
}

static struct json_object *link_json(const char *name, const struct cei_tally_link_view *view)
{
	struct json_object *object = json_object_new_object();
	struct json_object *classes = json_object_new_object();
	enum cei_machine_link_kind kind = view->link
		? (enum cei_machine_link_kind)view->link->kind : (enum cei_machine_link_kind)0;
	uint32_t i;

	cei_fields_add_text(object, "link", name);
	cei_fields_add_text(object, "kind", view->link ? cei_machine_link_kind_name(kind) : NULL);
	cei_fields_add_number(object, "rated_bytes_per_second",
			      view->link ? view->link->bytes_per_s : 0);
	cei_fields_add_number(object, "waiting_chunks", view->n_waiting);
	cei_fields_add_number(object, "moving_chunks", view->n_moving);
	for (i = 0; i < CEI_FLOWS_URGENCIES; i++)
		cei_fields_add(classes, cei_urgency_name(i), class_json(&view->classes[i]));
	cei_fields_add(object, "classes", classes);
	return object;
}

static struct json_object *links_json(const struct cei_server *server)
{
	struct cei_links *links = cei_links_read(&server->works);
	struct json_object *list = json_object_new_array();
	uint32_t i;

	for (i = 0; links && i < links->n; i++)
		json_object_array_add(list, link_json(links->links[i].name,
						      &links->links[i].view));
	free(links);
	return list;
}

/* --- the daemon --------------------------------------------------------------- */

static void add_sums(struct json_object *object, struct cei_server *server)
{
	struct cei_usage_table table;
	struct cei_usage sum;
	uint32_t n_plans = 0;
	struct cei_list *node;

	cei_picture_usage(server, &table);
	sum = cei_usage_sum(&table);
	for (node = server->clients.next; node != &server->clients; node = node->next)
		n_plans += CEI_OWNER(node, struct cei_client, link)->shown_plans;
	cei_fields_add_number(object, "clients", sum.n_clients);
	cei_fields_add_number(object, "clients_ever", server->n_clients_ever);
	cei_fields_add_number(object, "plans", n_plans);
	cei_fields_add_number(object, "unarbitrated_plans", sum.n_stayed);
	cei_fields_add_number(object, "mapped_bytes", sum.n_mapped);
	cei_fields_add_number(object, "launches", sum.n_launches);
	cei_fields_add_number(object, "failed_launches", sum.n_failed);
	add_classes(object, "bytes", sum.bytes);
}

static struct json_object *fences_json(const struct cei_server *server)
{
	struct json_object *list = json_object_new_array(), *fence;
	char why[CEI_LOST_BYTES] = "";
	uint32_t i;

	for (i = 0; i < server->site.n_members; i++) {
		if (!server->fences.since_ns[i])
			continue;
		fence = json_object_new_object();
		cei_fields_add_number(fence, "engine", i);
		(void)cei_fences_read(&server->fences, i, why);
		cei_fields_add_text(fence, "why", why);
		cei_fields_add_number(fence, "seconds",
				      (cei_now_ns() - server->fences.since_ns[i]) / NS_PER_S);
		json_object_array_add(list, fence);
	}
	return list;
}

static struct json_object *daemon_json(struct cei_server *server)
{
	struct json_object *object = json_object_new_object();
	struct json_object *turns = json_object_new_array();
	char instance[40];
	uint32_t i;

	snprintf(instance, sizeof(instance), "%016" PRIx64 "%016" PRIx64, server->instance[0],
		 server->instance[1]);
	cei_fields_add_text(object, "version", ceov_version());
	cei_fields_add_number(object, "pid", (uint64_t)getpid());
	cei_fields_add_text(object, "instance", instance);
	cei_fields_add_text(object, "state", server->is_draining ? "drains" : "serves");
	cei_fields_add_number(object, "uptime_seconds", (cei_now_ns() - server->began_ns) /
			      NS_PER_S);
	cei_fields_add_text(object, "socket", *server->config.settings.socket
			    ? server->config.settings.socket : NULL);
	cei_fields_add_text(object, "config", server->config.file);
	cei_fields_add_text(object, "config_fault",
			    *server->fault.text ? server->fault.text : NULL);
	cei_fields_add_number(object, "reloads", server->n_reloads);
	for (i = 0; i < server->site.n_members; i++)
		json_object_array_add(turns, json_object_new_uint64(
				      cei_intake_turns(&server->intakes[i])));
	cei_fields_add(object, "engine_turns", turns);
	cei_fields_add(object, "fences", fences_json(server));
	cei_fields_add(object, "fairness", json_object_new_double(server->fairness));
	add_sums(object, server);
	return object;
}

struct json_object *cei_picture_all(struct cei_server *server)
{
	struct json_object *object = json_object_new_object();

	cei_fields_add_number(object, "at_ns", cei_now_ns());
	cei_fields_add(object, "daemon", daemon_json(server));
	cei_fields_add(object, "clients", clients_json(server));
	cei_fields_add(object, "links", links_json(server));
	return object;
}

/* --- limits ------------------------------------------------------------------- */

static struct json_object *limits_json(const struct cei_limits *limits)
{
	struct json_object *object = json_object_new_object();

	cei_fields_add_number(object, "clients_per_user", limits->n_clients_uid);
	cei_fields_add_number(object, "plans", limits->n_plans);
	cei_fields_add_number(object, "transfers_per_plan", limits->n_transfers);
	cei_fields_add_number(object, "chunks", limits->n_chunks);
	cei_fields_add_number(object, "regions", limits->n_regions);
	cei_fields_add_number(object, "bytes", limits->n_bytes);
	cei_fields_add_number(object, "bytes_per_user", limits->n_bytes_uid);
	cei_fields_add_number(object, "descriptors_per_user", limits->n_fds_uid);
	cei_fields_add_number(object, "chunk_bytes", limits->max_chunk_bytes);
	cei_fields_add_number(object, "weight", limits->weight);
	cei_fields_add_number(object, "bytes_per_second", limits->bytes_per_s);
	cei_fields_add_text(object, "class", cei_urgency_name(limits->most_urgent));
	return object;
}

struct json_object *cei_picture_limits(const struct cei_server *server)
{
	const struct cei_settings *settings = &server->config.settings;
	struct json_object *object = json_object_new_object();
	struct json_object *all = limits_json(&settings->limits.all);
	struct json_object *users = json_object_new_object();
	struct json_object *classes = json_object_new_object();
	char uid[16];
	uint32_t i;

	cei_fields_add_number(all, "clients", settings->limits.all.n_clients);
	for (i = 0; i < settings->limits.n_users; i++) {
		snprintf(uid, sizeof(uid), "%u", settings->limits.users[i].uid);
		cei_fields_add(users, uid, limits_json(&settings->limits.users[i].limits));
	}
	cei_fields_add_number(classes, "normal", settings->classes.normal);
	cei_fields_add_number(classes, "background", settings->classes.background);
	cei_fields_add_number(classes, "urgent_percent", settings->classes.urgent_percent);
	cei_fields_add_number(classes, "urgent_us", settings->classes.urgent_ns / 1000);
	cei_fields_add(object, "limits", all);
	cei_fields_add(object, "users", users);
	cei_fields_add(object, "classes", classes);
	return object;
}
