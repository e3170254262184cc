/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test channel: collectives of fp32 through a channel, in ordinary memory. The kinds take turns
 * sample by sample. A sample times CALLS calls, after a barrier of the ranks. A row's bytes are
 * those of one shard, block or part; an all-reduce is of a part for each rank. Sums are compared
 * bit by bit, since channels add up from rank 0 on.
 */

#include <string.h>

#include <ceoverlap/channel.h>

#include "base/clock.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/group.h"
#include "tools/bench/values.h"

#define CALLS 5u

static const struct {
	const char         *name;
	enum ceov_call_kind kind;
	int                 is_sum;
	int                 has_parts;  /* one for each rank, of which a rank gets its own alone */
} kinds[] = {
	{ "all_gather",     CEOV_ALL_GATHER,     0, 0 },
	{ "reduce_scatter", CEOV_REDUCE_SCATTER, 1, 1 },
	{ "all_reduce",     CEOV_ALL_REDUCE,     1, 0 },
	{ "all_to_all",     CEOV_ALL_TO_ALL,     0, 1 },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct calls {
	struct bench_rank *rank;
	ceov_channel      *channel;
	uint64_t           bytes;       /* of a shard, block or part */
	void              *source;      /* each has room for one from, or for, every rank */
	void              *target;
	void              *wanted;
	uint64_t           round;       /* rises with every check; seeds its data */
	int                wrong[KINDS];
};

static const char *obstacle(const struct bench_rank *rank)
{
	if (rank->is_gpu)
		return "channels are for ranks on the host";
	if (rank->n_nodes > 1)
		return "channels are for ranks of one node";
	return NULL;
}

static int open_calls(struct calls *c, struct bench_rank *rank, uint64_t bytes_max)
{
	const struct ceov_channel_config config = {
		.struct_bytes = sizeof(config),
		.rank = rank->rank,
		.name = "bench",
	};
	uint64_t n_bytes = bytes_max * rank->n_ranks;
	int r;

	memset(c, 0, sizeof(*c));
	c->rank = rank;
	r = ceov_channel_create(rank->context, &config, &c->channel);
	if (!r)
		r = ceov_channel_connect(c->channel, bench_patience_ns(rank));
	if (!r)
		r = bench_allocate(rank->device, n_bytes, &c->source);
	if (!r)
		r = bench_allocate(rank->device, n_bytes, &c->target);
	if (!r)
		r = bench_allocate(rank->device, n_bytes, &c->wanted);
	if (!r)
		memset(c->source, 0, n_bytes);
	return r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r;
}

/* The context releases a channel whose peers do not yet. */
static int close_calls(struct calls *c)
{
	int r = ceov_channel_release(c->channel);

	bench_release(c->rank->device, c->source);
	bench_release(c->rank->device, c->target);
	bench_release(c->rank->device, c->wanted);
	return r == CEOV_PENDING ? 0 : r;
}

/* The values of a shard, block or part. */
static uint64_t n_values(const struct calls *c)
{
	return c->bytes / sizeof(float);
}

/* What a rank's source has for each rank: a part, or, of an all-reduce, everything. */
static uint64_t count_of(const struct calls *c, uint32_t i)
{
	return n_values(c) * (kinds[i].kind == CEOV_ALL_REDUCE ? c->rank->n_ranks : 1);
}

static int call(struct calls *c, uint32_t i)
{
	const struct ceov_call call = {
		.struct_bytes = sizeof(call),
		.kind = kinds[i].kind,
		.dtype = CEOV_FP32,
		.source = c->source,
		.target = c->target,
		.count = count_of(c, i),
	};

	return ceov_channel_run(c->channel, &call, 1);
}

static int sample(struct calls *c, uint32_t i, uint32_t number)
{
	uint64_t begin;
	uint32_t k;
	int r = bench_meet(c->rank);

	begin = cei_now_ns();
	for (k = 0; !r && k < CALLS; k++)
		r = call(c, i);
	if (!r)
		bench_sample(c->rank, i, number, (double)(cei_now_ns() - begin) / 1e3 / CALLS);
	return r;
}

/* --- data ---------------------------------------------------------------------- */

/* Writes what is to come from a rank, beside or onto what comes from those before it. */
static int want(struct calls *c, uint32_t i, uint32_t source)
{
	struct bench_rank *rank = c->rank;
	int is_sum = kinds[i].is_sum;
	const struct bench_values values = {
		.at = (char *)c->wanted + (is_sum ? 0 : source * c->bytes),
		.n = count_of(c, i),
		.seed = bench_seed(rank, source, 0, c->round),
		.first = kinds[i].has_parts ? rank->rank * n_values(c) : 0,
		.kind = is_sum && source ? BENCH_VALUES_ADD : BENCH_VALUES_FLOAT,
	};

	return bench_make_values(rank->device, &values);
}

/* Makes one call with data of its own and compares the whole target: what the call leaves alone
 * stays as it was. */
static int verify(struct calls *c, uint32_t i)
{
	struct bench_rank *rank = c->rank;
	uint64_t n_bytes = rank->n_ranks * c->bytes;
	const struct bench_values values = {
		.at = c->source,
		.n = n_bytes / sizeof(float),
		.seed = bench_seed(rank, rank->rank, 0, ++c->round),
		.kind = BENCH_VALUES_FLOAT,
	};
	uint32_t source;
	int any = 0, r = bench_make_values(rank->device, &values);

	memset(c->target, 0xff, n_bytes);
	memset(c->wanted, 0xff, n_bytes);
	for (source = 0; !r && source < rank->n_ranks; source++)
		r = want(c, i, source);
	if (!r)
		r = call(c, i);
	if (!r)
		r = bench_any(rank, memcmp(c->target, c->wanted, n_bytes) != 0, &any);
	c->wrong[i] |= any;
	return r;
}

static int verify_all(struct calls *c)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && c->rank->options->check && i < KINDS; i++)
		r = verify(c, i);
	return r;
}

