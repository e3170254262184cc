/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test channel: collectives of fp32 through a channel, in ordinary memory. All rows of a size take
 * turns sample by sample: kinds, ways (between GPUs also operators and NCCL), calls and graphs. A
 * sample times BENCH_CALLS calls, or one graph of so many, after a barrier of the ranks: on the
 * host by the clock, on GPUs between two events, before which as many were made. A row's bytes are
 * those of one shard, block or part; an all-reduce is of a part for each rank. Results are compared
 * bit by bit: the values are such that their sums are exact in whatever order.
 */

#include <string.h>

#include "base/clock.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/cases/channel.h"
#include "tools/bench/values.h"

/* The thread's time of a call is a median of so many, each with a size and an address that no call
 * had before. It does not depend on sizes, so those that only take longer are left out. */
#define TIMED_CALLS     1000u
#define TIMED_QUEUED    50u             /* so many are queued before their end is awaited */
#define TIMED_STEP      UINT64_C(16)    /* bytes from address to address */
#define TIMED_BYTES_MAX (UINT64_C(1) << 20)

/* Samples of rows have their numbers; then come the thread's times of the kinds. */
#define MODE_THREAD BENCH_CALL_ROWS

_Static_assert(MODE_THREAD + BENCH_CALL_KINDS <= BENCH_MODES, "all have samples of their own");

/* --- opening and closing -------------------------------------------------------- */

int bench_create_channel(struct bench_rank *rank, ceov_channel **ret_channel)
{
	char name[32];
	const struct ceov_channel_config config = {
		.struct_bytes = sizeof(config),
		.rank = rank->rank,
		.name = name,
	};
	int any = 0, r, s;

	snprintf(name, sizeof(name), "bench.%llu", (unsigned long long)rank->n_names++);
	r = ceov_channel_create(rank->context, &config, ret_channel);
	s = bench_any(rank, r == CEOV_ERR_INVALID, &any);
	if (s || !any)
		return s ? s : r;
	(void)ceov_channel_release(*ret_channel);
	*ret_channel = NULL;
	return CEOV_NONE;
}

static void say_why(const struct bench_rank *rank)
{
	struct ceov_failure failure;

	if (!rank->rank)
		bench_note(rank->options, "channel: left out, %s",
			   ceov_last_failure(rank->context, &failure)
			   ? "another rank cannot have one" : failure.text);
}

static int allocate(struct bench_calls *c, uint64_t bytes_max)
{
	struct bench_device *device = c->rank->device;
	uint32_t n_ranks = c->rank->n_ranks;
	uint64_t n_bytes = bytes_max * n_ranks +
		TIMED_CALLS * (TIMED_STEP + sizeof(float) * n_ranks);
	struct bench_values values = { .n = n_bytes / sizeof(float), .kind = BENCH_VALUES_FLOAT };
	int r = bench_allocate(device, n_bytes, &c->source);

	if (!r)
		r = bench_allocate(device, n_bytes, &c->target);
	if (!r)
		r = bench_allocate(device, n_bytes, &c->wanted);
	values.at = c->source;
	return r ? r : bench_make_values(device, &values);
}

static int open_calls(struct bench_calls *c, struct bench_rank *rank, uint64_t bytes_max)
{
	int r;

	memset(c, 0, sizeof(*c));
	c->rank = rank;
	r = bench_create_channel(rank, &c->channel);
	if (r == CEOV_NONE)
		say_why(rank);
	if (!r)
		r = ceov_channel_connect(c->channel, bench_patience_ns(rank));
	if (!r)
		r = allocate(c, bytes_max);
	if (!r)
		r = bench_ways_open(c, bytes_max);
	return r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r;
}

/* The context releases a channel whose peers do not yet. */
static int close_calls(struct bench_calls *c)
{
	int r = bench_ways_close(c), s = ceov_channel_release(c->channel);

	bench_release(c->rank->device, c->source);
	bench_release(c->rank->device, c->target);
	bench_release(c->rank->device, c->wanted);
	return r || s == CEOV_PENDING ? r : s;
}

/* --- samples --------------------------------------------------------------------- */

static int take_gpu(struct bench_calls *c, uint32_t at, double *ret_us)
{
	struct bench_device *device = c->rank->device;
	int r = bench_ways_calls(c, at, BENCH_CALLS);

	if (!r)
		r = bench_time_begin(device);
	if (!r)
		r = bench_ways_calls(c, at, BENCH_CALLS);
	if (!r)
		r = bench_time_end(device);
	if (!r)
		r = bench_time_us(device, ret_us);
	return r ? r : bench_ways_settle(c);
}

static int take_host(struct bench_calls *c, uint32_t at, double *ret_us)
{
	uint64_t begin = cei_now_ns();
	int r = bench_ways_calls(c, at, BENCH_CALLS);

	*ret_us = (double)(cei_now_ns() - begin) / 1e3;
	return r;
}

