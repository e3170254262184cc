/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests "engine" and "idle". engine: the time that ceov_turn() takes per zero-byte chunk, on a
 * separate context whose engine has no thread and only turns when called. idle: the processor time
 * that an open context with no launches takes in 10 s. Both run on rank 0 with host memory.
 */

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/cases/cases.h"

#define TRANSFERS  1000u
#define IDLE_US    10000000u

static int open_own(int by_caller, ceov_context **ret_context)
{
	struct ceov_member member = { 0, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;

	config.members = &member;
	config.n_members = 1;
	config.progress_by_caller = by_caller;
	return ceov_open(&config, ret_context);
}

static int build(ceov_context *context, ceov_signal **ret_arrived, ceov_plan **ret_plan)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t i;
	int r;

	r = ceov_signal_create(context, 0, host, TRANSFERS, 0, ret_arrived);
	if (!r)
		r = ceov_plan_create(context, 0, NULL, ret_plan);
	for (i = 0; !r && i < TRANSFERS; i++) {
		transfer.then = (struct ceov_mark){ *ret_arrived, i, 1 };
		r = ceov_plan_add(*ret_plan, &transfer);
	}
	return r ? r : ceov_plan_commit(*ret_plan);
}

static int turn_to_the_end(ceov_context *context, uint64_t *ret_ns)
{
	uint64_t begin = cei_now_ns();
	int r;

	do {
		r = ceov_turn(context);
	} while (r == CEOV_PENDING);
	*ret_ns = cei_now_ns() - begin;
	return r;
}

static void add_row(struct bench_rank *rank, const char *name, double us, int verified)
{
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "%s", name);
	row.mode = BENCH_OURS;
	row.ranks = 1;
	row.source = row.target = -1;
	row.us_median = row.us_min = row.us_p99 = us;
	row.verified = verified;
	bench_add_row(rank, &row);
}

static int sample(ceov_context *context, ceov_plan *plan, uint64_t base, double *ret_us)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	uint64_t ns = 0;
	int r = ceov_launch(plan, &launch, NULL);

	if (!r)
		r = turn_to_the_end(context, &ns);
	*ret_us = (double)ns / 1e3 / TRANSFERS;
	return r;
}

/* Makes 100 launches of 1000 chunks, whatever -n says: 10^5 chunks. */
int bench_engine(struct bench_rank *rank)
{
	ceov_context *context = NULL;
	ceov_signal *arrived = NULL;
	ceov_plan *plan = NULL;
	double us, total = 0;
	uint64_t seen = 0;
	uint32_t i;
	int r;

	if (rank->rank)
		return 0;
	r = open_own(1, &context);
	if (!r)
		r = build(context, &arrived, &plan);
	for (i = 0; !r && i < 100; i++) {
		r = sample(context, plan, i, &us);
		total += us;
	}
	if (!r)
		r = ceov_signal_value(arrived, TRANSFERS - 1, &seen);
	if (!r)
		add_row(rank, "engine", total / 100, seen == 100);
	ceov_close(context);
	return r;
}

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int bench_idle(struct bench_rank *rank)
{
	ceov_context *context = NULL;
	ceov_signal *arrived = NULL;
	ceov_plan *plan = NULL;
	ceov_ticket ticket;
	double before;
	int r;

	if (rank->rank)
		return 0;
	r = open_own(0, &context);
	if (!r)
		r = build(context, &arrived, &plan);
	if (!r)
		r = ceov_launch(plan, NULL, &ticket);
	if (!r)
		r = ceov_wait(context, ticket, UINT64_C(10000000000));
	usleep(100000);                 /* give all threads time to go to sleep */
	before = cpu_us();
	usleep(IDLE_US);
	if (!r)
		add_row(rank, "idle", cpu_us() - before, 1);
	ceov_close(context);
	return r;
}
