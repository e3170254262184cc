/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "unit/embedding_data.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"

#define SAMPLES_MAX 40u
#define LOCAL_MAX   5u
#define DIM_MAX     272u                /* rows of more vectors than a warp has lanes */
#define ROWS_MAX    50u
#define BAG_MAX     12u
#define GUARD       0x5a

/* --- shapes ------------------------------------------------------------------------ */

static void begin_shape(struct embedding_data *data, uint32_t n_ranks)
{
	memset(data, 0, sizeof(*data));
	data->n_ranks = n_ranks;
	data->tuning.struct_bytes = sizeof(data->tuning);
	data->shape = (struct ceov_embedding){
		.struct_bytes = sizeof(data->shape),
		.dtype = CEOV_BF16,
		.pooling = CEOV_POOL_SUM,
		.samples = data->samples,
		.n_local = data->n_local,
		.dims = data->dims,
		.rows = data->rows,
		.tuning = &data->tuning,
	};
}

void embedding_set_shape(struct embedding_data *data, uint32_t n_ranks)
{
	uint32_t i;

	begin_shape(data, n_ranks);
	for (i = 0; i < n_ranks; i++) {
		data->samples[i] = 11 + i;
		data->n_local[i] = 2;
	}
	for (i = 0; i < EMBEDDING_TABLES_MAX; i++) {
		data->dims[i] = 8 * (1 + i % 3);
		data->rows[i] = 20;
	}
}

static void draw_tuning(struct ceov_op_tuning *tuning, uint64_t *random)
{
	tuning->mode = testing_below(random, 4) ? CEOV_MODE_CHOOSE : CEOV_MODE_SEQUENCE;
	if (tuning->mode == CEOV_MODE_CHOOSE && testing_below(random, 3))
		tuning->n_pieces = 1 + (uint32_t)testing_below(random, 5);
}

void embedding_draw_shape(struct embedding_data *data, uint32_t n_ranks, uint64_t *random)
{
	uint32_t i;

	begin_shape(data, n_ranks);
	data->shape.dtype = (enum ceov_dtype)(CEOV_BF16 + testing_below(random, 3));
	data->shape.pooling = testing_below(random, 3) ? CEOV_POOL_SUM : CEOV_POOL_MEAN;
	draw_tuning(&data->tuning, random);
	for (i = 0; i < n_ranks; i++) {
		data->samples[i] = testing_below(random, 5) ? testing_below(random, SAMPLES_MAX)
			: 0;
		data->n_local[i] = (uint32_t)testing_below(random, LOCAL_MAX);
	}
	data->samples[n_ranks - 1] += !embedding_all_samples(data);
	data->n_local[0] += !embedding_tables_before(data, n_ranks);
	for (i = 0; i < EMBEDDING_TABLES_MAX; i++) {
		data->dims[i] = 8 * (1 + testing_below(random, testing_below(random, 4)
						       ? 8 : DIM_MAX / 8));
		data->rows[i] = 1 + testing_below(random, ROWS_MAX);
	}
}

uint64_t embedding_samples_before(const struct embedding_data *data, uint32_t rank)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		n += data->samples[i];
	return n;
}

uint64_t embedding_all_samples(const struct embedding_data *data)
{
	return embedding_samples_before(data, data->n_ranks);
}

uint32_t embedding_tables_before(const struct embedding_data *data, uint32_t rank)
{
	uint32_t n = 0, i;

	for (i = 0; i < rank; i++)
		n += data->n_local[i];
	return n;
}

uint64_t embedding_columns(const struct embedding_data *data, uint32_t rank)
{
	uint32_t all = rank == data->n_ranks, t;
	uint32_t end = embedding_tables_before(data, rank + !all);
	uint64_t n = 0;

	for (t = all ? 0 : embedding_tables_before(data, rank); t < end; t++)
		n += data->dims[t];
	return n;
}

uint64_t embedding_table_bytes(const struct embedding_data *data, uint32_t rank)
{
	uint32_t t, end = embedding_tables_before(data, rank + 1);
	uint64_t n = 0;

	for (t = embedding_tables_before(data, rank); t < end; t++)
		n += data->rows[t] * data->dims[t];
	return n * cei_dtype_bytes(data->shape.dtype);
}

uint64_t embedding_pooled_bytes(const struct embedding_data *data, uint32_t rank)
{
	return data->samples[rank] * embedding_columns(data, data->n_ranks) *
		cei_dtype_bytes(data->shape.dtype);
}

/* --- data -------------------------------------------------------------------------- */

static void *fresh(uint64_t n_bytes)
{
	void *memory = aligned_alloc(64, (n_bytes + 127) / 64 * 64);

	ck_assert_ptr_nonnull(memory);
	memset(memory, GUARD, (n_bytes + 127) / 64 * 64);
	return memory;
}

