/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the host's executor does for mixtures of experts. Meant for tests, not for speed. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/context.h"
#include "ops/compute/dtype.h"
#include "ops/exec_host/execute_host.h"
#include "ops/shape.h"

static int refuse(struct cei_executor *executor, const char *what, int64_t value)
{
	int r = cei_raise(&executor->context->report, CEOV_ERR_INVALID, 0,
			  "host executor: rank %u: %s: %" PRId64, executor->rank, what, value);

	return cei_host_keep(executor, r);
}

static char *block_of(const struct cei_experts_job *job, char *blocks, uint32_t rank)
{
	return blocks + rank * cei_experts_block_bytes(job);
}

/* The block that has come from a rank. */
static char *arriving(const struct cei_experts_job *job, uint32_t source)
{
	return block_of(job, source == job->own ? job->leaving : job->arriving, source);
}

static char *row_at(const struct cei_experts_job *job, char *block, uint64_t row)
{
	return block + (job->n_header_rows + row) * job->row_bytes;
}

/* How many slots the blocks of one group have. */
static int64_t n_group_slots(const struct cei_experts_job *job)
{
	return (int64_t)(job->n_ranks * job->capacity);
}

/* A slot's number among those of the run's group; -1: there is none, or it is another group's. */
static int64_t slot_here(const struct cei_experts_job *job, int32_t slot)
{
	int64_t n = slot - job->group * n_group_slots(job);

	return slot >= 0 && n >= 0 && n < n_group_slots(job) ? n : -1;
}

/* The numbers of rows that `source` sends for own experts of the run's group. */
static const uint32_t *arrived_of(const struct cei_experts_job *job, uint32_t source)
{
	return job->arrived + source * job->n_local + job->group * cei_experts_each(job);
}

/* --- dispatch -------------------------------------------------------------- */

/* What a rank sends to all others in place of numbers of rows if one of its tokens names an expert
 * that does not exist. No rank can send so many rows. */
struct misnamed {
	uint32_t mark;
	int32_t  expert;
};

#define MISNAMED (UINT32_MAX - 1)

/* Returns a number that is no expert's, nor -1, or -1 if there is none. */
static int32_t find_misnamed(const struct cei_experts_job *job)
{
	int64_t n_experts = (int64_t)job->n_local * job->n_ranks;
	uint64_t i;

	for (i = 0; i < job->n_tokens * job->top_k; i++)
		if (job->experts[i] < -1 || job->experts[i] >= n_experts)
			return job->experts[i];
	return -1;
}

static void place_nothing(const struct cei_experts_job *job)
{
	size_t n_bytes = (size_t)job->n_local * job->n_ranks * sizeof(*job->sent);
	uint64_t copy;

	for (copy = 0; copy < job->n_tokens * job->top_k; copy++)
		job->slots[copy] = -1;
	if (job->sent)
		memset(job->sent, 0, n_bytes);
}

/* Has all ranks end the dispatch without any rows. */
static void say_misnamed(const struct cei_experts_job *job, int32_t expert)
{
	const struct misnamed header = { MISNAMED, expert };
	uint32_t target;

	for (target = 0; target < job->n_ranks; target++) {
		memcpy(block_of(job, job->leaving, target), &header, sizeof(header));
		job->n_rows[target] = job->n_header_rows;
	}
}

/* The copies for one target that were looked at so far, also those that were dropped. */
struct placed {
	uint64_t of_target;
	uint64_t of_group;
};

/* Gives the copies for one expert the next slots of its group's block for its rank, in the order of
 * tokens, and returns how many got one. */
static uint32_t place_expert(const struct cei_experts_job *job, uint32_t expert,
			     struct placed *placed)
{
	uint32_t target = expert / job->n_local, n = 0;
	uint32_t group = expert % job->n_local / cei_experts_each(job);
	uint64_t block = (uint64_t)group * job->n_ranks + target, i, all, row;

	for (i = 0; i < job->n_tokens * job->top_k; i++) {
		if (job->experts[i] != (int32_t)expert)
			continue;
		all = placed->of_target++;
		row = placed->of_group++;
		if (all >= job->total_capacity || row >= job->capacity)
			continue;
		job->slots[i] = (int32_t)(block * job->capacity + row);
		n++;
	}
	return n;
}

/* Places the copies for the experts of one rank. */
static void place_target(const struct cei_experts_job *job, uint32_t target)
{
	struct placed placed = { 0, 0 };
	uint32_t i, n;

	job->n_rows[target] = job->n_header_rows;
	for (i = 0; i < job->n_local; i++) {
		if (i % cei_experts_each(job) == 0)
			placed.of_group = 0;
		n = place_expert(job, target * job->n_local + i, &placed);
		memcpy(block_of(job, job->leaving, target) + i * sizeof(n), &n, sizeof(n));
		if (job->sent)
			job->sent[target * job->n_local + i] = n;
		if (i / cei_experts_each(job) == job->group)
			job->n_rows[target] += n;
	}
}

