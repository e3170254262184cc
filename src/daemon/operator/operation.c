/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens what the operator sees, and does what is due from time to time. */

#include "daemon/operator/operation.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/operator/control.h"
#include "daemon/operator/flight.h"
#include "daemon/operator/metrics.h"
#include "daemon/server/client.h"
#include "daemon/server/listener.h"
#include "daemon/server/reload.h"
#include "daemon/server/server.h"

#define SAMPLE_NS UINT64_C(1000000000)

/* --- opening ----------------------------------------------------------------- */

/* Returns 0 if the path is too long. */
static int find_control_path(const struct cei_settings *settings,
			     char ret_path[CEI_SETTINGS_PATH_BYTES])
{
	int n;

	if (*settings->control)
		n = snprintf(ret_path, CEI_SETTINGS_PATH_BYTES, "%s", settings->control);
	else if (*settings->socket)
		n = snprintf(ret_path, CEI_SETTINGS_PATH_BYTES, "%s.control", settings->socket);
	else
		n = snprintf(ret_path, CEI_SETTINGS_PATH_BYTES, "%s", CEI_CONTROL_PATH);
	return n > 0 && n < (int)CEI_SETTINGS_PATH_BYTES;
}

static int open_control(struct cei_operation *operation)
{
	struct cei_server *server = operation->server;
	const struct cei_listener_path ask = { operation->control_path, SOCK_STREAM, 0600,
					       CEI_LISTENER_NO_GROUP };
	int r, fd;

	if (!find_control_path(&server->config.settings, operation->control_path))
		return cei_raise(&server->report, CEOV_ERR_INVALID, 0,
				 "%s.control is too long for a socket: set 'control'",
				 server->config.settings.socket);
	r = cei_listener_bind(&server->report, &ask, &fd);
	if (r)
		return r;
	operation->made_control = 1;
	operation->control = (struct cei_outlet){
		.report = &server->report, .event = server->event, .what = "control socket",
		.end = "\n", .is_private = 1, .refuse = cei_control_refuse,
		.answer = cei_control_answer, .arg = server,
	};
	return cei_outlet_open(&operation->control, fd);
}

static int open_http(struct cei_operation *operation)
{
	struct cei_server *server = operation->server;
	uint32_t port = server->config.settings.http_port;
	int r, fd;

	if (!port)
		return 0;
	r = cei_listener_loopback(&server->report, port, &fd);
	if (r)
		return r;
	operation->http = (struct cei_outlet){
		.report = &server->report, .event = server->event, .what = "metrics",
		.end = "\r\n\r\n", .answer = cei_control_answer_http, .arg = server,
	};
	return cei_outlet_open(&operation->http, fd);
}

/* WatchdogSec= of the unit; it is to be fed twice in that time, and is four times. */
static void find_watchdog(struct cei_operation *operation)
{
	uint64_t us = 0;

	if (sd_watchdog_enabled(0, &us) > 0)
		operation->feed_ns = us * 1000 / 4;
}

static void look(void *arg, uint64_t now_ns)
{
	cei_operation_look(arg, now_ns);
}

static void on_signal(void *arg, uint32_t number)
{
	struct cei_operation *operation = arg;

	if (number == SIGUSR1)
		cei_flight_log(operation->server, "of a signal");
	else if (number == SIGHUP)
		(void)cei_reload_begin(operation->server->reload);
}

int cei_operation_open(struct cei_operation *operation, struct cei_server *server)
{
	int r;

	operation->server = server;
	server->hooks = (struct cei_server_hooks){ look, on_signal, operation };
	cei_server_set_aims(server);
	find_watchdog(operation);
	r = cei_reload_open(server, &server->reload);
	if (!r)
		r = open_control(operation);
	return r ? r : open_http(operation);
}

/* Nobody would write it any more, and node_exporter would show what it says for ever as if it was
 * of now: a metric that is absent says that the daemon has gone. */
