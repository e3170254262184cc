/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KERNELS_EXPERTS_H
#define CEI_KERNELS_EXPERTS_H

/*
 * Parameters of the kernels of dispatch and combine, for host code and device code. They do what
 * struct cei_experts_ops in ops/compute/experts.h describes; a copy is a token's row on its way to
 * one of its experts, a segment is what one rank sends for one expert. Places are those of all
 * groups of experts; rows, segments and sums are those of the run's group.
 *
 *   cei_experts_check (struct cei_experts_check)  refuses numbers of experts or of slots
 *   cei_experts_place         a block for each expert
 *   cei_experts_place_again   a block for each target
 *   cei_experts_pack          a warp for each token
 *   cei_experts_receive       a thread for each number
 *   cei_experts_sort          a block for each unit, which is a part of a segment's rows
 *   cei_experts_give_back     likewise
 *   cei_experts_add_up_bf16, _fp16, _fp32  a warp for each token
 *
 * All but the first take a struct cei_experts_work. Every kernel runs on any number of blocks of
 * CEI_EXPERTS_THREADS threads; none waits for anything. Blocks do not depend on each other, and
 * each row and number is written by one thread or warp, so two runs make the same bits.
 *
 * FAILURES A kernel that finds an impossible number writes an enum cei_experts_fault to *status and
 * sets *failed; kernels behind it on the stream then copy nothing. In place of the numbers of rows
 * they write CEI_EXPERTS_REFUSED, which is more than any block has, so that the engine refuses the
 * launch and ends the run at all ranks.
 */

#include <stdint.h>

#define CEI_EXPERTS_THREADS   1024u
#define CEI_EXPERTS_RANKS_MAX 64u
#define CEI_EXPERTS_REFUSED   UINT64_MAX

/* The header of a block whose sender was given its routing: no rank can send so many rows. */
#define CEI_EXPERTS_GIVEN     UINT32_MAX

/* Values of the executor's status word, above those of enum ceov_device_result. */
enum cei_experts_fault {
	CEI_EXPERTS_NO_EXPERT = 3,              /* a token's expert does not exist */
	CEI_EXPERTS_NO_SLOT,                    /* a slot does not exist */
	CEI_EXPERTS_FULL_BLOCK,                 /* more rows came from a rank than a block has */
	CEI_EXPERTS_TOO_MANY,                   /* more rows came than `rows` has room for */
};

struct cei_experts_check {
	const int32_t *numbers;                 /* each must be -1 to limit - 1 */
	uint64_t       n;
	int64_t        limit;
	uint32_t       fault;                   /* what is written if one is not */
	uint32_t      *status;                  /* host memory */
	uint32_t      *failed;                  /* GPU memory; not 0: a run of this workspace has
						 * failed */
};

/* The fields have the meaning of those in struct cei_experts_job. */
struct cei_experts_work {
	uint32_t       n_ranks;                 /* at most CEI_EXPERTS_RANKS_MAX */
	uint32_t       own;
	uint32_t       n_local;
	uint32_t       n_groups;
	uint32_t       group;
	uint32_t       top_k;
	uint32_t       n_header_rows;
	uint32_t       n_parts;                 /* units of each segment */
	uint64_t       n_tokens;
	uint64_t       capacity;                /* n_groups * n_ranks * capacity is below 2^31 */
	uint64_t       total_capacity;
	uint64_t       n_received;
	uint64_t       row_bytes;               /* a multiple of 16 */
	char          *leaving;
	char          *arriving;
	uint64_t      *n_rows;                  /* host memory */
	const int32_t *experts;
	int32_t       *slots;
	uint32_t      *arrived;
	uint32_t      *sent;
	int32_t       *ends;
	const void    *tokens;
	void          *rows;
	const float   *weights;
	void          *sums;
	uint32_t      *status;                  /* as in struct cei_experts_check */
	uint32_t      *failed;
};

#endif /* CEI_KERNELS_EXPERTS_H */
