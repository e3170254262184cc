/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test "plan": the cost of plans with 10^3 to 10^6 transfers, on one core and host memory. It
 * times the commit (checks, routes, cuts) and one launch until all transfers have ended
 * (scheduling, lanes, copies of 64 bytes). Targets are random among 8 ranks, and all transfers are
 * ready at launch. With CEOVERLAP_MACHINE the ranks stand for that machine's places, and its
 * shared ports influence the order.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/group.h"

#define RANKS       8u
#define BYTES       64u
#define COUNTS      4u
#define FIRST_COUNT 1000u

struct plan_cost {
	struct bench_rank *rank;
	ceov_context      *context;
	ceov_buffer       *buffers[RANKS];
	uint64_t           n_bytes;
	uint64_t           random;
};

static int open_ranks(struct plan_cost *cost)
{
	struct ceov_member members[RANKS];
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint32_t i;
	int r;

	for (i = 0; i < RANKS; i++)
		members[i] = (struct ceov_member){ i, { CEOV_PLACE_HOST, 0 } };
	config.members = members;
	config.n_members = config.n_ranks = RANKS;
	config.progress_by_caller = 1;
	r = ceov_open(&config, &cost->context);
	for (i = 0; !r && i < RANKS; i++)
		r = ceov_buffer_create(cost->context, i, cost->n_bytes, &cost->buffers[i]);
	return r;
}

static int build(struct plan_cost *cost, uint32_t n, ceov_plan **ret_plan, double *ret_us)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	uint64_t begin;
	uint32_t i;
	int r = ceov_plan_create(cost->context, 0, NULL, ret_plan);

	transfer.source.buffer = cost->buffers[0];
	transfer.row_bytes = BYTES;
	transfer.n_rows = 1;
	for (i = 0; !r && i < n; i++) {
		transfer.target.buffer =
			cost->buffers[1 + bench_random(&cost->random) % (RANKS - 1)];
		transfer.source.offset_bytes = (uint64_t)i * BYTES;
		transfer.target.offset_bytes = (uint64_t)i * BYTES;
		r = ceov_plan_add(*ret_plan, &transfer);
	}
	begin = cei_now_ns();
	if (!r)
		r = ceov_plan_commit(*ret_plan);
	*ret_us = (double)(cei_now_ns() - begin) / 1e3;
	return r;
}

static int run(struct plan_cost *cost, ceov_plan *plan, double *ret_us)
{
	uint64_t begin = cei_now_ns();
	ceov_ticket ticket;
	int r = ceov_launch(plan, NULL, &ticket);

	while (!r && ceov_turn(cost->context) == CEOV_PENDING)
		;
	*ret_us = (double)(cei_now_ns() - begin) / 1e3;
	return r ? r : ceov_wait(cost->context, ticket, 0);
}

/* Returns whether every block of 64 bytes has arrived at its target. */
static int is_moved(const struct plan_cost *cost, uint32_t n)
{
	const char *source = ceov_buffer_base(cost->buffers[0], 0);
	uint32_t i, k, n_found = 0;

	for (i = 0; i < n; i++)
		for (k = 1; k < RANKS; k++) {
			const char *target = ceov_buffer_base(cost->buffers[k], k);

			if (!memcmp(source + (uint64_t)i * BYTES,
				    target + (uint64_t)i * BYTES, BYTES))
				n_found++;
		}
	return n_found == n;
}

static void fill(struct plan_cost *cost)
{
	uint64_t *source = ceov_buffer_base(cost->buffers[0], 0);
	uint64_t i;
	uint32_t k;

	for (i = 0; i < cost->n_bytes / 8; i++)
		source[i] = bench_random(&cost->random) | 1;
	for (k = 1; k < RANKS; k++)
		memset(ceov_buffer_base(cost->buffers[k], k), 0, cost->n_bytes);
}

static void add_row(const struct plan_cost *cost, const char *what, uint32_t n, double us,
		    int verified)
{
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "plan %s", what);
	row.mode = BENCH_OURS;
	snprintf(row.variant, sizeof(row.variant), "%u", n);
	row.ranks = RANKS;
	row.source = row.target = -1;
	row.bytes_per_rank = (uint64_t)n * BYTES;
	row.us_median = row.us_min = row.us_p99 = us;
	row.verified = verified;
	bench_add_row(cost->rank, &row);
}

static int measure(struct plan_cost *cost, uint32_t n)
{
	double commit_us, run_us;
	ceov_plan *plan = NULL;
	int r;

	fill(cost);
	r = build(cost, n, &plan, &commit_us);
	if (!r)
		r = run(cost, plan, &run_us);
	if (r)
		return r;
	add_row(cost, "commit", n, commit_us, -1);
	add_row(cost, "launch", n, run_us, is_moved(cost, n));
	ceov_plan_release(plan);
	return 0;
}

int bench_plan(struct bench_rank *rank)
{
	struct plan_cost cost = { .rank = rank, .random = rank->options->seed };
	uint32_t i, n = FIRST_COUNT;
	int r;

	if (rank->rank)
		return 0;
	cost.n_bytes = (uint64_t)FIRST_COUNT * 1000 * BYTES;
	r = open_ranks(&cost);
	for (i = 0; !r && i < COUNTS; i++, n *= 10)
		r = measure(&cost, n);
	ceov_close(cost.context);
	return r;
}
