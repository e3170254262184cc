/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_EXPERT_DATA_H
#define CEI_GPU_EXPERT_DATA_H

/*
 * Data of dispatches and combines on GPU ranks that are all in this process, and checks of what
 * comes of it. The host has the data of all ranks; each rank has its own on its GPU, too. Asserts
 * with Check. A rank's streams must be idle when its results are checked.
 */

#include "gpu_op_rig.h"

/* What a rank has on the host: data of a run, and what its placing must be. */
struct gpu_experts_data {
	uint64_t  n_tokens;
	char     *tokens;
	int32_t  *experts;
	float    *weights;
	int32_t  *slots;
	uint32_t *n_sent;               /* [expert] */
};

/* What a rank has on its GPU, in its arena. */
struct gpu_experts_device {
	uint32_t  group;                /* of runs, and of received, sums and ends; 0 at first */
	char     *tokens, *received, *sums;
	int32_t  *experts, *slots, *ends;
	uint32_t *arrived, *sent;
	float    *weights;
	char     *begin, *end;          /* of all of it, with guards */
};

struct gpu_experts {
	uint32_t                n_ranks;
	struct ceov_moe         shape;
	struct gpu_experts_data all[GPU_OP_RANKS_MAX];
};

/* A shape that is always the same, of one group, and a random one; for n_ranks. */
void gpu_experts_shape(struct gpu_experts *one);
void gpu_experts_draw_shape(struct gpu_experts *one, uint64_t *random);

/* The rows that a block has room for. */
uint64_t gpu_experts_capacity(const struct gpu_experts *one);

/* Allocates one rank's data on the host, for the shape, and frees it. */
void gpu_experts_make(struct gpu_experts *one, struct gpu_experts_data *data);
void gpu_experts_free(struct gpu_experts_data *data);

/* Draws the data of all ranks. kind 0: as many tokens as there can be; 1: rank 0 has none; 2: all
 * tokens go to the first expert or two; others: random. */
void gpu_experts_draw(struct gpu_experts *one, uint32_t kind, uint64_t *random);

/* Takes memory of the rank's arena, and writes guards around each piece of it. */
struct gpu_experts_device gpu_experts_device(const struct gpu_experts *one,
					     struct gpu_op_rank *rank);

/* gpu_experts_load() copies the rank's data to its GPU. gpu_experts_renew() draws other tokens for
 * the rank, with the same routing, and copies these. Both write a pattern where results will be,
 * which the checks expect where no result is. gpu_experts_clear() writes it where those of a group
 * will be. */
void gpu_experts_clear(const struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device);
void gpu_experts_load(const struct gpu_experts *one, struct gpu_op_rank *rank,
		      const struct gpu_experts_device *device);
void gpu_experts_renew(struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device, uint64_t seed);

/* Does the experts' work on the received rows: expert e multiplies them by e + 1. */
void gpu_experts_apply(const struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device);

/* Check slots and numbers of rows; received rows and ends; sums. */
struct gpu_experts_sum {
	int is_weighted;
	int does_work;                  /* 1: gpu_experts_apply() was called */
};

void gpu_experts_check_routing(const struct gpu_experts *one, struct gpu_op_rank *rank,
			       const struct gpu_experts_device *device);
void gpu_experts_check_received(const struct gpu_experts *one, struct gpu_op_rank *rank,
				const struct gpu_experts_device *device);
void gpu_experts_check_sums(const struct gpu_experts *one, struct gpu_op_rank *rank,
			    const struct gpu_experts_device *device, struct gpu_experts_sum how);

/* Asserts that nothing was written around the pieces of the device's memory, also by runs that have
 * failed. */
void gpu_experts_check_guards(const struct gpu_experts *one, struct gpu_op_rank *rank,
			      const struct gpu_experts_device *device);

#endif /* CEI_GPU_EXPERT_DATA_H */