static int sample(struct bench_calls *c, uint32_t at, uint32_t number)
{
	double us = 0;
	int r = bench_meet(c->rank);

	if (!r)
		r = c->rank->is_gpu ? take_gpu(c, at, &us) : take_host(c, at, &us);
	if (!r)
		bench_sample(c->rank, at, number, us / BENCH_CALLS);
	return r;
}

static int sample_all(struct bench_calls *c)
{
	const struct bench_options *options = c->rank->options;
	uint32_t k, at;
	int r = 0;

	for (k = 0; !r && k < options->n_warmup + options->n_samples; k++)
		for (at = 0; !r && at < BENCH_CALL_ROWS; at++)
			if (c->runs[at])
				r = sample(c, at, k < options->n_warmup ? 0
					   : k - options->n_warmup);
	return r;
}

/* --- the thread's time ------------------------------------------------------------ */

static int time_call(struct bench_calls *c, uint32_t kind, uint32_t number, double *ret_us)
{
	const struct ceov_call call = {
		.struct_bytes = sizeof(call),
		.kind = bench_call_kinds[kind].kind,
		.dtype = CEOV_FP32,
		.source = (const char *)c->source + number * TIMED_STEP,
		.target = (char *)c->target + number * TIMED_STEP,
		.count = bench_call_count(c, kind) + number,
		.stream = bench_stream(c->rank->device, number % 2 ? BENCH_STREAM_SIDE
				       : BENCH_STREAM_MAIN),
	};
	uint64_t begin = cei_now_ns();
	int r = ceov_channel_run(c->channel, &call, 1);

	*ret_us = (double)(cei_now_ns() - begin) / 1e3;
	return r;
}

/* Each rank's median is one sample, so that the row has the largest of them. */
static int time_kind(struct bench_calls *c, uint32_t kind)
{
	double us[TIMED_CALLS];
	uint32_t k;
	int r = bench_meet(c->rank);

	for (k = 0; !r && k < TIMED_CALLS; k++) {
		r = time_call(c, kind, k, &us[k]);
		if (!r && k % TIMED_QUEUED == TIMED_QUEUED - 1)
			r = bench_ways_settle(c);
	}
	if (!r)
		bench_sample(c->rank, MODE_THREAD + kind, 0, bench_median(us, TIMED_CALLS));
	return r;
}

/* Host ranks make a call themselves, and have no such time. */
static int times_thread(const struct bench_calls *c)
{
	return c->rank->is_gpu && c->bytes <= TIMED_BYTES_MAX;
}

static int time_kinds(struct bench_calls *c)
{
	uint32_t kind;
	int r = 0;

	for (kind = 0; !r && times_thread(c) && kind < BENCH_CALL_KINDS; kind++)
		r = time_kind(c, kind);
	return r;
}

/* --- data ---------------------------------------------------------------------- */

/* Writes what is to come from a rank, beside or onto what comes from those before it. */
static int want(struct bench_calls *c, uint32_t kind, uint32_t source)
{
	struct bench_rank *rank = c->rank;
	int is_sum = bench_call_kinds[kind].is_sum;
	const struct bench_values values = {
		.at = (char *)c->wanted + (is_sum ? 0 : source * c->bytes),
		.n = bench_call_count(c, kind),
		.seed = bench_seed(rank, source, 0, c->round),
		.first = bench_call_kinds[kind].has_parts ? rank->rank * bench_call_values(c) : 0,
		.kind = is_sum && source ? BENCH_VALUES_ADD : BENCH_VALUES_FLOAT,
	};

	return bench_make_values(rank->device, &values);
}

/* Fills the target with what nobody wants, then the source, which may lie in it. What calls leave
 * alone is to stay as it was. */
static int prepare(struct bench_calls *c, uint32_t at)
{
	struct bench_rank *rank = c->rank;
	uint32_t kind = bench_call_row(at).kind, source;
	uint64_t n_bytes = rank->n_ranks * c->bytes;
	const struct bench_values values = {
		.at = bench_ways_source(c, at),
		.n = bench_call_kinds[kind].kind == CEOV_ALL_GATHER ? bench_call_values(c)
			: n_bytes / sizeof(float),
		.seed = bench_seed(rank, rank->rank, 0, ++c->round),
		.kind = BENCH_VALUES_FLOAT,
	};
	int r = bench_fill(rank->device, bench_ways_target(c, at), n_bytes, ~c->round);

	if (!r)
		r = bench_fill(rank->device, c->wanted, n_bytes, ~c->round);
	if (!r)
		r = bench_make_values(rank->device, &values);
	for (source = 0; !r && source < rank->n_ranks; source++)
		r = want(c, kind, source);
	return r;
}

