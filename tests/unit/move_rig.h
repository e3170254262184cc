/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MOVE_RIG_H
#define CEI_MOVE_RIG_H

/* Cases of all-gather and all-to-all, for host ranks and GPUs: sizes and places of blocks, creation
 * of operators. */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "op_rig.h"

#define MOVE_STEP 16u

struct move_case {
	int      is_gather;             /* an all-gather; else an all-to-all */
	uint32_t n_ranks;
	uint64_t bytes[OP_RANKS_MAX * OP_RANKS_MAX];    /* as in struct ceov_move */
	uint32_t n_pieces;              /* 0: the library chooses */
	enum ceov_op_mode mode;         /* CEOV_MODE_CHOOSE: the library chooses */
	uint32_t n_sms;                 /* of a direct mode; 0: the library chooses */
	int      is_in_place;           /* all-gather: the source is a part of the target */
};

/* Makes a case in which every block has `bytes` bytes. */
struct move_case move_case_of(int is_gather, uint32_t n_ranks, uint64_t bytes);

/* Makes random uneven blocks below `limit` bytes, some but not all of them empty, and a random
 * number of pieces. */
struct move_case move_case_random(uint64_t *random, uint32_t n_ranks, uint64_t limit);

/* Return the size of the block from source to target, and where it begins in the source's operand
 * and in the target's result. n_ranks in place of a rank gives the size of the whole. */
uint64_t move_block(const struct move_case *one, uint32_t source, uint32_t target);
uint64_t move_leaves_at(const struct move_case *one, uint32_t source, uint32_t target);
uint64_t move_arrives_at(const struct move_case *one, uint32_t source, uint32_t target);

/* Returns the seed of a block's bytes in the run with this number; blocks have different seeds. */
uint64_t move_seed(const struct move_case *one, uint64_t number, uint32_t source,
		   uint32_t target);

uint64_t move_scratch(const struct move_case *one);
int      move_create(const struct move_case *one, ceov_workspace *workspace,
		     ceov_op **ret_op);

/* Describes the case in one line. */
void move_describe(const struct move_case *one, char *text, size_t n_bytes);

/* Memory of one host rank. */
struct move_data {
	unsigned char *source;          /* in place: points into target */
	unsigned char *target;
	unsigned char *own_source;      /* the memory to free, if any */
};

/* Makes the operand of the run with that number; results are filled with other data. */
struct move_data move_data_make(const struct move_case *one, uint32_t rank, uint64_t number);
void             move_data_free(struct move_data *data);

/* Makes the public run call and returns its result. */
int  move_data_run(ceov_op *op, const struct move_data *data);

/* Asserts that the result is that of the run with that number, and that nothing was written behind
 * it. */
void move_data_check(const struct move_case *one, uint32_t rank, uint64_t number,
		     const struct move_data *data);

#endif /* CEI_MOVE_RIG_H */
