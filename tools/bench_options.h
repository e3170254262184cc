/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

/* Options that the command lines share. Functions that take a state end the program with a
 * message when the text is invalid. */

#include <argp.h>
#include <stdint.h>

#include "bench.h"

uint64_t bench_parse_number(struct argp_state *state, const char *text, uint64_t least,
			    uint64_t most);
uint64_t bench_parse_size(struct argp_state *state, const char *text);

/* Keys of the options that every command line has. Parsing returns 0, or ARGP_ERR_UNKNOWN. */
enum bench_key {
	BENCH_KEY_HOST = 0x100, BENCH_KEY_ONE_PROCESS, BENCH_KEY_PROCESSES,
	BENCH_KEY_CHUNK, BENCH_KEY_NCCL,
	BENCH_KEY_NO_NCCL, BENCH_KEY_SEED, BENCH_KEY_TRACE, BENCH_KEY_OWN
};
error_t bench_parse_common(int key, char *text, struct argp_state *state,
			   struct bench_options *options);

/* Chooses the random seed. */
int  bench_options_begin(struct bench_options *options);

/* Fills in sizes after parsing; -1 where they contradict each other. */
int  bench_options_finish(struct bench_options *options, uint64_t default_end_bytes);

/* Selects the cases of a comma list, or the default ones where names is NULL. 0: one is
 * unknown, which was reported. */
uint32_t bench_choose_cases(const struct bench_case *cases, const char *names,
			    const struct bench_case **chosen);
#define BENCH_CASES_MAX 32u

#endif /* BENCH_OPTIONS_H */