static int place(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	int32_t misnamed = find_misnamed(job);
	uint32_t target;

	(void)executor;
	(void)stream;
	place_nothing(job);
	if (misnamed != -1)
		say_misnamed(job, misnamed);
	for (target = 0; misnamed == -1 && target < job->n_ranks; target++)
		place_target(job, target);
	return 0;
}

static int check_slots(struct cei_executor *executor, const struct cei_experts_job *job)
{
	int64_t n_slots = job->n_groups * n_group_slots(job);
	uint64_t i;

	for (i = 0; i < job->n_tokens * job->top_k; i++)
		if (job->slots[i] < -1 || job->slots[i] >= n_slots)
			return refuse(executor, "routing.slots has a slot that does not exist",
				      job->slots[i]);
	return 0;
}

/* Marks the headers of blocks as those of a routing that is given: no rank can send so many
 * rows. */
static void mark_headers(const struct cei_experts_job *job)
{
	const uint32_t mark = UINT32_MAX;
	uint32_t target;

	for (target = 0; target < job->n_ranks; target++)
		memcpy(block_of(job, job->leaving, target), &mark, sizeof(mark));
}

/* How many rows `sent` says that leave for a target. */
static uint64_t rows_sent(const struct cei_experts_job *job, uint32_t target)
{
	uint32_t n_each = cei_experts_each(job), i;
	const uint32_t *sent = job->sent + target * job->n_local + job->group * n_each;
	uint64_t n = 0;

	for (i = 0; i < n_each; i++)
		n += sent[i];
	return n;
}

/* Slots of a block are taken from the first on, so the last one says how many rows leave. */
static uint64_t rows_slotted(const struct cei_experts_job *job, uint32_t target)
{
	uint64_t i, n = 0, row;
	int64_t slot;

	for (i = 0; i < job->n_tokens * job->top_k; i++) {
		slot = slot_here(job, job->slots[i]);
		if (slot < 0 || (uint64_t)slot / job->capacity != target)
			continue;
		row = (uint64_t)slot % job->capacity;
		n = row >= n ? row + 1 : n;
	}
	return n;
}

static int place_again(struct cei_executor *executor, void *stream,
		       const struct cei_experts_job *job)
{
	int r = check_slots(executor, job);
	uint32_t target;

	(void)stream;
	if (r)
		return r;
	mark_headers(job);
	for (target = 0; target < job->n_ranks; target++)
		job->n_rows[target] = job->n_header_rows +
			(job->sent ? rows_sent(job, target) : rows_slotted(job, target));
	return 0;
}

/* slot: as slot_here() returns it, not -1. */
static char *slot_of(const struct cei_experts_job *job, char *(*block)(
			const struct cei_experts_job *job, uint32_t rank), int64_t slot)
{
	uint64_t n = (uint64_t)slot;

	return row_at(job, block(job, (uint32_t)(n / job->capacity)), n % job->capacity);
}

static char *leaving(const struct cei_experts_job *job, uint32_t target)
{
	return block_of(job, job->leaving, target);
}

static int pack(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	int64_t slot;
	uint64_t i;

	(void)executor;
	(void)stream;
	for (i = 0; i < job->n_tokens * job->top_k; i++) {
		slot = slot_here(job, job->slots[i]);
		if (slot >= 0)
			memcpy(slot_of(job, leaving, slot),
			       (const char *)job->tokens + i / job->top_k * job->row_bytes,
			       job->row_bytes);
	}
	return 0;
}

/* Refuses the dispatch, as all other ranks do, with a routing by which nothing goes anywhere. */
static int refuse_all(struct cei_executor *executor, const struct cei_experts_job *job,
		      uint32_t source, int32_t expert)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	uint32_t i;

	place_nothing(job);
	memset(job->arrived, 0, (size_t)job->n_local * job->n_ranks * sizeof(*job->arrived));
	for (i = 0; i < cei_experts_each(job); i++)
		job->ends[i] = 0;
	failure.rank = source;
	(void)cei_raise_failure(&executor->context->report, &failure,
				"ceov_moe_dispatch_run: rank %u: a token of rank %u names expert "
				"%" PRId32 ", which does not exist: must be -1 to %u",
				executor->rank, source, expert, job->n_local * job->n_ranks - 1);
	return CEI_RUN_REFUSED;
}

