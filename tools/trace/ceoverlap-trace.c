/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlap-trace: joins the trace files of a group's processes into one. */

#include <argp.h>
#include <stdlib.h>

#include "config.h"
#include "tools/common/streams.h"
#include "tools/common/trace_merge.h"

static const struct argp_option options_table[] = {
	{ "output", 'o', "FILE", 0, "The file to write, which replaces an older one", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

struct arguments {
	const char  *output;
	char       **paths;
	uint32_t     n_paths;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case 'o': arguments->output = text; break;
	case ARGP_KEY_ARGS:
		arguments->paths = state->argv + state->next;
		arguments->n_paths = (uint32_t)(state->argc - state->next);
		break;
	case ARGP_KEY_END:
		if (!arguments->output)
			argp_error(state, "say with -o which file to write");
		if (!arguments->n_paths)
			argp_error(state, "no file was named");
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* argp prints this for --version. */
const char *argp_program_version = PACKAGE_STRING;

int main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse, "-o FILE TRACE...",
		"Joins the trace files that the processes of a group have written "
		"(CEOVERLAP_TRACE) into one for ui.perfetto.dev or chrome://tracing, with all "
		"times on the clock of rank 0's node. Of a node whose clock's offset is not known, "
		"times stay those of its own clock, and a warning says so.\v"
		"Exit status: 0 when the file was written, also with warnings; 1 when a file "
		"cannot be read, is no trace, or is of another group, or the result cannot be "
		"written; 2 on unusable arguments.",
		NULL, NULL, NULL };
	struct arguments arguments = { .output = NULL };

	streams_begin();
	argp_err_exit_status = 2;
	if (argp_parse(&argp, argc, argv, 0, NULL, &arguments))
		return 2;
	return trace_merge((const char *const *)arguments.paths, arguments.n_paths,
			   arguments.output) ? EXIT_FAILURE : EXIT_SUCCESS;
}
