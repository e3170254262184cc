/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Small collectives of host ranks: what the kernels of kernels/direct.h do, by the calling thread
 * and one span after another. */

#include <string.h>

#include "ops/compute/dtype.h"
#include "ops/compute/sum.h"
#include "ops/exec_host/execute_host.h"

static char *half_of(const struct cei_direct_job *job, uint32_t rank)
{
	return job->scratch[rank] + job->half * job->half_bytes;
}

/* --- counters -------------------------------------------------------------- */

/* Raises, at each peer, the counters of all blocks. */
static int raise_peers(const struct cei_direct_job *job, uint32_t first)
{
	uint32_t peer, block;
	int r = 0;

	for (peer = 0; peer < job->n_ranks; peer++)
		for (block = 0; !r && peer != job->own && block < job->n_blocks; block++)
			r = ceov_signal_raise(job->arrived[job->half][peer],
					      first + job->own * job->n_blocks + block,
					      job->marks.value);
	return r;
}

static int await_peers(const struct cei_executor *executor, const struct cei_direct_job *job,
		       uint32_t first)
{
	struct cei_counters counters = { .signal = job->arrived[job->half][job->own] };
	uint32_t peer;
	int r = 0;

	counters.n = job->n_blocks;
	for (peer = 0; !r && peer < job->n_ranks; peer++) {
		if (peer == job->own)
			continue;
		counters.first = first + peer * job->n_blocks;
		r = cei_host_await(executor, &job->marks, &counters, "what peers store directly");
	}
	return r;
}

/* --- bytes ----------------------------------------------------------------- */

static void push(const struct cei_direct_job *job)
{
	const struct cei_direct_span *span;
	uint32_t peer;

	for (peer = 0; peer < job->n_ranks; peer++) {
		span = &job->spans[peer];
		if (peer != job->own && span->n_leaves)
			memcpy(half_of(job, peer) + span->there,
			       (const char *)job->source + span->leaves, span->n_leaves);
	}
}

static void copy_own(const struct cei_direct_job *job)
{
	const struct cei_direct_span *span = &job->spans[job->own];
	const char *from = (const char *)job->source + span->leaves;
	char *to = (char *)job->target + span->place;

	if (from != to && span->n_here)
		memcpy(to, from, span->n_here);
}

static void copy_others(const struct cei_direct_job *job)
{
	const struct cei_direct_span *span;
	uint32_t peer;

	for (peer = 0; peer < job->n_ranks; peer++) {
		span = &job->spans[peer];
		if (peer != job->own && span->n_here)
			memcpy((char *)job->target + span->place,
			       half_of(job, job->own) + span->here, span->n_here);
	}
}

/* --- sums ------------------------------------------------------------------ */

static void sum_own(const struct cei_direct_job *job)
{
	const struct cei_direct_span *own = &job->spans[job->own];
	const void *sources[CEI_DIRECT_RANKS_MAX];
	const struct cei_sum sum = { job->dtype, CEOV_SUM, job->scale, job->n_ranks, sources };
	uint32_t rank;

	for (rank = 0; rank < job->n_ranks; rank++)
		sources[rank] = rank == job->own ? (const char *)job->source + own->leaves
			: half_of(job, job->own) + job->spans[rank].here;
	cei_sum_up(&sum, (char *)job->target + own->place,
		   own->n_here / cei_dtype_bytes(job->dtype));
}

/* --- gathered sums ---------------------------------------------------------- */

static void push_sums(const struct cei_direct_job *job)
{
	const struct cei_direct_span *own = &job->spans[job->own];
	uint32_t peer;

	for (peer = 0; own->n_here && peer < job->n_ranks; peer++)
		if (peer != job->own)
			memcpy(half_of(job, peer) + job->gather_at + own->place,
			       (const char *)job->target + own->place, own->n_here);
}

/* A rank's part has as many bytes as were sent to that rank to be added. */
static void take_sums(const struct cei_direct_job *job)
{
	const struct cei_direct_span *span;
	uint32_t peer;

	for (peer = 0; peer < job->n_ranks; peer++) {
		span = &job->spans[peer];
		if (peer != job->own && span->n_leaves)
			memcpy((char *)job->target + span->place,
			       half_of(job, job->own) + job->gather_at + span->place,
			       span->n_leaves);
	}
}

static int gather(const struct cei_executor *executor, const struct cei_direct_job *job)
{
	int r;

	push_sums(job);
	r = raise_peers(job, job->second);
	if (!r)
		r = await_peers(executor, job, job->second);
	if (!r)
		take_sums(job);
	return r;
}

int cei_host_direct(struct cei_executor *executor, void *stream,
		    const struct cei_direct_job *job)
{
	int r;

	(void)stream;
	push(job);
	r = raise_peers(job, 0);
	if (!r && !job->is_sum)
		copy_own(job);
	if (!r)
		r = await_peers(executor, job, 0);
	if (!r && !job->is_sum)
		copy_others(job);
	if (!r && job->is_sum)
		sum_own(job);
	if (!r && job->gathers)
		r = gather(executor, job);
	return cei_host_keep(executor, r);
}