static int receive(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	struct misnamed header;
	uint32_t source;

	(void)stream;
	for (source = 0; source < job->n_ranks; source++) {
		memcpy(&header, arriving(job, source), sizeof(header));
		if (header.mark == MISNAMED)
			return refuse_all(executor, job, source, header.expert);
		memcpy(job->arrived + source * job->n_local, arriving(job, source),
		       job->n_local * sizeof(*job->arrived));
	}
	return 0;
}

/* Refuses numbers of rows that no block, or the memory for all rows, has room for. */
static int check_arrived(struct cei_executor *executor, const struct cei_experts_job *job)
{
	uint64_t all = 0, of_block;
	uint32_t source, i;

	for (source = 0; source < job->n_ranks; source++) {
		of_block = 0;
		for (i = 0; i < cei_experts_each(job); i++)
			of_block += arrived_of(job, source)[i];
		if (of_block > job->capacity)
			return refuse(executor, "more rows came from a rank than a block has; the "
				      "rank is", source);
		all += of_block;
	}
	if (all <= job->n_received)
		return 0;
	return refuse(executor, "more rows came than n_received; there are", (int64_t)all);
}

/* Copies the group's rows between blocks and the order of experts; goes_back: to the blocks. */
static void copy_rows(const struct cei_experts_job *job, char *(*block)(
			const struct cei_experts_job *job, uint32_t rank), int goes_back)
{
	uint64_t done[CEI_OP_RANKS_MAX] = { 0 };        /* [source]: rows of its block */
	char *row = job->rows, *other;
	uint32_t i, source;
	uint64_t n;

	for (i = 0; i < cei_experts_each(job); i++) {
		for (source = 0; source < job->n_ranks; source++) {
			n = arrived_of(job, source)[i];
			other = row_at(job, block(job, source), done[source]);
			memcpy(goes_back ? other : row, goes_back ? row : other,
			       n * job->row_bytes);
			done[source] += n;
			row += n * job->row_bytes;
		}
		if (job->ends)
			job->ends[i] = (int32_t)((uint64_t)(row - (char *)job->rows) /
						 job->row_bytes);
	}
}

static int sort(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	int r = check_arrived(executor, job);

	(void)stream;
	if (!r)
		copy_rows(job, arriving, 0);
	return r;
}

/* --- combine --------------------------------------------------------------- */

static int give_back(struct cei_executor *executor, void *stream,
		     const struct cei_experts_job *job)
{
	int r = check_arrived(executor, job);
	uint32_t source, i;

	(void)stream;
	if (!r)
		r = check_slots(executor, job);
	if (r)
		return r;
	for (source = 0; source < job->n_ranks; source++) {
		job->n_rows[source] = job->n_header_rows;
		for (i = 0; i < cei_experts_each(job); i++)
			job->n_rows[source] += arrived_of(job, source)[i];
	}
	copy_rows(job, leaving, 1);
	return 0;
}

static void add_token(const struct cei_experts_job *job, uint64_t token, float *sum, float *addend)
{
	uint64_t hidden = job->row_bytes / cei_dtype_bytes(job->dtype), i;
	uint32_t k;

	memset(sum, 0, hidden * sizeof(*sum));
	for (k = 0; k < job->top_k; k++) {
		int64_t slot = slot_here(job, job->slots[token * job->top_k + k]);
		float weight = job->weights ? job->weights[token * job->top_k + k] : 1;

		if (slot < 0)
			continue;
		cei_dtype_widen(job->dtype, addend, slot_of(job, arriving, slot), hidden);
		for (i = 0; i < hidden; i++)
			sum[i] += weight * addend[i];
	}
	cei_dtype_narrow(job->dtype, (char *)job->sums + token * job->row_bytes, sum, hidden);
}

static int add_up(struct cei_executor *executor, void *stream, const struct cei_experts_job *job)
{
	uint64_t hidden = job->row_bytes / cei_dtype_bytes(job->dtype), token;
	float *memory = malloc(2 * hidden * sizeof(*memory));

	(void)stream;
	if (!memory)
		return cei_host_keep(executor, cei_raise(&executor->context->report,
							 CEOV_ERR_NO_MEMORY, 0,
							 "host executor: rank %u: no memory for "
							 "sums", executor->rank));
	for (token = 0; token < job->n_tokens; token++)
		add_token(job, token, memory, memory + hidden);
	free(memory);
	return 0;
}

const struct cei_experts_ops cei_host_experts = {
	.place = place,
	.place_again = place_again,
	.pack = pack,
	.receive = receive,
	.sort = sort,
	.give_back = give_back,
	.add_up = add_up,
};
