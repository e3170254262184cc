/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

/* Command lines, and the options that several of them share. Functions with a `state` parameter end
 * the program with a message if the text is invalid. */

#include <argp.h>
#include <stdint.h>

#include "tools/bench/bench.h"

uint64_t bench_parse_number(struct argp_state *state, const char *text, uint64_t least,
			    uint64_t most);
uint64_t bench_parse_size(struct argp_state *state, const char *text);

enum bench_key {
	BENCH_KEY_HOST = 0x100, BENCH_KEY_ONE_PROCESS, BENCH_KEY_PROCESSES,
	BENCH_KEY_CHUNK, BENCH_KEY_NCCL,
	BENCH_KEY_NO_NCCL, BENCH_KEY_SEED, BENCH_KEY_TRACE, BENCH_KEY_NODES, BENCH_KEY_BRIEF,
	BENCH_KEY_OWN
};

#define BENCH_EXIT_STATUS "\n\nExit status: 0 when all ran and all data was right; 1 on wrong " \
	"data, a failure, a timeout, or when nothing ran; 2 on unusable arguments."

struct bench_command {
	const char               *name;         /* as messages have it */
	const struct argp_option *own;
	argp_parser_t             parse;        /* of the own options, with the caller's input */
	const char               *doc;          /* with the defaults of the common options */
	const int                *common;       /* keys of the common options that it takes; 0 ends
						 * the list */
};

/* What a command with ranks of its own or a launcher's takes, and says. */
extern const int bench_rank_options[];
#define BENCH_LAUNCHERS "Started once for each rank by mpirun, srun, torchrun or ceoverlap-run, " \
	"each process is one rank, on any number of machines, and rank 0 reports."

/* Parses a command line, after it has set the random seed, and keeps it as the command that was
 * typed. Returns 0, or the exit status. */
int  bench_parse(const struct bench_command *command, struct bench_options *options, void *input,
		 int argc, char **argv);

/* Fills in the sizes after parsing. Returns -1 if they contradict each other. */
int  bench_options_finish(struct bench_options *options, uint64_t default_end_bytes);

/* Looks up the names of a comma list in cases; names NULL: takes the default cases. Returns their
 * number, or 0 if a name is unknown, which was reported. */
uint32_t bench_choose_cases(const struct bench_case *cases, const char *names,
			    const struct bench_case **chosen);
#define BENCH_CASES_MAX 32u

#endif /* BENCH_OPTIONS_H */
