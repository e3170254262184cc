/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/daemon/daemon.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define WAIT_NS UINT64_C(60000000000)

struct client {
	const struct bench_daemon  *bench;
	uint32_t                    number;
	struct bench_daemon_client *found;
	ceov_context               *context;
	ceov_buffer                *source, *target;
	ceov_plan                  *plan;
	uint64_t                   *from, *to;
};

static int fail(const struct client *client, const char *what, int result)
{
	struct ceov_failure failure = { .text = "" };

	if (client->context)
		(void)ceov_last_failure(client->context, &failure);
	fprintf(stderr, "ceoverlap-bench: client %u: %s: %s %s\n", client->number, what,
		ceov_strerror(result), failure.text);
	return EXIT_FAILURE;
}

static int open_context(struct client *client)
{
	struct ceov_member member = { 0, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	int r;

	config.members = &member;
	config.n_members = 1;
	config.n_ranks = 1;
	config.daemon = client->bench->server.path;
	r = ceov_open(&config, &client->context);
	if (r)
		return r;
	r = ceov_buffer_create(client->context, 0, client->bench->n_bytes, &client->source);
	if (!r)
		r = ceov_buffer_create(client->context, 0, client->bench->n_bytes,
				       &client->target);
	return r;
}

static int make_plan(struct client *client)
{
	struct ceov_transfer transfer = {
		.struct_bytes = sizeof(transfer),
		.source = { .buffer = client->source },
		.target = { .buffer = client->target },
		.row_bytes = client->bench->n_bytes,
		.n_rows = 1,
	};
	int r = ceov_plan_create(client->context, 0, NULL, &client->plan);

	if (!r)
		r = ceov_plan_add(client->plan, &transfer);
	if (!r)
		r = ceov_plan_commit(client->plan);
	client->from = ceov_buffer_base(client->source, 0);
	client->to = ceov_buffer_base(client->target, 0);
	return r;
}

/* The time of a round trip: four buckets for each power of two. */
static void count(struct bench_daemon_client *found, uint64_t ns)
{
	uint32_t log = 0, quarter, bucket;

	while (log < 63 && ns >> (log + 1))
		log++;
	quarter = log < 2 ? 0 : (uint32_t)(ns >> (log - 2)) & 3;
	bucket = log * 4 + quarter;
	found->buckets[bucket < BENCH_DAEMON_BUCKETS ? bucket : BENCH_DAEMON_BUCKETS - 1]++;
}

/* One launch with new data. */
static int pass(struct client *client, uint64_t seed)
{
	uint64_t n_words = client->bench->n_bytes / 8, i, from_ns;
	ceov_ticket ticket;
	int r;

	for (i = 0; i < n_words; i++)
		client->from[i] = seed + i;
	from_ns = cei_now_ns();
	r = ceov_launch(client->plan, NULL, &ticket);
	if (!r)
		r = ceov_wait(client->context, ticket, WAIT_NS);
	if (r)
		return r;
	count(client->found, cei_now_ns() - from_ns);
	if (client->bench->options.check)
		client->found->n_wrong += memcmp(client->from, client->to, n_words * 8) != 0;
	client->found->n_launches++;
	return 0;
}

/* All clients begin at the same time, when the last one is ready. */
static void await_all(const struct bench_daemon *bench)
{
	struct bench_daemon_shared *shared = bench->shared;
	uint64_t none = 0;

	/* seq_cst, here and below: not on a fast path */
	if (atomic_fetch_add(&shared->n_ready, 1) + 1 == bench->n_clients) {
		shared->ready = bench_server_look(bench->server.pid);
		atomic_compare_exchange_strong(&shared->begin_ns, &none, cei_now_ns());
	}
	while (!atomic_load(&shared->begin_ns) && !atomic_load(&shared->failed))
		usleep(500);
}

int bench_daemon_client(void *arg, uint32_t number)
{
	struct bench_daemon *bench = arg;
	struct client client = { .bench = bench, .number = number,
				 .found = &bench->shared->clients[number] };
	uint64_t i, n = bench->n_launches / bench->n_clients;
	uint64_t seed = bench->options.seed + number * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t before_kib = bench_server_look(getpid()).own, after_kib;
	int r = open_context(&client);

	if (!r)
		r = make_plan(&client);
	if (r)
		return fail(&client, "beginning", r);
	after_kib = bench_server_look(getpid()).own;
	client.found->context_kib = after_kib > before_kib ? after_kib - before_kib : 0;
	await_all(bench);
	for (i = 0; !r && i < n; i++)
		r = pass(&client, seed + i * UINT64_C(0xbf58476d1ce4e5b9));
	client.found->end_ns = cei_now_ns();
	if (!atomic_fetch_add(&bench->shared->n_done, 1))
		bench->shared->worked = bench_server_look(bench->server.pid);
	if (r)
		return fail(&client, "launching", r);
	ceov_close(client.context);
	return EXIT_SUCCESS;
}
