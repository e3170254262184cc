/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test "urgent": a small urgent transfer every millisecond, alone and beside an all-gather in the
 * background, which each rank launches again as soon as it has ended; also how much slower the
 * background becomes. Latency is the time from the launch to its end as the launching thread sees
 * it.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/sweep/sweep.h"

#define AHEAD      2u                   /* launches of each background plan in flight */
#define PERIOD_NS  UINT64_C(1000000)
#define LATENCIES  60000u

struct sizes {
	uint64_t shard_bytes;
	uint64_t chunk_bytes;
	uint64_t urgent_bytes;
};

struct background {
	struct sweep_plans plans;
	uint64_t           n_launched[SWEEP_PLACES_MAX];
	uint64_t           n_done;              /* launches of all background plans that have
						 * ended */
	int                is_open[AHEAD][SWEEP_PLACES_MAX];
	ceov_ticket        tickets[AHEAD][SWEEP_PLACES_MAX];
};

struct urgent {
	struct sweep      *sweep;
	struct sizes       sizes;
	struct sweep_area  areas[2];            /* [0] background, [1] urgent */
	struct sweep_job   jobs[2];
	struct background  background;
	struct sweep_plans urgent;
	double            *latencies;
	uint32_t           n_latencies;
	double             background_us;       /* time per background launch in the last part */
};

/* --- background ----------------------------------------------------------- */

static int pump_one(struct background *b, uint32_t slot, uint32_t k, int is_last)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	int r = 0;

	if (b->is_open[slot][k]) {
		r = ceov_wait(b->plans.context, b->tickets[slot][k], 0);
		if (r == CEOV_PENDING)
			return 0;
		b->is_open[slot][k] = 0;
		b->n_done += !r;
	}
	if (r || is_last)
		return r;
	launch.base = b->n_launched[k];
	r = ceov_launch(b->plans.plans[k], &launch, &b->tickets[slot][k]);
	if (!r) {
		b->n_launched[k]++;
		b->is_open[slot][k] = 1;
	}
	return r;
}

static int pump(struct background *b)
{
	uint32_t slot, k;
	int r = 0;

	for (slot = 0; !r && slot < AHEAD; slot++)
		for (k = 0; !r && k < b->plans.n; k++)
			r = pump_one(b, slot, k, 0);
	return r;
}

static int drain(struct background *b)
{
	uint32_t slot, k;
	int r = 0, s;

	for (slot = 0; slot < AHEAD; slot++) {
		for (k = 0; k < b->plans.n; k++) {
			if (!b->is_open[slot][k])
				continue;
			s = ceov_wait(b->plans.context, b->tickets[slot][k], SWEEP_WAIT_NS);
			b->is_open[slot][k] = 0;
			r = r ? r : s;
		}
	}
	return r;
}

/* --- running with or without the background ------------------------------- */

static int one_urgent(struct urgent *u, int has_background)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	uint64_t begin = cei_now_ns(), deadline = cei_deadline(SWEEP_WAIT_NS);
	ceov_context *context = u->urgent.context;
	ceov_ticket ticket;
	int r;

	launch.base = u->areas[1].base++;
	r = ceov_launch(u->urgent.plans[0], &launch, &ticket);
	while (!r && (r = ceov_wait(context, ticket, 0)) == CEOV_PENDING) {
		r = has_background ? pump(&u->background) : 0;
		if (!r && cei_now_ns() > deadline)
			r = CEOV_ERR_TIMEOUT;
	}
	if (!r && u->n_latencies < LATENCIES)
		u->latencies[u->n_latencies++] = (double)(cei_now_ns() - begin) / 1e3;
	return r;
}

/* Runs urgent transfers, the background, or both, for the given time. */
static int run_part(struct urgent *u, int has_urgent, int has_background)
{
	uint64_t begin = cei_now_ns(), next = begin + PERIOD_NS, now;
	uint64_t end = begin + u->sweep->own->urgent_ms * UINT64_C(1000000);
	struct background *b = &u->background;
	int r = 0;

	u->n_latencies = 0;
	b->n_done = 0;
	while (!r && (now = cei_now_ns()) < end) {
		if (has_background)
			r = pump(b);
		if (!r && has_urgent && now >= next) {
			r = one_urgent(u, has_background);
			/* if late, skips transfers: at most one begins per millisecond */
			next += PERIOD_NS * (1 + (cei_now_ns() - next) / PERIOD_NS);
		}
	}
	/* launches that are in flight at the end do not count */
	u->background_us = b->n_done ? (double)(cei_now_ns() - begin) / 1e3 /
		((double)b->n_done / b->plans.n) : 0;
	if (drain(b) && !r)
		r = CEOV_ERR_TIMEOUT;
	return r ? sweep_fail(u->sweep, u->sweep->group, r, "urgent") : 0;
}

/* --- rows ----------------------------------------------------------------- */

static struct sweep_row make_row(const struct urgent *u, const char *method)
{
	struct sweep_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "urgent");
	snprintf(row.method, sizeof(row.method), "%s", method);
	row.source = row.target = -1;
	row.verified = -1;
	row.chunk_bytes = u->sizes.chunk_bytes;
	return row;
}

static int add_urgent(struct urgent *u, const char *method, int verified)
{
	struct sweep_row row = make_row(u, method);

	row.source = 0;
	row.target = 1;
	row.bytes = u->sizes.urgent_bytes;
	row.in_flight = 1;
	row.verified = verified;
	sweep_statistics(u->latencies, u->n_latencies, &row);
	return sweep_add_row(u->sweep, &row);
}

