/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The two levels of an all-gather over nodes, each alone: the same transfers as those of
 * ceov_plan_add_all_gather(), divided among two plans. Transfers within the node pass on what lies
 * in the target already, so they wait for nothing.
 */

#include "tools/bench/cases/collective.h"

#include <string.h>

static uint32_t index_of(const struct bench_rank *rank, uint32_t of)
{
	uint32_t i, n = 0;

	for (i = 0; i < of; i++)
		n += rank->nodes[i] == rank->nodes[of];
	return n;
}

static uint32_t size_of(const struct bench_rank *rank, uint32_t node)
{
	uint32_t i, n = 0;

	for (i = 0; i < rank->n_ranks; i++)
		n += rank->nodes[i] == node;
	return n;
}

/* The rank of that node, another one, that gets the source's shard and passes it on. */
static uint32_t entry_of(const struct bench_rank *rank, uint32_t source, uint32_t node)
{
	uint32_t wanted = index_of(rank, source) % size_of(rank, node), i;

	for (i = 0; i + 1 < rank->n_ranks; i++)
		if (rank->nodes[i] == node && index_of(rank, i) == wanted)
			break;
	return i;
}

/* The level on which this rank's plan moves the source's shard to another rank; BENCH_LEVELS: it
 * does not. */
static enum bench_level level_of(const struct bench_rank *rank, uint32_t from, uint32_t source,
				 uint32_t to)
{
	uint32_t node = rank->nodes[from];

	if (to == from || to == source)
		return BENCH_LEVELS;
	if (rank->nodes[to] == node)
		return source == from || (rank->nodes[source] != node &&
					  entry_of(rank, source, node) == from)
			? BENCH_LEVEL_WITHIN : BENCH_LEVELS;
	return source == from && entry_of(rank, source, rank->nodes[to]) == to
		? BENCH_LEVEL_BETWEEN : BENCH_LEVELS;
}

static void find_gets(struct bench_collective *c)
{
	const struct bench_rank *rank = c->rank;
	uint32_t from, source;
	enum bench_level level;

	memset(c->levels.gets, 0, sizeof(c->levels.gets));
	for (from = 0; from < rank->n_ranks; from++)
		for (source = 0; source < rank->n_ranks; source++) {
			level = level_of(rank, from, source, rank->rank);
			if (level != BENCH_LEVELS)
				c->levels.gets[level][source] = 1;
		}
}

int bench_levels_open(struct bench_collective *c)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t level;
	int r = 0;

	find_gets(c);
	for (level = 0; !r && level < BENCH_LEVELS; level++)
		r = bench_share_signals(c->rank, host, c->rank->n_ranks * c->n_pieces, 0,
					&c->levels.arrived[level]);
	return r;
}

int bench_levels_close(struct bench_collective *c)
{
	uint32_t level;
	int r = 0;

	for (level = 0; !r && level < BENCH_LEVELS; level++)
		r = bench_drop_signals(c->rank, &c->levels.arrived[level]);
	return r;
}

/* --- plans --------------------------------------------------------------- */

/* The bytes of a piece but the last, as ceoverlap/collective.h says. */
static uint64_t piece_bytes(const struct bench_collective *c)
{
	uint64_t bytes = (c->bytes + c->n_pieces - 1) / c->n_pieces;

	return (bytes + 15) / 16 * 16;
}

static int add(struct bench_collective *c, enum bench_level level, uint32_t source, uint32_t to)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	uint64_t at = 0, step = piece_bytes(c);
	uint32_t piece;
	int r = 0;

	transfer.source.buffer = c->sets[0].target.by_rank[c->rank->rank];
	transfer.target.buffer = c->sets[0].target.by_rank[to];
	transfer.n_rows = 1;
	for (piece = 0; !r && piece < c->n_pieces; piece++, at += step) {
		transfer.source.offset_bytes = source * c->bytes + at;
		transfer.target.offset_bytes = source * c->bytes + at;
		transfer.row_bytes = c->bytes - at < step ? c->bytes - at : step;
		transfer.then = (struct ceov_mark){ c->levels.arrived[level].by_rank[to],
			source * c->n_pieces + piece, 1 };
		r = ceov_plan_add(c->levels.plan[level], &transfer);
	}
	return r;
}

/* Adds all transfers of this rank on that level: those of its own shard before those of others, and
 * targets from the next rank on. */
static int add_all(struct bench_collective *c, enum bench_level level, uint32_t *ret_n)
{
	uint32_t n_ranks = c->rank->n_ranks, own = c->rank->rank, i, k, source, to;
	int r = 0;

	*ret_n = 0;
	for (k = 0; !r && k < n_ranks; k++)
		for (i = 1; !r && i < n_ranks; i++) {
			source = (own + k) % n_ranks;
			to = (own + i) % n_ranks;
			if (level_of(c->rank, own, source, to) != level)
				continue;
			r = add(c, level, source, to);
			++*ret_n;
		}
	return r;
}

/* A rank that sends nothing on that level has no plan of it. */
static int open_plan(struct bench_collective *c, enum bench_level level)
{
	ceov_plan **plan = &c->levels.plan[level];
	uint32_t n;
	int r = ceov_plan_create(c->rank->context, c->rank->rank, NULL, plan);

	if (!r)
		r = add_all(c, level, &n);
	if (!r && n)
		return ceov_plan_commit(*plan);
	ceov_plan_release(*plan);
	*plan = NULL;
	return r;
}

int bench_levels_open_plans(struct bench_collective *c)
{
	int r = open_plan(c, BENCH_LEVEL_WITHIN);

	return r ? r : open_plan(c, BENCH_LEVEL_BETWEEN);
}

void bench_levels_close_plans(struct bench_collective *c)
{
	uint32_t level;

	for (level = 0; level < BENCH_LEVELS; level++) {
		ceov_plan_release(c->levels.plan[level]);
		c->levels.plan[level] = NULL;
	}
}

int bench_levels_once(struct bench_collective *c, enum bench_level level)
{
	struct bench_levels *levels = &c->levels;
	struct bench_rank *rank = c->rank;
	ceov_signal *arrived = levels->arrived[level].by_rank[rank->rank];
	struct ceov_launch launch = {
		.struct_bytes = sizeof(launch),
		.base = levels->n_launches[level]++,
	};
	ceov_ticket ticket = { 0 };
	uint32_t source, piece;
	int r = 0;

	if (levels->plan[level])
		r = ceov_launch(levels->plan[level], &launch, &ticket);
	for (source = 0; source < rank->n_ranks; source++)
		for (piece = 0; !r && levels->gets[level][source] && piece < c->n_pieces; piece++)
			r = ceov_signal_wait(arrived, source * c->n_pieces + piece,
					     launch.base + 1, bench_patience_ns(rank));
	return r || !levels->plan[level] ? r
		: ceov_wait(rank->context, ticket, bench_patience_ns(rank));
}
