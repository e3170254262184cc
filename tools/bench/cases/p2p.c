/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests p2p, p2p_2d and busy_sm: every pair of ranks in turn. Our launches are compared with a raw
 * copy loop that is cut into the same chunks. The host's clock times LAUNCHES launches, from the
 * first launch to the end of the last ticket. p2p_2d moves rows of 512 bytes at 4 x pitch. busy_sm
 * measures while a kernel holds every SM of both GPUs, so that no copy can use one.
 */

#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/program/program_cut.h"
#include "tools/bench/cases/cases.h"
#include "tools/bench/group.h"

#define LAUNCHES     5u
#define ROW_BYTES    UINT64_C(512)
#define PITCH_BYTES  (4 * ROW_BYTES)
#define CHUNKS_MAX   1024u

enum mode { OURS, RAW, MODES };

/* Where the processor times of both ranks are kept until the row is made. */
enum { CPU_SOURCE = MODES, CPU_TARGET };

struct pair {
	struct bench_rank   *rank;
	const char          *name;
	int                  is_2d;
	int                  is_busy;   /* a kernel holds all SMs */
	uint64_t             bytes;     /* bytes moved per launch */
	uint32_t             source;
	uint32_t             target;
	int                  is_far;    /* the two are on different nodes, between which there is
					 * no raw loop */
	struct bench_buffers from;
	struct bench_buffers to;
	struct bench_signals arrived;   /* signals of the target rank */
	ceov_buffer         *named;     /* --named: stands for the source, which launches name */
	ceov_plan           *plan;      /* plan of the source rank */
	uint64_t             base;
	uint32_t             n_chunks;
	struct bench_copy    chunks[CHUNKS_MAX];
	void                *flag;      /* flag of the raw loop, in the target's memory */
	uint64_t             round;
	int                  wrong[MODES];
};

static uint64_t area_bytes(const struct pair *p, uint64_t bytes)
{
	return p->is_2d ? bytes / ROW_BYTES * PITCH_BYTES : bytes;
}

static int is_source(const struct pair *p)
{
	return p->rank->rank == p->source;
}

/* Returns the size of the plan's largest chunk, also on ranks that do not have the plan. */
static uint64_t chunk_bytes(const struct pair *p)
{
	struct cei_piece piece = {
		.row_bytes = p->is_2d ? ROW_BYTES : p->bytes,
		.n_rows = p->is_2d ? p->bytes / ROW_BYTES : 1,
		.source_pitch_bytes = p->is_2d ? PITCH_BYTES : 0,
		.target_pitch_bytes = p->is_2d ? PITCH_BYTES : 0,
	};

	piece = cei_split_at(&piece, p->rank->context->max_chunk_bytes, 0);
	return piece.row_bytes * piece.n_rows;
}

/* --- set-up -------------------------------------------------------------- */

/* Cuts the raw loop's copies into the plan's chunks. */
static int cut_alike(struct pair *p, const struct cei_piece *piece)
{
	uint64_t max_bytes = p->rank->context->max_chunk_bytes, i;
	struct cei_piece cut;

	p->n_chunks = (uint32_t)cei_split_count(piece, max_bytes);
	if (p->n_chunks > CHUNKS_MAX)
		return bench_fail(p->rank, CEOV_ERR_INVALID, "more chunks than the raw loop "
				  "holds; raise --chunk");
	for (i = 0; i < p->n_chunks; i++) {
		cut = cei_split_at(piece, max_bytes, i);
		p->chunks[i] = (struct bench_copy){
			.target = (void *)(uintptr_t)cut.target,
			.source = (const void *)(uintptr_t)cut.source,
			.row_bytes = cut.row_bytes,
			.n_rows = cut.n_rows,
			.pitch_bytes = cut.target_pitch_bytes,
		};
	}
	return 0;
}

static int open_named(struct pair *p)
{
	if (!p->rank->options->names_sources || !p->is_far)
		return 0;
	return ceov_buffer_float(p->rank->context, p->source, area_bytes(p, p->bytes), &p->named);
}

