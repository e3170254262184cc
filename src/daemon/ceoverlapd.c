/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlapd: moves data for many processes. */

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "daemon/server.h"

#define DRAIN_DEFAULT_NS UINT64_C(10000000000)

static const struct argp_option options[] = {
	{ "socket", 's', "PATH", 0, "listen at this unix socket; without it, at the one that "
	  "systemd passes", 0 },
	{ "group-access", 'g', NULL, 0, "let the group of the socket's file connect, too (mode "
	  "0660 instead of 0600)", 0 },
	{ "host-engines", 'e', "N", 0, "engines for ranks on host memory, 1 to 16; default 1", 0 },
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
	struct cei_server_config *config = state->input;

	switch (key) {
	case 's':
		config->path = arg;
		return 0;
	case 'g':
		config->mode = 0660;
		return 0;
	case 'e':
		config->n_host_engines = number(state, arg, "host-engines", CEI_MEMBERS_MAX);
		return 0;
	case 'd':
		config->drain_ns = number(state, arg, "drain", 3600) * UINT64_C(1000000000);
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
		"launches have ended.\n\n"
		"Exit status: 0 after SIGTERM or SIGINT, 1 after a failure, 64 for wrong usage.",
};

int main(int argc, char **argv)
{
	struct cei_server_config config = {
		.mode = 0600, .n_host_engines = 1, .drain_ns = DRAIN_DEFAULT_NS,
		.limits = cei_limits_default(),
	};
	struct cei_server *server = calloc(1, sizeof(*server));
	int r;

	argp_program_version_hook = print_version;
	if (argp_parse(&parser, argc, argv, 0, NULL, &config) || !server)
		return EXIT_FAILURE;
	r = cei_server_open(server, &config);
	if (!r)
		r = cei_server_run(server);
	cei_server_close(server);
	free(server);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}
