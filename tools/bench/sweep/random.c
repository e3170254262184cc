/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test "random": plans of random transfers, all ready at launch; each rank's plan has the
 * transfers that it sends. The time until all have arrived is compared with a lower bound, the
 * time that the busiest port needs: the sum of t0 + bytes / rate over all transfers that leave one
 * rank, or reach one. t0 and rate of each pair are measured in the same run with the driver's own
 * copies, queued back to back. The same plans run in turn with the scheduler and in a context that
 * keeps the plans' order (CEOVERLAP_SCHEDULER=fifo).
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/group.h"
#include "tools/bench/sweep/sweep.h"

#define ROUNDS 3u
#define COPIES 8u

enum side { SCHEDULED, FIFO, SIDES };

struct random {
	struct sweep      *sweep;
	struct sweep_job   job;
	double             t0_us[SWEEP_PLACES_MAX][SWEEP_PLACES_MAX];
	double             us_per_byte[SWEEP_PLACES_MAX][SWEEP_PLACES_MAX];
	ceov_context      *contexts[SIDES];
	struct sweep_area  areas[SIDES];
	int                is_wrong[SIDES];
};

/* --- costs of pairs ------------------------------------------------------- */

static int time_copies(struct random *random, uint64_t bytes, double *ret_us)
{
	struct sweep_job *job = &random->job;
	double samples[5];
	uint64_t begin;
	uint32_t i;
	int r = 0;

	for (i = 0; i < COPIES; i++) {
		job->moves[i] = job->moves[0];
		job->moves[i].bytes = bytes;
	}
	job->n_moves = COPIES;
	for (i = 0; !r && i < 6; i++) { /* the first copy is a warm-up */
		begin = cei_now_ns();
		r = sweep_raw_run(random->sweep, &random->areas[SCHEDULED], job, 1);
		samples[i ? i - 1 : 0] = (double)(cei_now_ns() - begin) / 1e3 / COPIES;
	}
	*ret_us = bench_median(samples, 5);
	return r;
}

static int measure_pair(struct random *random, uint32_t source, uint32_t target)
{
	uint64_t most = random->sweep->own->random_bytes;
	double little_us, much_us, rate;
	int r;

	memset(&random->job, 0, sizeof(random->job));
	random->job.test = "random";
	random->job.moves[0].source = source;
	random->job.moves[0].target = target;
	r = time_copies(random, most / 64, &little_us);
	if (!r)
		r = time_copies(random, most, &much_us);
	if (r)
		return r;
	rate = (much_us - little_us) / (double)(most - most / 64);
	if (rate <= 0)                  /* noise made the fitted rate negative: attribute the whole
					 * time to the bytes */
		rate = much_us / (double)most;
	random->us_per_byte[source][target] = rate;
	little_us -= rate * (double)(most / 64);
	random->t0_us[source][target] = little_us > 0 ? little_us : 0;
	return 0;
}

static int measure_pairs(struct random *random)
{
	uint32_t n = random->sweep->n_ranks, i;
	double all[SWEEP_PLACES_MAX * SWEEP_PLACES_MAX];
	uint32_t n_pairs = 0;
	int r = 0;

	sweep_progress(random->sweep, "random: the pairs' own rates");
	for (i = 0; !r && i < n * n; i++) {
		if (i / n == i % n)
			continue;
		r = measure_pair(random, i / n, i % n);
		all[n_pairs++] = random->t0_us[i / n][i % n];
	}
	random->sweep->t0_us = bench_median(all, n_pairs);
	return r;
}

/* --- plans ---------------------------------------------------------------- */

/* Makes a random job; the logarithms of its sizes are uniformly distributed. Adds to ends[] the
 * bytes that each target receives. */