static int open_plan(struct pair *p)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	struct cei_piece piece;
	int r = open_named(p);

	if (r)
		return r;
	transfer.source.buffer = p->named ? p->named : p->from.by_rank[p->source];
	transfer.target.buffer = p->to.by_rank[p->target];
	transfer.row_bytes = p->is_2d ? ROW_BYTES : p->bytes;
	transfer.n_rows = p->is_2d ? p->bytes / ROW_BYTES : 1;
	transfer.source.pitch_bytes = transfer.target.pitch_bytes =
		p->is_2d ? PITCH_BYTES : 0;
	transfer.then = (struct ceov_mark){ p->arrived.by_rank[p->target], p->source, 1 };
	r = ceov_plan_create(p->rank->context, p->source, NULL, &p->plan);
	if (!r)
		r = ceov_plan_add(p->plan, &transfer);
	if (!r)
		r = ceov_plan_commit(p->plan);
	if (r || p->is_far)
		return r;
	piece = (struct cei_piece){
		.source = (uintptr_t)bench_address(p->rank, transfer.source.buffer),
		.target = (uintptr_t)bench_address(p->rank, transfer.target.buffer),
		.row_bytes = transfer.row_bytes,
		.n_rows = transfer.n_rows,
		.source_pitch_bytes = transfer.source.pitch_bytes,
		.target_pitch_bytes = transfer.target.pitch_bytes,
	};
	/* the last words of the target's buffer hold the raw loop's flag */
	p->flag = (char *)(uintptr_t)piece.target + area_bytes(p, p->rank->options->end_bytes);
	return cut_alike(p, &piece);
}

/* --- taking a sample ----------------------------------------------------- */

static int ours(struct pair *p, uint32_t n_launches)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket = { 0 };
	uint32_t i;
	int r = 0;

	if (p->named)
		launch.floating = bench_address(p->rank, p->from.by_rank[p->source]);

	for (i = 0; !r && i < n_launches; i++) {
		launch.base = p->base++;
		r = ceov_launch(p->plan, &launch, &ticket);
	}
	return r ? r : ceov_wait(p->rank->context, ticket, bench_patience_ns(p->rank));
}

static int raw_gpu(struct pair *p, uint32_t n_launches)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < n_launches; i++) {
		r = bench_raw_copies(p->rank->device, BENCH_STREAM_COPY, p->chunks,
				     p->n_chunks);
		if (!r)
			r = bench_raw_flags(p->rank->device, BENCH_STREAM_COPY, &p->flag, 1,
					    i + 1);
	}
	return r ? r : bench_stream_sync(p->rank->device, BENCH_STREAM_COPY);
}

static void raw_host(struct pair *p, uint32_t n_launches)
{
	const struct bench_copy *copy;
	uint64_t row;
	uint32_t i, k;

	for (i = 0; i < n_launches; i++) {
		for (k = 0; k < p->n_chunks; k++) {
			copy = &p->chunks[k];
			for (row = 0; row < copy->n_rows; row++)
				memcpy((char *)copy->target + row * copy->pitch_bytes,
				       (const char *)copy->source + row *
				       copy->pitch_bytes, copy->row_bytes);
		}
		/* release: has no partner; it is here because a real loop would pay for it */
		atomic_store_explicit((_Atomic uint64_t *)p->flag, i + 1,
				      memory_order_release);
	}
}

static int sample(struct pair *p, enum mode mode, uint32_t number, uint32_t n_launches)
{
	uint64_t begin;
	int r = bench_meet(p->rank);

	begin = cei_now_ns();
	if (!r && is_source(p) && mode == OURS)
		r = ours(p, n_launches);
	else if (!r && is_source(p) && p->rank->is_gpu)
		r = raw_gpu(p, n_launches);
	else if (!r && is_source(p))
		raw_host(p, n_launches);
	bench_sample(p->rank, mode, number, is_source(p)
		     ? (double)(cei_now_ns() - begin) / 1e3 / n_launches : 0);
	return r ? r : bench_meet(p->rank);
}

static int prepare_data(struct pair *p)
{
	struct bench_rank *rank = p->rank;
	uint64_t n_bytes = area_bytes(p, p->bytes);
	uint64_t seed = bench_seed(rank, p->source, p->target, ++p->round);
	int r = 0;

	if (is_source(p))
		r = bench_fill(rank->device, bench_address(rank, p->from.by_rank[p->source]),
			       n_bytes, seed);
	if (rank->rank == p->target)
		r = bench_fill(rank->device, bench_address(rank, p->to.by_rank[p->target]),
			       n_bytes, ~seed);
	return r;
}

