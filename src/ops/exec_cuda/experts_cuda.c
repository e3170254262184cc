/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a GPU's executor does for mixtures of experts: it queues the kernels of kernels/experts.h. A
 * step whose numbers come from the caller is queued behind a check of them. */

#include "ops/exec_cuda/execute_cuda.h"

#include <stdio.h>

#include "kernels/experts.h"
#include "ops/compute/dtype.h"
#include "ops/compute/experts.h"
#include "ops/shape.h"

#define KERNEL_NAME_BYTES 32u
#define N_WARPS           (CEI_EXPERTS_THREADS / 32)

/* Units of rows for each SM, so that no SM works long on its last one. */
#define UNITS_PER_SM      4u

_Static_assert(CEI_EXPERTS_RANKS_MAX == CEI_OP_RANKS_MAX, "kernels have room for all ranks");

const char *cei_gpu_experts_fault(uint32_t status)
{
	switch (status) {
	case CEI_EXPERTS_NO_EXPERT:
		return "a token's expert does not exist";
	case CEI_EXPERTS_NO_SLOT:
		return "routing.slots has a slot that does not exist";
	case CEI_EXPERTS_FULL_BLOCK:
		return "more rows came from a rank than a block has";
	case CEI_EXPERTS_TOO_MANY:
		return "more rows came than n_received";
	default:
		return NULL;
	}
}

/* Queues a kernel on as many blocks as it has work for, of those that the executor may use. */
static int launch(const struct cei_gpu_executor *own, void *stream, const char *name,
		  uint64_t n_blocks, void *argument)
{
	void *arguments[] = { argument };
	struct cei_module_launch launch = {
		.name = name,
		.n_blocks = n_blocks < own->n_sms ? (uint32_t)n_blocks : own->n_sms,
		.n_threads = CEI_EXPERTS_THREADS,
		.stream = stream,
		.arguments = arguments,
	};

	return n_blocks ? cei_module_launch(own->module, &launch) : 0;
}

static uint64_t n_experts(const struct cei_experts_job *job)
{
	return (uint64_t)job->n_local * job->n_ranks;
}

/* Returns how many segments the run's group has: one for each of its experts and each rank. */
static uint64_t n_segments(const struct cei_experts_job *job)
{
	return (uint64_t)cei_experts_each(job) * job->n_ranks;
}

static uint64_t n_copies(const struct cei_experts_job *job)
{
	return job->n_tokens * job->top_k;
}

static uint64_t blocks_for(uint64_t n, uint64_t n_each)
{
	return (n + n_each - 1) / n_each;
}

static struct cei_experts_work work_of(const struct cei_gpu_executor *own,
				       const struct cei_experts_job *job)
{
	return (struct cei_experts_work){
		.n_ranks = job->n_ranks,
		.own = job->own,
		.n_local = job->n_local,
		.n_groups = job->n_groups,
		.group = job->group,
		.top_k = job->top_k,
		.n_header_rows = job->n_header_rows,
		.n_parts = (uint32_t)blocks_for(UNITS_PER_SM * (uint64_t)own->n_sms,
						n_segments(job)),
		.n_tokens = job->n_tokens,
		.capacity = job->capacity,
		.total_capacity = job->total_capacity,
		.n_received = job->n_received,
		.row_bytes = job->row_bytes,
		.leaving = job->leaving,
		.arriving = job->arriving,
		.n_rows = job->n_rows,
		.experts = job->experts,
		.slots = job->slots,
		.arrived = job->arrived,
		.sent = job->sent,
		.ends = job->ends,
		.tokens = job->tokens,
		.rows = job->rows,
		.weights = job->weights,
		.sums = job->sums,
		.status = (uint32_t *)own->status,
		.failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED),
	};
}

static int check(const struct cei_gpu_executor *own, void *stream,
		 const struct cei_experts_job *job, struct cei_experts_check *check)
{
	check->n = n_copies(job);
	check->status = (uint32_t *)own->status;
	check->failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	return launch(own, stream, "cei_experts_check",
		      blocks_for(check->n, CEI_EXPERTS_THREADS), check);
}

static int check_experts(const struct cei_gpu_executor *own, void *stream,
			 const struct cei_experts_job *job)
{
	struct cei_experts_check numbers = {
		.numbers = job->experts,
		.limit = (int64_t)n_experts(job),
		.fault = CEI_EXPERTS_NO_EXPERT,
	};

	return check(own, stream, job, &numbers);
}

static int check_slots(const struct cei_gpu_executor *own, void *stream,
		       const struct cei_experts_job *job)
{
	struct cei_experts_check numbers = {
		.numbers = job->slots,
		.limit = (int64_t)(job->n_groups * job->n_ranks * job->capacity),
		.fault = CEI_EXPERTS_NO_SLOT,
	};

	return check(own, stream, job, &numbers);
}

/* --- dispatch -------------------------------------------------------------- */

static int place(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);
	int r = check_experts(own, stream, job);

	return r ? r : launch(own, stream, "cei_experts_place", n_experts(job), &work);
}

static int place_again(struct cei_executor *executor, void *stream,
		       const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);
	int r = check_slots(own, stream, job);

	return r ? r : launch(own, stream, "cei_experts_place_again", job->n_ranks, &work);
}

static int pack(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);

	return launch(own, stream, "cei_experts_pack", blocks_for(job->n_tokens, N_WARPS), &work);
}

static int receive(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);

	return launch(own, stream, "cei_experts_receive",
		      blocks_for(n_experts(job), CEI_EXPERTS_THREADS), &work);
}

static int sort(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);

	return launch(own, stream, "cei_experts_sort", n_segments(job) * work.n_parts, &work);
}

/* --- combine --------------------------------------------------------------- */

static int give_back(struct cei_executor *executor, void *stream,
		     const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);
	int r = check_slots(own, stream, job);

	return r ? r : launch(own, stream, "cei_experts_give_back",
			      n_segments(job) * work.n_parts, &work);
}

static int add_up(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	const struct cei_gpu_executor *own = executor->private;
	struct cei_experts_work work = work_of(own, job);
	char name[KERNEL_NAME_BYTES];

	snprintf(name, sizeof(name), "cei_experts_add_up_%s", cei_dtype_name(job->dtype));
	return launch(own, stream, name, blocks_for(job->n_tokens, N_WARPS), &work);
}

const struct cei_experts_ops cei_gpu_experts = {
	.place = place,
	.place_again = place_again,
	.pack = pack,
	.receive = receive,
	.sort = sort,
	.give_back = give_back,
	.add_up = add_up,
};