/* --- rows ---------------------------------------------------------------------- */

/* An all-reduce moves what a reduce-scatter and an all-gather of its parts do. */
static void add_row(struct calls *c, uint32_t i)
{
	struct bench_rank *rank = c->rank;
	double moved = (double)(rank->n_ranks - 1) * (double)c->bytes;
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "%s", kinds[i].name);
	snprintf(row.variant, sizeof(row.variant), "channel");
	row.mode = BENCH_OURS;
	row.ranks = rank->n_ranks;
	row.source = row.target = -1;
	row.bytes_per_rank = c->bytes;
	bench_statistics(rank, i, rank->options->n_samples, &row);
	row.gb_per_s = moved * (kinds[i].kind == CEOV_ALL_REDUCE ? 2 : 1) / row.us_median / 1e3;
	row.verified = rank->options->check ? !c->wrong[i] : -1;
	bench_add_row(rank, &row);
}

static int add_rows(struct calls *c)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < KINDS; i++) {
		r = bench_collect(c->rank, i, c->rank->options->n_samples);
		if (!r && !c->rank->rank)
			add_row(c, i);
	}
	return r;
}

static int measure_size(struct calls *c)
{
	const struct bench_options *options = c->rank->options;
	uint32_t k, i;
	int r;

	bench_forget(c->rank);
	memset(c->wrong, 0, sizeof(c->wrong));
	r = verify_all(c);
	for (k = 0; !r && k < options->n_warmup + options->n_samples; k++)
		for (i = 0; !r && i < KINDS; i++)
			r = sample(c, i, k < options->n_warmup ? 0 : k - options->n_warmup);
	if (!r)
		r = verify_all(c);
	if (!r)
		r = add_rows(c);
	return r ? r : bench_meet(c->rank);
}

int bench_channel(struct bench_rank *rank)
{
	uint64_t bytes_max = rank->options->begin_bytes, bytes;
	const char *why = obstacle(rank);
	struct calls c;
	int r;

	if (why && !rank->rank)
		printf("# channel: left out, %s\n", why);
	if (why)
		return 0;
	for (bytes = bytes_max; bytes; bytes = bench_next_size(rank->options, bytes))
		bytes_max = bytes;
	r = open_calls(&c, rank, bytes_max);
	for (bytes = rank->options->begin_bytes; !r && bytes;
	     bytes = bench_next_size(rank->options, bytes)) {
		c.bytes = bytes;
		r = measure_size(&c);
	}
	return r ? r : close_calls(&c);
}
