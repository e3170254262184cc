/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/share/share.h"
#include "tools/common/refused.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tools/bench/children.h"
#include "tools/bench/options.h"
#include "tools/common/output.h"

#define SECONDS_MIN 0.01
#define SECONDS_MAX 3600.0
#define GPU_MAX     63u

enum key {
	KEY_SENDERS = BENCH_KEY_OWN, KEY_FROM, KEY_TO, KEY_IN_FLIGHT, KEY_SECONDS, KEY_URGENT,
	KEY_EVERY, KEY_PROGRAM, KEY_SOCKET, KEY_EXPLAIN
};

static const struct argp_option options_table[] = {
	{ "senders", KEY_SENDERS, "N", 0, "Processes that send large blocks (default 2)", 0 },
	{ "from", KEY_FROM, "PLACE", 0, "Where blocks come from: host or gpu:N (default host)", 0 },
	{ "to", KEY_TO, "PLACE", 0, "Where they go (default host)", 0 },
	{ "minbytes", 'b', "SIZE", 0, "Of a block (default 64M; suffix K, M, G)", 0 },
	{ "in-flight", KEY_IN_FLIGHT, "N", 0, "Launches of a sender at once (default 4)", 0 },
	{ "seconds", KEY_SECONDS, "S", 0, "The time that counts, of each phase (default 2)", 0 },
	{ "urgent", KEY_URGENT, "SIZE", OPTION_ARG_OPTIONAL, "One more process, which sends an "
	  "urgent block of this size again and again (default 2M)", 0 },
	{ "every", KEY_EVERY, "US", 0, "From one urgent launch to the next, in microseconds "
	  "(default 1000)", 0 },
	{ "explain", KEY_EXPLAIN, NULL, 0, "Print how the first sender's plan is carried out", 0 },
	{ "daemon", KEY_PROGRAM, "PATH", 0, "The ceoverlapd to start (default: the one beside "
	  "this program, else in PATH)", 0 },
	{ "socket", KEY_SOCKET, "PATH", 0, "Use the daemon that listens there", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static struct ceov_place parse_place(struct argp_state *state, const char *text)
{
	struct ceov_place place = { CEOV_PLACE_HOST, 0 };

	if (!strncmp(text, "gpu:", 4)) {
		place.kind = CEOV_PLACE_GPU;
		place.index = (uint32_t)bench_parse_number(state, text + 4, 0, GPU_MAX);
	} else if (strcmp(text, "host")) {
		argp_error(state, "%s: '%s' must be host or gpu:N",
			   refused_option(state, text).text, text);
	}
	return place;
}

static double parse_seconds(struct argp_state *state, const char *text)
{
	char *end = NULL;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= SECONDS_MIN && seconds <= SECONDS_MAX))
		argp_error(state, "%s: '%s' must be a number from %g to %g",
			   refused_option(state, text).text, text, SECONDS_MIN,
			   SECONDS_MAX);
	return seconds;
}

