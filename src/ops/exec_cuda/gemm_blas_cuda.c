/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A GEMM by cuBLAS, for shapes, types and GPUs that our own kernel does not support. It executes
 * the same kind of list, whose tiles are as wide as C here. Each tile becomes one product on the
 * stream: a wait comes before it if the tile awaits a piece, and a raise of the piece's mark comes
 * behind it if the tile completes a piece. In a reduce-scatter the reduce kernel sums the rank's
 * own rows afterwards; only these rows are rounded once more than in our own kernel.
 */

#include "ops/exec_cuda/execute_cuda.h"

#include "ops/compute/dtype.h"
#include "ops/shape.h"

struct blas_walk {
	struct cei_gpu_executor   *own;
	void                      *stream;
	const struct cei_gemm_job *job;
	uint32_t                   awaited;     /* last counter awaited; CEI_GEMM_NONE: none */
	uint32_t                   n_arrived;   /* tiles of the present piece queued so far */
};

static int wait_for(struct blas_walk *walk, uint32_t counter)
{
	const struct cei_job_marks *marks = &walk->job->marks;
	struct cei_counters counters = { marks->awaited, counter, 1 };

	if (!marks->awaited || counter == CEI_GEMM_NONE || counter == walk->awaited)
		return 0;
	walk->awaited = counter;
	return cei_gpu_await(walk->own, walk->stream, marks, &counters);
}

/* Raises the mark of a piece behind the products of the piece, which are all queued. */
static int raise_mark(struct blas_walk *walk, uint32_t counter)
{
	const struct cei_job_marks *marks = &walk->job->marks;
	struct ceov_mark mark = { marks->ready, counter, marks->epoch ? 1 : marks->value };

	return ceov_stream_raise(walk->own->context, walk->own->rank, walk->stream, &mark, 1,
				 0);
}

static const char *at(const struct cei_matrix *matrix, uint64_t row)
{
	return (const char *)matrix->base + row * matrix->columns * CEI_DTYPE16_BYTES;
}

static int multiply(struct blas_walk *walk, const struct cei_gemm_tile *tile)
{
	const struct cei_gemm_job *job = walk->job;
	struct cei_blas_gemm gemm = {
		.stream = walk->stream,
		.dtype = job->dtype,
		.m = tile->n_rows,
		.n = job->c[tile->c].columns,
		.k = job->k,
		.a = at(&job->a[tile->a], tile->a_row),
		.b = job->b[tile->b].base,
		.c = (void *)(uintptr_t)at(&job->c[tile->c], tile->c_row),
		.b_is_k_by_n = job->b_is_k_by_n,
	};
	int r = 0;

	/* One product computes whole rows, so a tile of another column only counts itself. */
	if (!tile->column)
		r = wait_for(walk, tile->await);
	if (!r && !tile->column)
		r = cei_blas_gemm(walk->own->blas, &gemm);
	if (r || !job->marks.ready || tile->arrive == CEI_GEMM_NONE ||
	    tile->reduce != CEI_GEMM_NONE)
		return r;
	if (++walk->n_arrived < tile->n_arrivals)
		return 0;
	walk->n_arrived = 0;
	return raise_mark(walk, tile->arrive);
}

/* Makes the stream wait until the pieces of the own rows have come from all other ranks. Those
 * without rows come last and are not sent. */
static int await_pieces(struct blas_walk *walk)
{
	const struct cei_gemm_job *job = walk->job;
	struct cei_counters counters = { .signal = job->marks.awaited };
	uint32_t piece, source;
	uint64_t n_rows;
	int r = 0;

	for (piece = 0; piece < job->n_pieces; piece++) {
		(void)cei_piece_rows(&job->cut, job->c[0].rows, job->n_pieces, piece, &n_rows);
		counters.n += n_rows != 0;
	}
	for (source = 0; !r && counters.signal && source < job->n_sources; source++) {
		counters.first = source * job->n_pieces;
		if (source != job->own)
			r = cei_gpu_await(walk->own, walk->stream, &job->marks, &counters);
	}
	return r;
}

/* Adds the partial sums of peers to the own rows in place: C already holds this rank's product. The
 * kernel that sums knows equal pieces only, and holds SMs while it waits. So others are summed as
 * one, behind kernels of one thread that wait for all; and so are those of a job that leaves SMs
 * to others, since a lane of SMs (sm_lane.h) may be what it waits for. */
