/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test mark: rank 0 raises a counter of the last rank, which waits for it and raises one of rank 0.
 * Host threads do both, by ceov_signal_raise() and ceov_signal_wait(). The time is half of the
 * round trip. With --nodes the two ranks are on different nodes.
 */

#include "base/clock.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/group.h"

#include <string.h>

#define ROUNDS  200u
#define WAIT_NS UINT64_C(10000000000)

struct game {
	struct bench_rank   *rank;
	struct bench_signals signals;
	uint64_t             value;             /* of the last round */
	int                  is_wrong;
};

static int is_player(const struct game *game)
{
	return !game->rank->rank || game->rank->rank == game->rank->n_ranks - 1;
}

static int play(struct game *game)
{
	struct bench_rank *rank = game->rank;
	ceov_signal *own = game->signals.by_rank[rank->rank];
	ceov_signal *other = game->signals.by_rank[rank->rank ? 0 : rank->n_ranks - 1];
	uint64_t end = game->value + ROUNDS, found = 0;
	int r = 0;

	while (!r && game->value < end) {
		game->value++;
		if (!rank->rank)
			r = ceov_signal_raise(other, 0, game->value);
		if (!r)
			r = ceov_signal_wait(own, 0, game->value, WAIT_NS);
		if (!r && rank->rank)
			r = ceov_signal_raise(other, 0, game->value);
	}
	if (!r)
		r = ceov_signal_value(own, 0, &found);
	game->is_wrong |= found != game->value;
	return r;
}

static int sample(struct game *game, uint32_t number)
{
	uint64_t begin;
	int r = bench_meet(game->rank);

	begin = cei_now_ns();
	if (!r && is_player(game))
		r = play(game);
	bench_sample(game->rank, 0, number, game->rank->rank ? 0
		     : (double)(cei_now_ns() - begin) / 1e3 / (2 * ROUNDS));
	return r;
}

static void add_row(struct game *game)
{
	struct bench_rank *rank = game->rank;
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "mark");
	snprintf(row.variant, sizeof(row.variant), "%s", rank->n_nodes > 1 ? "nodes" : "");
	row.mode = BENCH_OURS;
	row.ranks = rank->n_ranks;
	row.source = 0;
	row.target = (int32_t)rank->n_ranks - 1;
	bench_statistics(rank, 0, rank->options->n_samples, &row);
	row.verified = !game->is_wrong;
	bench_add_row(rank, &row);
}

int bench_mark(struct bench_rank *rank)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	const struct bench_options *options = rank->options;
	struct game game = { .rank = rank };
	uint32_t i;
	int r = bench_share_signals(rank, host, 1, 0, &game.signals);

	bench_forget(rank);
	for (i = 0; !r && i < options->n_warmup + options->n_samples; i++)
		r = sample(&game, i < options->n_warmup ? 0 : i - options->n_warmup);
	if (!r)
		r = bench_any_wrong(rank, (uint64_t)game.is_wrong, &game.is_wrong);
	if (!r)
		r = bench_collect(rank, 0, options->n_samples);
	if (!r && !rank->rank)
		add_row(&game);
	return r ? r : bench_drop_signals(rank, &game.signals);
}
