/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Test "doorbell": a kernel on rank 0 raises a flag, bytes go to rank 1, and a flag comes back to
 * the waiting kernel. The kernel times each round by its own clock. Our polled launch is compared
 * with a hand-written polling loop, our gated launch with hand-written stream waits. On host ranks
 * a thread stands in for the kernel, and raw is a plain memcpy() in that thread.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ce_engine/objects/signal.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/group.h"

#define ROUNDS_PER_GAME 200u
#define ROUNDS_AHEAD    32u
#define WAIT_NS         UINT64_C(60000000000)

enum mode { OURS_POLLED, OURS_GATED, RAW_POLLED, RAW_GATED, MODES };

struct doorbell {
	struct bench_rank   *rank;
	uint64_t             bytes;
	struct bench_buffers from;
	struct bench_buffers to;
	ceov_signal         *raised[2];         /* raised by the kernel: [0] polled by the host, [1]
						 * awaited on the GPU */
	ceov_signal         *returned;          /* raised when the data has arrived; the kernel
						 * waits for it */
	ceov_plan           *plan[2];           /* polled, gated */
	uint64_t             value;             /* counter value of the last round */
	uint64_t             round;             /* rises with every check; seeds its data */
	int                  wrong[MODES];
	double               us[MODES][BENCH_SAMPLES_MAX];
	double               rounds[ROUNDS_PER_GAME];
};

static int open_plan(struct doorbell *d, int is_gated)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	int r;

	transfer.source_ready = (struct ceov_mark){ d->raised[is_gated], 0, 1 };
	transfer.source.buffer = d->from.by_rank[0];
	transfer.target.buffer = d->to.by_rank[1];
	transfer.row_bytes = d->bytes;
	transfer.n_rows = 1;
	transfer.then = (struct ceov_mark){ d->returned, 0, 1 };
	r = ceov_plan_create(d->rank->context, 0, NULL, &d->plan[is_gated]);
	if (!r)
		r = ceov_plan_expect(d->plan[is_gated], &transfer.source_ready);
	if (!r)
		r = ceov_plan_add(d->plan[is_gated], &transfer);
	return r ? r : ceov_plan_commit(d->plan[is_gated]);
}

static int open_signals(struct doorbell *d)
{
	struct ceov_place host = { CEOV_PLACE_HOST, 0 }, own = bench_place(d->rank);
	uint32_t flags = d->rank->options->signal_flags;
	int r;

	r = ceov_signal_create(d->rank->context, 0, host, 1, 0, &d->raised[0]);
	if (!r)
		r = ceov_signal_create(d->rank->context, 0, own, 1, flags, &d->raised[1]);
	if (!r)
		r = ceov_signal_create(d->rank->context, 0, own, 1, flags, &d->returned);
	return r;
}

/* --- GPU ----------------------------------------------------------------- */

static int feed_ours(struct doorbell *d, int is_gated, uint64_t first, uint32_t *n_fed,
		     uint32_t n)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	int r = 0;

	if (is_gated)
		launch.producer_stream = bench_stream(d->rank->device, BENCH_STREAM_MAIN);
	while (!r && *n_fed < n) {
		launch.base = first + *n_fed;
		r = ceov_launch(d->plan[is_gated], &launch, NULL);
		*n_fed += !r;
	}
	return r == CEOV_FULL ? 0 : r;
}

static void *address_of(ceov_signal *signal, struct ceov_device_signal *view)
{
	return ceov_signal_for_device(signal, 0, view) ? NULL : view->counters;
}

static int raw_copy_and_flag(struct doorbell *d, void *flag, uint64_t value)
{
	struct bench_copy copy = {
		.target = bench_address(d->rank, d->to.by_rank[1]),
		.source = bench_address(d->rank, d->from.by_rank[0]),
		.row_bytes = d->bytes,
		.n_rows = 1,
	};
	int r = 0;

	if (d->bytes)
		r = bench_raw_copies(d->rank->device, BENCH_STREAM_COPY, &copy, 1);
	return r ? r : bench_raw_flags(d->rank->device, BENCH_STREAM_COPY, &flag, 1, value);
}

