/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Answers those who ask the daemon about itself. */

#include "daemon/operator/control.h"

#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "base/clock.h"
#include "daemon/operator/flight.h"
#include "daemon/operator/metrics.h"
#include "daemon/operator/picture.h"
#include "daemon/server/reload.h"
#include "daemon/server/server.h"

/* --- ceoverlapctl ------------------------------------------------------------ */

static struct json_object *fail(const char *text)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "ok", json_object_new_boolean(0));
	json_object_object_add(object, "error", json_object_new_string(text));
	return object;
}

/* Makes the object an answer. */
static struct json_object *ok(struct json_object *object)
{
	json_object_object_add(object, "ok", json_object_new_boolean(1));
	return object;
}

static struct json_object *show(struct cei_server *server, uint64_t *note)
{
	(void)note;
	return ok(cei_picture_all(server));
}

static struct json_object *show_limits(struct cei_server *server, uint64_t *note)
{
	(void)note;
	return ok(cei_picture_limits(server));
}

/* note: the number of the reading. */
static struct json_object *reload(struct cei_server *server, uint64_t *note)
{
	const char *fault;
	int r;

	if (!*note)
		*note = cei_reload_begin(server->reload);
	r = cei_reload_result(server->reload, *note, &fault);
	if (r == CEOV_PENDING)
		return NULL;
	return r ? fail(fault) : ok(json_object_new_object());
}

static struct json_object *drain(struct cei_server *server, uint64_t *note)
{
	(void)note;
	if (server->is_draining)
		return fail("the daemon is about to end already");
	cei_server_drain(server);
	return ok(json_object_new_object());
}

static struct json_object *dump(struct cei_server *server, uint64_t *note)
{
	struct json_object *object = json_object_new_object();

	(void)note;
	json_object_object_add(object, "transfers", cei_flight_json(server));
	return ok(object);
}

static struct json_object *show_metrics(struct cei_server *server, uint64_t *note)
{
	char *text = cei_metrics_text(server);
	struct json_object *object;

	(void)note;
	if (!text)
		return fail("no memory");
	object = json_object_new_object();
	json_object_object_add(object, "text", json_object_new_string(text));
	free(text);
	return ok(object);
}

static const struct {
	const char *name;
	/* NULL: not yet; *note is kept until it is asked again, and 0 first. */
	struct json_object *(*answer)(struct cei_server *server, uint64_t *note);
} commands[] = {
	{ "show", show },
	{ "limits", show_limits },
	{ "reload", reload },
	{ "drain", drain },
	{ "dump", dump },
	{ "metrics", show_metrics },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void put(struct json_object *object, FILE *out)
{
	fprintf(out, "%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
	json_object_put(object);
}

void cei_control_refuse(const char *text, FILE *out)
{
	put(fail(text), out);
}

int cei_control_answer(void *server, const char *request, uint64_t *note, FILE *out)
{
	struct json_object *object;
	size_t i;

	for (i = 0; i < N_COMMANDS && strcmp(commands[i].name, request); i++)
		;
	object = i < N_COMMANDS ? commands[i].answer(server, note)
		: fail("the daemon does not know this command: ceoverlapctl is of another version");
	if (!object)
		return CEOV_PENDING;
	put(object, out);
	return 0;
}

/* --- HTTP ---------------------------------------------------------------------- */

static void answer_http(FILE *out, const char *status, const char *type, const char *body)
{
	fprintf(out, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		"Connection: close\r\n\r\n%s", status, type, strlen(body), body);
}

int cei_control_answer_http(void *server, const char *request, uint64_t *note, FILE *out)
{
	static const char path[] = "GET /metrics";
	const char *text;

	(void)note;
	if (strncmp(request, "GET ", 4)) {
		answer_http(out, "405 Method Not Allowed", "text/plain", "GET alone is known\n");
		return 0;
	}
	if (strncmp(request, path, sizeof(path) - 1) ||
	    (request[sizeof(path) - 1] != ' ' && request[sizeof(path) - 1] != '?')) {
		answer_http(out, "404 Not Found", "text/plain", "there is /metrics alone\n");
		return 0;
	}
	text = cei_metrics_scrape(server, cei_now_ns());
	if (text)
		answer_http(out, "200 OK", "text/plain; version=0.0.4; charset=utf-8", text);
	else
		answer_http(out, "503 Service Unavailable", "text/plain", "no memory\n");
	return 0;
}
