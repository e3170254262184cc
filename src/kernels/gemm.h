/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GEMM_H
#define CEI_GEMM_H

/*
 * The parameters of a GEMM whose tiles await and raise marks: the same for the host's
 * executor and the kernel. Plain C.
 *
 * C = A B^T, or A B, bf16 or fp16, row-major, accumulated in fp32. The work is a list of
 * tiles, made by ops/compute/tiles.c, and is executed in its order. For each tile:
 *
 *   1. await counter `await` of awaited                    (its rows of A have arrived)
 *   2. multiply; if A is kept, also store the tile's rows of A
 *   3. reduce != NONE: await the piece from each source, add its partial sums
 *   4. store the tile's n_rows rows, in the columns that C has
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
	uint32_t a_row;                 /* first row in the A of number a */
	uint32_t c_row;                 /* first row in the C of number c */
	uint32_t column;                /* first column of C, which is a row of B, or where B
					 * is k x n a column of it */
	uint16_t n_rows;                /* rows to store; fewer than the shape's in a last tile;
					 * 0: none, it only completes a pair */
	uint8_t  a;                     /* enum cei_gemm_a */
	uint8_t  b;                     /* number of the product */
	uint8_t  c;                     /* number of the C */
	uint8_t  reserved;
	uint16_t await;                 /* counter to await, or CEI_GEMM_NONE */
	uint16_t arrive;                /* counter to arrive at, or CEI_GEMM_NONE */
	uint16_t reduce;                /* piece whose partial sums are added, or NONE */
	uint32_t n_arrivals;            /* tiles that arrive at that counter in a run */
	uint32_t reserved_too;
};

/*
 * All values belong to one run. If epoch is not NULL, it is the address, in GPU memory, of
 * the run's number, which is added to await_value. Then `ready` is a row of gates, which
 * cei_op_begin has set to 0, and arriving tiles raise a gate to arrive_value.
 *
 * If awaited has no counters, tiles await nothing, whatever they name; if ready has no
 * counters, tiles arrive nowhere.
 *
 * An await that fails ends all further waiting; a launch that finds *failed set by an
 * earlier one waits only for moments (marks.cuh). Without epoch no tile arrives after a
 * failure. With epoch, *epoch is poisoned (CEOV_VALUE_LIMIT) first, and tiles go on to
 * arrive: so lanes that wait at gates go on, too, and the marks that they raise are copied
 * from *epoch, so that peers find the poison and do not use the bytes.
 */
struct cei_gemm_marks {
	struct ceov_device_signal awaited;
	struct ceov_device_signal ready;
	struct ceov_device_signal sent;         /* awaited at the kernel's end, so that operands
						 * may change behind it */
	uint64_t                 *epoch;
	uint64_t                  await_value;
	uint64_t                  arrive_value;
	uint64_t                  sent_value;
	uint32_t                  sent_index;   /* the first counter of sent that is awaited */
	uint32_t                  n_sent;       /* how many of its counters are awaited; 0: none */
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
 * Kernels: cei_gemm_<dtype>_<rows>x<columns>, dtype bf16 or fp16, rows x columns 128x256,
 * 128x192 or 128x128, sm_90a only, for B as n x k (C = A B^T); the same names with _kn
 * appended for B as k x n (C = A B). They run in blocks of CEI_GEMM_THREADS threads, one
 * per SM, in clusters of two. Tiles 2i and 2i + 1 are a pair: one cluster computes them, in
 * its blocks 0 and 1. Both have the same column; their rows differ, or n_rows of the second
 * one is 0. Clusters take pairs in the list's order: by the cluster's number, or, if
 * `claimed` is not NULL, each free cluster takes the next pair, so that all pairs get done
 * by the clusters that find an SM, even if these are few (gemm_pairs.cuh).
 *
 * Maps: A in boxes of 64 columns x tile_rows rows, B of 64 columns x tile_columns / 2 rows,
 * or as k x n of 64 columns x CEI_GEMM_K_STEP rows, C of 64 columns x tile_rows / 2 rows,
 * all swizzled by 128 bytes.
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

/* The partial sums of the own rows: n_rows rows from each source rank, in the order of
 * ranks, with C's columns. Piece p of source s has arrived when counter s * n_pieces + p of
 * awaited is reached. The rows in the own rank's place are not read. */
struct cei_gemm_partials {
	struct cei_gemm_map map;        /* in boxes like C's */
	uint32_t            n_rows;     /* n_sources * n_rows fits 31 bits */
	uint32_t            n_sources;
	uint32_t            own;
	uint32_t            n_pieces;
};

/*
 * The kernel's parameters.
 *
 * keeps: in how many columns of tiles of product 0 the rows of A are stored, in the order
 * of c_row; each of these columns stores its share of k. Then n_rows of all tiles is 0,
 * half or all of the shape's rows, because a tensor copy stores whole boxes only.
 */
struct cei_gemm {
	struct cei_gemm_map         a[CEI_GEMM_A_COUNT];
	struct cei_gemm_map         b[CEI_GEMM_B_MAX];
	struct cei_gemm_map         c[CEI_GEMM_C_MAX];
	struct cei_gemm_map         kept;       /* where A is stored, in boxes like C's; used if
						 * keeps is not 0 */
	void                       *c_base[CEI_GEMM_C_MAX];     /* the addresses of the matrices of
								 * c */
	uint32_t                    c_columns[CEI_GEMM_C_MAX];
	const struct cei_gemm_tile *tiles;      /* in GPU memory */
	uint32_t                    n_pairs;
	uint32_t                    n_steps;    /* steps over k, CEI_GEMM_K_STEP each, not 0;
						 * beyond the end of k zeros are read */
	uint32_t                    keeps;      /* 0: A is not kept */
	uint32_t                   *claimed;    /* NULL, or a word in GPU memory that counts claims
						 * (gemm_pairs.cuh): 0 before and after a launch;
						 * used by one launch at a time */
	struct cei_gemm_marks       marks;
	struct cei_gemm_partials    partials;
};

#endif /* CEI_GEMM_H */