/* Checks 64 of the rows; the pattern continues across the gaps between rows. */
static int check_rows(struct pair *p, const char *at, uint64_t seed, uint64_t *ret_n_wrong)
{
	uint64_t n_rows = p->bytes / ROW_BYTES, row, n_wrong;
	int r = 0;

	for (row = 0; !r && row < n_rows; row += 1 + n_rows / 64) {
		r = bench_verify(p->rank->device, at + row * PITCH_BYTES, ROW_BYTES,
				 seed + row * PITCH_BYTES / 8, &n_wrong);
		*ret_n_wrong += n_wrong;
	}
	return r;
}

static int check_data(struct pair *p, enum mode mode)
{
	struct bench_rank *rank = p->rank;
	uint64_t seed = bench_seed(rank, p->source, p->target, p->round), n_wrong = 0;
	int any = 0, r = 0;

	if (rank->rank == p->target) {
		const char *at = bench_address(rank, p->to.by_rank[p->target]);

		r = p->is_2d ? check_rows(p, at, seed, &n_wrong)
			: bench_verify(rank->device, at, p->bytes, seed, &n_wrong);
	}
	if (!r)
		r = bench_any_wrong(rank, n_wrong, &any);
	p->wrong[mode] |= any;
	return r;
}

static int verify(struct pair *p, enum mode mode)
{
	int r = p->rank->options->check ? prepare_data(p) : 0;

	if (!r && p->rank->options->check)
		r = sample(p, mode, 0, 1);
	return !r && p->rank->options->check ? check_data(p, mode) : r;
}

/* --- rows ---------------------------------------------------------------- */

static uint32_t n_modes(const struct pair *p)
{
	return p->is_far ? 1 : MODES;
}

/* The processor time of source and target for a GiB, over all samples. */
static double cpu_s_per_gib(struct pair *p)
{
	struct bench_row source, target;
	uint64_t n_samples = p->rank->options->n_warmup + p->rank->options->n_samples;

	bench_statistics(p->rank, CPU_SOURCE, 1, &source);
	bench_statistics(p->rank, CPU_TARGET, 1, &target);
	return (source.us_median + target.us_median) / 1e6 /
		((double)(p->bytes * n_samples * LAUNCHES) / (double)(UINT64_C(1) << 30));
}

static void add_rows(struct pair *p)
{
	struct bench_row rows[MODES];
	uint32_t mode;

	memset(rows, 0, sizeof(rows));
	for (mode = 0; mode < n_modes(p); mode++) {
		snprintf(rows[mode].test, sizeof(rows[mode].test), "%s", p->name);
		rows[mode].mode = mode == OURS ? BENCH_OURS : BENCH_RAW;
		rows[mode].ranks = p->rank->n_ranks;
		rows[mode].source = (int32_t)p->source;
		rows[mode].target = (int32_t)p->target;
		rows[mode].bytes_per_rank = p->bytes;
		rows[mode].chunk_bytes = chunk_bytes(p);
		bench_statistics(p->rank, mode, p->rank->options->n_samples, &rows[mode]);
		bench_set_bandwidths(&rows[mode], (double)p->bytes, 1);
		rows[mode].verified = p->rank->options->check ? !p->wrong[mode] : -1;
	}
	if (p->is_far) {
		snprintf(rows[OURS].variant, sizeof(rows[OURS].variant), "nodes");
		rows[OURS].cpu_s_per_gib = cpu_s_per_gib(p);
	} else {
		rows[OURS].ratio_raw = rows[RAW].us_median / rows[OURS].us_median;
	}
	for (mode = 0; mode < n_modes(p); mode++)
		bench_add_row(p->rank, &rows[mode]);
}

static int spin(struct pair *p, int starts)
{
	uint32_t own = p->rank->rank;
	int r = 0;

	if (p->is_busy && (own == p->source || own == p->target))
		r = starts ? bench_spin_start(p->rank->device)
			: bench_spin_stop(p->rank->device);
	return r ? r : bench_meet(p->rank);
}