static void make_job(struct random *random, uint64_t seed, uint64_t *ends)
{
	struct sweep_job *job = &random->job;
	uint64_t state = seed, most = random->sweep->own->random_bytes;
	uint32_t n = random->sweep->n_ranks, i;
	struct sweep_move *move;
	double share;

	memset(job, 0, sizeof(*job));
	memset(ends, 0, SWEEP_PLACES_MAX * sizeof(*ends));
	job->test = "random";
	job->source = job->target = -1;
	job->n_moves = SWEEP_MOVES_MAX;
	for (i = 0; i < job->n_moves; i++) {
		move = &job->moves[i];
		move->source = (uint32_t)(bench_random(&state) % n);
		move->target = (uint32_t)((move->source + 1 + bench_random(&state) % (n - 1)) % n);
		share = (double)(bench_random(&state) >> 11) * 0x1p-53;
		move->bytes = (uint64_t)((double)(most / 64) * exp2(6 * share)) / 16 * 16;
		move->source_offset = bench_random(&state) % (most / 16) * 16;
		move->target_offset = ends[move->target];
		ends[move->target] += move->bytes;
	}
}

static double bound_us(const struct random *random)
{
	double sent[SWEEP_PLACES_MAX] = { 0 }, received[SWEEP_PLACES_MAX] = { 0 }, us;
	const struct sweep_move *move;
	double worst = 0;
	uint32_t i;

	for (i = 0; i < random->job.n_moves; i++) {
		move = &random->job.moves[i];
		us = random->t0_us[move->source][move->target] + (double)move->bytes *
			random->us_per_byte[move->source][move->target];
		sent[move->source] += us;
		received[move->target] += us;
	}
	for (i = 0; i < random->sweep->n_ranks; i++) {
		worst = sent[i] > worst ? sent[i] : worst;
		worst = received[i] > worst ? received[i] : worst;
	}
	return worst;
}

static uint64_t seed_number(const struct random *random, uint32_t i)
{
	return random->sweep->options->seed + i;
}

static uint64_t most_of_any(struct random *random)
{
	uint64_t ends[SWEEP_PLACES_MAX], most = 16;
	uint32_t i, k;

	for (i = 0; i < random->sweep->own->n_seeds; i++) {
		make_job(random, seed_number(random, i), ends);
		for (k = 0; k < random->sweep->n_ranks; k++)
			most = ends[k] > most ? ends[k] : most;
	}
	return most;
}

static int open_sides(struct random *random)
{
	struct sweep *sweep = random->sweep;
	uint64_t most = most_of_any(random);
	uint32_t side;
	int r;

	random->contexts[SCHEDULED] = sweep->group;
	setenv("CEOVERLAP_SCHEDULER", "fifo", 1);
	r = sweep_open_context(sweep, sweep->n_ranks, NULL, &random->contexts[FIFO]);
	unsetenv("CEOVERLAP_SCHEDULER");
	for (side = 0; !r && side < SIDES; side++) {
		random->areas[side].n_places = sweep->n_ranks;
		random->areas[side].source_bytes = 2 * sweep->own->random_bytes;
		random->areas[side].target_bytes = most > sweep->own->random_bytes ? most
			: sweep->own->random_bytes;
		r = sweep_area_open(sweep, random->contexts[side], &random->areas[side]);
	}
	return r;
}

static void close_sides(struct random *random)
{
	uint32_t side;

	for (side = 0; side < SIDES; side++)
		(void)sweep_area_close(random->sweep, &random->areas[side]);
	ceov_close(random->contexts[FIFO]);
}

/* --- running plans -------------------------------------------------------- */

static int run_side(struct random *random, enum side side, struct sweep_plans *plans,
		    double *ret_us)
{
	uint64_t begin = cei_now_ns();
	int r = sweep_plans_run(&random->areas[side], plans, 1);

	*ret_us = (double)(cei_now_ns() - begin) / 1e3;
	return r ? sweep_fail(random->sweep, random->contexts[side], r, "a random plan") : 0;
}

static int check_side(struct random *random, enum side side, struct sweep_plans *plans)
{
	uint64_t seed = random->sweep->options->seed ^ (side + 1), n_wrong = 0;
	double us;
	int r;

	if (!random->sweep->options->check)
		return run_side(random, side, plans, &us);
	r = sweep_prepare(random->sweep, &random->areas[side], &random->job, seed);
	if (!r)
		r = run_side(random, side, plans, &us);
	if (!r)
		r = sweep_verify(random->sweep, &random->areas[side], &random->job, seed,
				 &n_wrong);
	random->is_wrong[side] |= n_wrong != 0;
	return r;
}