static int add_background(struct urgent *u, const char *method)
{
	struct sweep_row row = make_row(u, method);

	row.bytes = u->sizes.shard_bytes;
	row.in_flight = AHEAD;
	row.us_median = u->background_us;
	if (u->background_us > 0)
		row.gb_per_s = (double)((u->sweep->n_ranks - 1) * u->sizes.shard_bytes) /
			u->background_us / 1e3;
	return sweep_add_row(u->sweep, &row);
}

/* Measures one driver copy as large as the background's largest chunk. */
static int add_chunk(struct urgent *u)
{
	struct sweep_row row = make_row(u, "raw_chunk");
	struct sweep_job *job = &u->jobs[1];
	double samples[20];
	uint64_t begin;
	uint32_t i;
	int r = 0;

	job->moves[0].bytes = u->sizes.chunk_bytes;
	for (i = 0; !r && i < 20; i++) {
		begin = cei_now_ns();
		r = sweep_raw_run(u->sweep, &u->areas[1], job, 1);
		samples[i] = (double)(cei_now_ns() - begin) / 1e3;
	}
	job->moves[0].bytes = u->sizes.urgent_bytes;
	row.source = 0;
	row.target = 1;
	row.bytes = u->sizes.chunk_bytes;
	row.in_flight = 1;
	sweep_statistics(samples, 20, &row);
	return r ? r : sweep_add_row(u->sweep, &row);
}

/* --- set-up --------------------------------------------------------------- */

static void make_jobs(struct urgent *u)
{
	struct sweep_job *job = &u->jobs[1];

	sweep_collective(u->sweep, SWEEP_GATHER, u->sizes.shard_bytes, &u->jobs[0]);
	job->test = "urgent";
	job->target = 1;
	job->bytes = job->rate_bytes = u->sizes.urgent_bytes;
	job->n_moves = 1;
	job->moves[0].target = 1;
	job->moves[0].bytes = u->sizes.urgent_bytes;
}

static int open_plans(struct urgent *u)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	struct sweep *sweep = u->sweep;
	int r;

	options.max_chunk_bytes = u->sizes.chunk_bytes;
	options.urgency = CEOV_URGENCY_BACKGROUND;
	r = sweep_plans_open(sweep, sweep->group, &u->areas[0], &u->jobs[0], &options,
			     &u->background.plans);
	options.urgency = CEOV_URGENCY_URGENT;
	if (!r)
		r = sweep_plans_open(sweep, sweep->group, &u->areas[1], &u->jobs[1],
				     &options, &u->urgent);
	return r ? sweep_fail(sweep, sweep->group, r, "urgent: plans") : 0;
}

static int open_areas(struct urgent *u)
{
	struct sweep *sweep = u->sweep;
	int r;

	u->areas[0].n_places = u->areas[1].n_places = sweep->n_ranks;
	u->areas[0].source_bytes = u->sizes.shard_bytes;
	u->areas[0].target_bytes = u->sizes.shard_bytes * sweep->n_ranks;
	u->areas[1].source_bytes = u->areas[1].target_bytes = u->sizes.chunk_bytes;
	r = sweep_area_open(sweep, sweep->group, &u->areas[0]);
	return r ? r : sweep_area_open(sweep, sweep->group, &u->areas[1]);
}

static int run_parts(struct urgent *u)
{
	uint64_t n_wrong = 0, seed = u->sweep->options->seed;
	int verified = -1, r = run_part(u, 1, 0);

	if (!r)
		r = add_urgent(u, "urgent_alone", -1);
	if (!r)
		r = run_part(u, 0, 1);
	if (!r)
		r = add_background(u, "back_alone");
	if (!r && u->sweep->options->check)
		r = sweep_prepare(u->sweep, &u->areas[1], &u->jobs[1], seed);
	if (!r)
		r = run_part(u, 1, 1);
	if (!r && u->sweep->options->check) {
		r = sweep_verify(u->sweep, &u->areas[1], &u->jobs[1], seed, &n_wrong);
		verified = !n_wrong;
	}
	if (!r)
		r = add_urgent(u, "urgent_beside", verified);
	if (!r)
		r = add_background(u, "back_beside");
	return r ? r : add_chunk(u);
}

int sweep_urgent(struct sweep *sweep)
{
	struct urgent *u = calloc(1, sizeof(*u));
	int r, s, shift = sweep->is_gpu ? 0 : 8;

	if (!u || !(u->latencies = calloc(LATENCIES, sizeof(*u->latencies)))) {
		free(u);
		return CEOV_ERR_NO_MEMORY;
	}
	u->sweep = sweep;
	u->sizes = (struct sizes){ (UINT64_C(64) << 20) >> shift,
				   (UINT64_C(16) << 20) >> shift,
				   (UINT64_C(1) << 20) >> shift };
	sweep_progress(sweep, "urgent: beside an all-gather");
	if (sweep->n_ranks < 2) {
		printf("# urgent: left out, it needs 2 ranks\n");
		r = 0;
	} else {
		make_jobs(u);
		r = open_areas(u);
		if (!r)
			r = open_plans(u);
		if (!r)
			r = run_parts(u);
		sweep_plans_close(&u->urgent);
		sweep_plans_close(&u->background.plans);
		s = sweep_area_close(sweep, &u->areas[1]);
		r = r ? r : s;
		s = sweep_area_close(sweep, &u->areas[0]);
		r = r ? r : s;
	}
	free(u->latencies);
	free(u);
	return r;
}