/* Makes one call, or replays the graph, with data of its own and compares the whole target. */
static int verify(struct bench_calls *c, uint32_t at)
{
	/* halves of words, whose bits are compared */
	struct bench_compare compare = {
		.x = bench_ways_target(c, at),
		.y = c->wanted,
		.n = c->rank->n_ranks * c->bytes / 2,
	};
	int any = 0, r = prepare(c, at);

	if (!r)
		r = bench_meet(c->rank);
	if (!r)
		r = bench_ways_calls(c, at, 1);
	if (!r)
		r = bench_ways_settle(c);
	if (!r)
		r = bench_compare(c->rank->device, &compare);
	if (!r)
		r = bench_any_wrong(c->rank, compare.n_unlike, &any);
	c->wrong[at] |= any;
	return r;
}

static int verify_all(struct bench_calls *c)
{
	uint32_t at;
	int r = 0;

	for (at = 0; !r && c->rank->options->check && at < BENCH_CALL_ROWS; at++)
		if (c->runs[at])
			r = verify(c, at);
	return r;
}

/* --- rows ---------------------------------------------------------------------- */

static double median_of(struct bench_calls *c, uint32_t mode, uint32_t n_samples)
{
	struct bench_row row;

	bench_statistics(c->rank, mode, n_samples, &row);
	return row.us_median;
}

/* An all-reduce moves what a reduce-scatter and an all-gather of its parts do. */
static void add_row(struct bench_calls *c, uint32_t at)
{
	static const char *const names[BENCH_WAYS][2] = {
		{ "channel", "ch-graph" }, { "pool", "" }, { "op", "op-graph" },
		{ "", "graph" } };
	const struct bench_call_row of = bench_call_row(at);
	const struct bench_call_kind *kind = &bench_call_kinds[of.kind];
	uint32_t n_samples = c->rank->options->n_samples;
	uint32_t nccl = at + 2 * (BENCH_WAY_NCCL - of.way);
	double n_ranks = c->rank->n_ranks;
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "%s", kind->name);
	snprintf(row.variant, sizeof(row.variant), "%s", names[of.way][of.is_graph]);
	row.mode = of.way == BENCH_WAY_NCCL ? BENCH_NCCL_SM : BENCH_OURS;
	row.ranks = c->rank->n_ranks;
	row.source = row.target = -1;
	row.bytes_per_rank = c->bytes;
	bench_statistics(c->rank, at, n_samples, &row);
	bench_set_bandwidths(&row, n_ranks * (double)c->bytes, (n_ranks - 1) / n_ranks *
			     (kind->kind == CEOV_ALL_REDUCE ? 2 : 1));
	row.verified = c->rank->options->check ? !c->wrong[at] : -1;
	if (of.way != BENCH_WAY_NCCL && c->runs[nccl])
		row.ratio_nccl_sm = median_of(c, nccl, n_samples) / row.us_median;
	if (of.way == BENCH_WAY_CHANNEL && !of.is_graph && times_thread(c))
		row.us_call = median_of(c, MODE_THREAD + of.kind, 1);
	bench_add_row(c->rank, &row);
}

/* Hands rank 0 all samples. */
static int collect(struct bench_calls *c)
{
	uint32_t at, kind;
	int r = 0;

	for (at = 0; !r && at < BENCH_CALL_ROWS; at++)
		if (c->runs[at])
			r = bench_collect(c->rank, at, c->rank->options->n_samples);
	for (kind = 0; !r && times_thread(c) && kind < BENCH_CALL_KINDS; kind++)
		r = bench_collect(c->rank, MODE_THREAD + kind, 1);
	return r;
}

static int measure_size(struct bench_calls *c)
{
	uint32_t at;
	int r = bench_ways_open_size(c);

	bench_forget(c->rank);
	memset(c->wrong, 0, sizeof(c->wrong));
	if (!r)
		r = verify_all(c);
	if (!r)
		r = sample_all(c);
	if (!r)
		r = time_kinds(c);
	if (!r)
		r = verify_all(c);
	if (!r)
		r = collect(c);
	for (at = 0; !r && !c->rank->rank && at < BENCH_CALL_ROWS; at++)
		if (c->runs[at])
			add_row(c, at);
	return r ? r : bench_ways_close_size(c);
}

int bench_channel(struct bench_rank *rank)
{
	uint64_t bytes_max = rank->options->begin_bytes, bytes;
	struct bench_calls c;
	int r;

	if (rank->n_nodes > 1 && !rank->rank)
		bench_note(rank->options, "channel: left out, channels are for ranks of one node");
	if (rank->n_nodes > 1)
		return 0;
	for (bytes = bytes_max; bytes; bytes = bench_next_size(rank->options, bytes))
		bytes_max = bytes;
	r = open_calls(&c, rank, bytes_max);
	if (r == CEOV_NONE)
		return 0;
	for (bytes = rank->options->begin_bytes; !r && bytes;
	     bytes = bench_next_size(rank->options, bytes)) {
		c.bytes = bytes;
		r = measure_size(&c);
	}
	return r ? r : close_calls(&c);
}
