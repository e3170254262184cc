/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_H
#define CEI_GEMM_H

/*
 * What a GEMM that waits and arrives per tile is told: the same on the host and in the
 * kernel. Plain C.
 *
 * C = A B^T, or A B, bf16 or fp16, row-major, accumulated in fp32. The work is a list of
 * tiles, made once by ops/compute/tiles.c; who executes it has no order of its own. For each
 * tile:
 *
 *   1. await counter `await` of awaited                    (its rows of A have arrived)
 *   2. multiply; where A is kept, also store its rows
 *   3. reduce != NONE: await the piece from each source, add its partial sums
 *   4. store what lies within n_rows and the columns there are
 *   5. arrive at counter `arrive` of ready                 (bytes may leave)
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#define CEI_GEMM_NONE     UINT16_MAX
#define CEI_GEMM_B_MAX    4u                    /* most products of one A */
#define CEI_GEMM_C_MAX    (CEI_GEMM_B_MAX + 1u)

enum cei_gemm_a { CEI_GEMM_A_OWN, CEI_GEMM_A_GATHERED, CEI_GEMM_A_COUNT };

/* The number of the C that holds partial sums to be sent; product i's result is C number i. */
#define CEI_GEMM_C_PARTIAL CEI_GEMM_B_MAX

struct cei_gemm_tile {
	uint32_t a_row;                 /* first row in its A ... */
	uint32_t c_row;                 /* ... and in its C */
	uint32_t column;                /* first column of C, which is a row of B, or where B
					 * is k x n a column of it */
	uint16_t n_rows;                /* rows to store; fewer than the shape's in a last tile;
					 * 0: none, it only completes a pair */
	uint8_t  a;                     /* enum cei_gemm_a */
	uint8_t  b;                     /* which product */
	uint8_t  c;                     /* which C */
	uint8_t  reserved;
	uint16_t await;                 /* counter to await, or CEI_GEMM_NONE */
	uint16_t arrive;                /* counter to arrive at, or CEI_GEMM_NONE */
	uint16_t reduce;                /* piece whose partial sums are added, or NONE */
	uint32_t n_arrivals;            /* tiles that arrive at that counter in a run */
	uint32_t reserved_too;
};

/*
 * Values are of one run. Where epoch is not NULL, the run's number stands there, in GPU
 * memory, and is added to await_value; then ready is a row of gates, each raised to
 * arrive_value; cei_op_begin has closed them.
 *
 * awaited and ready without counters: tiles await nothing, arrive nowhere, whatever
 * they name.
 *
 * An await that fails ends all further waiting, and a launch that finds *failed set by
 * one before it waits but for moments (marks.cuh). Without epoch nobody arrives then. With
 * it, *epoch is poisoned (CEOV_VALUE_LIMIT) first, and arrivals go on: lanes that wait
 * at gates go on too, and what they raise as marks is copied from *epoch, so that peers
 * find the poison and not the bytes.
 */
struct cei_gemm_marks {
	struct ceov_device_signal awaited;
	struct ceov_device_signal ready;
	struct ceov_device_signal sent;         /* awaited at the end, so that operands may
						 * change */
	uint64_t                 *epoch;
	uint64_t                  await_value;
	uint64_t                  arrive_value;
	uint64_t                  sent_value;
	uint32_t                  sent_index;   /* counters from this one on, ... */
	uint32_t                  n_sent;       /* ... so many of them; 0: none */
	uint64_t                  timeout_ns;   /* of each await */
	uint32_t                 *status;       /* 0, or the enum ceov_device_result of a failed
						 * await; may be host memory */
	uint32_t                 *failed;       /* GPU memory, or NULL: set to non-zero by a
						 * failed await */
};

/* The kernel's view of a matrix in GPU memory: an opaque CUtensorMap. */
struct cei_gemm_map {
	uint64_t opaque[16];
} __attribute__((aligned(64)));

