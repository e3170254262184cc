/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlap-bench: the common options and the table of test cases. */

#include <stdlib.h>
#include <string.h>

#include "tools/bench/cases/cases.h"
#include "tools/bench/daemon/daemon.h"
#include "tools/bench/launched.h"
#include "tools/bench/measure/measure.h"
#include "tools/bench/options.h"
#include "tools/bench/overlap/overlap.h"
#include "tools/bench/share/share.h"
#include "tools/bench/sweep/sweep.h"
#include "tools/common/refused.h"
#include "config.h"
#include "tools/common/streams.h"

const struct bench_case bench_cases[] = {
	{ "p2p", "every pair of ranks, one transfer at a time", 1, 2, 0, 1, bench_p2p },
	{ "p2p_2d", "the same with rows of 512 bytes at 4 x pitch", 0, 2, 0, 1, bench_p2p_2d },
	{ "mark", "a counter raised there and back, half of the round trip", 0, 2, 0, 1,
	  bench_mark },
	{ "doorbell", "kernel flag -> copy -> flag at the waiting kernel", 1, 2, 0, 0,
	  bench_doorbell },
	{ "all_gather", "one shard of every rank to every rank", 1, 2, 0, 1,
	  bench_all_gather },
	{ "all_to_all", "one block of every rank to each rank", 1, 2, 0, 1,
	  bench_all_to_all },
	{ "broadcast", "the bytes of rank 0 to all ranks", 0, 2, 0, 1, bench_broadcast },
	{ "busy_sm", "p2p while a kernel holds every SM", 0, 2, 1, 0, bench_busy_sm },
	{ "engine", "engine time per zero-byte chunk", 0, 1, 0, 0, bench_engine },
	{ "idle", "processor time of an idle context in 10 s", 0, 1, 0, 0, bench_idle },
	{ "plan", "commit and launch of 10^3 to 10^6 transfers", 0, 1, 0, 0, bench_plan },
	{ NULL, NULL, 0, 0, 0, 0, NULL },
};

enum key { KEY_TRIGGER = BENCH_KEY_OWN, KEY_PIECES, KEY_NAMED, KEY_VISIBLE,
	KEY_MARK_GROUP, KEY_TARGETS };

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
	{ "timeout", 'T', "SECONDS", 0, "End with an error after this time (default 300). JSON "
	  "then has the rows up to it, and \"complete\": false",
	  0 },
	{ "host", BENCH_KEY_HOST, NULL, 0, "Host memory even where there are GPUs", 1 },
	{ "one-process", BENCH_KEY_ONE_PROCESS, NULL, 0, "All ranks in one process, a thread "
	  "each (default where ranks share GPUs; else a process per rank)", 1 },
	{ "processes", BENCH_KEY_PROCESSES, NULL, 0, "A process per rank even where ranks "
	  "share a GPU, on which processes take turns", 1 },
	{ "trigger", KEY_TRIGGER, "polled|gated|follow|all", 0, "How launches begin: the "
	  "engine polls the mark, a lane waits for it, or the copies follow the caller's "
	  "stream (collectives on GPUs); default all", 1 },
	{ "nodes", BENCH_KEY_NODES, "N", 0, "The ranks, processes of this machine, act as so many "
	  "nodes: what goes between these goes over the network (UCX; CEOVERLAP_TRANSPORTS and "
	  "CEOVERLAP_NICS say how). Cases that only run within a node are left out. Over several "
	  "machines a launcher says instead which nodes there are", 1 },
	{ "named", KEY_NAMED, NULL, 0, "p2p between nodes: each launch names its source, whose "
	  "bytes go through slots", 1 },
	{ "visible", KEY_VISIBLE, NULL, 0, "Marks of all_gather, all_to_all and doorbell on "
	  "GPUs are visible to the host, so that a daemon can carry out the plans", 1 },
	{ "pieces", KEY_PIECES, "N", 0, "Pieces per shard or block (default 1)", 1 },
	{ "chunk", BENCH_KEY_CHUNK, "SIZE", 0, "Largest chunk (default: the library's)", 1 },
	{ "mark-group", KEY_MARK_GROUP, "SIZE", 0, "all_gather and all_to_all: how much may move "
	  "before the marks of it rise together (default: the library's)", 1 },
	{ "targets", KEY_TARGETS, "N", 0, "all_gather and all_to_all: targets that launches of "
	  "ours, and by hand, take turns with, 2 to 8 (default 2). A launch of ours waits until "
	  "all ranks have read what the last one to its target brought", 1 },
	{ "nccl", BENCH_KEY_NCCL, "PATH", 0, "libnccl.so.2 to compare with (default: "
	  "searched)", 1 },
	{ "no-nccl", BENCH_KEY_NO_NCCL, NULL, 0, "Leave NCCL out", 1 },
	{ "without-nccl", BENCH_KEY_NO_NCCL, NULL, OPTION_ALIAS, NULL, 1 },
	{ "trace", BENCH_KEY_TRACE, "FILE", 0, "Write what chunks did, for Perfetto or Chrome",
	  1 },
	{ "seed", BENCH_KEY_SEED, "N", 0, "Seed of the data (default: random, printed)", 1 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static void list_cases(void)
{
	uint32_t i;

	for (i = 0; bench_cases[i].name; i++)
		printf("%-12s %s%s\n", bench_cases[i].name, bench_cases[i].help,
		       bench_cases[i].needs_gpu ? " (GPUs only)" : "");
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
		argp_error(state, "%s: '%s' must be polled, gated, follow or all",
			   refused_option(state, text).text, text);
	return BENCH_POLLED | BENCH_GATED | BENCH_FOLLOW;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case 'l': list_cases(); exit(EXIT_SUCCESS);
	case KEY_TRIGGER: options->triggers = triggers(state, text); break;
	case KEY_NAMED: options->names_sources = 1; break;
	case KEY_VISIBLE: options->signal_flags = CEOV_SIGNAL_HOST_VISIBLE; break;
	case KEY_MARK_GROUP: options->mark_group_bytes = bench_parse_size(state, text); break;
	case KEY_TARGETS:
		options->n_targets = (uint32_t)bench_parse_number(state, text, 2,
								  BENCH_TARGETS_MAX);
		break;
	case KEY_PIECES:
		options->n_pieces = (uint32_t)bench_parse_number(state, text, 1, 64);
		break;
	case ARGP_KEY_ARG: argp_error(state, "unexpected '%s'", text); break;
	default: return bench_parse_common(key, text, state, options);
	}
	return 0;
}

