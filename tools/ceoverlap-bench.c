/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlap-bench: options and the table of test cases. */

#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bench.h"
#include "bench_cases.h"

const struct bench_case bench_cases[] = {
	{ "p2p", "every pair of ranks, one transfer at a time", 1, 2, 0, bench_p2p },
	{ "p2p_2d", "the same with rows of 512 bytes at 4 x pitch", 0, 2, 0, bench_p2p_2d },
	{ "doorbell", "kernel flag -> copy -> flag at the waiting kernel", 1, 2, 0,
	  bench_doorbell },
	{ "all_gather", "one shard of every rank to every rank", 1, 2, 0,
	  bench_all_gather },
	{ "all_to_all", "one block of every rank to each rank", 1, 2, 0,
	  bench_all_to_all },
	{ "busy_sm", "p2p while a kernel holds every SM", 0, 2, 1, bench_busy_sm },
	{ "engine", "engine time per zero-byte chunk", 0, 1, 0, bench_engine },
	{ "idle", "processor time of an idle context in 10 s", 0, 1, 0, bench_idle },
	{ NULL, NULL, 0, 0, 0, NULL },
};

enum key {
	KEY_HOST = 0x100, KEY_ONE_PROCESS, KEY_TRIGGER, KEY_PIECES, KEY_CHUNK, KEY_NCCL,
	KEY_NO_NCCL, KEY_SEED,
};