/* Hand-written counterpart of polled launches: polls the pinned word, then queues the copy. */
static int play_raw_polled(struct doorbell *d, uint64_t first, uint32_t n)
{
	const _Atomic uint64_t *word = cei_signal_word(d->raised[0], 0);
	struct ceov_device_signal view;
	void *flag = address_of(d->returned, &view);
	uint64_t deadline = cei_deadline(WAIT_NS);
	uint32_t i;
	int r = 0;

	for (i = 1; !r && i <= n; i++) {
		/* acquire: pairs with the kernel's st.release.sys */
		while (atomic_load_explicit(word, memory_order_acquire) < first + i)
			if (cei_now_ns() > deadline)
				return CEOV_ERR_TIMEOUT;
		r = raw_copy_and_flag(d, flag, first + i);
	}
	return r;
}

/* Hand-written counterpart of gated launches: queues copies behind stream waits, as many rounds
 * ahead as ours may be. */
static int play_raw_gated(struct doorbell *d, uint64_t first, uint32_t n)
{
	struct ceov_device_signal raised, returned;
	void *gate = address_of(d->raised[1], &raised);
	void *flag = address_of(d->returned, &returned);
	uint32_t i;
	int r = 0;

	for (i = 1; !r && i <= n; i++) {
		if (i % ROUNDS_AHEAD == 0)
			r = bench_stream_sync(d->rank->device, BENCH_STREAM_COPY);
		if (!r)
			r = bench_raw_waits(d->rank->device, BENCH_STREAM_COPY, &gate, 1,
					    first + i);
		if (!r)
			r = raw_copy_and_flag(d, flag, first + i);
	}
	return r;
}

static int play_ours(struct doorbell *d, int is_gated, uint64_t first, uint32_t n,
		     uint32_t n_fed)
{
	uint64_t deadline = cei_deadline(WAIT_NS);
	int r = 0;

	while (!r && n_fed < n) {
		r = feed_ours(d, is_gated, first, &n_fed, n);
		if (cei_now_ns() > deadline)
			return CEOV_ERR_TIMEOUT;
	}
	return r;
}

static int game_gpu(struct doorbell *d, enum mode mode, uint32_t n)
{
	int is_gated = mode == OURS_GATED || mode == RAW_GATED;
	struct bench_pingpong game = { .first_value = d->value + 1, .n_rounds = n };
	uint32_t n_fed = 0;
	int r;

	r = ceov_signal_for_device(d->raised[is_gated], 0, &game.raised);
	if (!r)
		r = ceov_signal_for_device(d->returned, 0, &game.awaited);
	if (!r && mode == OURS_POLLED)  /* launched before the kernel starts */
		r = feed_ours(d, 0, d->value, &n_fed, n);
	if (!r)
		r = bench_pingpong_start(d->rank->device, &game);
	if (!r && mode == RAW_POLLED)
		r = play_raw_polled(d, d->value, n);
	else if (!r && mode == RAW_GATED)
		r = play_raw_gated(d, d->value, n);
	else if (!r)
		r = play_ours(d, is_gated, d->value, n, n_fed);
	if (!r)
		r = bench_pingpong_wait(d->rank->device, n, d->rounds);
	if (!r)
		r = bench_stream_sync(d->rank->device, BENCH_STREAM_COPY);
	d->value += n;
	return r;
}

/* --- host ranks ---------------------------------------------------------- */

