/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_RIG_H
#define CEI_OP_RIG_H

/*
 * Operators on host ranks, all in one process or a process each: cases (shapes), operands
 * generated from a seed, and checks of results: products against sums in double precision,
 * sums alone exactly. Asserts with Check.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "ops/shape.h"
#include "testing.h"

#define OP_RANKS_MAX 8u

enum op_sort {
	OP_AG_GEMM, OP_GEMM_RS, OP_REDUCE_SCATTER, OP_ALL_REDUCE, OP_GEMM_A2A, OP_A2A_GEMM,
	OP_GEMM_AR, OP_SORTS
};

struct op_case {
	enum op_sort          sort;
	enum ceov_dtype       dtype;
	uint32_t              n_ranks;
	uint64_t              rows[OP_RANKS_MAX];       /* rows of each rank; for sums counts of
							 * elements. GEMM + all-reduce: only
							 * their sum counts */
	uint64_t              k;
	uint32_t              n_gemms;
	uint64_t              n[CEOV_OP_GEMMS_MAX];
	int                   b_is_k_by_n;
	uint64_t              stride;   /* reduce-scatter: stride of rank 0; each next rank's is
					 * larger by 8; 0: no gaps */
	float                 scale;    /* reduce-scatter: scale of rank 0; each next rank's is
					 * larger by as much; 0: not scaled */
	struct ceov_op_tuning tuning;
	int                   wants_gathered;
	int                   by_columns;       /* all-to-all: columns are divided; GEMM +
						 * all-reduce: they are if rows are few */
	uint32_t              spread;   /* all-to-all: how blocks differ, and which are empty; 0:
					 * each target gets its rows from every rank, or nearly as
					 * many columns as the other ones */
	const uint32_t       *node_of;  /* sums by node: [rank]; NULL: not by node */
};

/* Makes a random case with small sizes, uneven rows, some of them 0, and a random tuning. */
struct op_case op_case_random(uint64_t *random, uint32_t n_ranks);

/* The same in sizes that GPUs compute, with tunings for GPUs: up to about 2000 rows (sums: 2
 * million elements), n and k. has_library: 1: some have the tile shape below, which only cuBLAS
 * can take. */
#define OP_WIDE_ROWS    512u
#define OP_WIDE_COLUMNS 65536u
struct op_case op_case_large(uint64_t *random, uint32_t n_ranks, enum op_sort sort,
			     int has_library);

/* Gives every other reduce-scatter a random stride; does nothing for other kinds. */
void op_case_pick_stride(struct op_case *one, uint64_t *random);

/* Gives every other product a random order of tiles, bands of up to 49 steps of rows, and a budget
 * of none, 2 or 4 steps of SMs. */
void op_case_pick_order(struct op_case *one, uint64_t *random, uint32_t step);

/* Gives a product's tuning a random cut, and every other case a chunk of so many bytes or up to
 * three times as many. */
void op_case_pick_cut(struct op_case *one, uint64_t *random, uint64_t chunk_bytes);

/* Makes a case in which each rank has `rows` rows. */
struct op_case op_case_of(enum op_sort sort, uint32_t n_ranks, uint64_t rows, uint64_t k,
			  uint64_t n);

/* Gives every other reduce-scatter a random scale: a power of two, or a value that causes
 * rounding. */
void op_case_pick_scale(struct op_case *one, uint64_t *random);

/* Returns the factor of a rank's own sums. */
float op_case_scale(const struct op_case *one, uint32_t rank);

/* Returns whether the operator is a sum without a product. */
int      op_is_sum(enum op_sort sort);

/* Returns whether the operator is a product with an all-to-all. */
int      op_is_a2a(enum op_sort sort);

/* Returns whether it is a product that can be made one after the other with its transfers, in
 * CEOV_MODE_TWO_SHOT. */
int      op_case_can_be_whole(const struct op_case *one);

/* For products with an all-to-all: the columns of a rank's part, and of all parts before it; the
 * rows of the block from source to target; where the block begins among the rows that source sends,
 * and among those that target gets. n_ranks as the last argument of the second one and in place of
 * the other rank of the last two gives the whole. Where columns are divided, rows of blocks are
 * those of the source (GEMM + all-to-all) or of the target (all-to-all + GEMM). */