/* argp prints this for --version. */
const char *argp_program_version = PACKAGE_STRING;

/* Whether it is a command that starts its own ranks, whoever started this process. */
static int starts_ranks(int argc, char **argv)
{
	return argc > 1 && (!strcmp(argv[1], "sweep") || !strcmp(argv[1], "measure") ||
			    !strcmp(argv[1], "daemon") || !strcmp(argv[1], "share"));
}

/* Such a command starts its own ranks, so each process of a launcher would measure the same
 * machine. */
static int refuse_command(const char *name)
{
	fprintf(stderr, "ceoverlap-bench: %s starts its own ranks: run it without a launcher and "
		"without CEOVERLAP_BOOTSTRAP\n", name);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse, NULL,
		"Moves data between ranks with ceoverlap, checks it, and times it beside raw "
		"driver calls and NCCL in the same run. The first argument \"overlap\" "
		"measures operators instead, \"measure\" the machine's links, \"sweep\" what "
		"plans reach over them, \"daemon\" launches at a ceoverlapd, \"share\" what "
		"processes get of it: see ceoverlap-bench overlap --help, and likewise of the "
		"others.\v"
		"Started once for each rank by mpirun, srun, torchrun or ceoverlap-run, each "
		"process is one rank, on any number of machines, and rank 0 reports. "
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
		.n_targets = 2,
		.timeout_s = 300,
	};
	const struct bench_case *chosen[BENCH_CASES_MAX];
	uint32_t n;

	streams_begin();
	argp_err_exit_status = 2;
	if (starts_ranks(argc, argv) && bench_launched_is())
		return refuse_command(argv[1]);
	if (argc > 1 && !strcmp(argv[1], "overlap"))
		return bench_overlap_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "sweep"))
		return bench_sweep_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "measure"))
		return bench_measure_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "daemon"))
		return bench_daemon_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "share"))
		return bench_share_main(argc - 1, argv + 1);
	if (bench_options_begin(&options, argc - 1, argv + 1))
		return EXIT_FAILURE;
	if (argp_parse(&argp, argc, argv, 0, NULL, &options) ||
	    bench_options_finish(&options, UINT64_C(16) << 20))
		return 2;
	n = bench_choose_cases(bench_cases, options.tests, chosen);
	return n ? bench_world_run(&options, chosen, n) : 2;
}
