/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

/* Options that several command lines share. Functions with a `state` parameter end the program with
 * a message if the text is invalid. */

#include <argp.h>
#include <stdint.h>

#include "tools/bench/bench.h"

uint64_t bench_parse_number(struct argp_state *state, const char *text, uint64_t least,
			    uint64_t most);
uint64_t bench_parse_size(struct argp_state *state, const char *text);

/* Keys of the options that every command line has. The function that parses them returns 0, or
 * ARGP_ERR_UNKNOWN for other keys. */
enum bench_key {
	BENCH_KEY_HOST = 0x100, BENCH_KEY_ONE_PROCESS, BENCH_KEY_PROCESSES,
	BENCH_KEY_CHUNK, BENCH_KEY_NCCL,
	BENCH_KEY_NO_NCCL, BENCH_KEY_SEED, BENCH_KEY_TRACE, BENCH_KEY_NODES, BENCH_KEY_OWN
};
error_t bench_parse_common(int key, char *text, struct argp_state *state,
			   struct bench_options *options);

/* Before parsing: sets the random seed, and keeps the arguments as the command that was typed.
 * Returns 0, or -1. */
int  bench_options_begin(struct bench_options *options, int argc, char **argv);

/* Fills in the sizes after parsing. Returns -1 if they contradict each other. */
int  bench_options_finish(struct bench_options *options, uint64_t default_end_bytes);

/* Looks up the names of a comma list in cases; names NULL: takes the default cases. Returns their
 * number, or 0 if a name is unknown, which was reported. */
uint32_t bench_choose_cases(const struct bench_case *cases, const char *names,
			    const struct bench_case **chosen);
#define BENCH_CASES_MAX 32u

#endif /* BENCH_OPTIONS_H */
