/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests all_gather and all_to_all. They compare ours (polled, gated) with raw driver calls and
 * NCCL's two modes, alternating sample by sample in one run.
 *
 * A sample times LAUNCHES launches back to back between two events on the caller's stream (on the
 * host: between two readings of the clock), after a barrier of the ranks. It ends when every
 * block's mark is raised at every rank. Launches alternate between two targets, and the consumer's
 * free marks are raised on a separate stream. The all-gather is in place. In the all-to-all a
 * rank's own block is not copied, except by NCCL, whose call always copies it.
 *
 * Over nodes ours alone runs, polled, its marks raised and awaited by the calling thread, and the
 * clock is read also on GPUs. Of the all-gather there are both ways between nodes, and each of its
 * levels alone.
 */

#include <string.h>

#include "base/clock.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/cases/collective.h"

#define LAUNCHES 5u

/* --- set-up -------------------------------------------------------------- */

static int open_set(struct bench_collective *c, struct bench_set *set, uint64_t bytes_max)
{
	struct bench_rank *rank = c->rank;
	struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t n_counters = rank->n_ranks * c->n_pieces;
	int r;

	r = bench_share_buffers(rank, bytes_max * rank->n_ranks, &set->target);
	if (!r)
		r = bench_share_signals(rank, bench_mark_place(rank), n_counters,
					rank->options->signal_flags, &set->arrived);
	if (!r)
		r = bench_share_signals(rank, host, n_counters, 0, &set->free);
	if (!r)
		r = ceov_signal_create(rank->context, rank->rank, host, c->n_pieces, 0,
				       &set->ready[0]);
	if (!r)
		r = ceov_signal_create(rank->context, rank->rank, bench_mark_place(rank),
				       c->n_pieces, rank->options->signal_flags,
				       &set->ready[1]);
	return r;
}

static int open_nccl(struct bench_collective *c, enum bench_method method, uint64_t bytes_max)
{
	const char *why = "";
	int r = bench_nccl_open(c->rank, method == BENCH_METHOD_NCCL_CE,
				bytes_max * c->rank->n_ranks, &c->nccl[method], &why);

	c->runs[method] = !r;
	if (r == CEOV_NONE && !c->rank->rank)
		bench_note(c->rank->options, "NCCL %s is left out: %s",
			   method == BENCH_METHOD_NCCL_CE ? "zero-CTA" : "SM", why);
	return r == CEOV_NONE ? 0 : r;
}

static void choose_methods(struct bench_collective *c)
{
	uint32_t triggers = c->rank->options->triggers;

	c->is_far = c->rank->n_nodes > 1;
	c->runs[BENCH_METHOD_POLLED] = c->is_far || (triggers & BENCH_POLLED);
	c->runs[BENCH_METHOD_GATED] = !c->is_far && (triggers & BENCH_GATED);
	c->runs[BENCH_METHOD_FOLLOW] = !c->is_far && c->rank->is_gpu && (triggers & BENCH_FOLLOW);
	c->runs[BENCH_METHOD_RAW] = !c->is_far;
	c->runs[BENCH_METHOD_RING] = c->runs[BENCH_METHOD_WITHIN] =
		c->runs[BENCH_METHOD_BETWEEN] = c->is_far && c->pattern == BENCH_ALL_GATHER;
}

static int open_collective(struct bench_collective *c, struct bench_rank *rank,
			   enum bench_pattern pattern)
{
	uint64_t bytes_max = rank->options->begin_bytes, bytes;
	uint32_t i;
	int r = 0;