static void remove_textfile(struct cei_operation *operation)
{
	if (!*operation->textfile)
		return;
	(void)unlink(operation->textfile);
	*operation->textfile = 0;
	operation->textfile_at_ns = 0;
}

static void write_textfile(struct cei_operation *operation, uint64_t now_ns)
{
	const struct cei_settings *settings = &operation->server->config.settings;

	if (strcmp(operation->textfile, settings->textfile))
		remove_textfile(operation);
	if (!*settings->textfile || now_ns < operation->textfile_at_ns)
		return;
	operation->textfile_at_ns = now_ns + settings->textfile_ns;
	if (!cei_metrics_write_file(operation->server))
		memcpy(operation->textfile, settings->textfile, sizeof(operation->textfile));
}

void cei_operation_close(struct cei_operation *operation)
{
	if (operation->server)          /* a reading that ends now writes metrics once more */
		cei_reload_close(operation->server->reload);
	remove_textfile(operation);
	if (operation->server)
		cei_metrics_forget(operation->server);
	/* first the file, which may be the next daemon's as soon as nobody listens */
	if (operation->made_control)
		(void)unlink(operation->control_path);
	operation->made_control = 0;
	cei_outlet_close(&operation->http);
	cei_outlet_close(&operation->control);
}

/* --- what is due ------------------------------------------------------------- */

static uint64_t bytes_of(struct cei_client *client)
{
	const struct cei_usage usage = cei_client_usage(client);
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < CEI_FLOWS_URGENCIES; i++)
		n += usage.bytes[i];
	return n;
}

static void sample_client(struct cei_client *client, uint64_t past_ns)
{
	uint64_t n_bytes = bytes_of(client);

	client->bytes_per_s = (uint64_t)((double)(n_bytes - client->seen_bytes) * 1e9 /
					 (double)past_ns);
	client->seen_bytes = n_bytes;
}

/* Jain's index: (sum of x)^2 / (n * sum of x^2), of the clients that move something. */
static void sample(struct cei_operation *operation, uint64_t now_ns)
{
	struct cei_server *server = operation->server;
	uint64_t past_ns = now_ns - operation->sampled_ns;
	double x, sum = 0, squares = 0, n = 0;
	struct cei_client *client;
	struct cei_list *node;

	operation->sampled_ns = now_ns;
	operation->sample_at_ns = now_ns + SAMPLE_NS;
	for (node = server->clients.next; node != &server->clients; node = node->next) {
		client = CEI_OWNER(node, struct cei_client, link);
		if (!client->account)
			continue;
		sample_client(client, past_ns);
		x = (double)client->bytes_per_s / cei_client_limits(client).weight;
		n += x > 0;
		sum += x;
		squares += x * x;
	}
	server->fairness = n > 0 ? sum * sum / (n * squares) : 1;
}

/* Feeds the watchdog if every engine has turned since it was fed last, and has them all turn once
 * more: one that sleeps does not by itself. */
static void feed(struct cei_operation *operation, uint64_t now_ns)
{
	struct cei_server *server = operation->server;
	uint32_t i;

	for (i = 0; i < server->site.n_members; i++)
		if (cei_intake_turns(&server->intakes[i]) == operation->turns[i])
			return;
	(void)sd_notify(0, "WATCHDOG=1");
	operation->feed_at_ns = now_ns + operation->feed_ns;
	for (i = 0; i < server->site.n_members; i++) {
		operation->turns[i] = cei_intake_turns(&server->intakes[i]);
		cei_intake_nudge(&server->intakes[i]);
	}
}

void cei_operation_look(struct cei_operation *operation, uint64_t now_ns)
{
	struct cei_server *server = operation->server;

	cei_outlet_look(&operation->control, now_ns);
	cei_outlet_look(&operation->http, now_ns);
	if (now_ns >= operation->sample_at_ns)
		sample(operation, now_ns);
	if (operation->feed_ns && now_ns >= operation->feed_at_ns)
		feed(operation, now_ns);
	cei_flight_look(server, now_ns, &operation->no_flight_until_ns);
	write_textfile(operation, now_ns);
}
