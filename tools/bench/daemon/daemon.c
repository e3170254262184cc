/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/daemon/daemon.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/children.h"
#include "tools/bench/options.h"

#define CLIENTS_MAX 256u                /* BENCH_RANKS_MAX, which bounds the children */

enum key { KEY_CLIENTS = BENCH_KEY_OWN, KEY_PROGRAM, KEY_SOCKET };

static const struct argp_option options_table[] = {
	{ "clients", KEY_CLIENTS, "N", 0, "Processes (default 64)", 0 },
	{ "iters", 'n', "N", 0, "Launches of all clients together (default 1000000)", 0 },
	{ "minbytes", 'b', "SIZE", 0, "What a launch moves (default 64)", 0 },
	{ "check", 'c', "0|1", 0, "Compare the bytes of each launch (default 1)", 0 },
	{ "timeout", 'T', "SECONDS", 0, "End with an error after this time (default 300)", 0 },
	{ "daemon", KEY_PROGRAM, "PATH", 0, "The ceoverlapd to start (default: the one beside "
	  "this program, else in PATH)", 0 },
	{ "socket", KEY_SOCKET, "PATH", 0, "Use the daemon that listens there", 0 },
	{ "seed", BENCH_KEY_SEED, "N", 0, "Seed of the data (default: random, printed)", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct bench_daemon *bench = state->input;

	switch (key) {
	case KEY_CLIENTS:
		bench->n_clients = (uint32_t)bench_parse_number(state, text, 1, CLIENTS_MAX);
		break;
	case 'n': bench->n_launches = bench_parse_number(state, text, 1, UINT64_MAX >> 1); break;
	case 'b': bench->n_bytes = bench_parse_size(state, text); break;
	case KEY_PROGRAM: bench->server.program = text; break;
	case KEY_SOCKET: bench->server.socket = text; break;
	case 'c': case 'T': case BENCH_KEY_SEED:
		return bench_parse_common(key, text, state, &bench->options);
	case ARGP_KEY_ARG: argp_error(state, "unexpected '%s'", text); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* --- what was found ------------------------------------------------------------ */

/* The least time, in us, below which that part of all round trips are. */
static double quantile(const uint64_t *buckets, double part)
{
	uint64_t sum = 0, all = 0;
	uint32_t i, log;

	for (i = 0; i < BENCH_DAEMON_BUCKETS; i++)
		all += buckets[i];
	for (i = 0; i < BENCH_DAEMON_BUCKETS - 1; i++) {
		sum += buckets[i];
		if ((double)sum >= part * (double)all)
			break;
	}
	log = (i + 1) / 4;
	return (double)(UINT64_C(1) << log) * (1.0 + ((i + 1) % 4) / 4.0) / 1e3;
}

/* With a few clients, pages that the daemon's allocator takes ahead count more than the clients. */
static void report_memory(const struct bench_daemon *bench)
{
	const struct bench_daemon_shared *shared = bench->shared;
	const struct bench_server_memory *empty = &shared->empty;
	double n = bench->n_clients, own = (double)empty->own, files = (double)empty->files;
	uint64_t sum_kib = 0;
	uint32_t i;

	for (i = 0; i < bench->n_clients; i++)
		sum_kib += shared->clients[i].context_kib;
	printf("memory: the daemon's own %llu KiB without clients; for each client %.0f KiB of its "
	       "own and %.0f KiB of files, rings among them, and after the launches %.0f and %.0f; "
	       "in a client's process its context took %.0f KiB\n",
	       (unsigned long long)empty->own, ((double)shared->ready.own - own) / n,
	       ((double)shared->ready.files - files) / n,
	       ((double)shared->worked.own - own) / n,
	       ((double)shared->worked.files - files) / n, (double)sum_kib / n);
}

static int report(const struct bench_daemon *bench, double daemon_cpu_s)
{
	const struct bench_daemon_shared *shared = bench->shared;
	uint64_t buckets[BENCH_DAEMON_BUCKETS] = { 0 };
	uint64_t n = 0, n_wrong = 0, last_ns = 0, first_ns = UINT64_MAX, end_ns;
	uint64_t begin_ns = atomic_load(&shared->begin_ns);
	uint32_t i, k;
	double s;

	for (i = 0; i < bench->n_clients; i++) {
		n += shared->clients[i].n_launches;
		n_wrong += shared->clients[i].n_wrong;
		end_ns = shared->clients[i].end_ns;
		last_ns = end_ns > last_ns ? end_ns : last_ns;
		first_ns = end_ns < first_ns ? end_ns : first_ns;
		for (k = 0; k < BENCH_DAEMON_BUCKETS; k++)
			buckets[k] += shared->clients[i].buckets[k];
	}
	s = (double)(last_ns - begin_ns) / 1e9;
	printf("%u clients, %llu launches of %llu bytes in %.2f s: %.0f launches/s; %llu wrong%s\n",
	       bench->n_clients, (unsigned long long)n, (unsigned long long)bench->n_bytes, s,
	       (double)n / s, (unsigned long long)n_wrong,
	       bench->options.check ? "" : " (not checked)");
	printf("round trip: median %.1f us, 99 %% below %.1f us, 99.9 %% below %.1f us; the first "
	       "client was done after %.2f s\n", quantile(buckets, 0.5), quantile(buckets, 0.99),
	       quantile(buckets, 0.999), (double)(first_ns - begin_ns) / 1e9);
	if (!bench->server.socket) {
		printf("the daemon used a processor for %.2f s\n", daemon_cpu_s);
		report_memory(bench);
	}
	return n_wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* --- processes ------------------------------------------------------------------- */

static int start_clients(struct bench_daemon *bench, struct bench_children *children)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < bench->n_clients; i++)
		r = bench_children_start(children, bench_daemon_client, bench);
	if (r)
		atomic_store(&bench->shared->failed, CEOV_ERR_SYSTEM);
	return r;
}

static int run_all(struct bench_daemon *bench, struct bench_children *children)
{
	double cpu_s;
	int status;

	if (bench_server_start(&bench->server, children->folder))
		return EXIT_FAILURE;
	bench->shared->empty = bench_server_look(bench->server.pid);
	status = start_clients(bench, children) ? EXIT_FAILURE : EXIT_SUCCESS;
	if (bench_children_wait(children, cei_deadline(bench->options.timeout_s *
						       UINT64_C(1000000000)),
				&bench->shared->failed))
		status = EXIT_FAILURE;
	if (bench_server_end(&bench->server, &cpu_s))
		status = EXIT_FAILURE;
	return status == EXIT_SUCCESS ? report(bench, cpu_s) : status;
}

static int run(struct bench_daemon *bench)
{
	size_t n_bytes = sizeof(*bench->shared) +
		bench->n_clients * sizeof(bench->shared->clients[0]);
	struct bench_children children;
	int status;

	bench->shared = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			     -1, 0);
	if (bench->shared == MAP_FAILED) {
		fprintf(stderr, "ceoverlap-bench: no memory\n");
		return EXIT_FAILURE;
	}
	if (bench_children_begin(&children, "client"))
		return EXIT_FAILURE;
	printf("seed %llu\n", (unsigned long long)bench->options.seed);
	status = run_all(bench, &children);
	bench_children_end(&children);
	munmap(bench->shared, n_bytes);
	return status;
}

int bench_daemon_main(int argc, char **argv)
{
	static const struct argp argp = { options_table, parse, NULL,
		"Has many processes launch at one ceoverlapd, each with one launch in flight, and "
		"counts launches per second.\v"
		"Exit status: 0 when all ran and all data was right; 1 on wrong data or a "
		"failure; 2 on unusable arguments.",
		NULL, NULL, NULL };
	struct bench_daemon bench = {
		.options = { .check = 1, .timeout_s = 300 },
		.n_clients = 64, .n_launches = 1000000, .n_bytes = 64,
	};
	char name[] = "ceoverlap-bench daemon";

	if (bench_options_begin(&bench.options, argc, argv))
		return EXIT_FAILURE;
	argv[0] = name;                 /* argp prints this name in its messages */
	if (argp_parse(&argp, argc, argv, 0, NULL, &bench))
		return 2;
	return run(&bench);
}
