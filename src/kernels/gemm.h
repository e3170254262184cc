/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_H
#define CEI_GEMM_H

/*
 * The parameters of a GEMM whose tiles await and raise marks. The host's executor and the kernel
 * execute the same list of tiles. This header is plain C.
 *
 * The GEMM computes C = A B^T or A B in bf16 or fp16, row-major, with sums in fp32. The work is a
 * list of tiles, made by ops/compute/tiles.c and executed in its order. For each tile:
 *
 *   1. await counter `await` of awaited, which says that the tile's rows of A have arrived
 *   2. multiply; if A is kept, also store the tile's rows of A
 *   3. if `reduce` is not NONE: await that piece from each source, and add its partial sums
 *   4. store the tile's n_rows rows, in the columns that C has
 *   5. arrive at counter `arrive` of ready, which says that the rows may be sent
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_GEMM_NONE     UINT16_MAX
#define CEI_GEMM_B_MAX    4u                    /* the most products that share one A */
#define CEI_GEMM_C_MAX    (CEI_GEMM_B_MAX + 1u)

enum cei_gemm_a { CEI_GEMM_A_OWN, CEI_GEMM_A_GATHERED, CEI_GEMM_A_COUNT };

/* The number of the C that holds partial sums to be sent. The result of product i is C number i. */
#define CEI_GEMM_C_PARTIAL CEI_GEMM_B_MAX

struct cei_gemm_tile {
	uint32_t a_row;                 /* first row of A, in the matrix with number a */
	uint32_t c_row;                 /* first row of C, in the matrix with number c */
	uint32_t column;                /* first column of C; that is a row of an n x k B, or a
					 * column of a k x n B */
	uint16_t n_rows;                /* rows to store, which may be fewer than the tile shape
					 * has; 0: the tile only completes a pair */
	uint8_t  a;                     /* enum cei_gemm_a */
	uint8_t  b;                     /* number of the product, and of its B */
	uint8_t  c;                     /* number of the C */
	uint8_t  reserved;
	uint16_t await;                 /* counter to await, or CEI_GEMM_NONE */
	uint16_t arrive;                /* counter to arrive at, or CEI_GEMM_NONE */
	uint16_t reduce;                /* piece whose partial sums are added, or
					 * CEI_GEMM_NONE */
	uint32_t n_arrivals;            /* tiles that arrive at the counter `arrive` in a run */
	/* If not 0, only so many columns from `column` on have to be stored: those of one rank's
	 * part. The kernel stores whole tiles all the same; what lies beyond are the same bits
	 * that tiles of the next parts store there. */
	uint32_t n_columns;
};

/*
 * The marks of one run. If epoch is not NULL, *epoch in GPU memory is the run's number, and is
 * added to await_value. Then the counters of `ready` are gates, which cei_op_begin has set to 0 and
 * which arriving tiles raise to arrive_value.
 *
 * If awaited has no counters, tiles await nothing, whatever counter they name; if ready has no
 * counters, tiles arrive nowhere.
 *
 * If an await fails, all further waiting ends; a launch that finds *failed set by an earlier launch
 * waits only briefly (marks.cuh). If epoch is NULL, no tile arrives after a failure. Else *epoch is
 * first poisoned (CEOV_VALUE_LIMIT), and tiles then go on to arrive. So lanes that wait at gates go
 * on, too. They raise peers' marks by copies of *epoch, so the peers find the poison and do not use
 * the bytes.
 */
struct cei_gemm_marks {
	struct ceov_device_signal awaited;
	struct ceov_device_signal ready;
	struct ceov_device_signal sent;         /* awaited at the end of the kernel, so that
						 * operands may change after it */
	uint64_t                 *epoch;
	uint64_t                  await_value;
	uint64_t                  arrive_value;
	uint64_t                  sent_value;
	uint32_t                  sent_index;   /* the first counter of sent that is awaited */
	uint32_t                  n_sent;       /* how many of its counters are awaited; 0: none */
	uint64_t                  timeout_ns;   /* of each await */
	uint32_t                 *status;       /* 0, or the enum ceov_device_result of a failed
						 * await; may be host memory */
	uint32_t                 *failed;       /* word in GPU memory that a failed await sets to
						 * non-zero; or NULL */
};

/* How the kernel sees a matrix in GPU memory: a CUtensorMap, whose contents only CUDA knows. */
struct cei_gemm_map {
	uint64_t opaque[16];
} __attribute__((aligned(64)));