	memset(c, 0, sizeof(*c));
	c->rank = rank;
	c->pattern = pattern;
	c->n_pieces = rank->options->n_pieces;
	c->n_sets = rank->options->n_targets;
	choose_methods(c);
	for (bytes = bytes_max; bytes; bytes = bench_next_size(rank->options, bytes))
		bytes_max = bytes;
	for (i = 0; !r && i < c->n_sets; i++)
		r = open_set(c, &c->sets[i], bytes_max);
	if (!r && pattern == BENCH_ALL_TO_ALL)
		r = bench_share_buffers(rank, bytes_max * rank->n_ranks, &c->source);
	if (!r && c->runs[BENCH_METHOD_WITHIN])
		r = bench_levels_open(c);
	if (!r)
		r = bench_share_buffers(rank, 4096, &c->flags);
	if (!r)         /* flags must start at 0, and a fill would write its pattern */
		r = rank->is_gpu ? 0 : (memset(bench_address(rank, c->flags.by_rank[
				rank->rank]), 0, 4096), 0);
	if (!r)
		r = open_nccl(c, BENCH_METHOD_NCCL_SM, bytes_max);
	if (!r)
		r = open_nccl(c, BENCH_METHOD_NCCL_CE, bytes_max);
	return r ? r : bench_meet(rank);
}

static int close_collective(struct bench_collective *c)
{
	struct bench_set *set;
	uint32_t i, k;
	int r = 0;

	bench_nccl_close(c->nccl[BENCH_METHOD_NCCL_SM]);
	bench_nccl_close(c->nccl[BENCH_METHOD_NCCL_CE]);
	for (i = 0; !r && i < c->n_sets; i++) {
		set = &c->sets[i];
		r = bench_drop_buffers(c->rank, &set->target);
		if (!r)
			r = bench_drop_signals(c->rank, &set->arrived);
		if (!r)
			r = bench_drop_signals(c->rank, &set->free);
		for (k = 0; !r && k < 2; k++)
			r = ceov_signal_release(set->ready[k]);
	}
	if (!r && c->pattern == BENCH_ALL_TO_ALL)
		r = bench_drop_buffers(c->rank, &c->source);
	if (!r && c->runs[BENCH_METHOD_WITHIN])
		r = bench_levels_close(c);
	return r ? r : bench_drop_buffers(c->rank, &c->flags);
}

/* --- taking a sample ----------------------------------------------------- */

static int settle(struct bench_rank *rank)
{
	int r = 0;

	if (rank->is_gpu) {
		r = bench_stream_sync(rank->device, BENCH_STREAM_MAIN);
		if (!r)
			r = bench_stream_sync(rank->device, BENCH_STREAM_SIDE);
		if (!r)
			r = bench_stream_sync(rank->device, BENCH_STREAM_COPY);
	}
	return r ? r : bench_meet(rank);
}

static int sample(struct bench_collective *c, enum bench_method method, uint32_t number,
		  uint32_t n_launches)
{
	struct bench_rank *rank = c->rank;
	uint64_t begin = 0;
	double us = 0;
	uint32_t i;
	int by_events = rank->is_gpu && !c->is_far, r = bench_meet(rank);

	if (!r && by_events)
		r = bench_time_begin(rank->device);
	begin = cei_now_ns();
	for (i = 0; !r && i < n_launches; i++)
		r = bench_methods_once(c, method, i + 1 == n_launches);
	if (!r && by_events)
		r = bench_time_us(rank->device, &us);
	else
		us = (double)(cei_now_ns() - begin) / 1e3;
	if (!r && n_launches == LAUNCHES)       /* not that of a check */
		bench_sample(rank, method, number, us / n_launches);
	return r ? r : settle(rank);
}

/* --- filling and checking data ------------------------------------------- */

/* Returns where the next launch of the method writes. */
static char *target_of(struct bench_collective *c, enum bench_method method)
{
	struct bench_rank *rank = c->rank;
	uint64_t next = method == BENCH_METHOD_RAW ? c->n_raw + 1 : c->n_ours;

	if (method == BENCH_METHOD_NCCL_SM || method == BENCH_METHOD_NCCL_CE)
		return bench_nccl_target(c->nccl[method]);
	if (method >= BENCH_METHOD_WITHIN)
		next = 0;
	return bench_address(rank, c->sets[next % c->n_sets].target.by_rank[rank->rank]);
}

static char *source_of(struct bench_collective *c, enum bench_method method)
{
	struct bench_rank *rank = c->rank;

	if (method == BENCH_METHOD_NCCL_SM || method == BENCH_METHOD_NCCL_CE)
		return bench_nccl_source(c->nccl[method]);
	return bench_address(rank, c->source.by_rank[rank->rank]);
}