char *embedding_guarded(uint64_t n_bytes)
{
	return fresh(n_bytes + 2 * EMBEDDING_GUARD_BYTES);
}

static void free_rank(struct embedding_rank *rank)
{
	free(rank->tables);
	free(rank->indices);
	free(rank->offsets);
	free(rank->weights);
	free(rank->grads);
	memset(rank, 0, sizeof(*rank));
}

void embedding_data_free(struct embedding_data *data)
{
	uint32_t i;

	for (i = 0; i < data->n_ranks; i++)
		free_rank(&data->ranks[i]);
}

/* Bags of all sizes up to a limit, a quarter of them empty. Offsets begin above 0, and indices
 * behind the last bag are no rows: nobody may read them. */
static void draw_offsets(struct embedding_rank *rank, uint64_t n_bags, uint64_t *random)
{
	uint64_t i;

	rank->offsets = fresh((n_bags + 1) * sizeof(int64_t));
	rank->offsets[0] = (int64_t)testing_below(random, 3);
	for (i = 0; i < n_bags; i++)
		rank->offsets[i + 1] = rank->offsets[i] + (testing_below(random, 4)
			? (int64_t)testing_below(random, BAG_MAX) : 0);
	rank->n_indices = (uint64_t)rank->offsets[n_bags];
	rank->indices = fresh(rank->n_indices * sizeof(int64_t));
	rank->weights = fresh(rank->n_indices * sizeof(float));
}

static void draw_bags(struct embedding_data *data, uint32_t r, uint64_t *random)
{
	struct embedding_rank *rank = &data->ranks[r];
	uint32_t first = embedding_tables_before(data, r), t;
	uint64_t n_samples = embedding_all_samples(data), s;
	int64_t at;

	draw_offsets(rank, data->n_local[r] * n_samples, random);
	for (t = 0; t < data->n_local[r]; t++)
		for (s = t * n_samples; s < (t + 1) * n_samples; s++)
			for (at = rank->offsets[s]; at < rank->offsets[s + 1]; at++) {
				rank->indices[at] = (int64_t)testing_below(random,
									   data->rows[first + t]);
				rank->weights[at] = (float)testing_below(random, 1000) / 777;
			}
}

/* Returns memory of that many bytes with random numbers of the shape's dtype. */
static char *draw_numbers(const struct embedding_data *data, uint64_t n_bytes, uint64_t *random)
{
	uint64_t size = cei_dtype_bytes(data->shape.dtype), at;
	char *memory = fresh(n_bytes);
	float value;

	for (at = 0; at < n_bytes; at += size) {
		value = (float)testing_below(random, 1000) / 256 - 2;
		cei_dtype_narrow(data->shape.dtype, memory + at, &value, 1);
	}
	return memory;
}

void embedding_draw_batch(struct embedding_data *data, uint64_t *random)
{
	uint32_t r;

	embedding_data_free(data);
	data->is_weighted = data->shape.pooling == CEOV_POOL_SUM && testing_below(random, 2);
	for (r = 0; r < data->n_ranks; r++) {
		data->ranks[r].tables = draw_numbers(data, embedding_table_bytes(data, r), random);
		data->ranks[r].grads = draw_numbers(data, embedding_pooled_bytes(data, r), random);
		draw_bags(data, r, random);
	}
}

struct ceov_embedding_bags embedding_bags(const struct embedding_data *data, uint32_t rank)
{
	const struct embedding_rank *its = &data->ranks[rank];

	return (struct ceov_embedding_bags){
		.n_indices = its->n_indices,
		.indices = its->indices,
		.offsets = its->offsets,
		.weights = data->is_weighted ? its->weights : NULL,
	};
}

/* --- what is expected -------------------------------------------------------------- */

struct table {
	const struct embedding_rank *owner;
	const char                  *rows;
	uint64_t                     dim;
};

static void expect_bag(const struct embedding_data *data, const struct table *table, uint64_t bag,
		       char *target)
{
	const struct embedding_rank *owner = table->owner;
	int64_t begin = owner->offsets[bag], end = owner->offsets[bag + 1], at;
	uint64_t dim = table->dim;
	uint64_t row_bytes = dim * cei_dtype_bytes(data->shape.dtype), i;
	float sum[DIM_MAX] = { 0 }, row[DIM_MAX];

	for (at = begin; at < end; at++) {
		cei_dtype_widen(data->shape.dtype, row,
				table->rows + (uint64_t)owner->indices[at] * row_bytes, dim);
		for (i = 0; i < dim; i++)
			sum[i] += (data->is_weighted ? owner->weights[at] : 1) * row[i];
	}
	for (i = 0; data->shape.pooling == CEOV_POOL_MEAN && begin < end && i < dim; i++)
		sum[i] /= (float)(end - begin);
	cei_dtype_narrow(data->shape.dtype, target, sum, dim);
}

