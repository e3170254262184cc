/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlap-run: the options, and the order of what is done. */

#include "tools/common/refused.h"
#include "tools/run/run.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "config.h"
#include "tools/common/streams.h"

#define SECONDS_MAX      1e6
#define GRACE_DEFAULT_NS UINT64_C(5000000000)

enum key { KEY_NODES = 256, KEY_LABEL, KEY_TIMEOUT, KEY_GRACE };

static const struct argp_option options_table[] = {
	{ "processes", 'n', "N", 0, "How many processes to start, 1 to 1024", 0 },
	{ "nodes", KEY_NODES, "M", 0, "The processes act as M nodes, with neighbouring numbers on "
	  "one node (default: one node, this machine)", 0 },
	{ "label", KEY_LABEL, NULL, 0, "Print the process's number before each line of output", 0 },
	{ "timeout", KEY_TIMEOUT, "S", 0, "End all after S seconds (default: never)", 0 },
	{ "grace", KEY_GRACE, "S", 0, "Seconds from telling processes to end, by SIGTERM, to "
	  "killing them (default 5)", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static uint32_t parse_number(struct argp_state *state, const char *text)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || !number || number > RUN_PROCESSES_MAX)
		argp_error(state, "%s: '%s' must be a number from 1 to %u",
			   refused_option(state, text).text, text, RUN_PROCESSES_MAX);
	return (uint32_t)number;
}

static uint64_t parse_seconds(struct argp_state *state, const char *text)
{
	double seconds;
	char *end;

	errno = 0;
	seconds = strtod(text, &end);
	if (errno || *text < '0' || *text > '9' || *end || !(seconds <= SECONDS_MAX))
		argp_error(state, "%s: '%s' must be seconds, from 0 to %g",
			   refused_option(state, text).text, text, SECONDS_MAX);
	return (uint64_t)(seconds * 1e9);
}

static void check(struct argp_state *state, const struct run_options *options)
{
	if (!options->n_processes)
		argp_error(state, "say with -n how many processes to start");
	if (!options->program)
		argp_error(state, "no program was named");
	if (options->n_nodes > options->n_processes)
		argp_error(state, "%u nodes need at least as many processes, not %u",
			   options->n_nodes, options->n_processes);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct run_options *options = state->input;

	switch (key) {
	case 'n': options->n_processes = parse_number(state, text); break;
	case KEY_NODES: options->n_nodes = parse_number(state, text); break;
	case KEY_LABEL: options->has_labels = 1; break;
	case KEY_TIMEOUT:
		options->timeout_ns = parse_seconds(state, text);
		if (!options->timeout_ns)
			argp_error(state, "a timeout of 0 s leaves no time to run");
		break;
	case KEY_GRACE: options->grace_ns = parse_seconds(state, text); break;
	case ARGP_KEY_ARG:
		/* The program: what follows is its, also what looks like an option. */
		options->program = &state->argv[state->next - 1];
		state->next = state->argc;
		break;
	case ARGP_KEY_END: check(state, options); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void start_all(struct run *run)
{
	uint32_t i;

	if (run->options->timeout_ns)
		run->timeout_at_ns = cei_now_ns() + run->options->timeout_ns;
	for (i = 0; i < run->options->n_processes; i++)
		if (run_process_start(run)) {
			run_tell_to_end(run, EXIT_FAILURE);
			return;
		}
}

/* Chooses where the processes meet. Returns 0, or -1, reported on stderr. The descriptor that
 * reserves the port stays open until this program ends. */
static int choose_meeting(struct run *run)
{
	if (port_reserve(run->store) < 0) {
		fprintf(stderr, "ceoverlap-run: no port of the loopback interface can be reserved "
			"for the processes to meet at: %s\n", strerror(errno));
		return -1;
	}
	snprintf(run->job, sizeof(run->job), "ceoverlap-run-%d-%llu", (int)getpid(),
		 (unsigned long long)cei_now_ns());
	return 0;
}

/* Returns the exit status. */
static int work(struct run *run)
{
	if (run_orphans_adopt() || run_signals_take(run) || choose_meeting(run))
		return EXIT_FAILURE;
	start_all(run);
	run_supervise(run);
	run_orphans_end();
	run_labels_end(run);
	return run->status;
}

/* argp prints this for --version. */
const char *argp_program_version = PACKAGE_STRING;

int main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse, "[--] PROGRAM [ARGUMENT...]",
		"Starts the processes of one group on this machine. The processes find each other "
		"at a port of the loopback interface; each is told its number and how many there "
		"are, and with --nodes which node it acts as. When one fails, the others are told "
		"to end. "
		"Nothing that was started is left at the end.\v"
		"Exit status: 0 when all processes ended well; that of the first one that failed, "
		"or 128 and its signal's number; 124 when the timeout was over; 126 and 127 when "
		"the program cannot be executed or is not there; 1 when something else failed; 2 "
		"on unusable arguments.",
		NULL, NULL, NULL };
	struct run_options options = { .grace_ns = GRACE_DEFAULT_NS };
	struct run *run;
	int status;

	streams_begin();
	argp_err_exit_status = 2;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options))
		return 2;
	run = calloc(1, sizeof(*run));
	if (!run)
		return EXIT_FAILURE;
	run->options = &options;
	run->timeout_at_ns = run->kill_at_ns = UINT64_MAX;
	status = work(run);
	free(run);
	return status;
}