/*
 * cei_gemm_<dtype>_<rows>x<columns>, dtype bf16 or fp16, rows x columns 128x256, 128x192
 * or 128x128, sm_90a only, for B as n x k (C = A B^T); the same with _kn behind it for B
 * as k x n (C = A B). Blocks of
 * CEI_GEMM_THREADS, one per SM, in clusters of two: tiles 2i and 2i + 1 are one
 * cluster's, have one column, and go to its blocks 0 and 1; the rows of the second
 * are apart from the first's or n_rows is 0. Clusters take pairs in the list's order:
 * by their number, or where `claimed` is not NULL whoever comes first, so that all pairs
 * get done by as few clusters as find an SM (gemm_pairs.cuh).
 *
 * Maps: A in boxes of 64 columns x tile_rows rows, B of 64 columns x tile_columns / 2
 * rows, or as k x n of 64 columns x CEI_GEMM_K_STEP rows, C of 64 columns x tile_rows / 2
 * rows, all swizzled by 128 bytes.
 */
#define CEI_GEMM_THREADS 384u
#define CEI_GEMM_CLUSTER 2u
#define CEI_GEMM_K_STEP  64u

/* Shared memory of a block, which the kernel's layout and the launch must agree on. A block
 * may have 227 KiB on sm_90: C's tile, 2 KiB for barriers and alignment, and as many stages
 * of A and B as fit. */
#define CEI_GEMM_SHARED_MAX 232448
#define CEI_GEMM_STAGE_BYTES(rows, columns) (((rows) + (columns)) * 128)
#define CEI_GEMM_FIXED_BYTES(rows, columns) ((rows) * (columns) * 2 + 2048)
#define CEI_GEMM_STAGES(rows, columns) \
	((CEI_GEMM_SHARED_MAX - CEI_GEMM_FIXED_BYTES(rows, columns)) / \
	 CEI_GEMM_STAGE_BYTES(rows, columns))
#define CEI_GEMM_SHARED_BYTES(rows, columns) \
	(CEI_GEMM_FIXED_BYTES(rows, columns) + \
	 CEI_GEMM_STAGES(rows, columns) * CEI_GEMM_STAGE_BYTES(rows, columns))

/* Partial sums of the own rows: n_rows for each source rank in order, with C's columns.
 * Piece p of source s has arrived when counter s * n_pieces + p of awaited is reached. The
 * own rank's place is not read. */
struct cei_gemm_partials {
	struct cei_gemm_map map;        /* in boxes like C's */
	uint32_t            n_rows;     /* 31 bits hold n_sources * n_rows */
	uint32_t            n_sources;
	uint32_t            own;
	uint32_t            n_pieces;
};

/*
 * keeps: number of tile columns of product 0 that store A, each a share of k, in the order
 * of c_row. n_rows of these tiles are 0, half or all of the shape's rows, because boxes
 * cannot be cut shorter.
 */
struct cei_gemm {
	struct cei_gemm_map         a[CEI_GEMM_A_COUNT];
	struct cei_gemm_map         b[CEI_GEMM_B_MAX];
	struct cei_gemm_map         c[CEI_GEMM_C_MAX];
	struct cei_gemm_map         kept;       /* in boxes like C's; of keeps only */
	void                       *c_base[CEI_GEMM_C_MAX];     /* the same memory */
	uint32_t                    c_columns[CEI_GEMM_C_MAX];
	const struct cei_gemm_tile *tiles;      /* in GPU memory */
	uint32_t                    n_pairs;
	uint32_t                    n_steps;    /* steps over k, CEI_GEMM_K_STEP each, not 0;
						 * beyond the end of k zeros are read */
	uint32_t                    keeps;      /* 0: A is not kept */
	uint32_t                   *claimed;    /* NULL, or a word of GPU memory, 0 at first, for
						 * one launch at a time, which leaves it 0 */
	struct cei_gemm_marks       marks;
	struct cei_gemm_partials    partials;
};

#endif /* CEI_GEMM_H */