static int sum_up(struct blas_walk *walk)
{
	const struct cei_gemm_job *job = walk->job;
	uint64_t counts[CEI_OP_RANKS_MAX] = { 0 }, pieces[CEI_OP_RANKS_MAX] = { 0 };
	struct cei_reduce_job sum = {
		.dtype = job->dtype,
		.source = job->c[0].base,
		.target = (void *)(uintptr_t)job->c[0].base,
		.partials = job->partials,
		.partial_stride_bytes = job->partial_stride_bytes,
		.counts = counts,
		.piece_elements = pieces,
		.scale = 1,
		.n_ranks = job->n_sources,
		.own = job->own,
		.n_pieces = job->n_pieces,
		.n_blocks = job->n_blocks ? job->n_blocks : walk->own->n_sms,
		.marks = job->marks,
	};
	uint64_t n_rows;
	int r = 0;

	(void)cei_piece_rows(&job->cut, job->c[0].rows, job->n_pieces, 0, &n_rows);
	counts[job->own] = job->c[0].rows * job->c[0].columns;
	pieces[job->own] = n_rows * job->c[0].columns;
	sum.marks.ready = NULL;
	if (job->n_blocks || (job->cut.kind > CEOV_CUT_EQUAL && job->n_pieces > 1)) {
		r = await_pieces(walk);
		sum.marks.awaited = NULL;
		sum.n_pieces = 1;
		pieces[job->own] = counts[job->own];
	}
	return r ? r : cei_gpu_reduce(walk->own, walk->stream, &sum);
}

/* Raises the marks of those pieces that sum_up() has summed, behind the sum, unless what it waits
 * for did not come. Counters of pieces that have rows follow each other. */
static int raise_summed(struct blas_walk *walk)
{
	const struct cei_gemm_job *job = walk->job;
	struct cei_counters counters = { job->marks.ready, CEI_GEMM_NONE, 0 };
	const struct cei_gemm_tile *tile;
	uint32_t last = 0, i;

	for (i = 0; i < job->tiles->n_tiles; i++) {
		tile = &job->tiles->tile[i];
		if (tile->reduce == CEI_GEMM_NONE || tile->arrive == CEI_GEMM_NONE)
			continue;
		last = tile->arrive > last ? tile->arrive : last;
		counters.first = tile->arrive < counters.first ? tile->arrive : counters.first;
	}
	if (!counters.signal || counters.first == CEI_GEMM_NONE)
		return 0;
	counters.n = last - counters.first + 1;
	return cei_gpu_raise(walk->own, walk->stream, &job->marks, &counters);
}

/* Makes the stream wait until everything was sent, so that the caller may then change the
 * operands. */
static int wait_until_sent(struct blas_walk *walk)
{
	const struct cei_job_marks *marks = &walk->job->marks;
	struct cei_counters counters = { marks->sent, marks->sent_index, marks->n_sent };

	return cei_gpu_await(walk->own, walk->stream, marks, &counters);
}

int cei_gpu_gemm_by_blas(struct cei_gpu_executor *own, void *stream,
			 const struct cei_gemm_job *job)
{
	struct blas_walk walk = { own, stream, job, CEI_GEMM_NONE, 0 };
	const struct cei_gemm_tile *tile;
	uint32_t i;
	int r = 0, sums = 0;

	if (!own->blas)
		return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
				 "rank %u: GPU %u: there is no kernel for tiles of %u x %u, "
				 "and cuBLAS cannot be used: %s", own->rank, own->gpu,
				 job->shape.rows, job->shape.columns,
				 own->no_blas ? own->no_blas : "it is not open");
	for (i = 0; !r && i < job->tiles->n_tiles; i++) {
		tile = &job->tiles->tile[i];
		sums |= tile->reduce != CEI_GEMM_NONE;
		if (tile->n_rows)
			r = multiply(&walk, tile);
	}
	if (!r && sums) {
		r = sum_up(&walk);      /* this job awaits `sent` itself */
		return r ? r : raise_summed(&walk);
	}
	if (!r && job->marks.n_sent)
		r = wait_until_sent(&walk);
	return r;
}

/* --- loading --------------------------------------------------------------- */

#define SIZES_MAX 512u          /* kernels of so many different products are loaded in advance;
				 * others are loaded when they first run */

struct blas_sizes {
	uint64_t m;
	uint64_t n;
};

struct blas_loaded {
	struct blas_sizes sizes[SIZES_MAX];
	uint32_t          n;
};

static int is_loaded(const struct blas_loaded *loaded, const struct blas_sizes *sizes)
{
	uint32_t i;

	for (i = 0; i < loaded->n; i++)
		if (loaded->sizes[i].m == sizes->m && loaded->sizes[i].n == sizes->n)
			return 1;
	return 0;
}

static int load_tile(struct cei_gpu_executor *own, const struct cei_gemm_job *job,
		     const struct cei_gemm_tile *tile, struct blas_loaded *loaded)
{
	struct blas_sizes sizes = { tile->n_rows, job->c[tile->c].columns };
	struct cei_blas_gemm gemm = {
		.dtype = job->dtype,
		.m = sizes.m,
		.n = sizes.n,
		.k = job->k,
		.b_is_k_by_n = job->b_is_k_by_n,
	};

	if (!tile->n_rows || tile->column || loaded->n == SIZES_MAX ||
	    is_loaded(loaded, &sizes))
		return 0;
	loaded->sizes[loaded->n++] = sizes;
	return cei_blas_load(own->blas, &gemm);
}

int cei_gpu_load_blas(struct cei_gpu_executor *own, const struct cei_gemm_job *job)
{
	struct blas_loaded loaded;
	uint32_t i;
	int r = 0;

	loaded.n = 0;
	for (i = 0; !r && i < job->tiles->n_tiles; i++)
		r = load_tile(own, job, &job->tiles->tile[i], &loaded);
	return r;
}
