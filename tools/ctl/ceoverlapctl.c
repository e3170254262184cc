/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlapctl: shows what a ceoverlapd does, and tells it what to do. */

#include "tools/common/refused.h"
#include "tools/ctl/ctl.h"

#include <argp.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "daemon/operator/control.h"
#include "tools/common/streams.h"

struct arguments {
	struct ctl_ask ask;
	const char    *command;
	const char    *socket;          /* of clients; NULL: not named */
	char           path[256];
};

static const struct {
	const char *name;
	struct ctl_command asks;        /* name NULL: it asks by itself */
	void      (*show)(struct json_object *answer);
	const char *done;               /* what is printed where there is nothing to show */
} commands[] = {
	{ "status", { "show", "daemon" }, ctl_show_status, NULL },
	{ "clients", { "show", "clients" }, ctl_show_clients, NULL },
	{ "routes", { "show", "links" }, ctl_show_routes, NULL },
	{ "limits", { "limits", "limits" }, ctl_show_limits, NULL },
	{ "dump", { "dump", "transfers" }, ctl_show_dump, NULL },
	{ "metrics", { "metrics", "text" }, NULL, NULL },
	{ "reload", { "reload", NULL }, NULL, "the settings were read again" },
	{ "drain", { "drain", NULL }, NULL, "the daemon ends when all launches have" },
	{ "monitor", { NULL, NULL }, NULL, NULL },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char words[] = "status|clients|routes|limits|dump|metrics|monitor|reload|drain";

static const struct argp_option options_table[] = {
	{ "socket", 's', "PATH", 0, "The daemon whose clients use this socket (default: what "
	  "CEOVERLAP_DAEMON names)", 0 },
	{ "control", 'c', "PATH", 0, "The daemon with this control socket (default: the clients' "
	  "socket with .control behind it, or " CEI_CONTROL_PATH ")", 0 },
	{ "json", 'j', NULL, 0, "Print JSON", 0 },
	{ "interval", 'i', "MS", 0, "Of monitor, 100 to 60000 (default 1000)", 1 },
	{ "count", 'n', "N", 0, "Have monitor end after so many frames", 1 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static uint64_t number(struct argp_state *state, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value < least || value > most)
		argp_error(state, "%s: '%s' must be a number from %lu to %lu",
			   refused_option(state, text).text, text,
			   (unsigned long)least, (unsigned long)most);
	return value;
}

static size_t find(const char *name)
{
	size_t i;

	for (i = 0; i < N_COMMANDS && strcmp(commands[i].name, name); i++)
		;
	return i;
}

static void take_command(struct argp_state *state, struct arguments *arguments, const char *name)
{
	if (arguments->command)
		argp_error(state, "one command at a time: '%s' is too many", name);
	if (find(name) == N_COMMANDS)
		argp_error(state, "there is no command '%s'", name);
	arguments->command = name;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case 's': arguments->socket = text; break;
	case 'c': arguments->ask.path = text; break;
	case 'j': arguments->ask.is_json = 1; break;
	case 'i': arguments->ask.interval_ms = number(state, text, 100, 60000); break;
	case 'n': arguments->ask.n_frames = number(state, text, 1, 1000000000); break;
	case ARGP_KEY_ARG: take_command(state, arguments, text); break;
	case ARGP_KEY_END:
		if (!arguments->command)
			argp_error(state, "say what to do: %s", words);
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* argp prints this for --version. */
const char *argp_program_version = PACKAGE_STRING;

/* The socket of a daemon that systemd has started (ceoverlapd.socket) has its control socket at
 * CEI_CONTROL_PATH, and that of any other one beside it. */
#define UNIT_PATH "/run/ceoverlap.sock"

static void choose_path(struct arguments *arguments)
{
	const char *socket = arguments->socket ? arguments->socket
		: secure_getenv("CEOVERLAP_DAEMON");

	if (arguments->ask.path)
		return;
	if (socket && *socket && strcmp(socket, UNIT_PATH))
		snprintf(arguments->path, sizeof(arguments->path), "%s.control", socket);
	else
		snprintf(arguments->path, sizeof(arguments->path), "%s", CEI_CONTROL_PATH);
	arguments->ask.path = arguments->path;
}

static int run(const struct ctl_ask *ask, size_t at)
{
	struct json_object *answer;
	int status = 0;

	if (!commands[at].asks.name)
		return ctl_monitor(ask);
	answer = ctl_ask(ask->path, &commands[at].asks, &status);
	if (!answer)
		return status;
	if (ask->is_json)
		printf("%s\n", json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PRETTY |
							      JSON_C_TO_STRING_NOSLASHESCAPE));
	else if (commands[at].show)
		commands[at].show(answer);
	else
		printf("%s%s", commands[at].done ? commands[at].done : ctl_text(answer, "text"),
		       commands[at].done ? "\n" : "");
	json_object_put(answer);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse,
		words,
		"Shows what a ceoverlapd does, and tells it what to do.\v"
		"  status    the daemon, its clients together, and plans beside it\n"
		"  clients   each client\n"
		"  routes    each link, what went over it, and how long that waited and took\n"
		"  limits    the limits and weights that hold\n"
		"  dump      the last chunks of each engine\n"
		"  metrics   all of this as Prometheus's text\n"
		"  monitor   links and clients, live; q ends it\n"
		"  reload    read the configuration file again\n"
		"  drain     take no new clients and plans, and end when all launches have\n\n"
		"Root and the daemon's user may ask.\n\n"
		"Exit status: 0; 1 when the daemon refuses, or the output cannot be written; 2 on "
		"unusable arguments; 3 when no daemon answers.",
		NULL, NULL, NULL };
	struct arguments arguments = { .ask = { .interval_ms = 1000 } };

	streams_begin();
	(void)setlocale(LC_CTYPE, "");
	argp_err_exit_status = CTL_USAGE;
	if (argp_parse(&argp, argc, argv, 0, NULL, &arguments))
		return CTL_USAGE;
	choose_path(&arguments);
	return run(&arguments.ask, find(arguments.command));
}