static int game_host(struct doorbell *d, enum mode mode, uint32_t n)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	int is_gated = mode == OURS_GATED;
	uint64_t begin;
	uint32_t i;
	int r = 0;

	launch.producer_stream = is_gated ? d : NULL;
	for (i = 0; !r && i < n; i++) {
		begin = cei_now_ns();
		if (mode == RAW_POLLED || mode == RAW_GATED) {
			memcpy(bench_address(d->rank, d->to.by_rank[1]),
			       bench_address(d->rank, d->from.by_rank[0]), d->bytes);
		} else {
			launch.base = d->value++;
			r = ceov_launch(d->plan[is_gated], &launch, NULL);
			begin = cei_now_ns();
			if (!r)
				r = ceov_signal_raise(d->raised[is_gated], 0,
						      launch.base + 1);
			if (!r)
				r = ceov_signal_wait(d->returned, 0, launch.base + 1,
						     WAIT_NS);
		}
		d->rounds[i] = (double)(cei_now_ns() - begin) / 1e3;
	}
	return r;
}

/* --- playing rounds ------------------------------------------------------ */

static int game(struct doorbell *d, enum mode mode, uint32_t n)
{
	return d->rank->is_gpu ? game_gpu(d, mode, n) : game_host(d, mode, n);
}

static int runs(const struct doorbell *d, enum mode mode)
{
	uint32_t triggers = d->rank->options->triggers;

	if (mode == RAW_GATED && !d->rank->is_gpu)
		return 0;
	if (mode == OURS_POLLED || mode == RAW_POLLED)
		return (triggers & BENCH_POLLED) || !d->rank->is_gpu;
	return (triggers & BENCH_GATED) != 0;
}

/* Rank 0 plays one game; rank 1 checks the data that arrived. */
static int verify(struct doorbell *d, enum mode mode)
{
	struct bench_rank *rank = d->rank;
	uint64_t seed = bench_seed(rank, 0, 1, ++d->round), n_wrong = 0;
	int r = 0;

	if (!rank->options->check || !d->bytes)
		return 0;
	if (rank->rank == 0)
		r = bench_fill(rank->device, bench_address(rank, d->from.by_rank[0]),
			       d->bytes, seed);
	if (rank->rank == 1)
		r = bench_fill(rank->device, bench_address(rank, d->to.by_rank[1]), d->bytes,
			       ~seed);
	if (!r)
		r = bench_meet(rank);
	if (!r && rank->rank == 0)
		r = game(d, mode, 1);
	if (!r)
		r = bench_meet(rank);
	if (!r && rank->rank == 1)
		r = bench_verify(rank->device, bench_address(rank, d->to.by_rank[1]),
				 d->bytes, seed, &n_wrong);
	bench_wrong(rank, mode, n_wrong);
	if (!r)
		r = bench_meet(rank);
	if (!rank->rank)
		d->wrong[mode] |= bench_take_wrong(rank, mode) != 0;
	return r;
}

/* Runs the rounds of one sample and records their median, so that the slower first rounds, before
 * kernel and engine have warmed up, have little effect. */
static int measure_sample(struct doorbell *d, enum mode mode, uint32_t number)
{
	int r = game(d, mode, ROUNDS_PER_GAME);

	bench_sample(d->rank, mode, number, bench_median(d->rounds, ROUNDS_PER_GAME));
	return r;
}

