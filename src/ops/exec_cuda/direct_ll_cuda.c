/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queues the kernels whose bytes travel with the number of the run: kernels/direct_ll.h. */

#include <stdio.h>
#include <string.h>

#include "ops/compute/direct.h"
#include "ops/compute/dtype.h"
#include "ops/exec_cuda/execute_cuda.h"

#define KERNEL_NAME_BYTES 32u
#define VECTOR_BYTES      16u           /* what a thread has of a span */
#define WARP              32u

/* Returns where in the first half of rank's mail what `source` sends begins. */
static char *mail_at(const struct cei_direct_job *job, uint32_t rank, uint32_t source)
{
	return job->scratch[rank] + CEI_DIRECT_HALVES * job->half_bytes +
		source * 2 * (uint64_t)cei_direct_ll_span_max(job->n_ranks);
}

static void fill_peer(const struct cei_direct_job *job, uint32_t rank,
		      struct cei_direct_ll_peer *peer)
{
	const struct cei_direct_span *span = &job->spans[rank];

	peer->mail = mail_at(job, rank, rank == job->own ? 0 : job->own);
	peer->leaves = span->leaves;
	peer->n_leaves = (uint32_t)span->n_leaves;
	peer->n_here = (uint32_t)span->n_here;
	peer->place = (uint32_t)span->place;
}

static int fill_counters(const struct cei_gpu_executor *own, const struct cei_direct_job *job,
			 uint32_t rank, struct cei_direct_ll_counters *counters)
{
	uint32_t half;
	int r = 0;

	if (!job->words.epoch || rank == job->own)
		return 0;
	for (half = 0; !r && half < CEI_DIRECT_HALVES; half++)
		r = cei_gpu_peer_counter(own, job->arrived[half][rank], 0,
					 &counters->arrived[half]);
	return r ? r : cei_gpu_peer_counter(own, job->done[rank], job->own, &counters->done);
}

static int fill(const struct cei_gpu_executor *own, const struct cei_direct_job *job,
		struct cei_direct_ll *direct)
{
	uint32_t rank;
	int r = 0;

	memset(direct, 0, sizeof(*direct));
	direct->source = job->source;
	direct->target = job->target;
	direct->epoch = job->words.epoch;
	direct->last_use = job->words.last_use;
	direct->n_ended = job->words.n_ended;
	direct->failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	direct->value = job->marks.value;
	direct->half = job->half;
	direct->n_ranks = job->n_ranks;
	direct->own = job->own;
	direct->span_max = cei_direct_ll_span_max(job->n_ranks);
	direct->scale = job->scale;
	direct->status = (uint32_t *)own->status;
	direct->timeout_ns = job->marks.timeout_ns;
	for (rank = 0; !r && rank < job->n_ranks; rank++) {
		fill_peer(job, rank, &direct->peers[rank]);
		r = fill_counters(own, job, rank, &direct->counters[rank]);
	}
	return r ? r : cei_gpu_signal(own, job->arrived[0][job->own], &direct->arrived);
}

/* Returns how many threads a block has: no more than there are vectors, since more would only take
 * longer to meet. Ranks may have different numbers, because no block waits for a certain one of
 * another rank, but for packets. */
static uint32_t threads_for(const struct cei_direct_job *job)
{
	uint64_t most = 0, n;
	uint32_t rank;

	for (rank = 0; rank < job->n_ranks; rank++) {
		most = job->spans[rank].n_leaves > most ? job->spans[rank].n_leaves : most;
		most = job->spans[rank].n_here > most ? job->spans[rank].n_here : most;
	}
	n = cei_ceiling(cei_ceiling(most, VECTOR_BYTES * job->n_blocks), WARP) * WARP;
	return n < CEI_DIRECT_THREADS ? (uint32_t)n : CEI_DIRECT_THREADS;
}

int cei_gpu_direct_ll(const struct cei_gpu_executor *own, void *stream,
		      const struct cei_direct_job *job)
{
	char name[KERNEL_NAME_BYTES];
	struct cei_direct_ll direct;
	void *arguments[] = { &direct };
	struct cei_module_launch launch = {
		.name = name,
		.n_blocks = job->n_blocks,
		.n_threads = threads_for(job),
		.stream = stream,
		.arguments = arguments,
	};
	int r = fill(own, job, &direct);

	snprintf(name, sizeof(name), "cei_direct_ll_%s",
		 job->is_sum ? cei_dtype_name(job->dtype) : "copy");
	return r ? r : cei_module_launch(own->module, &launch);
}
