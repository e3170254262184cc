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

static const struct bench_case cases[] = {
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
	{ "channel", "all_gather, reduce_scatter, all_reduce and all_to_all of fp32 through a "
	  "channel; on GPUs beside operators and NCCL", 0, 2, 0, 1, bench_channel },
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
	  "doorbell, all_gather, all_to_all). A sample of doorbell is 200 rounds", 0 },
	{ "list", 'l', NULL, 0, "List the test cases", 0 },
	{ "trigger", KEY_TRIGGER, "polled|gated|follow|all", 0, "How launches begin: the "
	  "engine polls the mark, a lane waits for it, or the copies follow the caller's "
	  "stream (collectives on GPUs); default all", 0 },
	{ "named", KEY_NAMED, NULL, 0, "p2p between nodes: each launch names its source, whose "
	  "bytes go through slots", 0 },
	{ "visible", KEY_VISIBLE, NULL, 0, "Marks of all_gather, all_to_all and doorbell on "
	  "GPUs are visible to the host, so that a daemon can carry out the plans", 0 },
	{ "pieces", KEY_PIECES, "N", 0, "Pieces per shard or block (default 1)", 0 },
	{ "mark-group", KEY_MARK_GROUP, "SIZE", 0, "all_gather and all_to_all: how much may move "
	  "before the marks of it rise together (default: the library's)", 0 },
	{ "targets", KEY_TARGETS, "N", 0, "all_gather and all_to_all: targets that launches of "
	  "ours, and by hand, take turns with, 2 to 8 (default 2). A launch of ours waits until "
	  "all ranks have read what the last one to its target brought", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static void list_cases(void)
{
	uint32_t i;

	for (i = 0; cases[i].name; i++)
		printf("%-12s %s%s\n", cases[i].name, cases[i].help,
		       cases[i].needs_gpu ? " (GPUs only)" : "");
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
	case 't': options->tests = text; break;
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
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* argp prints this for --version. */
const char *argp_program_version = PACKAGE_STRING;

static const struct {
	const char *name;
	int       (*run)(int argc, char **argv);
	int         starts_ranks;       /* its own, whoever started this process */
} commands[] = {
	{ "overlap", bench_overlap_main, 0 },
	{ "sweep", bench_sweep_main, 1 },
	{ "measure", bench_measure_main, 1 },
	{ "daemon", bench_daemon_main, 1 },
	{ "share", bench_share_main, 1 },
};

/* Runs a command other than the cases. One that starts its own ranks is refused to a launcher, each
 * of whose processes would measure the same machine. */
static int run_command(uint32_t number, int argc, char **argv)
{
	if (!commands[number].starts_ranks || !bench_launched_is())
		return commands[number].run(argc, argv);
	fprintf(stderr, "ceoverlap-bench: %s starts its own ranks: run it without a launcher and "
		"without CEOVERLAP_BOOTSTRAP\n", argv[0]);
	return 2;
}

static const struct bench_command command = {
	"ceoverlap-bench", options_table, parse,
	"Moves data between ranks with ceoverlap, checks it, and times it beside raw "
	"driver calls and NCCL in the same run. The first argument \"overlap\" "
	"measures operators instead, \"measure\" the machine's links, \"sweep\" what "
	"plans reach over them, \"daemon\" launches at a ceoverlapd, \"share\" what "
	"processes get of it: see ceoverlap-bench overlap --help, and likewise of the "
	"others.\vDefaults: -b 1M -e 16M (or -b; on host memory 4M) -f 4 -n 50 -w 5 -T 300.\n\n"
	BENCH_LAUNCHERS
	BENCH_EXIT_STATUS,
	bench_rank_options
};

int main(int argc, char **argv)
{
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
	uint32_t n, i;
	int r;

	streams_begin();
	argp_err_exit_status = 2;
	for (i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name))
			return run_command(i, argc - 1, argv + 1);
	r = bench_parse(&command, &options, &options, argc, argv);
	if (r)
		return r;
	if (bench_options_finish(&options, UINT64_C(16) << 20))
		return 2;
	if (!options.has_sizes)         /* larger ones would take minutes on two processors */
		options.host_end_bytes = UINT64_C(4) << 20;
	n = bench_choose_cases(cases, options.tests, chosen);
	return n ? bench_world_run(&options, chosen, n) : 2;
}