void embedding_expect_pooled(const struct embedding_data *data, uint32_t rank, char *pooled)
{
	uint64_t size = cei_dtype_bytes(data->shape.dtype), sample, n = embedding_all_samples(data);
	uint64_t first = embedding_samples_before(data, rank);
	struct table table;
	uint32_t r, t, local;

	for (sample = first; sample < first + data->samples[rank]; sample++) {
		for (r = t = 0; r < data->n_ranks; r++) {
			table.owner = &data->ranks[r];
			table.rows = table.owner->tables;
			for (local = 0; local < data->n_local[r]; local++, t++) {
				table.dim = data->dims[t];
				expect_bag(data, &table, local * n + sample, pooled);
				table.rows += data->rows[t] * data->dims[t] * size;
				pooled += data->dims[t] * size;
			}
		}
	}
}

/* --- what is expected of a backward run --------------------------------------------- */

static uint64_t most_dim(const struct embedding_data *data, uint32_t rank)
{
	uint32_t t = embedding_tables_before(data, rank);
	uint32_t end = embedding_tables_before(data, rank + 1);
	uint64_t most = 0;

	for (; t < end; t++)
		most = data->dims[t] > most ? data->dims[t] : most;
	return most;
}

uint64_t embedding_bag_grads_bytes(const struct embedding_data *data, uint32_t rank)
{
	return embedding_all_samples(data) * embedding_columns(data, rank) *
		cei_dtype_bytes(data->shape.dtype);
}

uint64_t embedding_row_grads_bytes(const struct embedding_data *data, uint32_t rank)
{
	return data->ranks[rank].n_indices * most_dim(data, rank) *
		cei_dtype_bytes(data->shape.dtype);
}

/* Finds the gradient of a sample's pooled vectors, from the first table of a rank on. */
static const char *gradient_of(const struct embedding_data *data, uint64_t sample, uint32_t rank)
{
	uint64_t column = 0, size = cei_dtype_bytes(data->shape.dtype);
	uint32_t its = 0, r;

	while (sample >= data->samples[its])
		sample -= data->samples[its++];
	for (r = 0; r < rank; r++)
		column += embedding_columns(data, r);
	return data->ranks[its].grads +
		(sample * embedding_columns(data, data->n_ranks) + column) * size;
}

void embedding_expect_bag_grads(const struct embedding_data *data, uint32_t rank, char *grads)
{
	uint64_t n_bytes = embedding_columns(data, rank) * cei_dtype_bytes(data->shape.dtype);
	uint64_t sample;

	for (sample = 0; sample < embedding_all_samples(data); sample++)
		memcpy(grads + sample * n_bytes, gradient_of(data, sample, rank), n_bytes);
}

/* Fills in the gradients of the rows of a bag, whose own gradient is given. */
static void expect_rows(const struct embedding_data *data, const struct table *table, uint64_t bag,
			const char *gradient, char *grads)
{
	int64_t begin = table->owner->offsets[bag], end = table->owner->offsets[bag + 1], at;
	uint64_t row_bytes = most_dim(data, (uint32_t)(table->owner - data->ranks)) *
		cei_dtype_bytes(data->shape.dtype), i;
	float wide[DIM_MAX], row[DIM_MAX];

	cei_dtype_widen(data->shape.dtype, wide, gradient, table->dim);
	for (at = begin; at < end; at++) {
		for (i = 0; i < table->dim; i++) {
			row[i] = wide[i];
			if (data->shape.pooling == CEOV_POOL_MEAN)
				row[i] /= (float)(end - begin);
			else if (data->is_weighted)
				row[i] *= table->owner->weights[at];
		}
		cei_dtype_narrow(data->shape.dtype, grads + (uint64_t)at * row_bytes, row,
				 table->dim);
	}
}

void embedding_expect_row_grads(const struct embedding_data *data, uint32_t rank, char *grads)
{
	uint64_t size = cei_dtype_bytes(data->shape.dtype), n = embedding_all_samples(data), sample;
	uint32_t first = embedding_tables_before(data, rank), local;
	struct table table = { .owner = &data->ranks[rank] };
	const char *gradient;

	for (sample = 0; sample < n; sample++) {
		gradient = gradient_of(data, sample, rank);
		for (local = 0; local < data->n_local[rank]; local++) {
			table.dim = data->dims[first + local];
			expect_rows(data, &table, local * n + sample, gradient, grads);
			gradient += table.dim * size;
		}
	}
}