static void add_rows(struct doorbell *d)
{
	static const enum mode raw_of[MODES] = { RAW_POLLED, RAW_GATED, RAW_POLLED,
						 RAW_GATED };
	struct bench_row rows[MODES];
	uint32_t mode;

	memset(rows, 0, sizeof(rows));
	for (mode = 0; mode < MODES; mode++) {
		snprintf(rows[mode].test, sizeof(rows[mode].test), "doorbell");
		snprintf(rows[mode].variant, sizeof(rows[mode].variant), "%s",
			 raw_of[mode] == RAW_GATED ? "gated" : "polled");
		rows[mode].mode = mode <= OURS_GATED ? BENCH_OURS : BENCH_RAW;
		rows[mode].ranks = d->rank->n_ranks;
		rows[mode].source = 0;
		rows[mode].target = 1;
		rows[mode].bytes_per_rank = d->bytes;
		rows[mode].verified = d->rank->options->check && d->bytes ? !d->wrong[mode]
			: -1;
		/* without bytes only the flags can be checked: a round ends only when its own value
		 * came back */
		if (d->rank->options->check && !d->bytes)
			rows[mode].verified = 1;
		if (runs(d, (enum mode)mode))
			bench_statistics(d->rank, mode, d->rank->options->n_samples,
					 &rows[mode]);
	}
	for (mode = 0; mode < MODES; mode++) {
		/* on the host raw is a plain memcpy without flags, so a ratio would say
		 * nothing */
		if (d->rank->is_gpu && mode <= OURS_GATED && rows[mode].us_median > 0)
			rows[mode].ratio_raw = rows[raw_of[mode]].us_median /
				rows[mode].us_median;
		if (runs(d, (enum mode)mode))
			bench_add_row(d->rank, &rows[mode]);
	}
}

static int measure(struct doorbell *d)
{
	const struct bench_options *options = d->rank->options;
	uint32_t i, mode;
	int is_player = !d->rank->rank, r = 0;

	bench_forget(d->rank);
	memset(d->wrong, 0, sizeof(d->wrong));
	for (i = 0; !r && is_player && i < 2; i++)
		r = open_plan(d, (int)i);
	for (mode = 0; !r && mode < MODES; mode++)
		if (runs(d, (enum mode)mode))
			r = verify(d, (enum mode)mode);
	for (i = 0; !r && is_player && i < options->n_warmup + options->n_samples; i++)
		for (mode = 0; !r && mode < MODES; mode++)
			if (runs(d, (enum mode)mode))
				r = measure_sample(d, (enum mode)mode,
						   i < options->n_warmup ? 0
						   : i - options->n_warmup);
	for (mode = 0; !r && mode < MODES; mode++)
		if (runs(d, (enum mode)mode))
			r = verify(d, (enum mode)mode);
	if (!r && is_player)
		add_rows(d);
	for (i = 0; is_player && i < 2; i++)
		ceov_plan_release(d->plan[i]);
	return r ? r : bench_meet(d->rank);
}

static int measure_all(struct doorbell *d)
{
	static const uint64_t sizes[] = { 0, UINT64_C(64) << 10, UINT64_C(1) << 20,
					  UINT64_C(16) << 20 };
	const struct bench_options *options = d->rank->options;
	uint64_t bytes;
	uint32_t i;
	int r = 0;

	for (i = 0; !options->has_sizes && !r && i < 4; i++) {
		d->bytes = sizes[i];
		r = measure(d);
	}
	for (bytes = options->begin_bytes; options->has_sizes && !r && bytes;
	     bytes = bench_next_size(options, bytes)) {
		d->bytes = bytes;
		r = measure(d);
	}
	return r;
}

int bench_doorbell(struct bench_rank *rank)
{
	struct doorbell *d = calloc(1, sizeof(*d));
	uint64_t room = rank->options->end_bytes;
	int r;

	if (!d)
		return CEOV_ERR_NO_MEMORY;
	d->rank = rank;
	if (!rank->options->has_sizes || room < 8)
		room = UINT64_C(16) << 20;
	r = bench_share_buffers(rank, room, &d->from);
	if (!r)
		r = bench_share_buffers(rank, room, &d->to);
	if (!r && !rank->rank)
		r = open_signals(d);
	if (!r)
		r = measure_all(d);
	if (!r && !rank->rank) {
		(void)ceov_signal_release(d->raised[0]);
		(void)ceov_signal_release(d->raised[1]);
		(void)ceov_signal_release(d->returned);
	}
	if (!r)
		r = bench_drop_buffers(rank, &d->from);
	if (!r)
		r = bench_drop_buffers(rank, &d->to);
	free(d);
	return r;
}
