/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The command line of ceoverlap-bench sweep. */

#include <stdlib.h>
#include <string.h>

#include "tools/bench/options.h"
#include "tools/bench/sweep/sweep.h"

enum key {
	KEY_HTML = BENCH_KEY_OWN, KEY_CSV, KEY_CHUNKS, KEY_IN_FLIGHT, KEY_QUICK, KEY_SEEDS,
	KEY_RANDOM_MAX, KEY_URGENT_MS,
};

static const struct argp_option options_table[] = {
	{ "test", 't', "NAMES", 0, "A comma list of pairs, host, all_gather, all_to_all, "
	  "random, urgent, load (default: the first four)", 0 },
	{ "chunks", KEY_CHUNKS, "SIZE,...", 0, "Largest chunks; 0 is the library's (default "
	  "0)", 0 },
	{ "in-flight", KEY_IN_FLIGHT, "N,...", 0, "Launches at once, up to 16 (default 1,4)",
	  0 },
	{ "html", KEY_HTML, "FILE", 0, "Write a report with pictures: one file, nothing else "
	  "needed", 1 },
	{ "csv", KEY_CSV, "FILE", 0, "Write the rows as CSV", 1 },
	{ "quick", KEY_QUICK, NULL, 0, "Two sizes, three samples, 5 random plans", 2 },
	{ "seeds", KEY_SEEDS, "N", 0, "Random plans (default 100)", 2 },
	{ "random-max", KEY_RANDOM_MAX, "SIZE", 0, "Largest random transfer; the smallest is "
	  "a 64th of it (default 64M; host memory: 256K)", 2 },
	{ "urgent-ms", KEY_URGENT_MS, "N", 0, "How long each part of urgent takes (default "
	  "1000)", 2 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

struct both {
	struct bench_options options;
	struct sweep_options own;
};

static uint64_t parse_one(struct argp_state *state, char *text, int is_size)
{
	if (!is_size)
		return bench_parse_number(state, text, 1, SWEEP_FLIGHT_MAX);
	return strcmp(text, "0") ? bench_parse_size(state, text) : 0;
}

static void parse_list(struct argp_state *state, char *text, int is_size,
		       struct sweep_list *list)
{
	char *rest = text, *one;

	list->n = 0;
	while ((one = strsep(&rest, ","))) {
		if (list->n == SWEEP_LIST_MAX)
			argp_error(state, "a list of more than %u", SWEEP_LIST_MAX);
		list->values[list->n++] = parse_one(state, one, is_size);
	}
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct both *both = state->input;
	struct sweep_options *own = &both->own;

	switch (key) {
	case KEY_HTML: own->html_path = text; break;
	case KEY_CSV: own->csv_path = text; break;
	case KEY_CHUNKS: parse_list(state, text, 1, &own->chunks); break;
	case KEY_IN_FLIGHT: parse_list(state, text, 0, &own->in_flight); break;
	case KEY_QUICK: own->is_quick = 1; break;
	case KEY_SEEDS:
		own->n_seeds = (uint32_t)bench_parse_number(state, text, 1, SWEEP_SEEDS_MAX);
		break;
	case KEY_RANDOM_MAX: own->random_bytes = bench_parse_size(state, text); break;
	case KEY_URGENT_MS:
		own->urgent_ms = (uint32_t)bench_parse_number(state, text, 10, 60000);
		break;
	case 't':
		if (!*text || bench_sweep_unknown(text))
			argp_error(state, "no test '%s'; there are pairs, host, all_gather, "
				   "all_to_all, random, urgent and load", text);
		both->options.tests = text;
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Sets the defaults of options that were not given; some differ between host ranks and GPU
 * ranks. */
static void fill_in(struct both *both, int is_host)
{
	struct bench_options *options = &both->options;
	struct sweep_options *own = &both->own;
	int is_quick = own->is_quick;

	if (!options->begin_bytes)
		options->begin_bytes = UINT64_C(1) << (is_host ? 14 : is_quick ? 20 : 16);
	if (!options->end_bytes)
		options->end_bytes = UINT64_C(1) << (is_host ? 20 : is_quick ? 26 : 28);
	if (options->end_bytes < options->begin_bytes)
		options->end_bytes = options->begin_bytes;
	if (!options->factor)
		options->factor = is_quick ? 64 : 4;
	if (!options->n_samples)
		options->n_samples = is_quick ? 3 : 10;
	if (!own->n_seeds)
		own->n_seeds = is_quick ? 5 : 100;
	if (!own->random_bytes)
		own->random_bytes = UINT64_C(1) << (is_host ? 18 : 26);
}

int bench_sweep_main(int argc, char **argv)
{
	static const int common[] = { 'h', 'g', 'b', 'e', 'f', 'n', 'w', 'c', 'J', 'T',
				      BENCH_KEY_HOST, BENCH_KEY_TRACE, BENCH_KEY_SEED, 0 };
	static const struct bench_command command = {
		"ceoverlap-bench sweep", options_table, parse,
		"Measures what a machine's links carry: every pair of ranks, the host, "
		"collectives and random plans, over sizes, routes, chunk sizes and launches "
		"at once, beside the driver's own copies in the same run.\v"
		"Sizes are of a transfer, shard or block. Defaults: -b 64K -e 256M (host memory: "
		"-b 16K -e 1M) -f 4 -n 10 -w 2 -T 1800." BENCH_EXIT_STATUS,
		common
	};
	struct both both = {
		.options = { .n_warmup = 2, .check = 1, .timeout_s = 1800,
			     .one_process = 1 },
		.own = { .chunks = { 1, { 0 } }, .in_flight = { 2, { 1, 4 } },
			 .urgent_ms = 1000 },
	};
	char machine[256];
	int is_host, r;

	r = bench_parse(&command, &both.options, &both, argc, argv);
	if (r)
		return r;
	if (both.options.end_bytes && both.options.begin_bytes > both.options.end_bytes) {
		fprintf(stderr, "ceoverlap-bench: -e is less than -b\n");
		return 2;
	}
	is_host = both.options.force_host || !bench_count_gpus(machine, sizeof(machine));
	fill_in(&both, is_host);
	return bench_sweep_run(&both.options, &both.own);
}
