/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test broadcast: the bytes of rank 0 to all ranks, in two ways, which take turns sample by sample:
 *
 *   levels   ceov_plan_add_broadcast(): the root's node deals the pieces out, and each byte enters
 *            every other node once
 *   flat     the root sends everything to each rank itself
 *
 * A sample times LAUNCHES launches, from a barrier of the ranks until every rank has everything and
 * nothing of it is being passed on any more. Host threads raise and await all marks.
 */

#include <string.h>

#include <ceoverlap/collective.h>

#include "base/clock.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/group.h"

#define LAUNCHES 5u
#define ROOT     0u

enum way { WAY_LEVELS, WAY_FLAT, WAYS };

struct broadcast {
	struct bench_rank   *rank;
	uint64_t             bytes;
	uint32_t             n_pieces;
	struct bench_buffers target;            /* that of the root is the source */
	struct bench_signals arrived[WAYS];     /* a counter for each piece */
	struct bench_signals free[WAYS];
	ceov_plan           *plan[WAYS];
	uint64_t             n_launches[WAYS];
	uint64_t             round;             /* rises with every check; seeds its data */
	int                  wrong[WAYS];
};

/* --- objects and plans ------------------------------------------------------ */

static int open_objects(struct broadcast *b, uint64_t bytes_max)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t way;
	int r = bench_share_buffers(b->rank, bytes_max, &b->target);

	for (way = 0; !r && way < WAYS; way++) {
		r = bench_share_signals(b->rank, host, b->n_pieces, 0, &b->arrived[way]);
		if (!r)
			r = bench_share_signals(b->rank, host, b->n_pieces, 0, &b->free[way]);
	}
	return r;
}

static int close_objects(struct broadcast *b)
{
	uint32_t way;
	int r = bench_drop_buffers(b->rank, &b->target);

	for (way = 0; !r && way < WAYS; way++) {
		r = bench_drop_signals(b->rank, &b->arrived[way]);
		if (!r)
			r = bench_drop_signals(b->rank, &b->free[way]);
	}
	return r;
}

static int add_levels(struct broadcast *b)
{
	const struct ceov_broadcast broadcast = {
		.struct_bytes = sizeof(broadcast),
		.bytes = b->bytes,
		.n_pieces = b->n_pieces,
		.root = ROOT,
		.source = b->target.by_rank[ROOT],
		.targets = b->target.by_rank,
		.arrived = b->arrived[WAY_LEVELS].by_rank,
		.free = b->free[WAY_LEVELS].by_rank,
	};

	return ceov_plan_add_broadcast(b->plan[WAY_LEVELS], &broadcast);
}

/* The bytes of a piece but the last, as ceoverlap/collective.h says. */
static uint64_t piece_bytes(const struct broadcast *b)
{
	uint64_t bytes = (b->bytes + b->n_pieces - 1) / b->n_pieces;

	return (bytes + 15) / 16 * 16;
}

static int add_piece(struct broadcast *b, uint32_t piece, uint32_t to)
{
	uint64_t step = piece_bytes(b), at = piece * step;
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	int r;

	transfer.source.buffer = b->target.by_rank[ROOT];
	transfer.target.buffer = b->target.by_rank[to];
	transfer.source.offset_bytes = transfer.target.offset_bytes = at;
	transfer.row_bytes = b->bytes - at < step ? b->bytes - at : step;
	transfer.n_rows = 1;
	transfer.target_free = (struct ceov_mark){ b->free[WAY_FLAT].by_rank[to], piece, 0 };
	transfer.then = (struct ceov_mark){ b->arrived[WAY_FLAT].by_rank[to], piece, 1 };
	r = ceov_plan_add(b->plan[WAY_FLAT], &transfer);
	return r ? r : ceov_plan_expect(b->plan[WAY_FLAT], &transfer.target_free);
}

static int add_flat(struct broadcast *b)
{
	uint32_t piece, to;
	int r = 0;

	for (piece = 0; !r && piece < b->n_pieces; piece++)
		for (to = 1; !r && to < b->rank->n_ranks; to++)
			r = add_piece(b, piece, to);
	return r;
}

/* All ranks take part in the levels; the flat way is a plan of the root alone. */
static int open_plan(struct broadcast *b, enum way way)
{
	int r;

	if (way == WAY_FLAT && b->rank->rank != ROOT)
		return 0;
	r = ceov_plan_create(b->rank->context, b->rank->rank, NULL, &b->plan[way]);
	if (!r)
		r = way == WAY_LEVELS ? add_levels(b) : add_flat(b);
	return r ? r : ceov_plan_commit(b->plan[way]);
}

/* Pieces that a size has no bytes for are left out. */
static int open_plans(struct broadcast *b)
{
	uint32_t way;
	int r = 0;

	b->n_pieces = b->rank->options->n_pieces;
	while ((b->n_pieces - 1) * piece_bytes(b) >= b->bytes)
		b->n_pieces--;
	for (way = 0; !r && way < WAYS; way++)
		r = open_plan(b, (enum way)way);
	return r;
}

static void close_plans(struct broadcast *b)
{
	uint32_t way;

	for (way = 0; way < WAYS; way++) {
		ceov_plan_release(b->plan[way]);
		b->plan[way] = NULL;
	}
}

/* --- launches ---------------------------------------------------------------- */