static int time_sides(struct random *random, struct sweep_plans *plans,
		      struct sweep_seed *seed)
{
	double us[SIDES][ROUNDS];
	uint32_t i, side;
	int r = 0;

	for (side = 0; !r && side < SIDES; side++)
		r = check_side(random, (enum side)side, &plans[side]);
	for (i = 0; !r && i < SIDES * ROUNDS; i++) {
		side = (i + i / SIDES) % SIDES;
		r = run_side(random, (enum side)side, &plans[side], &us[side][i / SIDES]);
	}
	for (side = 0; !r && side < SIDES; side++)
		seed->us[side] = bench_median(us[side], ROUNDS);
	return r;
}

static int run_seed(struct random *random, uint32_t i)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	uint64_t ends[SWEEP_PLACES_MAX];
	struct sweep *sweep = random->sweep;
	struct sweep_seed *seed = &sweep->seeds[i];
	struct sweep_plans plans[SIDES];
	uint32_t side;
	int r = sweep_late(sweep);

	memset(plans, 0, sizeof(plans));
	make_job(random, seed_number(random, i), ends);
	seed->seed = seed_number(random, i);
	seed->bound_us = bound_us(random);
	options.max_chunk_bytes = sweep->own->chunks.values[0];
	for (side = 0; !r && side < SIDES; side++) {
		r = sweep_plans_open(sweep, random->contexts[side], &random->areas[side],
				     &random->job, &options, &plans[side]);
		if (r)
			r = sweep_fail(sweep, random->contexts[side], r, "a random plan");
	}
	if (!r)
		r = time_sides(random, plans, seed);
	for (side = 0; side < SIDES; side++)
		sweep_plans_close(&plans[side]);
	sweep->n_seeds += !r;
	return r;
}

/* --- rows ----------------------------------------------------------------- */

static int add_side(struct random *random, enum side side)
{
	struct sweep *sweep = random->sweep;
	double us[SWEEP_SEEDS_MAX], ratios[SWEEP_SEEDS_MAX];
	struct sweep_row row;
	uint32_t i;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "random");
	snprintf(row.method, sizeof(row.method), "%s", side == FIFO ? "fifo" : "scheduler");
	row.source = row.target = -1;
	row.bytes = sweep->own->random_bytes;
	row.chunk_bytes = sweep->own->chunks.values[0];
	row.in_flight = 1;
	for (i = 0; i < sweep->n_seeds; i++) {
		us[i] = sweep->seeds[i].us[side];
		ratios[i] = us[i] / sweep->seeds[i].bound_us;
	}
	sweep_statistics(us, sweep->n_seeds, &row);
	row.bound_median = bench_median(ratios, sweep->n_seeds);
	row.bound_max = ratios[sweep->n_seeds - 1];
	row.verified = sweep->options->check ? !random->is_wrong[side] : -1;
	return sweep_add_row(sweep, &row);
}

int sweep_random(struct sweep *sweep)
{
	struct random *random = calloc(1, sizeof(*random));
	uint32_t i, side;
	int r;

	if (!random)
		return CEOV_ERR_NO_MEMORY;
	random->sweep = sweep;
	if (sweep->n_ranks < 2) {
		printf("# random: left out, it needs 2 ranks\n");
		free(random);
		return 0;
	}
	r = open_sides(random);
	if (!r)
		r = measure_pairs(random);
	for (i = 0; !r && i < sweep->own->n_seeds; i++) {
		if (i % 10 == 0)
			sweep_progress(sweep, "random: plan %u of %u", i + 1,
				       sweep->own->n_seeds);
		r = run_seed(random, i);
	}
	for (side = 0; sweep->n_seeds && side < SIDES; side++)
		if (add_side(random, (enum side)side))
			r = r ? r : CEOV_FULL;
	close_sides(random);
	free(random);
	return r;
}