uint64_t op_case_part(const struct op_case *one, uint32_t rank);
uint64_t op_case_parts_before(const struct op_case *one, uint32_t rank);
uint64_t op_case_block(const struct op_case *one, uint32_t source, uint32_t target);
uint64_t op_case_leaves(const struct op_case *one, uint32_t source, uint32_t target);
uint64_t op_case_arrives(const struct op_case *one, uint32_t source, uint32_t target);

/* Gives every other all-to-all and GEMM + all-reduce divided columns, and most all-to-alls uneven
 * and empty blocks; does nothing for other kinds. */
void     op_case_pick_blocks(struct op_case *one, uint64_t *random);

/* Return how many elements a rank's A, or source, and one of its results have. */
uint64_t op_case_a_elements(const struct op_case *one, uint32_t rank);
uint64_t op_case_c_elements(const struct op_case *one, uint32_t rank, uint32_t i);

/* Returns the number of rows, or elements, of all ranks before this one. */
uint64_t op_case_before(const struct op_case *one, uint32_t rank);

/* Describe a sum's source at a rank: where a part begins, and the number of elements including
 * gaps. */
uint64_t op_case_part_at(const struct op_case *one, uint32_t rank, uint32_t part);
uint64_t op_case_source(const struct op_case *one, uint32_t rank);

/* Makes the shape of which rank 0 would create the operator. blocks: memory that the shape then
 * points to. */
void     op_case_shape(const struct op_case *one, uint64_t blocks[OP_RANKS_MAX * OP_RANKS_MAX],
		       struct cei_op_shape *ret_shape);
uint64_t op_case_scratch(const struct op_case *one);
int      op_case_create(const struct op_case *one, ceov_workspace *workspace,
			ceov_op **ret_op);

/* Creates the case's operator and asserts success. */
ceov_op *op_case_made(const struct op_case *one, ceov_workspace *workspace);

/* Operands and results of one rank. */
struct op_data {
	void    *a;                     /* or the source of a sum */
	void    *b[CEOV_OP_GEMMS_MAX];
	void    *c[CEOV_OP_GEMMS_MAX];  /* or the target of a sum in c[0]; with guards */
	void    *gathered;
	uint64_t c_bytes[CEOV_OP_GEMMS_MAX];
	uint64_t gathered_bytes;
};

/* Generates the rank's operands from the seed, and fills results with other data. */
void op_data_make(const struct op_case *one, uint32_t rank, uint64_t seed,
		  struct op_data *ret_data);
void op_data_free(struct op_data *data);

/* Makes the public run call and returns its result. */
int  op_data_run(const struct op_case *one, ceov_op *op, struct op_data *data);

/* Asserts that the results are those of the seed's operands, and that nothing was written around
 * them. */
void op_data_check(const struct op_case *one, uint32_t rank, uint64_t seed,
		   const struct op_data *data);

/* Returns a hash of the results' bits. */
uint64_t op_data_hash(const struct op_data *data);

/* Workspaces of all ranks in one process. */
struct op_rig {
	ceov_context   *context;
	uint32_t        n_ranks;
	ceov_workspace *workspaces[OP_RANKS_MAX];
};

ceov_workspace *op_workspace(ceov_context *context, uint32_t rank, const char *name,
			     uint64_t scratch_bytes, uint64_t deadline_ns);

void op_rig_open(struct op_rig *rig, uint32_t n_ranks, uint64_t scratch_bytes,
		 struct testing_log *log);
/* Opens further workspaces in the other rig's context. */
void op_rig_open_beside(struct op_rig *rig, const struct op_rig *other, const char *name,
			uint64_t scratch_bytes);
void op_rig_release(struct op_rig *rig);
void op_rig_close(struct op_rig *rig);

/* Runs body in a thread per rank; returns when all have ended. */
struct op_part {
	struct op_rig *rig;
	uint32_t       rank;
	void          *arg;
};
void op_rig_each(struct op_rig *rig, void (*body)(const struct op_part *part), void *arg);

#endif /* CEI_OP_RIG_H */
