/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OP_RIG_H
#define CEI_OP_RIG_H

/*
 * Operators on host ranks, all of one process or one of each: cases (shapes), operands
 * made from a seed, and results checked: products against sums in double precision, sums
 * alone to the bit. Asserts.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "testing.h"

#define OP_RANKS_MAX 8u

enum op_sort { OP_AG_GEMM, OP_GEMM_RS, OP_REDUCE_SCATTER, OP_ALL_REDUCE, OP_SORTS };

struct op_case {
	enum op_sort          sort;
	enum ceov_dtype       dtype;
	uint32_t              n_ranks;
	uint64_t              rows[OP_RANKS_MAX];       /* or counts */
	uint64_t              k;
	uint32_t              n_gemms;
	uint64_t              n[CEOV_OP_GEMMS_MAX];
	int                   b_is_k_by_n;
	uint64_t              stride;   /* reduce-scatter, at rank 0, and 8 more at each
					 * next rank; 0: no gaps */
	float                 scale;    /* reduce-scatter, at rank 0, and as much more at
					 * each next rank; 0: none */
	struct ceov_op_tuning tuning;
	int                   wants_gathered;
};

/* One with small sizes, uneven rows, some 0, and any tuning. */
struct op_case op_case_random(uint64_t *random, uint32_t n_ranks);

/* Gives every other reduce-scatter some stride; else does nothing. */
void op_case_pick_stride(struct op_case *one, uint64_t *random);

/* Plain: `rows` rows at each rank, k and n. */
struct op_case op_case_of(enum op_sort sort, uint32_t n_ranks, uint64_t rows, uint64_t k,
			  uint64_t n);

/* Likewise some scale: a power of two, or one that rounds. */
void op_case_pick_scale(struct op_case *one, uint64_t *random);

/* What a rank's own sums are multiplied by. */
float op_case_scale(const struct op_case *one, uint32_t rank);

/* A sum alone. */
int      op_is_sum(enum op_sort sort);

/* Rows, or elements, of the ranks before one. */
uint64_t op_case_before(const struct op_case *one, uint32_t rank);

/* Of a sum's source at a rank: where a part begins, and its elements, gaps included. */
uint64_t op_case_part_at(const struct op_case *one, uint32_t rank, uint32_t part);
uint64_t op_case_source(const struct op_case *one, uint32_t rank);

uint64_t op_case_scratch(const struct op_case *one);
int      op_case_create(const struct op_case *one, ceov_workspace *workspace,
			ceov_op **ret_op);

/* The same where it must succeed. */
ceov_op *op_case_made(const struct op_case *one, ceov_workspace *workspace);

/* Operands and results of one rank. */
struct op_data {
	void    *a;                     /* or source */
	void    *b[CEOV_OP_GEMMS_MAX];
	void    *c[CEOV_OP_GEMMS_MAX];  /* or target in c[0]; guarded */
	void    *gathered;
	uint64_t c_bytes[CEOV_OP_GEMMS_MAX];
	uint64_t gathered_bytes;
};

/* Rank's operands of that seed; results hold rubbish. */
void op_data_make(const struct op_case *one, uint32_t rank, uint64_t seed,
		  struct op_data *ret_data);
void op_data_free(struct op_data *data);

/* The public run call; its result. */
int  op_data_run(const struct op_case *one, ceov_op *op, struct op_data *data);

/* Results are the seed's, and nothing was written beside them. */
void op_data_check(const struct op_case *one, uint32_t rank, uint64_t seed,
		   const struct op_data *data);

/* A hash of the results' bits. */
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
/* In the other's context. */
void op_rig_open_beside(struct op_rig *rig, const struct op_rig *other, const char *name,
			uint64_t scratch_bytes);
void op_rig_release(struct op_rig *rig);
void op_rig_close(struct op_rig *rig);

/* A thread for each rank; returns when all have. */
struct op_part {
	struct op_rig *rig;
	uint32_t       rank;
	void          *arg;
};
void op_rig_each(struct op_rig *rig, void (*body)(const struct op_part *part), void *arg);

#endif /* CEI_OP_RIG_H */
