/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KERNELS_EMBEDDING_H
#define CEI_KERNELS_EMBEDDING_H

/*
 * Parameters of the kernels of embedding bags, for host code and device code. They do what struct
 * cei_embedding_ops in ops/compute/embedding.h describes.
 *
 *   cei_embedding_check                       CEI_EMBEDDING_CHECK_LANES threads for each bag
 *   cei_embedding_look_up_bf16, _fp16, _fp32  n_lanes threads for each bag
 *   cei_embedding_spread_bf16, _fp16, _fp32   likewise
 *
 * All take a struct cei_embedding_work. Every kernel runs on any number of blocks of
 * CEI_EMBEDDING_THREADS threads; none waits for anything. Threads of a bag
 * share its vectors of 16 bytes, each of which one thread makes alone in the order of the bag's
 * indices, so two runs make the same bits.
 *
 * FAILURES cei_embedding_check writes an enum cei_embedding_fault to *status, sets *failed, and
 * makes all verdicts CEI_EMBEDDING_REFUSED, which is more rows than any transfer has, so that the
 * engine refuses the launch and ends the run at all ranks. Kernels behind it then do nothing.
 */

#include <stdint.h>

#include "kernels/experts.h"

#define CEI_EMBEDDING_THREADS      1024u
#define CEI_EMBEDDING_CHECK_LANES  8u
#define CEI_EMBEDDING_REFUSED      UINT64_MAX
#define CEI_EMBEDDING_VECTOR_BYTES 16u

/* Values of the executor's status word, above those of enum cei_experts_fault. */
enum cei_embedding_fault {
	CEI_EMBEDDING_NO_BAG = CEI_EXPERTS_TOO_MANY + 1,        /* offsets fall, or reach past
								 * n_indices */
	CEI_EMBEDDING_NO_ROW,                                   /* an index is no row of its
								 * table */
};

/* Where a table lies. A vector is CEI_EMBEDDING_VECTOR_BYTES. */
struct cei_embedding_table {
	uint64_t first;                 /* its first vector among those of all own tables */
	uint64_t n_rows;
	uint64_t n_vectors;             /* of a row */
	uint64_t column;                /* its first vector among the own columns of a sample */
};

struct cei_embedding_work {
	const struct cei_embedding_table *tables;       /* [n_tables] */
	uint32_t       n_tables;
	uint32_t       n_lanes;         /* threads of a bag, a power of two */
	int            is_mean;
	uint32_t       n_verdicts;
	uint64_t       n_samples;       /* of all ranks */
	uint64_t       first;           /* the part's samples, which cei_embedding_check ignores */
	uint64_t       n;
	uint64_t       n_indices;
	const int64_t *indices;
	const int64_t *offsets;
	const float   *weights;         /* NULL: all are 1 */
	const void    *rows;            /* of all own tables; not read by spread */
	void          *row_grads;       /* spread only: rows of most_vectors */
	uint64_t       most_vectors;
	char          *vectors;         /* as in struct cei_embedding_part */
	uint64_t       pitch_bytes;
	uint64_t      *verdicts;        /* host memory; NULL: none */
	uint32_t      *status;          /* host memory */
	uint32_t      *failed;          /* GPU memory; not 0: a run of this workspace has failed */
};

#endif /* CEI_KERNELS_EMBEDDING_H */
