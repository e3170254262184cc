/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EMBEDDING_DATA_H
#define CEI_EMBEDDING_DATA_H

/*
 * Shapes, tables and bags of embeddings in host memory, of all ranks, and what has to come of them,
 * made sample after sample. Asserts with Check.
 */

#include <stdint.h>

#include <ceoverlap/embedding.h>

#include "testing.h"
#include "unit/op_rig.h"

#define EMBEDDING_TABLES_MAX  40u
#define EMBEDDING_GUARD_BYTES 64u

struct embedding_rank {
	char    *tables;                /* its own */
	int64_t *indices;
	int64_t *offsets;
	float   *weights;
	char    *grads;                 /* of its pooled vectors */
	uint64_t n_indices;
};

/* shape points to the arrays behind it, so a test may change these before it creates ops. */
struct embedding_data {
	uint32_t              n_ranks;
	struct ceov_embedding shape;
	struct ceov_op_tuning tuning;
	uint64_t              samples[OP_RANKS_MAX];
	uint32_t              n_local[OP_RANKS_MAX];
	uint64_t              dims[EMBEDDING_TABLES_MAX];
	uint64_t              rows[EMBEDDING_TABLES_MAX];
	int                   is_weighted;      /* of the batch; drawn with it */
	struct embedding_rank ranks[OP_RANKS_MAX];
};

/* Set a zeroed or freed struct: a shape that is always the same, of 2 tables for each rank, and a
 * random one. */
void embedding_set_shape(struct embedding_data *data, uint32_t n_ranks);
void embedding_draw_shape(struct embedding_data *data, uint32_t n_ranks, uint64_t *random);

/* Draws tables, bags and gradients of all ranks. */
void embedding_draw_batch(struct embedding_data *data, uint64_t *random);
void embedding_data_free(struct embedding_data *data);

/* Numbers of the shape. */
uint64_t embedding_all_samples(const struct embedding_data *data);
uint64_t embedding_samples_before(const struct embedding_data *data, uint32_t rank);
uint32_t embedding_tables_before(const struct embedding_data *data, uint32_t rank);
uint64_t embedding_columns(const struct embedding_data *data, uint32_t rank);   /* n_ranks: all */
uint64_t embedding_table_bytes(const struct embedding_data *data, uint32_t rank);
uint64_t embedding_pooled_bytes(const struct embedding_data *data, uint32_t rank);

/* Returns the bags of a rank, with weights if the batch has them. */
struct ceov_embedding_bags embedding_bags(const struct embedding_data *data, uint32_t rank);

/* Returns memory of n_bytes between two guards, filled with the guards' byte; freed by free(). */
char *embedding_guarded(uint64_t n_bytes);

/* Sizes of the results of a backward run. */
uint64_t embedding_bag_grads_bytes(const struct embedding_data *data, uint32_t rank);
uint64_t embedding_row_grads_bytes(const struct embedding_data *data, uint32_t rank);

/* Fill in the results of a rank; what a run does not write is left as it is. */
void embedding_expect_pooled(const struct embedding_data *data, uint32_t rank, char *pooled);
void embedding_expect_bag_grads(const struct embedding_data *data, uint32_t rank, char *grads);
void embedding_expect_row_grads(const struct embedding_data *data, uint32_t rank, char *grads);

#endif /* CEI_EMBEDDING_DATA_H */