/*
 * The kernels are cei_gemm_<dtype>_<rows>x<columns>, with dtype bf16 or fp16, and rows x columns
 * 128x256, 128x192 or 128x128, for an n x k B (C = A B^T); the same names with _kn appended are for
 * a k x n B (C = A B). They need sm_90a. A block has CEI_GEMM_THREADS threads and an SM to itself;
 * two blocks form a cluster.
 *
 * Tiles 2i and 2i + 1 of the list are a pair, which one cluster computes in its blocks 0 and 1.
 * Both have the same column; their rows differ, or n_rows of the second one is 0. Clusters take
 * pairs in the list's order. If `claimed` is NULL, the cluster's number says which pairs it takes.
 * Else clusters claim pairs, one by one or n_pairs / n_columns at a time, so that the clusters that
 * find an SM do all pairs, even if they are few (gemm_pairs.cuh).
 *
 * The tensor maps have boxes of 64 columns, all swizzled by 128 bytes. The rows of a box are: for A
 * tile_rows; for an n x k B tile_columns / 2; for a k x n B CEI_GEMM_K_STEP; for C tile_rows / 2.
 */
#define CEI_GEMM_THREADS 384u
#define CEI_GEMM_CLUSTER 2u
#define CEI_GEMM_CLUSTERS_MAX 128u      /* more than an sm_90 can run at once */
#define CEI_GEMM_K_STEP  64u

/* The bytes of shared memory of a block; the kernel's layout and the launch must use the same
 * number. A block may have 227 KiB on sm_90. They hold a tile of C, 2 KiB for barriers and
 * alignment, and as many stages of A and B as fit. */
#define CEI_GEMM_SHARED_MAX 232448
#define CEI_GEMM_STAGE_BYTES(rows, columns) (((rows) + (columns)) * 128)
#define CEI_GEMM_FIXED_BYTES(rows, columns) ((rows) * (columns) * 2 + 2048)
#define CEI_GEMM_STAGES(rows, columns) \
	((CEI_GEMM_SHARED_MAX - CEI_GEMM_FIXED_BYTES(rows, columns)) / \
	 CEI_GEMM_STAGE_BYTES(rows, columns))
#define CEI_GEMM_SHARED_BYTES(rows, columns) \
	(CEI_GEMM_FIXED_BYTES(rows, columns) + \
	 CEI_GEMM_STAGES(rows, columns) * CEI_GEMM_STAGE_BYTES(rows, columns))

/* The partial sums of the rank's own rows: n_rows rows from each source rank, in the order of
 * ranks, with the columns of C. Piece p of source s has arrived when counter s * n_pieces + p of
 * `awaited` is reached. The place of the rank's own partial sums is not read. */
struct cei_gemm_partials {
	struct cei_gemm_map map;        /* with the same boxes as C's map */
	uint32_t            n_rows;     /* n_sources * n_rows fits 31 bits */
	uint32_t            n_sources;
	uint32_t            own;
	uint32_t            n_pieces;
};

/*
 * The kernel's parameters.
 *
 * If A is kept, the tiles of product 0 in the first `keeps` columns of tiles also store the rows of
 * A, in the order of c_row; each of these columns stores its share of k. n_rows of all tiles must
 * then be 0, half or all of the tile shape's rows, because a tensor copy stores whole boxes only.
 */
struct cei_gemm {
	struct cei_gemm_map         a[CEI_GEMM_A_COUNT];
	struct cei_gemm_map         b[CEI_GEMM_B_MAX];
	struct cei_gemm_map         c[CEI_GEMM_C_MAX];
	struct cei_gemm_map         kept;       /* where the rows of A are stored, with the same
						 * boxes as C's maps; used if keeps is not 0 */
	void                       *c_base[CEI_GEMM_C_MAX];     /* address of each matrix in c */
	uint32_t                    c_columns[CEI_GEMM_C_MAX];
	const struct cei_gemm_tile *tiles;      /* in GPU memory */
	uint32_t                    n_pairs;
	uint32_t                    n_steps;    /* steps over k of CEI_GEMM_K_STEP each, at least
						 * 1; zeros are read beyond the end of k */
	uint32_t                    keeps;      /* 0: A is not kept */
	uint32_t                   *claimed;    /* NULL, or a word in GPU memory that counts
						 * claims (gemm_pairs.cuh); it is 0 before and
						 * after a launch, and one launch at a time may
						 * use it */
	uint32_t                    n_columns;  /* if pairs are claimed: n_pairs, or the number of
						 * clusters */
	uint32_t                    n_free;     /* likewise: the pairs in front of the first one
						 * that adds partial sums */
	struct cei_gemm_marks       marks;
	struct cei_gemm_partials    partials;
};

#endif /* CEI_GEMM_H */
