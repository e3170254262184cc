/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EMBEDDING_H
#define CEI_EMBEDDING_H

/* What an executor does for embedding bags of the rank's own tables. */

#include <stdint.h>

#include <ceoverlap/embedding.h>

#include "kernels/embedding.h"

struct cei_executor;                    /* executor.h */

/* One run. All memory is the rank's. Fields have the meaning of those in the public header. */
struct cei_embedding_job {
	enum ceov_dtype                   dtype;
	int                               is_mean;
	uint32_t                          n_tables;     /* the rank's own */
	uint64_t                          n_samples;    /* of all ranks */
	uint64_t                          most_vectors; /* of a row of any of the tables */
	const struct cei_embedding_table *tables;       /* [n_tables] */
	const void                       *held_tables;  /* the executor's copy of tables, made by
							 * hold() */
	const void                       *rows;         /* of all own tables; look_up() only */
	void                             *row_grads;    /* rows of most_vectors, [n_indices];
							 * spread() only */
	struct ceov_embedding_bags        bags;
	uint64_t                         *verdicts;     /* n_verdicts numbers of rows that are sent,
							 * in host memory; NULL: none */
	uint32_t                          n_verdicts;
};

/* The bags of all own tables for the samples first to first + n - 1. */
struct cei_embedding_part {
	uint64_t first;
	uint64_t n;
	char    *vectors;               /* the vectors of sample `first`, in the order of tables */
	uint64_t pitch_bytes;           /* from one sample's vectors to the next one's */
};

/* Each queues one step of a run behind the work on the stream, as the functions of struct
 * cei_executor_ops do. If check() finds something wrong, the host's executor raises
 * CEOV_ERR_INVALID; a GPU's does so in status(), its later steps compute nothing, and the verdicts
 * become a number that the engine refuses. */
struct cei_embedding_ops {
	/* Checks the offsets, and the indices unless bags.indices is NULL. */
	int (*check)(struct cei_executor *executor, void *stream,
		     const struct cei_embedding_job *job);

	/* Pools the bags of a part; the vectors are results. */
	int (*look_up)(struct cei_executor *executor, void *stream,
		       const struct cei_embedding_job *job, const struct cei_embedding_part *part);

	/* Makes the gradients of the rows of a part's bags; the vectors are the bags' gradients,
	 * which are only read. */
	int (*spread)(struct cei_executor *executor, void *stream,
		      const struct cei_embedding_job *job, const struct cei_embedding_part *part);
};

#endif /* CEI_EMBEDDING_H */