/* The times of all urgent launches of a phase are kept. */
static void check_times(struct argp_state *state, const struct bench_share *share)
{
	if (share->urgent_bytes &&
	    share->seconds * 1e6 / (double)share->every_us > BENCH_SHARE_TIMES_MAX)
		argp_error(state, "more than %u urgent launches a phase: less --seconds, or more "
			   "--every", BENCH_SHARE_TIMES_MAX);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct bench_share *share = state->input;

	switch (key) {
	case KEY_SENDERS:
		share->n_senders = (uint32_t)bench_parse_number(state, text, 1,
								BENCH_SHARE_SENDERS_MAX);
		break;
	case KEY_FROM: share->from = parse_place(state, text); break;
	case KEY_TO: share->to = parse_place(state, text); break;
	case 'b': share->n_bytes = bench_parse_size(state, text); break;
	case KEY_IN_FLIGHT:
		share->n_in_flight = (uint32_t)bench_parse_number(state, text, 1,
								  BENCH_SHARE_FLIGHT_MAX);
		break;
	case KEY_SECONDS: share->seconds = parse_seconds(state, text); break;
	case KEY_URGENT:
		share->urgent_bytes = text ? bench_parse_size(state, text) : UINT64_C(2) << 20;
		break;
	case KEY_EVERY: share->every_us = bench_parse_number(state, text, 10, 1000000); break;
	case KEY_PROGRAM: share->server.program = text; break;
	case KEY_SOCKET: share->server.socket = text; break;
	case KEY_EXPLAIN: share->explains = 1; break;
	case ARGP_KEY_END: check_times(state, share); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* --- processes ------------------------------------------------------------------- */

/* Returns EXIT_SUCCESS if all processes ended well. */
static int run_processes(struct bench_share *share, struct bench_children *children)
{
	uint32_t i, n = bench_share_n_processes(share);
	int status = EXIT_SUCCESS;

	for (i = 0; status == EXIT_SUCCESS && i < n; i++)
		if (bench_children_start(children, bench_share_process, share))
			status = EXIT_FAILURE;
	if (status != EXIT_SUCCESS)
		atomic_store(&share->run->failed, CEOV_ERR_SYSTEM);     /* seq_cst: not on a fast
									 * path */
	if (bench_children_wait(children, share->deadline_ns, &share->run->failed))
		status = EXIT_FAILURE;
	return status;
}

static int run_with_daemon(struct bench_share *share, struct bench_children *children)
{
	double ignored_s;
	int status;

	if (bench_server_start(&share->server, children->folder))
		return EXIT_FAILURE;
	status = run_processes(share, children);
	return bench_server_end(&share->server, &ignored_s) ? EXIT_FAILURE : status;
}

/* The processes end before those of the next run begin, so neither run feels the other. */
static int run_once(struct bench_share *share, int has_daemon)
{
	struct bench_children children;
	int status;

	if (bench_children_begin(&children, "process"))
		return EXIT_FAILURE;
	share->has_daemon = has_daemon;
	share->run = share->runs[has_daemon];
	share->deadline_ns = cei_deadline(share->options.timeout_s * UINT64_C(1000000000));
	status = has_daemon ? run_with_daemon(share, &children)
		: run_processes(share, &children);
	bench_children_end(&children);
	return status;
}

static uint64_t count_wrong(const struct bench_share *share)
{
	const struct bench_share_found (*found)[BENCH_SHARE_WHENS];
	uint32_t with, i, when;
	uint64_t n = 0;

	for (with = 0; with < 2; with++) {
		found = share->runs[with]->found;
		for (i = 0; i < bench_share_n_processes(share); i++)
			for (when = 0; when < BENCH_SHARE_WHENS; when++)
				n += found[i][when].n_wrong;
	}
	return n;
}

static int run_both(struct bench_share *share)
{
	uint64_t n_wrong;
	int r;

	if (run_once(share, 0) || run_once(share, 1))
		return EXIT_FAILURE;
	r = bench_share_report(share);
	n_wrong = count_wrong(share);
	if (n_wrong)
		fprintf(stderr, "ceoverlap-bench: %llu words of the last blocks were wrong\n",
			(unsigned long long)n_wrong);
	return r || n_wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* --- what is needed before ------------------------------------------------------- */

static int check_place(const struct ceov_place *place, uint32_t n_gpus, const char *machine)
{
	if (place->kind != CEOV_PLACE_GPU || place->index < n_gpus)
		return 0;
	fprintf(stderr, "ceoverlap-bench: there is no GPU %u: %s\n", place->index, machine);
	return -1;
}

/* A child process looks for the GPUs, since this one is going to fork. */
static int check_places(struct bench_share *share)
{
	uint32_t n_gpus = 0;

	snprintf(share->machine, sizeof(share->machine), "host memory");
	if (share->from.kind == CEOV_PLACE_GPU || share->to.kind == CEOV_PLACE_GPU)
		n_gpus = bench_count_gpus(share->machine, sizeof(share->machine));
	return check_place(&share->from, n_gpus, share->machine) ||
		check_place(&share->to, n_gpus, share->machine) ? -1 : 0;
}

static int run(struct bench_share *share)
{
	size_t n_bytes = 2 * sizeof(*share->run);
	int status;

	if (output_check(share->options.json_path) || check_places(share))
		return EXIT_FAILURE;
	share->runs[0] = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			      -1, 0);
	if (share->runs[0] == MAP_FAILED) {
		fprintf(stderr, "ceoverlap-bench: shared memory: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	share->runs[1] = share->runs[0] + 1;
	printf("seed %llu\n", (unsigned long long)share->options.seed);
	status = run_both(share);
	munmap(share->runs[0], n_bytes);
	return status;
}

int bench_share_main(int argc, char **argv)
{
	static const int common[] = { 'h', 'J', 'T', BENCH_KEY_CHUNK, BENCH_KEY_SEED, 0 };
	static const struct bench_command command = {
		"ceoverlap-bench share", options_table, parse,
		"Has a few processes send large blocks at once, without a daemon and through a "
		"ceoverlapd, and measures what each gets alone and together, and how long urgent "
		"blocks of another process take meanwhile.\v"
		"-T is of the run without a daemon and of that with one each (default 300)."
		BENCH_EXIT_STATUS,
		common
	};
	struct bench_share share = {
		.options = { .timeout_s = 300, .without_nccl = 1 },
		.n_senders = 2, .n_bytes = UINT64_C(64) << 20, .n_in_flight = 4, .seconds = 2,
		.every_us = 1000,
	};
	int r;

	r = bench_parse(&command, &share.options, &share, argc, argv);
	if (r)
		return r;
	/* Two ranks on one GPU would fill the 8 hardware queues that a process has by default, and
	 * copies within the GPU would go through the host. The daemon gets as many. */
	(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	return run(&share);
}
