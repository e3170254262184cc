/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test "load": large transfers between host memory and one GPU, directly and over relays, and how
 * much relays slow down the kernels of a GPU that helps. That GPU's matrix products are timed
 * alone, beside the relay, and beside driver copies of the same bytes over the same links, on all
 * GPUs at once, in turn.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/blas.h"
#include "tools/bench/sweep/sweep.h"

#define LEGS_MAX     (2 * SWEEP_PATHS_MAX)
#define PIECE_BYTES  (UINT64_C(4) << 20)        /* the chunk size of relays */
#define BATCH        32u
#define GEMM_ROWS    UINT64_C(8192)
#define GEMMS        16u
#define ROUNDS       7u

enum beside { ALONE, RAW, RELAY, BESIDES };

struct leg {
	uint32_t          place;        /* the place whose copy engine makes the copy */
	enum bench_stream stream;
	const char       *source;
	char             *target;
	uint64_t          bytes;
};

struct load {
	struct sweep       *sweep;
	struct sweep_area   area;
	struct sweep_job    job;
	struct sweep_plans  plans;      /* plans that may use all routes */
	uint32_t            n_legs;
	struct leg          legs[LEGS_MAX];
	uint32_t            helper;     /* index of the helping place; CEOV_NOBODY: none */
	struct bench_blas  *blas;
	void               *operands[3];
	uint32_t            n_times[BESIDES];   /* how many launches take longer than the
						 * products */
};

/* --- legs of relays ------------------------------------------------------- */

static void add_leg(struct load *load, uint32_t place, enum bench_stream stream,
		    uint64_t bytes)
{
	struct leg *leg = &load->legs[load->n_legs++];

	memset(leg, 0, sizeof(*leg));
	leg->place = place;
	leg->stream = stream;
	leg->bytes = bytes;
}

static void set_ends(struct load *load, ceov_buffer *source, ceov_buffer *target)
{
	struct leg *leg = &load->legs[load->n_legs - 1];

	leg->source = ceov_buffer_base(source, leg->place);
	leg->target = ceov_buffer_base(target, leg->place);
}

/* Adds the two copies of a relay over that GPU: into its memory and out of it. A copy between GPUs
 * is made by its source. */
static void add_relay(struct load *load, uint32_t via, uint64_t bytes)
{
	const struct sweep_move *move = &load->job.moves[0];
	uint32_t host = load->sweep->n_ranks;
	uint32_t first = move->source == host ? via : move->source;
	struct sweep_area *area = &load->area;

	add_leg(load, first, first == via ? BENCH_STREAM_COPY : BENCH_STREAM_SIDE, bytes);
	set_ends(load, area->source[move->source], area->target[via]);
	add_leg(load, via, first == via ? BENCH_STREAM_SIDE : BENCH_STREAM_COPY, bytes);
	set_ends(load, area->source[via], area->target[move->target]);
	if (load->helper == CEOV_NOBODY)
		load->helper = via;
}

static void list_legs(struct load *load)
{
	struct sweep_share shares[SWEEP_PATHS_MAX];
	uint32_t n = sweep_plans_shares(&load->plans, shares), i, via;
	const struct sweep_move *move = &load->job.moves[0];

	load->n_legs = 0;
	load->helper = CEOV_NOBODY;
	for (i = 0; i < n; i++) {
		if (sscanf(shares[i].path, "relayed via gpu%u", &via) == 1 &&
		    via < load->sweep->n_ranks) {
			add_relay(load, via, shares[i].bytes);
		} else if (!strcmp(shares[i].path, "direct")) {
			add_leg(load, sweep_owner(load->sweep, move), BENCH_STREAM_COPY,
				shares[i].bytes);
			set_ends(load, load->area.source[move->source],
				 load->area.target[move->target]);
		}
	}
}

/* --- copies --------------------------------------------------------------- */

static int queue_pieces(struct load *load, const struct leg *leg, uint64_t at)
{
	struct bench_copy copies[BATCH];
	uint64_t bytes;
	uint32_t n = 0;

	for (; at < leg->bytes && n < BATCH; at += bytes) {
		bytes = leg->bytes - at < PIECE_BYTES ? leg->bytes - at : PIECE_BYTES;
		copies[n++] = (struct bench_copy){ leg->target + at, leg->source + at, bytes,
						   1, 0 };
	}
	return n ? bench_raw_copies(load->sweep->devices[leg->place], leg->stream, copies, n)
		: 0;
}