/* The processor time of this process up to now. */
static double processor_us(void)
{
	struct rusage used;

	if (getrusage(RUSAGE_SELF, &used))
		return 0;
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
		(double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Takes the samples. The last launch is one of ours, so that the check of the target's data tests
 * ours. */
static int samples(struct pair *p)
{
	const struct bench_options *options = p->rank->options;
	double begin_us;
	uint32_t i, mode;
	int r = options->check ? prepare_data(p) : 0;

	if (!r)
		r = spin(p, 1);
	begin_us = processor_us();
	for (i = 0; !r && i < options->n_warmup + options->n_samples; i++)
		for (mode = n_modes(p); !r && mode-- > 0;)
			r = sample(p, (enum mode)mode, i < options->n_warmup ? 0
				   : i - options->n_warmup, LAUNCHES);
	if (is_source(p) || p->rank->rank == p->target)
		bench_sample(p->rank, is_source(p) ? CPU_SOURCE : CPU_TARGET, 0,
			     processor_us() - begin_us);
	if (!r)
		r = spin(p, 0);
	return !r && options->check ? check_data(p, OURS) : r;
}

static int collect(struct pair *p)
{
	uint32_t mode;
	int r = 0;

	for (mode = 0; !r && mode < n_modes(p); mode++)
		r = bench_collect(p->rank, mode, p->rank->options->n_samples);
	for (mode = CPU_SOURCE; !r && p->is_far && mode <= CPU_TARGET; mode++)
		r = bench_collect(p->rank, mode, 1);
	return r;
}

static int measure(struct pair *p)
{
	uint32_t mode;
	int r = is_source(p) ? open_plan(p) : 0;

	bench_forget(p->rank);
	memset(p->wrong, 0, sizeof(p->wrong));
	for (mode = 0; !r && mode < n_modes(p); mode++)
		r = verify(p, (enum mode)mode);
	if (!r)
		r = samples(p);
	for (mode = 0; !r && mode < n_modes(p); mode++)
		r = verify(p, (enum mode)mode);
	if (!r)
		r = collect(p);
	if (!r && !p->rank->rank)
		add_rows(p);
	if (is_source(p)) {
		ceov_plan_release(p->plan);
		p->plan = NULL;
		if (p->named)
			(void)ceov_buffer_release(p->named);
		p->named = NULL;
	}
	return r ? r : bench_meet(p->rank);
}

static int all_pairs(struct pair *p)
{
	struct bench_rank *rank = p->rank;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < rank->n_ranks * rank->n_ranks; i++) {
		p->source = i / rank->n_ranks;
		p->target = i % rank->n_ranks;
		p->is_far = rank->nodes[p->source] != rank->nodes[p->target];
		if (p->source == p->target || (p->is_busy && i > rank->n_ranks))
			continue;
		r = measure(p);
	}
	return r;
}

static int run(struct bench_rank *rank, struct pair *p)
{
	const struct bench_options *options = rank->options;
	uint64_t bytes;
	int r;

	p->rank = rank;
	r = bench_share_buffers(rank, area_bytes(p, options->end_bytes) + 64, &p->from);
	if (!r)
		r = bench_share_buffers(rank, area_bytes(p, options->end_bytes) + 64, &p->to);
	if (!r)
		r = bench_share_signals(rank, bench_mark_place(rank), rank->n_ranks, 0,
					&p->arrived);
	for (bytes = options->begin_bytes; !r && bytes;
	     bytes = bench_next_size(options, bytes)) {
		p->bytes = p->is_2d ? bytes / ROW_BYTES * ROW_BYTES : bytes;
		r = p->bytes ? all_pairs(p) : 0;
	}
	if (!r)
		r = bench_drop_buffers(rank, &p->from);
	if (!r)
		r = bench_drop_buffers(rank, &p->to);
	return r ? r : bench_drop_signals(rank, &p->arrived);
}

int bench_p2p(struct bench_rank *rank)
{
	struct pair p = { .name = "p2p" };

	return run(rank, &p);
}

int bench_p2p_2d(struct bench_rank *rank)
{
	struct pair p = { .name = "p2p_2d", .is_2d = 1 };

	return run(rank, &p);
}

int bench_busy_sm(struct bench_rank *rank)
{
	struct pair p = { .name = "busy_sm", .is_busy = 1 };

	return run(rank, &p);
}
