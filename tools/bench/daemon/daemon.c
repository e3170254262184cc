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
#include "tools/common/cells.h"
#include "tools/common/output.h"

#define SCHEMA_VERSION 1
#define CLIENTS_MAX 256u                /* BENCH_RANKS_MAX, which bounds the children */

enum key { KEY_CLIENTS = BENCH_KEY_OWN, KEY_PROGRAM, KEY_SOCKET };

static const struct argp_option options_table[] = {
	{ "clients", KEY_CLIENTS, "N", 0, "Processes (default 64)", 0 },
	{ "iters", 'n', "N", 0, "Launches of all clients together (default 1000000)", 0 },
	{ "minbytes", 'b', "SIZE", 0, "What a launch moves (default 64)", 0 },
	{ "daemon", KEY_PROGRAM, "PATH", 0, "The ceoverlapd to start (default: the one beside "
	  "this program, else in PATH)", 0 },
	{ "socket", KEY_SOCKET, "PATH", 0, "Use the daemon that listens there", 0 },
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

/* Prints how much memory the daemon has, of its own and of files, rings among them. */
static struct json_object *memory_row(const char *when, double own_kib, double files_kib,
				      int is_first)
{
	struct cells cells;

	cells_begin(&cells);
	cells_text(&cells, "when", "the daemon's memory:-40", when);
	cells_number(&cells, "own_kib", "own, KiB:10.0", own_kib);
	cells_number(&cells, "files_kib", "files, KiB:10.0", files_kib);
	cells_print(stdout, &cells, is_first);
	return cells_take(&cells);
}

/* With a few clients, pages that the daemon's allocator takes ahead count more than the clients. */
static struct json_object *report_memory(const struct bench_daemon *bench)
{
	const struct bench_daemon_shared *shared = bench->shared;
	double own = (double)shared->empty.own, files = (double)shared->empty.files;
	double n = bench->n_clients;
	struct json_object *list = json_object_new_array();

	json_object_array_add(list, memory_row("without clients", own, files, 1));
	json_object_array_add(list, memory_row("for each client",
					       ((double)shared->ready.own - own) / n,
					       ((double)shared->ready.files - files) / n, 0));
	json_object_array_add(list, memory_row("for each client, after the launches",
					       ((double)shared->worked.own - own) / n,
					       ((double)shared->worked.files - files) / n, 0));
	return list;
}

struct found {                          /* by all clients */
	uint64_t n, n_wrong, first_ns, last_ns, context_kib;
	uint64_t buckets[BENCH_DAEMON_BUCKETS];
};

static struct found add_up(const struct bench_daemon *bench)
{
	struct found found = { .first_ns = UINT64_MAX };
	const struct bench_daemon_client *client;
	uint32_t i, k;

	for (i = 0; i < bench->n_clients; i++) {
		client = &bench->shared->clients[i];
		found.n += client->n_launches;
		found.n_wrong += client->n_wrong;
		found.context_kib += client->context_kib;
		if (client->end_ns > found.last_ns)
			found.last_ns = client->end_ns;
		if (client->end_ns < found.first_ns)
			found.first_ns = client->end_ns;
		for (k = 0; k < BENCH_DAEMON_BUCKETS; k++)
			found.buckets[k] += client->buckets[k];
	}
	return found;
}

static int report(const struct bench_daemon *bench, double daemon_cpu_s)
{
	struct found found = add_up(bench);
	uint64_t begin_ns = atomic_load(&bench->shared->begin_ns);
	double s = (double)(found.last_ns - begin_ns) / 1e9;
	struct cells report;

	(void)bench_report_begin(&report, &bench->options, "host memory", SCHEMA_VERSION);
	cells_integer(&report, "clients", "clients:7", bench->n_clients);
	cells_integer(&report, "launches", "launches:10", found.n);
	cells_integer(&report, "bytes", "bytes:10", bench->n_bytes);
	cells_number(&report, "seconds", "seconds:8.2", s);
	cells_number(&report, "launches_per_s", "launches/s:10.0", (double)found.n / s);
	cells_number(&report, "us_median", "median us:9.1", quantile(found.buckets, 0.5));
	cells_number(&report, "us_p99", "99 % us:8.1", quantile(found.buckets, 0.99));
	cells_number(&report, "us_p999", "99.9 % us:9.1", quantile(found.buckets, 0.999));
	cells_number(&report, "first_done_s", "first done, s:13.2",
			   (double)(found.first_ns - begin_ns) / 1e9);
	cells_integer(&report, "wrong", bench->options.check ? "wrong:6" : NULL,
			    found.n_wrong);
	cells_number(&report, "context_kib", "KiB of a client's context:.0",
			   (double)found.context_kib / bench->n_clients);
	if (!bench->server.socket)
		cells_number(&report, "daemon_cpu_s", "processor time of the daemon, s:.2",
				   daemon_cpu_s);
	cells_print(stdout, &report, 1);
	if (!bench->server.socket)
		cells_add(&report, "memory", report_memory(bench));
	return bench_report_end(&report, &bench->options) || found.n_wrong ? EXIT_FAILURE
		: EXIT_SUCCESS;
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

	if (output_check(bench->options.json_path))
		return EXIT_FAILURE;
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
	static const int common[] = { 'h', 'c', 'J', 'T', BENCH_KEY_SEED, 0 };
	static const struct bench_command command = {
		"ceoverlap-bench daemon", options_table, parse,
		"Has many processes launch at one ceoverlapd, each with one launch in flight, and "
		"counts launches per second.\vDefault: -T 300." BENCH_EXIT_STATUS,
		common
	};
	struct bench_daemon bench = {
		.options = { .check = 1, .timeout_s = 300 },
		.n_clients = 64, .n_launches = 1000000, .n_bytes = 64,
	};
	int r;

	r = bench_parse(&command, &bench.options, &bench, argc, argv);
	if (r)
		return r;
	return run(&bench);
}