/* Queues copies of all legs in turn, so that all legs begin together. */
static int queue_raw(struct load *load)
{
	uint64_t at;
	uint32_t i;
	int r = 0;

	for (at = 0; !r && at < load->job.bytes; at += BATCH * PIECE_BYTES)
		for (i = 0; !r && i < load->n_legs; i++)
			r = queue_pieces(load, &load->legs[i], at);
	return r;
}

static int wait_raw(struct load *load)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < load->n_legs; i++)
		r = bench_stream_sync(load->sweep->devices[load->legs[i].place],
				      load->legs[i].stream);
	return r;
}

struct tickets {
	uint32_t    n;
	ceov_ticket list[SWEEP_FLIGHT_MAX];
};

static int begin(struct load *load, enum beside beside, struct tickets *tickets)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	uint32_t i;
	int r = 0;

	tickets->n = 0;
	for (i = 0; !r && i < load->n_times[beside]; i++) {
		if (beside == RAW) {
			r = queue_raw(load);
		} else {
			launch.base = load->area.base++;
			r = ceov_launch(load->plans.plans[0], &launch,
					&tickets->list[tickets->n]);
			tickets->n += !r;
		}
	}
	return r;
}

static int finish(struct load *load, enum beside beside, const struct tickets *tickets)
{
	uint32_t i;
	int r = beside == RAW ? wait_raw(load) : 0;

	for (i = 0; !r && i < tickets->n; i++)
		r = ceov_wait(load->plans.context, tickets->list[i], SWEEP_WAIT_NS);
	return r;
}

/* --- matrix products ------------------------------------------------------ */

static int open_products(struct load *load)
{
	struct bench_device *device = load->sweep->devices[load->helper];
	struct bench_rank rank = { .rank = load->helper, .device = device };
	uint64_t n = GEMM_ROWS * GEMM_ROWS;
	struct bench_values values = { .n = n, .kind = BENCH_VALUES_BF16 };
	const char *why = "";
	uint32_t i;
	int r = bench_blas_open(&rank, NULL, &load->blas, &why);

	if (r == CEOV_NONE)
		printf("# load: what relays cost kernels is left out: %s\n", why);
	for (i = 0; !r && i < 3; i++) {
		r = bench_allocate(device, n * 2, &load->operands[i]);
		values.at = load->operands[i];
		values.seed = load->sweep->options->seed + i;
		if (!r)
			r = bench_make_values(device, &values);
	}
	return r;
}

static void close_products(struct load *load)
{
	uint32_t i;

	bench_blas_close(load->blas);
	load->blas = NULL;
	for (i = 0; i < 3; i++) {
		if (load->operands[i])
			bench_release(load->sweep->devices[load->helper], load->operands[i]);
		load->operands[i] = NULL;
	}
}

static int time_products(struct load *load, double *ret_us)
{
	struct bench_device *device = load->sweep->devices[load->helper];
	struct bench_product product = {
		load->operands[0], load->operands[1], load->operands[2],
		GEMM_ROWS, GEMM_ROWS, GEMM_ROWS, 0, 0, 0 };
	uint32_t i;
	int r = bench_time_begin(device);       /* also makes this device's GPU current */

	for (i = 0; !r && i < GEMMS; i++)
		r = bench_blas_multiply(load->blas, &product);
	if (!r)
		r = bench_time_end(device);
	if (!r)
		r = bench_time_us(device, ret_us);
	*ret_us /= GEMMS;
	return r;
}

/* --- samples -------------------------------------------------------------- */

/* Moves the bytes n_times and returns the time per move. */
static int go(struct load *load, enum beside beside, double *ret_us)
{
	uint64_t since = cei_now_ns();
	struct tickets tickets;
	int r = begin(load, beside, &tickets);

	if (!r)
		r = finish(load, beside, &tickets);
	*ret_us = (double)(cei_now_ns() - since) / 1e3 / load->n_times[beside];
	return r;
}

/* Chooses how often the copies are repeated, so that they take longer than the products. */
static int choose_times(struct load *load)
{
	double gemm_us = 0, us = 1;
	uint32_t beside;
	int r = time_products(load, &gemm_us);

	if (!r)
		r = time_products(load, &gemm_us);
	for (beside = RAW; !r && beside <= RELAY; beside++) {
		load->n_times[beside] = 2;
		r = go(load, (enum beside)beside, &us);         /* warm-up: the first use is
								 * slower */
		if (!r)
			r = go(load, (enum beside)beside, &us);
		load->n_times[beside] = 1 + (uint32_t)(1.5 * GEMMS * gemm_us / us);
		if (load->n_times[beside] > SWEEP_FLIGHT_MAX)
			load->n_times[beside] = SWEEP_FLIGHT_MAX;
		printf("# load: %s: %.1f GB/s while nothing computes\n", beside == RAW
		       ? "raw legs" : "relays", (double)load->job.bytes / us / 1e3);
	}
	return r;
}