static int prepare_data(struct bench_collective *c, enum bench_method method)
{
	struct bench_rank *rank = c->rank;
	uint32_t own = rank->rank, target;
	char *at = target_of(c, method);
	int r;

	c->round++;
	r = bench_fill(rank->device, at, c->bytes * rank->n_ranks, ~c->round);
	if (c->pattern == BENCH_ALL_GATHER)
		return r ? r : bench_fill(rank->device, at + own * c->bytes, c->bytes,
					  bench_seed(rank, own, 0, c->round));
	for (target = 0; !r && target < rank->n_ranks; target++)
		r = bench_fill(rank->device, source_of(c, method) + target * c->bytes,
			       c->bytes, bench_seed(rank, own, target, c->round));
	return r;
}

/* Meets the others, so that all know whether any rank has found wrong data. */
static int check_data(struct bench_collective *c, enum bench_method method, const char *at)
{
	struct bench_rank *rank = c->rank;
	uint64_t n_wrong = 0, n_all = 0;
	uint32_t source;
	int any = 0, r = 0;

	for (source = 0; !r && source < rank->n_ranks; source++) {
		if (source == rank->rank)
			continue;
		r = bench_verify(rank->device, at + source * c->bytes, c->bytes,
				 bench_seed(rank, source, c->pattern == BENCH_ALL_GATHER ? 0
					    : rank->rank, c->round), &n_wrong);
		n_all += n_wrong;
	}
	if (!r)
		r = bench_any_wrong(rank, n_all, &any);
	c->wrong[method] |= any;
	return r;
}

/* Runs one launch into every target, each with different data, and checks what arrived. */
static int verify(struct bench_collective *c, enum bench_method method)
{
	const char *at;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < c->n_sets; i++) {
		at = target_of(c, method);
		r = prepare_data(c, method);
		if (!r)
			r = sample(c, method, 0, 1);
		if (!r)
			r = check_data(c, method, at);
	}
	return r;
}

/* Runs the levels one after the other, which is a whole all-gather, and checks what arrived. */
static int verify_levels(struct bench_collective *c)
{
	int r = prepare_data(c, BENCH_METHOD_BETWEEN);

	if (!r)
		r = sample(c, BENCH_METHOD_BETWEEN, 0, 1);
	if (!r)
		r = sample(c, BENCH_METHOD_WITHIN, 0, 1);
	if (!r)
		r = check_data(c, BENCH_METHOD_WITHIN, target_of(c, BENCH_METHOD_WITHIN));
	return r;
}

static int verify_all(struct bench_collective *c)
{
	uint32_t method;
	int r = 0;

	if (!c->rank->options->check)
		return 0;
	for (method = 0; !r && method < BENCH_METHOD_WITHIN; method++)
		if (c->runs[method])
			r = verify(c, (enum bench_method)method);
	return r || !c->runs[BENCH_METHOD_WITHIN] ? r : verify_levels(c);
}

/* --- rows ---------------------------------------------------------------- */

static void name_row(const struct bench_collective *c, enum bench_method method,
		     struct bench_row *row)
{
	static const char *const names[] = { "polled", "gated", "follow", "ring" };
	static const enum bench_mode kinds[BENCH_METHOD_WITHIN] = {
		BENCH_OURS, BENCH_OURS, BENCH_OURS, BENCH_OURS, BENCH_RAW, BENCH_NCCL_SM,
		BENCH_NCCL_CE };
	const char *name;

	memset(row, 0, sizeof(*row));
	snprintf(row->test, sizeof(row->test), "%s", c->pattern == BENCH_ALL_GATHER
		 ? "all_gather" : "all_to_all");
	row->mode = kinds[method];
	if (row->mode == BENCH_OURS) {
		name = names[method];
		if (c->is_far && method == BENCH_METHOD_POLLED)
			name = c->pattern == BENCH_ALL_GATHER ? "direct" : "nodes";
		snprintf(row->variant, sizeof(row->variant), "%s", name);
	}
	row->ranks = c->rank->n_ranks;
	row->source = row->target = -1;
	row->bytes_per_rank = c->bytes;
	if (row->mode == BENCH_OURS || row->mode == BENCH_RAW)
		row->chunk_bytes = c->bytes / c->n_pieces;
	row->verified = c->rank->options->check ? !c->wrong[method] : -1;
}