static const struct argp_option options_table[] = {
	{ "testcase", 't', "NAMES", 0, "Test cases to run, a comma list (default: p2p, "
	  "doorbell, all_gather, all_to_all)", 0 },
	{ "list", 'l', NULL, 0, "List the test cases", 0 },
	{ "ranks", 'g', "N", 0, "Ranks (default: one per GPU; 4 on host memory); more than "
	  "GPUs: they share them",
	  0 },
	{ "minbytes", 'b', "SIZE", 0, "Smallest size: per shard, per peer or per transfer "
	  "(default 1M; suffix K, M, G)", 0 },
	{ "maxbytes", 'e', "SIZE", 0, "Largest size (default 16M, or -b)",
	  0 },
	{ "stepfactor", 'f', "N", 0, "From size to size (default 4)", 0 },
	{ "iters", 'n', "N", 0, "Samples of each row (default 50)", 0 },
	{ "warmup_iters", 'w', "N", 0, "Samples before them that do not count (default 5)",
	  0 },
	{ "check", 'c', "0|1", 0, "Check the data (default 1)", 0 },
	{ "json", 'J', "FILE", 0, "Write the rows as JSON too", 0 },
	{ "timeout", 'T', "SECONDS", 0, "End with an error after this time (default 300)",
	  0 },
	{ "host", KEY_HOST, NULL, 0, "Host memory even where there are GPUs", 1 },
	{ "one-process", KEY_ONE_PROCESS, NULL, 0, "All ranks in one process, a thread "
	  "each (default: a process per rank)", 1 },
	{ "trigger", KEY_TRIGGER, "polled|gated|follow|all", 0, "How launches begin: the "
	  "engine polls the mark, a lane waits for it, or the copies follow the caller's "
	  "stream (collectives on GPUs); default all", 1 },
	{ "pieces", KEY_PIECES, "N", 0, "Pieces per shard or block (default 1)", 1 },
	{ "chunk", KEY_CHUNK, "SIZE", 0, "Largest chunk (default: the library's)", 1 },
	{ "nccl", KEY_NCCL, "PATH", 0, "libnccl.so.2 to compare with (default: searched)",
	  1 },
	{ "no-nccl", KEY_NO_NCCL, NULL, 0, "Leave NCCL out", 1 },
	{ "seed", KEY_SEED, "N", 0, "Seed of the data (default: random, printed)", 1 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static void list_cases(void)
{
	uint32_t i;

	for (i = 0; bench_cases[i].name; i++)
		printf("%-12s %s%s\n", bench_cases[i].name, bench_cases[i].help,
		       bench_cases[i].needs_gpu ? " (GPUs only)" : "");
}

static uint64_t number(struct argp_state *state, const char *text, uint64_t least,
		       uint64_t most)
{
	char *end = NULL;
	uint64_t value = strtoull(text, &end, 10);

	if (end == text || *end || *text == '-' || value < least || value > most)
		argp_error(state, "'%s' must be a number from %llu to %llu", text,
			   (unsigned long long)least, (unsigned long long)most);
	return value;
}

static uint64_t size(struct argp_state *state, const char *text)
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
		argp_error(state, "'%s' must be a size from 8 bytes to 1 TiB, a multiple of "
			   "8, say 64M", text);
	return value << shift;
}

static uint32_t triggers(struct argp_state *state, const char *text)
{
	if (!strcmp(text, "polled"))
		return BENCH_POLLED;
	if (!strcmp(text, "gated"))
		return BENCH_GATED;
	if (!strcmp(text, "follow"))
		return BENCH_FOLLOW;
	if (strcmp(text, "all"))
		argp_error(state, "'%s' must be polled, gated, follow or all", text);
	return BENCH_POLLED | BENCH_GATED | BENCH_FOLLOW;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case 't': options->tests = text; break;
	case 'l': list_cases(); exit(EXIT_SUCCESS);
	case 'g': options->n_ranks = (uint32_t)number(state, text, 1, BENCH_RANKS_MAX);
		break;
	case 'b': options->begin_bytes = size(state, text); options->has_sizes = 1; break;
	case 'e': options->end_bytes = size(state, text); options->has_sizes = 1; break;
	case 'f': options->factor = (uint32_t)number(state, text, 2, 1024); break;
	case 'n': options->n_samples = (uint32_t)number(state, text, 1, BENCH_SAMPLES_MAX);
		break;
	case 'w': options->n_warmup = (uint32_t)number(state, text, 0, 10000); break;
	case 'c': options->check = (int)number(state, text, 0, 1); break;
	case 'J': options->json_path = text; break;
	case 'T': options->timeout_s = (uint32_t)number(state, text, 1, 86400); break;
	case KEY_HOST: options->force_host = 1; break;
	case KEY_ONE_PROCESS: options->one_process = 1; break;
	case KEY_TRIGGER: options->triggers = triggers(state, text); break;
	case KEY_PIECES: options->n_pieces = (uint32_t)number(state, text, 1, 64); break;
	case KEY_CHUNK: options->chunk_bytes = size(state, text); break;
	case KEY_NCCL: options->nccl_path = text; break;
	case KEY_NO_NCCL: options->without_nccl = 1; break;
	case KEY_SEED: options->seed = number(state, text, 0, UINT64_MAX >> 1); break;
	case ARGP_KEY_ARG: argp_error(state, "unexpected '%s'", text); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct bench_case *find(const char *name, size_t length)
{
	uint32_t i;

	for (i = 0; bench_cases[i].name; i++)
		if (strlen(bench_cases[i].name) == length &&
		    !strncmp(bench_cases[i].name, name, length))
			return &bench_cases[i];
	return NULL;
}

/* Fills what was asked for; 0: a name is unknown. */
static uint32_t choose(const char *names, const struct bench_case **chosen)
{
	uint32_t i, n = 0;
	size_t length;

	for (i = 0; !names && bench_cases[i].name; i++)
		if (bench_cases[i].in_default)
			chosen[n++] = &bench_cases[i];
	while (names && *names && n < 32) {
		length = strcspn(names, ",");
		chosen[n] = find(names, length);
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

int main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse, NULL,
		"Moves data between ranks with ceoverlap, checks it, and times it beside raw "
		"driver calls and NCCL in the same run.\v"
		"Exit status: 0 when all ran and all data was right; 1 on wrong data, a "
		"failure, a timeout, or when nothing ran; 2 on unusable arguments.",
		NULL, NULL, NULL };
	struct bench_options options = {
		.begin_bytes = UINT64_C(1) << 20,
		.factor = 4,
		.n_samples = 50,
		.n_warmup = 5,
		.check = 1,
		.triggers = BENCH_POLLED | BENCH_GATED | BENCH_FOLLOW,
		.n_pieces = 1,
		.timeout_s = 300,
	};
	const struct bench_case *chosen[32];
	uint32_t n;

	argp_err_exit_status = 2;
	if (getrandom(&options.seed, sizeof(options.seed), 0) != sizeof(options.seed))
		return EXIT_FAILURE;
	options.seed >>= 16;
	if (argp_parse(&argp, argc, argv, 0, NULL, &options))
		return 2;
	if (!options.end_bytes)
		options.end_bytes = options.has_sizes ? options.begin_bytes
			: UINT64_C(16) << 20;
	if (options.end_bytes < options.begin_bytes) {
		fprintf(stderr, "ceoverlap-bench: -e is less than -b\n");
		return 2;
	}
	n = choose(options.tests, chosen);
	return n ? bench_world_run(&options, chosen, n) : 2;
}
