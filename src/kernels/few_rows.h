/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FEW_ROWS_H
#define CEI_FEW_ROWS_H

/*
 * The parameters of a product of few rows, C = A B^T in bf16 or fp16 with sums in fp32, which takes
 * as long as reading B does. This header is plain C.
 *
 * The kernels are cei_few_rows_<dtype>_<rows>, with dtype bf16 or fp16 and rows 16, 32 or 64: the
 * most rows that A may have. They need sm_90. A cluster of CEI_FEW_ROWS_CLUSTER blocks computes
 * CEI_FEW_ROWS_COLUMNS columns of C: each block a part of the sums over k, which the cluster adds
 * up in the order of its blocks. So the same operands give the same bits. Launch
 * ceiling(n / CEI_FEW_ROWS_COLUMNS) clusters, with CEI_FEW_ROWS_THREADS threads a block.
 *
 * All three matrices are row-major without gaps; n and k are multiples of 8, and addresses are
 * multiples of 16.
 */

#include <stdint.h>

#define CEI_FEW_ROWS_MAX     64u
#define CEI_FEW_ROWS_COLUMNS 64u        /* of C, by a cluster */
#define CEI_FEW_ROWS_CLUSTER 4u         /* blocks, which share k */
#define CEI_FEW_ROWS_THREADS 256u
#define CEI_FEW_ROWS_STEP    128u       /* of k, which a block takes at once */

struct cei_few_rows {
	const void *a;                  /* m x k */
	const void *b;                  /* n x k */
	void       *c;                  /* m x n */
	uint32_t    m;                  /* at most the kernel's rows */
	uint32_t    n;
	uint32_t    k;
};

#endif /* CEI_FEW_ROWS_H */