/* Adds the times of the levels to the row of the way whose levels they are. */
static void add_levels(struct bench_collective *c, struct bench_row *row)
{
	uint32_t n_samples = c->rank->options->n_samples;
	struct bench_row alone;

	bench_statistics(c->rank, BENCH_METHOD_WITHIN, n_samples, &alone);
	row->us_within = c->rank->n_ranks > c->rank->n_nodes ? alone.us_median : 0;
	bench_statistics(c->rank, BENCH_METHOD_BETWEEN, n_samples, &alone);
	row->us_between = alone.us_median;
	if (c->wrong[BENCH_METHOD_WITHIN])
		row->verified = 0;
}

static void add_ratios(struct bench_row *rows, uint32_t method)
{
	rows[method].ratio_raw = rows[BENCH_METHOD_RAW].us_median / rows[method].us_median;
	rows[method].ratio_nccl_sm = rows[BENCH_METHOD_NCCL_SM].us_median /
		rows[method].us_median;
	rows[method].ratio_nccl_ce = rows[BENCH_METHOD_NCCL_CE].us_median /
		rows[method].us_median;
}

static void add_rows(struct bench_collective *c)
{
	struct bench_row rows[BENCH_METHOD_WITHIN];
	double n_ranks = c->rank->n_ranks;
	uint32_t method;

	for (method = 0; method < BENCH_METHOD_WITHIN; method++) {
		name_row(c, (enum bench_method)method, &rows[method]);
		if (!c->runs[method])
			continue;
		bench_statistics(c->rank, method, c->rank->options->n_samples, &rows[method]);
		bench_set_bandwidths(&rows[method], n_ranks * (double)c->bytes,
				     (n_ranks - 1) / n_ranks);
	}
	if (c->runs[BENCH_METHOD_WITHIN])
		add_levels(c, &rows[BENCH_METHOD_POLLED]);
	for (method = 0; method < BENCH_METHOD_WITHIN; method++) {
		if (!c->runs[method])
			continue;
		if (method <= BENCH_METHOD_RING)
			add_ratios(rows, method);
		bench_add_row(c->rank, &rows[method]);
	}
}

/* Hands rank 0 the samples of all methods. */
static int collect(struct bench_collective *c)
{
	uint32_t method;
	int r = 0;

	for (method = 0; !r && method < BENCH_METHODS; method++)
		if (c->runs[method])
			r = bench_collect(c->rank, method, c->rank->options->n_samples);
	return r;
}

static int measure_size(struct bench_collective *c)
{
	const struct bench_options *options = c->rank->options;
	uint32_t i, method;
	int r = bench_methods_open_plans(c);

	bench_forget(c->rank);
	memset(c->wrong, 0, sizeof(c->wrong));
	if (!r)
		r = verify_all(c);
	for (i = 0; !r && i < options->n_warmup + options->n_samples; i++)
		for (method = 0; !r && method < BENCH_METHODS; method++)
			if (c->runs[method])
				r = sample(c, (enum bench_method)method, i < options->n_warmup ? 0
					   : i - options->n_warmup, LAUNCHES);
	if (!r)
		r = verify_all(c);
	if (!r)
		r = collect(c);
	if (!r && !c->rank->rank)
		add_rows(c);
	if (!r)
		bench_methods_close_plans(c);
	return r ? r : bench_meet(c->rank);
}

static int run(struct bench_rank *rank, enum bench_pattern pattern)
{
	struct bench_collective c;
	uint64_t bytes;
	int r = open_collective(&c, rank, pattern);

	for (bytes = rank->options->begin_bytes; !r && bytes;
	     bytes = bench_next_size(rank->options, bytes)) {
		c.bytes = bytes;
		r = measure_size(&c);
	}
	return r ? r : close_collective(&c);
}

int bench_all_gather(struct bench_rank *rank)
{
	return run(rank, BENCH_ALL_GATHER);
}

int bench_all_to_all(struct bench_rank *rank)
{
	return run(rank, BENCH_ALL_TO_ALL);
}
