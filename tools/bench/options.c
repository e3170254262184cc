/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/options.h"
#include "tools/common/refused.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

uint64_t bench_parse_number(struct argp_state *state, const char *text, uint64_t least,
			    uint64_t most)
{
	char *end = NULL;
	uint64_t value = strtoull(text, &end, 10);

	if (end == text || *end || *text == '-' || value < least || value > most)
		argp_error(state, "%s: '%s' must be a number from %llu to %llu",
			   refused_option(state, text).text, text,
			   (unsigned long long)least, (unsigned long long)most);
	return value;
}

uint64_t bench_parse_size(struct argp_state *state, const char *text)
{
	static const char suffixes[] = "KMG";
	const char *suffix;
	char *end = NULL;
	uint64_t value = strtoull(text, &end, 10);
	int shift = 0;

	suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
	if (suffix) {
		shift = 10 * (int)(suffix - suffixes + 1);
		end++;
	}
	if (end == text || *end || *text == '-' || value > UINT64_C(1) << 40 ||
	    value << shift > UINT64_C(1) << 40 || value << shift < 8 ||
	    (value << shift) % 8)
		argp_error(state, "%s: '%s' must be a size from 8 bytes to 1 TiB, a multiple of "
			   "8, say 64M",
			   refused_option(state, text).text, text);
	return value << shift;
}

/* Keeps standard output for JSON alone: what is printed goes to standard error from here on. */
static void take_output(struct argp_state *state, struct bench_options *options)
{
	int fd;

	fflush(stdout);
	fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		argp_failure(state, EXIT_FAILURE, errno, "standard output");
	snprintf(options->output, sizeof(options->output), "/dev/fd/%d", fd);
	options->json_path = options->output;
}

static const struct argp_option common_options[] = {
	{ "ranks", 'g', "N", 0, "Ranks; with measure, GPUs (default: one per GPU, or some on "
	  "host memory)", 0 },
	{ "minbytes", 'b', "SIZE", 0, "Smallest size (suffix K, M, G)", 0 },
	{ "maxbytes", 'e', "SIZE", 0, "Largest size", 0 },
	{ "stepfactor", 'f', "N", 0, "From size to size", 0 },
	{ "stepbytes", 'i', "SIZE", 0, "Added from size to size, without -f", 0 },
	{ "iters", 'n', "N", 0, "Samples of each row", 0 },
	{ "warmup_iters", 'w', "N", 0, "Samples before them that do not count", 0 },
	{ "check", 'c', "0|1", 0, "Check the data (default 1)", 0 },
	{ "brief", BENCH_KEY_BRIEF, NULL, 0, "A table that fits into 80 columns, and fewer lines "
	  "around it", 0 },
	{ "json", 'J', "FILE", 0, "Write the rows as JSON too; -: to standard output, and the "
	  "table to standard error", 0 },
	{ "timeout", 'T', "SECONDS", 0, "End after this time, with an error where rows are "
	  "missing. JSON then has the rows up to it, and \"complete\": false", 0 },
	{ "host", BENCH_KEY_HOST, NULL, 0, "Host memory even where there are GPUs", 0 },
	{ "one-process", BENCH_KEY_ONE_PROCESS, NULL, 0, "All ranks in one process, a thread each "
	  "(default where ranks share GPUs; else a process per rank)", 0 },
	{ "processes", BENCH_KEY_PROCESSES, NULL, 0, "A process per rank even where ranks share a "
	  "GPU, on which processes take turns", 0 },
	{ "nodes", BENCH_KEY_NODES, "N", 0, "The ranks, processes of this machine, act as so many "
	  "nodes: what goes between these goes over the network (UCX; CEOVERLAP_TRANSPORTS and "
	  "CEOVERLAP_NICS say how). Cases that only run within a node are left out. Over several "
	  "machines a launcher says instead which nodes there are", 0 },
	{ "chunk", BENCH_KEY_CHUNK, "SIZE", 0, "Largest chunk (default: the library's)", 0 },
	{ "nccl", BENCH_KEY_NCCL, "PATH", 0, "libnccl.so.2 to compare with (default: searched)",
	  0 },
	{ "no-nccl", BENCH_KEY_NO_NCCL, NULL, 0, "Leave NCCL out", 0 },
	{ "without-nccl", BENCH_KEY_NO_NCCL, NULL, OPTION_ALIAS, NULL, 0 },
	{ "trace", BENCH_KEY_TRACE, "FILE", 0, "Write what chunks did, for Perfetto or Chrome", 0 },
	{ "seed", BENCH_KEY_SEED, "N", 0, "Seed of the data (default: random, printed)", 0 },
	{ NULL, 'h', NULL, 0, "As --help", -1 },
};

const int bench_rank_options[] = {
	'h', 'g', 'b', 'e', 'f', 'i', 'n', 'w', 'c', 'J', 'T', BENCH_KEY_BRIEF,
	BENCH_KEY_HOST, BENCH_KEY_ONE_PROCESS,
	BENCH_KEY_PROCESSES, BENCH_KEY_NODES, BENCH_KEY_CHUNK, BENCH_KEY_NCCL, BENCH_KEY_NO_NCCL,
	BENCH_KEY_TRACE, BENCH_KEY_SEED, 0
};

#define COMMON_OPTIONS (sizeof(common_options) / sizeof(common_options[0]))

