/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Shows what went last. */

#include "daemon/operator/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <json-c/json.h>

#include "base/clock.h"
#include "base/urgency.h"
#include "daemon/operator/fields.h"
#include "daemon/operator/links.h"
#include "daemon/server/client.h"
#include "daemon/server/journal.h"
#include "daemon/server/server.h"

/* Chunks of each engine that a log gets. */
#define LOGGED 16u

#define PAUSE_NS UINT64_C(10000000000)
#define US       UINT64_C(1000)

/* The number of the client that has the share now; 0: it has gone, or several have it. */
static uint32_t client_of(const struct cei_server *server, uint32_t slot)
{
	const struct cei_client *client;
	const struct cei_list *node;

	for (node = server->clients.next; slot && node != &server->clients; node = node->next) {
		client = CEI_OWNER(node, const struct cei_client, link);
		if (client->shown_slot == slot)
			return client->number;
	}
	return 0;
}

static void name_link(const struct cei_server *server, uint32_t engine, uint32_t at,
		      char ret_name[CEI_LINKS_NAME_BYTES])
{
	cei_links_name(&server->works, cei_tally_link(server->works.tallies[engine], at),
		       ret_name);
}

static void log_engine(struct cei_server *server, uint32_t engine)
{
	struct cei_tally_record records[LOGGED];
	uint32_t i, n = cei_tally_read_last(server->works.tallies[engine], LOGGED, records);
	const struct cei_tally_record *record;
	char link[CEI_LINKS_NAME_BYTES];
	uint64_t now_ns = cei_now_ns();

	if (!n)
		cei_journal_write(CEI_LOG_WARN, "ceoverlapd: engine %u has moved nothing yet",
				  engine);
	for (i = 0; i < n; i++) {
		record = &records[i];
		name_link(server, engine, record->link, link);
		cei_journal_write(CEI_LOG_WARN, "ceoverlapd: engine %u: %" PRIu64 " us ago: client "
				  "%u, launch %" PRIu64 ", transfer %u, chunk %" PRIu64 ": %" PRIu64
				  " bytes over %s, %s, waited %" PRIu64 " us, moved in %" PRIu64
				  " us%s%s", engine, (now_ns - record->done_ns) / US,
				  client_of(server, record->client), record->launch,
				  record->transfer, record->chunk, record->bytes, link,
				  cei_urgency_name(record->urgency), record->waited_ns / US,
				  record->moved_ns / US,
				  record->error ? "; its launch failed: " : "",
				  record->error ? ceov_strerror(record->error) : "");
	}
}

void cei_flight_log(struct cei_server *server, const char *why)
{
	uint32_t i;

	cei_journal_write(CEI_LOG_WARN, "ceoverlapd: what went last, because %s:", why);
	for (i = 0; i < server->site.n_members; i++)
		log_engine(server, i);
}

void cei_flight_look(struct cei_server *server, uint64_t now_ns, uint64_t *not_before_ns)
{
	uint32_t client = server->timed_out;
	char why[96];

	server->timed_out = 0;
	if (!client || now_ns < *not_before_ns)
		return;
	*not_before_ns = now_ns + PAUSE_NS;
	snprintf(why, sizeof(why), "a launch of client %u has passed its deadline", client);
	cei_flight_log(server, why);
}

static struct json_object *record_json(const struct cei_server *server, uint32_t engine,
				       const struct cei_tally_record *record)
{
	struct json_object *object = json_object_new_object();
	char link[CEI_LINKS_NAME_BYTES];

	name_link(server, engine, record->link, link);
	cei_fields_add_number(object, "engine", engine);
	cei_fields_add_number(object, "age_us", (cei_now_ns() - record->done_ns) / US);
	cei_fields_add_number(object, "client", client_of(server, record->client));
	cei_fields_add_number(object, "launch", record->launch);
	cei_fields_add_number(object, "transfer", record->transfer);
	cei_fields_add_number(object, "chunk", record->chunk);
	cei_fields_add_number(object, "bytes", record->bytes);
	cei_fields_add_text(object, "link", link);
	cei_fields_add_text(object, "class", cei_urgency_name(record->urgency));
	cei_fields_add_number(object, "waited_us", record->waited_ns / US);
	cei_fields_add_number(object, "moved_us", record->moved_ns / US);
	cei_fields_add_text(object, "error", record->error ? ceov_strerror(record->error) : NULL);
	return object;
}

struct json_object *cei_flight_json(struct cei_server *server)
{
	struct cei_tally_record *records = calloc(CEI_TALLY_RECORDS, sizeof(*records));
	struct json_object *list = json_object_new_array();
	uint32_t i, k, n;

	for (i = 0; records && i < server->site.n_members; i++) {
		n = cei_tally_read_last(server->works.tallies[i], CEI_TALLY_RECORDS, records);
		for (k = 0; k < n; k++)
			json_object_array_add(list, record_json(server, i, &records[k]));
	}
	free(records);
	return list;
}