/* Waits for what arrives at this rank and for what it sends, and then gives its target free. */
static int await(struct broadcast *b, enum way way, uint64_t base, ceov_ticket ticket)
{
	struct bench_rank *rank = b->rank;
	ceov_signal *arrived = b->arrived[way].by_rank[rank->rank];
	uint32_t piece;
	int r = 0;

	for (piece = 0; !r && rank->rank != ROOT && piece < b->n_pieces; piece++)
		r = ceov_signal_wait(arrived, piece, base + 1, bench_patience_ns(rank));
	if (!r && b->plan[way])
		r = ceov_wait(rank->context, ticket, bench_patience_ns(rank));
	for (piece = 0; !r && piece < b->n_pieces; piece++)
		r = ceov_signal_raise(b->free[way].by_rank[rank->rank], piece, base + 1);
	return r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r;
}

static int launch(struct broadcast *b, enum way way)
{
	const struct ceov_launch launch = {
		.struct_bytes = sizeof(launch),
		.base = b->n_launches[way]++,
	};
	ceov_ticket ticket = { 0 };
	int r = 0;

	if (b->plan[way])
		r = ceov_launch(b->plan[way], &launch, &ticket);
	return r ? r : await(b, way, launch.base, ticket);
}

static int sample(struct broadcast *b, enum way way, uint32_t number)
{
	uint64_t begin;
	uint32_t i;
	int r = bench_meet(b->rank);

	begin = cei_now_ns();
	for (i = 0; !r && i < LAUNCHES; i++)
		r = launch(b, way);
	if (!r)
		bench_sample(b->rank, way, number,
			     (double)(cei_now_ns() - begin) / 1e3 / LAUNCHES);
	return r;
}

/* --- data ---------------------------------------------------------------------- */

/* Runs one launch with data of its own and compares what arrived. */
static int verify(struct broadcast *b, enum way way)
{
	struct bench_rank *rank = b->rank;
	void *at = bench_address(rank, b->target.by_rank[rank->rank]);
	uint64_t seed = bench_seed(rank, ROOT, 0, ++b->round), n_wrong = 0;
	int any = 0, r;

	r = bench_fill(rank->device, at, b->bytes, rank->rank == ROOT ? seed : ~seed);
	if (!r)
		r = bench_meet(rank);
	if (!r)
		r = launch(b, way);
	if (!r)
		r = bench_verify(rank->device, at, b->bytes, seed, &n_wrong);
	if (!r)
		r = bench_any_wrong(rank, n_wrong, &any);
	b->wrong[way] |= any;
	return r;
}

static int verify_all(struct broadcast *b)
{
	uint32_t way;
	int r = 0;

	for (way = 0; !r && b->rank->options->check && way < WAYS; way++)
		r = verify(b, (enum way)way);
	return r;
}

/* --- rows ---------------------------------------------------------------------- */

static void add_row(struct broadcast *b, enum way way)
{
	struct bench_rank *rank = b->rank;
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "broadcast");
	snprintf(row.variant, sizeof(row.variant), "%s", way == WAY_LEVELS ? "levels" : "flat");
	row.mode = BENCH_OURS;
	row.ranks = rank->n_ranks;
	row.source = row.target = -1;
	row.bytes_per_rank = b->bytes;
	row.chunk_bytes = piece_bytes(b);
	bench_statistics(rank, way, rank->options->n_samples, &row);
	bench_set_bandwidths(&row, (double)b->bytes, 1);
	row.verified = rank->options->check ? !b->wrong[way] : -1;
	bench_add_row(rank, &row);
}

static int add_rows(struct broadcast *b)
{
	uint32_t way;
	int r = 0;

	for (way = 0; !r && way < WAYS; way++) {
		r = bench_collect(b->rank, way, b->rank->options->n_samples);
		if (!r && !b->rank->rank)
			add_row(b, (enum way)way);
	}
	return r;
}

static int measure_size(struct broadcast *b)
{
	const struct bench_options *options = b->rank->options;
	uint32_t i, way;
	int r = open_plans(b);

	bench_forget(b->rank);
	memset(b->wrong, 0, sizeof(b->wrong));
	if (!r)
		r = verify_all(b);
	for (i = 0; !r && i < options->n_warmup + options->n_samples; i++)
		for (way = 0; !r && way < WAYS; way++)
			r = sample(b, (enum way)way, i < options->n_warmup ? 0
				   : i - options->n_warmup);
	if (!r)
		r = verify_all(b);
	if (!r)
		r = add_rows(b);
	if (!r)
		r = bench_meet(b->rank);
	close_plans(b);
	return r;
}

int bench_broadcast(struct bench_rank *rank)
{
	uint64_t bytes_max = rank->options->begin_bytes, bytes;
	struct broadcast b;
	int r;

	memset(&b, 0, sizeof(b));
	b.rank = rank;
	b.n_pieces = rank->options->n_pieces;
	for (bytes = bytes_max; bytes; bytes = bench_next_size(rank->options, bytes))
		bytes_max = bytes;
	r = open_objects(&b, bytes_max);
	for (bytes = rank->options->begin_bytes; !r && bytes;
	     bytes = bench_next_size(rank->options, bytes)) {
		b.bytes = bytes;
		r = measure_size(&b);
	}
	return r ? r : close_objects(&b);
}
