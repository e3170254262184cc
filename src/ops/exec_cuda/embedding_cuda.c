/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a GPU's executor does for embedding bags: it queues the kernels of kernels/embedding.h. */

#include "ops/exec_cuda/execute_cuda.h"

#include <stdio.h>

#include "ops/compute/dtype.h"
#include "ops/compute/embedding.h"

#define KERNEL_NAME_BYTES 40u
#define WARP_LANES        32u

const char *cei_gpu_embedding_fault(uint32_t status)
{
	switch (status) {
	case CEI_EMBEDDING_NO_BAG:
		return "bags.offsets fall, or reach past n_indices";
	case CEI_EMBEDDING_NO_ROW:
		return "bags.indices has an index that is no row of its table";
	default:
		return NULL;
	}
}

/* Returns how many threads a bag gets: as many as a row has vectors, rounded up to a power of two
 * so that the threads of a bag are in one warp. */
static uint32_t lanes_of(const struct cei_embedding_job *job)
{
	uint32_t n = 1;

	while (n < WARP_LANES && n < job->most_vectors)
		n *= 2;
	return n;
}

/* Queues a kernel that has n threads of work, on as many blocks as that takes, of those that the
 * executor may use. */
static int launch(const struct cei_gpu_executor *own, void *stream, const char *name,
		  uint64_t n, struct cei_embedding_work *work)
{
	uint64_t n_blocks = (n + CEI_EMBEDDING_THREADS - 1) / CEI_EMBEDDING_THREADS;
	void *arguments[] = { work };
	struct cei_module_launch launch = {
		.name = name,
		.n_blocks = n_blocks < own->n_sms ? (uint32_t)n_blocks : own->n_sms,
		.n_threads = CEI_EMBEDDING_THREADS,
		.stream = stream,
		.arguments = arguments,
	};

	return n_blocks ? cei_module_launch(own->module, &launch) : 0;
}

static struct cei_embedding_work work_of(const struct cei_gpu_executor *own,
					 const struct cei_embedding_job *job)
{
	return (struct cei_embedding_work){
		.tables = job->held_tables,
		.n_tables = job->n_tables,
		.n_lanes = lanes_of(job),
		.is_mean = job->is_mean,
		.n_verdicts = job->n_verdicts,
		.n_samples = job->n_samples,
		.n_indices = job->bags.n_indices,
		.indices = job->bags.indices,
		.offsets = job->bags.offsets,
		.weights = job->bags.weights,
		.rows = job->rows,
		.row_grads = job->row_grads,
		.most_vectors = job->most_vectors,
		.verdicts = job->verdicts,
		.status = (uint32_t *)own->status,
		.failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED),
	};
}

static int check(struct cei_executor *executor, void *stream, const struct cei_embedding_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_embedding_work work = work_of(own, job);

	return launch(own, stream, "cei_embedding_check",
		      job->n_tables * job->n_samples * CEI_EMBEDDING_CHECK_LANES, &work);
}

/* Queues the kernel of the job's dtype whose name begins with `name`, for the bags of a part. */
static int launch_part(const struct cei_gpu_executor *own, void *stream, const char *name,
		       const struct cei_embedding_job *job, const struct cei_embedding_part *part)
{
	struct cei_embedding_work work = work_of(own, job);
	char full[KERNEL_NAME_BYTES];

	work.first = part->first;
	work.n = part->n;
	work.vectors = part->vectors;
	work.pitch_bytes = part->pitch_bytes;
	snprintf(full, sizeof(full), "%s_%s", name, cei_dtype_name(job->dtype));
	return launch(own, stream, full, job->n_tables * part->n * work.n_lanes, &work);
}

static int look_up(struct cei_executor *executor, void *stream,
		   const struct cei_embedding_job *job, const struct cei_embedding_part *part)
{
	return launch_part(executor->private, stream, "cei_embedding_look_up", job, part);
}

static int spread(struct cei_executor *executor, void *stream,
		  const struct cei_embedding_job *job, const struct cei_embedding_part *part)
{
	return launch_part(executor->private, stream, "cei_embedding_spread", job, part);
}

const struct cei_embedding_ops cei_gpu_embedding = {
	.check = check,
	.look_up = look_up,
	.spread = spread,
};
