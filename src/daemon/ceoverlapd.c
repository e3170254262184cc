/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlapd: moves data for many processes. */

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/file.h"
#include "daemon/operator/operation.h"
#include "daemon/server/gpus.h"
#include "daemon/server/server.h"

struct arguments {
	const char *file;
	const char *socket;
	uint32_t    mode;               /* 0: as the file says */
	uint32_t    n_host_engines;     /* likewise */
	uint64_t    gpus;
	int         has_gpus;
	uint64_t    drain_ns;
	int         has_drain;
};

static const struct argp_option options[] = {
	{ "config", 'c', "FILE", 0, "read settings from this file, see ceoverlapd.conf(5); what "
	  "the command line says goes before", 0 },
	{ "socket", 's', "PATH", 0, "listen at this unix socket; without it, at the one that "
	  "systemd passes", 0 },
	{ "group-access", 'g', NULL, 0, "let the group of the socket's file connect, too (mode "
	  "0660 instead of 0600)", 0 },
	{ "host-engines", 'e', "N", 0, "engines for ranks on host memory, 1 to 16; default 1", 0 },
	{ "gpus", 'G', "LIST", 0, "GPUs to serve, as numbers with commas between, all or none; "
	  "default all", 0 },
	{ "drain", 'd', "SECONDS", 0, "at the end, wait so long for launches in flight; default "
	  "10", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

/* Reads a number of at most `most`, or ends the program with a message. */
static uint32_t number(struct argp_state *state, const char *text, const char *what, uint32_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value > most)
		argp_error(state, "%s is '%s', must be a number up to %u", what, text, most);
	return (uint32_t)value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case 'c':
		arguments->file = arg;
		return 0;
	case 's':
		arguments->socket = arg;
		return 0;
	case 'g':
		arguments->mode = 0660;
		return 0;
	case 'e':
		arguments->n_host_engines = number(state, arg, "host-engines", CEI_MEMBERS_MAX);
		if (!arguments->n_host_engines)
			argp_error(state, "host-engines is 0, must be at least 1");
		return 0;
	case 'G':
		if (!cei_gpus_read(arg, &arguments->gpus))
			argp_error(state, "gpus is '%s', must be all, none, or numbers with commas "
				   "between", arg);
		arguments->has_gpus = 1;
		return 0;
	case 'd':
		arguments->drain_ns = number(state, arg, "drain", 3600) * UINT64_C(1000000000);
		arguments->has_drain = 1;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not understood", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, "ceoverlapd %s\n", ceov_version());
}

static const struct argp parser = {
	.options = options,
	.parser = parse,
	.doc = "Moves data for many processes of this machine: clients name its socket in "
		"CEOVERLAP_DAEMON.\v"
		"Runs in the foreground, and logs to stderr. SIGTERM and SIGINT end it when all "
		"launches have ended; SIGHUP has it read its configuration file again.\n\n"
		"Exit status: 0 after SIGTERM or SIGINT, 1 after a failure, 64 for wrong usage.",
};

/* Lays what the command line says over what the file says. Returns 0 if it cannot be used. */
static int lay_over(const struct arguments *arguments, struct cei_settings *settings)
{
	if (arguments->socket && strlen(arguments->socket) >= sizeof(settings->socket)) {
		fprintf(stderr, "ceoverlapd: %s: the path of a socket has at most 107 bytes\n",
			arguments->socket);
		return 0;
	}
	if (arguments->socket)
		strcpy(settings->socket, arguments->socket);
	if (arguments->mode)
		settings->mode = arguments->mode;
	if (arguments->n_host_engines)
		settings->n_host_engines = arguments->n_host_engines;
	if (arguments->has_gpus)
		settings->gpus = arguments->gpus;
	if (arguments->has_drain)
		settings->drain_ns = arguments->drain_ns;
	return 1;
}

/* Returns 0 if the settings cannot be used; stderr says why. */
static int load(const struct arguments *arguments, struct cei_server_config *ret_config)
{
	struct cei_settings_fault fault;

	ret_config->file = arguments->file;
	ret_config->of_file = cei_settings_default();
	if (arguments->file &&
	    cei_settings_read(arguments->file, &ret_config->of_file, &fault)) {
		fprintf(stderr, "ceoverlapd: %s\n", fault.text);
		return 0;
	}
	ret_config->settings = ret_config->of_file;
	ret_config->has_drain = arguments->has_drain;
	return lay_over(arguments, &ret_config->settings);
}

int main(int argc, char **argv)
{
	struct cei_server *server = calloc(1, sizeof(*server));
	struct cei_operation operation = { .server = NULL };
	struct arguments arguments = { .file = NULL };
	struct cei_server_config config;
	int r;

	cei_file_fill_standard();
	argp_program_version_hook = print_version;
	if (argp_parse(&parser, argc, argv, 0, NULL, &arguments) || !server)
		return EXIT_FAILURE;
	if (!load(&arguments, &config)) {
		free(server);
		return EXIT_FAILURE;
	}
	r = cei_server_open(server, &config);
	if (!r)
		r = cei_operation_open(&operation, server);
	if (!r)
		r = cei_server_run(server);
	cei_operation_close(&operation);
	cei_server_close(server);
	free(server);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}
