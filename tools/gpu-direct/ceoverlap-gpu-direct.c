/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests whether the network can read and write the memory of a GPU itself, and how fast that is
 * compared with the way through host memory. The library runs this program in a process of its own,
 * because a network library that does this wrongly may crash or hang. It prints one line:
 *
 *   passed DIRECT STAGED     bytes per second, whole numbers
 *   failed: REASON
 */

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "config.h"
#include "tools/common/refused.h"
#include "tools/common/streams.h"
#include "tools/gpu-direct/trial.h"

static const struct argp_option options_table[] = {
	{ "gpu", 'g', "N", 0, "Test the memory of GPU N (default 0)", 0 },
	{ "host", 'H', NULL, 0, "Test this program, with host memory in place of a GPU's", 0 },
	{ "nic", 'n', "NAME", 0, "Use this network interface (default: any)", 0 },
	{ "bytes", 'b', "N", 0, "Bytes of each transfer (default 8388608)", 0 },
	{ "rounds", 'r', "N", 0, "How often bytes go there and back (default 8)", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static uint64_t parse_number(struct argp_state *state, const char *text, uint64_t limit)
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || number > limit)
		argp_error(state, "%s: '%s' must be a number from 0 to %" PRIu64,
			   refused_option(state, text).text, text, limit);
	return number;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct trial *trial = state->input;

	switch (key) {
	case 'g': trial->place.index = (uint32_t)parse_number(state, text, 63); break;
	case 'H': trial->place.kind = CEOV_PLACE_HOST; break;
	case 'n': trial->nic = text; break;
	case 'b': trial->n_bytes = parse_number(state, text, UINT64_C(1) << 30); break;
	case 'r': trial->n_rounds = (uint32_t)parse_number(state, text, 1000); break;
	case ARGP_KEY_ARG: argp_error(state, "'%s' is no option", text); break;
	case ARGP_KEY_END:
		if (!trial->n_bytes || !trial->n_rounds)
			argp_error(state, "there must be at least one byte and one round");
		if (trial->place.kind == CEOV_PLACE_HOST)
			trial->place.index = 0;
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* What the process that is to be opened was told is not meant for this one. Copies within a machine
 * by shared memory say nothing about the network. */
static int set_environment(void)
{
	unsetenv("CEOVERLAP_TRACE");
	unsetenv("CEOVERLAP_BOOTSTRAP");
	unsetenv("CEOVERLAP_GROUP");
	unsetenv("CEOVERLAP_RANK");
	unsetenv("CEOVERLAP_RANKS");
	unsetenv("CEOVERLAP_PLACE");
	unsetenv("CEOVERLAP_SECRET");
	return setenv("CEOVERLAP_TRANSPORTS", "^sm,cuda_ipc", 0);
}

int main(int argc, char **argv)
{
	const struct argp argp = { options_table, parse, NULL,
				   "Tests whether the network can access the memory of a GPU "
				   "itself. ceov_open() runs this program.", NULL, NULL, NULL };
	struct trial trial = { .place = { CEOV_PLACE_GPU, 0 }, .n_bytes = UINT64_C(8) << 20,
			       .n_rounds = 8 };
	double direct = 0, staged = 0;
	const char *why = "there is no memory for the environment";

	streams_begin();
	argp_program_version = "ceoverlap-gpu-direct " PACKAGE_VERSION;
	argp_parse(&argp, argc, argv, 0, NULL, &trial);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (set_environment() || trial_run(&trial, "direct", &direct, &why) ||
	    trial_run(&trial, "staged", &staged, &why)) {
		printf("failed: %s\n", why);
		return EXIT_FAILURE;
	}
	printf("passed %.0f %.0f\n", direct, staged);
	return EXIT_SUCCESS;
}
