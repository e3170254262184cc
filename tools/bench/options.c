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

error_t bench_parse_common(int key, char *text, struct argp_state *state,
			   struct bench_options *options)
{
	switch (key) {
	case 't': options->tests = text; break;
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
		break;
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

int bench_options_begin(struct bench_options *options, int argc, char **argv)
{
	size_t used = (size_t)snprintf(options->command, sizeof(options->command),
				       "ceoverlap-bench");
	int i, n;

	for (i = 0; i < argc && used < sizeof(options->command); i++) {
		n = snprintf(options->command + used, sizeof(options->command) - used, " %s",
			     argv[i]);
		used += n > 0 ? (size_t)n : 0;
	}
	if (getrandom(&options->seed, sizeof(options->seed), 0) != sizeof(options->seed))
		return -1;
	options->seed >>= 16;
	return 0;
}

int bench_options_finish(struct bench_options *options, uint64_t default_end_bytes)
{
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
