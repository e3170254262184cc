/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What the host's executor does for embedding bags. Meant for tests, not for speed. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/context.h"
#include "ops/compute/dtype.h"
#include "ops/compute/embedding.h"
#include "ops/exec_host/execute_host.h"

/* --- checks ---------------------------------------------------------------- */

static int check_bag(struct cei_executor *executor, const struct cei_embedding_job *job,
		     uint64_t bag)
{
	int64_t begin = job->bags.offsets[bag], end = job->bags.offsets[bag + 1];

	if (begin >= 0 && begin <= end && (uint64_t)end <= job->bags.n_indices)
		return 0;
	return cei_raise(&executor->context->report, CEOV_ERR_INVALID, 0,
			 "host executor: rank %u: bags.offsets: bag %" PRIu64 " begins at %" PRId64
			 " and ends at %" PRId64 " of %" PRIu64 " indices", executor->rank, bag,
			 begin, end, job->bags.n_indices);
}

static int check_index(struct cei_executor *executor, const struct cei_embedding_job *job,
		       uint32_t table, int64_t at)
{
	int64_t index = job->bags.indices[at];

	/* a negative index becomes larger than any table */
	if ((uint64_t)index < job->tables[table].n_rows)
		return 0;
	return cei_raise(&executor->context->report, CEOV_ERR_INVALID, 0,
			 "host executor: rank %u: bags.indices: %" PRId64 " is no row of the "
			 "rank's table %u, which has %" PRIu64, executor->rank, index, table,
			 job->tables[table].n_rows);
}

static int check(struct cei_executor *executor, void *stream, const struct cei_embedding_job *job)
{
	uint64_t bag, n_bags = job->n_tables * job->n_samples;
	int64_t at;
	int r = 0;

	(void)stream;
	for (bag = 0; !r && bag < n_bags; bag++) {
		r = check_bag(executor, job, bag);
		if (r || !job->bags.indices)
			continue;
		for (at = job->bags.offsets[bag]; !r && at < job->bags.offsets[bag + 1]; at++)
			r = check_index(executor, job, (uint32_t)(bag / job->n_samples), at);
	}
	return cei_host_keep(executor, r);
}

/* --- bags ------------------------------------------------------------------ */

/* The memory of one bag: its sums, or its gradient, and a row, each of as many floats as the
 * longest row has. */
struct floats {
	float   *sum;
	float   *row;
	uint64_t n;                     /* of the bag's table */
};

static uint64_t elements_of(const struct cei_embedding_job *job, uint64_t n_vectors)
{
	return n_vectors * (CEI_EMBEDDING_VECTOR_BYTES / cei_dtype_bytes(job->dtype));
}

/* sum is NULL if there is no memory. */
static struct floats take_floats(const struct cei_embedding_job *job)
{
	uint64_t n = elements_of(job, job->most_vectors);
	float *sum = malloc(2 * n * sizeof(*sum));

	return (struct floats){ .sum = sum, .row = sum ? sum + n : NULL };
}

static int no_memory(struct cei_executor *executor)
{
	return cei_host_keep(executor, cei_raise(&executor->context->report, CEOV_ERR_NO_MEMORY, 0,
						 "host executor: rank %u: no memory for sums",
						 executor->rank));
}

static void pool(const struct cei_embedding_job *job, const struct cei_embedding_table *table,
		 uint64_t bag, struct floats *floats)
{
	const char *rows = (const char *)job->rows + table->first * CEI_EMBEDDING_VECTOR_BYTES;
	uint64_t row_bytes = table->n_vectors * CEI_EMBEDDING_VECTOR_BYTES, i;
	int64_t begin = job->bags.offsets[bag], end = job->bags.offsets[bag + 1], at;
	float weight;

	memset(floats->sum, 0, floats->n * sizeof(float));
	for (at = begin; at < end; at++) {
		weight = job->bags.weights ? job->bags.weights[at] : 1;
		cei_dtype_widen(job->dtype, floats->row,
				rows + (uint64_t)job->bags.indices[at] * row_bytes, floats->n);
		for (i = 0; i < floats->n; i++)
			floats->sum[i] += weight * floats->row[i];
	}
	for (i = 0; job->is_mean && end > begin && i < floats->n; i++)
		floats->sum[i] /= (float)(end - begin);
}

static int look_up(struct cei_executor *executor, void *stream,
		   const struct cei_embedding_job *job, const struct cei_embedding_part *part)
{
	const struct cei_embedding_table *table;
	struct floats floats = take_floats(job);
	uint64_t i;
	uint32_t t;

	(void)stream;
	if (!floats.sum)
		return no_memory(executor);
	for (t = 0; t < job->n_tables; t++) {
		table = &job->tables[t];
		floats.n = elements_of(job, table->n_vectors);
		for (i = 0; i < part->n; i++) {
			pool(job, table, t * job->n_samples + part->first + i, &floats);
			cei_dtype_narrow(job->dtype, part->vectors + i * part->pitch_bytes +
					 table->column * CEI_EMBEDDING_VECTOR_BYTES, floats.sum,
					 floats.n);
		}
	}
	free(floats.sum);
	return 0;
}

/* Makes the gradients of the rows of a bag, whose own gradient is floats->sum. */
static void spread_bag(const struct cei_embedding_job *job, uint64_t bag,
		       const struct floats *floats)
{
	int64_t begin = job->bags.offsets[bag], end = job->bags.offsets[bag + 1], at;
	uint64_t row_bytes = job->most_vectors * CEI_EMBEDDING_VECTOR_BYTES, i;
	float weight;

	for (i = 0; job->is_mean && end > begin && i < floats->n; i++)
		floats->sum[i] /= (float)(end - begin);
	for (at = begin; at < end; at++) {
		weight = job->bags.weights ? job->bags.weights[at] : 1;
		for (i = 0; i < floats->n; i++)
			floats->row[i] = weight * floats->sum[i];
		cei_dtype_narrow(job->dtype, (char *)job->row_grads + (uint64_t)at * row_bytes,
				 floats->row, floats->n);
	}
}

static int spread(struct cei_executor *executor, void *stream,
		  const struct cei_embedding_job *job, const struct cei_embedding_part *part)
{
	const struct cei_embedding_table *table;
	struct floats floats = take_floats(job);
	uint64_t i;
	uint32_t t;

	(void)stream;
	if (!floats.sum)
		return no_memory(executor);
	for (t = 0; t < job->n_tables; t++) {
		table = &job->tables[t];
		floats.n = elements_of(job, table->n_vectors);
		for (i = 0; i < part->n; i++) {
			cei_dtype_widen(job->dtype, floats.sum,
					part->vectors + i * part->pitch_bytes +
					table->column * CEI_EMBEDDING_VECTOR_BYTES, floats.n);
			spread_bag(job, t * job->n_samples + part->first + i, &floats);
		}
	}
	free(floats.sum);
	return 0;
}

const struct cei_embedding_ops cei_host_embedding = {
	.check = check,
	.look_up = look_up,
	.spread = spread,
};