static error_t parse_common(int key, char *text, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case 'g': options->n_ranks = (uint32_t)bench_parse_number(state, text, 1,
								   BENCH_RANKS_MAX);
		break;
	case 'b': options->begin_bytes = bench_parse_size(state, text);
		options->has_sizes = 1;
		break;
	case 'e': options->end_bytes = bench_parse_size(state, text);
		options->has_sizes = 1;
		break;
	case 'f': options->factor = (uint32_t)bench_parse_number(state, text, 2, 1024);
		options->has_factor = 1;
		break;
	case 'i': options->step_bytes = bench_parse_size(state, text); break;
	case 'h': argp_state_help(state, stdout, ARGP_HELP_STD_HELP); break;
	case BENCH_KEY_BRIEF: options->is_brief = 1; break;
	case 'n': options->n_samples = (uint32_t)bench_parse_number(state, text, 1,
								     BENCH_SAMPLES_MAX);
		break;
	case 'w': options->n_warmup = (uint32_t)bench_parse_number(state, text, 0, 10000);
		break;
	case 'c': options->check = (int)bench_parse_number(state, text, 0, 1); break;
	case 'J': options->json_path = text;
		if (!strcmp(text, "-"))
			take_output(state, options);
		break;
	case 'T': options->timeout_s = (uint32_t)bench_parse_number(state, text, 1, 86400);
		break;
	case BENCH_KEY_HOST: options->force_host = 1; break;
	case BENCH_KEY_ONE_PROCESS: options->one_process = 1; break;
	case BENCH_KEY_PROCESSES: options->processes = 1; break;
	case BENCH_KEY_CHUNK: options->chunk_bytes = bench_parse_size(state, text); break;
	case BENCH_KEY_NCCL: options->nccl_path = text; break;
	case BENCH_KEY_NO_NCCL: options->without_nccl = 1; break;
	case BENCH_KEY_TRACE: options->trace_path = text; break;
	case BENCH_KEY_NODES:
		options->n_nodes = (uint32_t)bench_parse_number(state, text, 1, BENCH_RANKS_MAX);
		break;
	case BENCH_KEY_SEED:
		options->seed = bench_parse_number(state, text, 0, UINT64_MAX >> 1);
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

struct parsing {
	const struct bench_command *command;
	struct bench_options       *options;
	void                       *input;      /* the command's */
};

static error_t parse_own(int key, char *text, struct argp_state *state)
{
	struct parsing *parsing = state->input;

	if (key == ARGP_KEY_INIT)
		state->child_inputs[0] = parsing->options;
	else if (key == ARGP_KEY_ARG)
		argp_error(state, "unexpected '%s'", text);
	else {
		state->input = parsing->input;
		return parsing->command->parse(key, text, state);
	}
	return 0;
}

/* Sets the seed, and keeps the arguments from `first` on. */
static int begin(struct bench_options *options, int first, int argc, char **argv)
{
	size_t used = (size_t)snprintf(options->command, sizeof(options->command),
				       "ceoverlap-bench");
	int i, n;

	for (i = first; i < argc && used < sizeof(options->command); i++) {
		n = snprintf(options->command + used, sizeof(options->command) - used, " %s",
			     argv[i]);
		used += n > 0 ? (size_t)n : 0;
	}
	if (getrandom(&options->seed, sizeof(options->seed), 0) != sizeof(options->seed))
		return -1;
	options->seed >>= 16;
	return 0;
}

int bench_parse(const struct bench_command *command, struct bench_options *options, void *input,
		int argc, char **argv)
{
	struct parsing parsing = { command, options, input };
	struct argp_option taken[COMMON_OPTIONS + 1] = { { 0 } };
	const struct argp common = { .options = taken, .parser = parse_common };
	const struct argp_child children[] = { { &common, 0, NULL, 0 }, { 0 } };
	const struct argp argp = { .options = command->own, .parser = parse_own,
				   .doc = command->doc, .children = children };
	char name[64];
	uint32_t i, k, n = 0;

	for (i = 0; i < COMMON_OPTIONS; i++)
		for (k = 0; command->common[k]; k++)
			if (common_options[i].key == command->common[k])
				taken[n++] = common_options[i];
	/* the first word is the name of a command, or of the program itself */
	if (begin(options, strchr(command->name, ' ') ? 0 : 1, argc, argv))
		return EXIT_FAILURE;
	snprintf(name, sizeof(name), "%s", command->name);
	argv[0] = name;                 /* argp prints this name in its messages */
	return argp_parse(&argp, argc, argv, 0, NULL, &parsing) ? 2 : 0;
}

int bench_options_finish(struct bench_options *options, uint64_t default_end_bytes)
{
	if (options->has_factor)
		options->step_bytes = 0;
	if (!options->end_bytes)
		options->end_bytes = options->has_sizes ? options->begin_bytes
			: default_end_bytes;
	if (options->end_bytes >= options->begin_bytes)
		return 0;
	fprintf(stderr, "ceoverlap-bench: -e is less than -b\n");
	return -1;
}

static const struct bench_case *find(const struct bench_case *cases, const char *name,
				     size_t length)
{
	uint32_t i;

	for (i = 0; cases[i].name; i++)
		if (strlen(cases[i].name) == length &&
		    !strncmp(cases[i].name, name, length))
			return &cases[i];
	return NULL;
}

uint32_t bench_choose_cases(const struct bench_case *cases, const char *names,
			    const struct bench_case **chosen)
{
	uint32_t i, n = 0;
	size_t length;

	for (i = 0; !names && cases[i].name; i++)
		if (cases[i].in_default)
			chosen[n++] = &cases[i];
	while (names && *names && n < BENCH_CASES_MAX) {
		length = strcspn(names, ",");
		chosen[n] = find(cases, names, length);
		if (!chosen[n]) {
			fprintf(stderr, "ceoverlap-bench: no test case '%.*s'; -l lists "
				"them\n", (int)length, names);
			return 0;
		}
		n++;
		names += length + (names[length] == ',');
	}
	return n;
}