static int sample(struct load *load, enum beside beside, double *ret_us)
{
	struct tickets tickets = { .n = 0 };
	int r = 0, s;

	if (beside != ALONE)
		r = begin(load, beside, &tickets);
	if (!r)
		r = time_products(load, ret_us);
	/* the copies must still be running; otherwise part of the products ran alone */
	if (!r && tickets.n && !ceov_wait(load->plans.context,
					  tickets.list[tickets.n - 1], 0))
		printf("# load: the relay ended before the products\n");
	s = finish(load, beside, &tickets);
	return r ? r : s;
}

static int add_row(struct load *load, enum beside beside, double us[BESIDES][ROUNDS])
{
	static const char *const names[] = { "gemm_alone", "gemm_raw", "gemm_relay" };
	struct sweep_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "load");
	snprintf(row.method, sizeof(row.method), "%s", names[beside]);
	row.source = load->job.source;
	row.target = load->job.target;
	row.bytes = load->job.bytes;
	row.in_flight = load->n_times[beside];
	row.verified = -1;
	sweep_statistics(us[beside], ROUNDS, &row);
	return sweep_add_row(load->sweep, &row);
}

static int slowdown(struct load *load)
{
	double us[BESIDES][ROUNDS];
	uint32_t i, beside;
	int r = open_products(load);

	if (!r)
		r = choose_times(load);
	for (i = 0; !r && i < ROUNDS * BESIDES; i++) {
		beside = (i + i / BESIDES) % BESIDES;
		r = sample(load, (enum beside)beside, &us[beside][i / BESIDES]);
	}
	for (beside = 0; !r && beside < BESIDES; beside++)
		r = add_row(load, (enum beside)beside, us);
	close_products(load);
	return r == CEOV_NONE ? 0 : r ? sweep_fail(load->sweep, NULL, r, "load: products") : 0;
}

/* --- the test case -------------------------------------------------------- */

static int beside_kernels(struct load *load)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	int r;

	options.routes = CEOV_ROUTES_ALL;
	r = sweep_plans_open(load->sweep, load->sweep->context, &load->area, &load->job,
			     &options, &load->plans);
	if (r)
		return sweep_fail(load->sweep, NULL, r, "load: a plan");
	list_legs(load);
	if (load->helper == CEOV_NOBODY)
		printf("# load: no relay is used, so none slows a kernel\n");
	else if (!load->sweep->is_gpu)
		printf("# load: what relays cost kernels is left out: it needs GPUs\n");
	else
		r = slowdown(load);
	sweep_plans_close(&load->plans);
	return r;
}

static int one_direction(struct load *load, uint32_t source, uint32_t target)
{
	struct sweep_job *job = &load->job;
	struct sweep *sweep = load->sweep;
	char size[24];
	int r;

	memset(job, 0, sizeof(*job));
	job->test = "load";
	job->source = (int32_t)source;
	job->target = (int32_t)target;
	job->bytes = job->rate_bytes = load->area.source_bytes;
	job->n_moves = 1;
	job->moves[0].source = source;
	job->moves[0].target = target;
	job->moves[0].bytes = job->bytes;
	sweep_progress(sweep, "load %s to %s, %s", sweep_place(sweep, job->source),
		       sweep_place(sweep, job->target), sweep_size(job->bytes, size));
	r = sweep_job_run(sweep, sweep->context, &load->area, job);
	return r ? r : beside_kernels(load);
}

int sweep_load(struct sweep *sweep)
{
	struct load *load = calloc(1, sizeof(*load));
	int r, s;

	if (!load)
		return CEOV_ERR_NO_MEMORY;
	load->sweep = sweep;
	load->area.n_places = sweep->n_places;
	load->area.source_bytes = load->area.target_bytes = sweep->is_gpu
		? UINT64_C(1) << 30 : UINT64_C(64) << 20;
	r = sweep_area_open(sweep, sweep->context, &load->area);
	if (!r)
		r = one_direction(load, sweep->n_ranks, 0);
	if (!r)
		r = one_direction(load, 0, sweep->n_ranks);
	s = sweep_area_close(sweep, &load->area);
	free(load);
	return r ? r : s;
}
