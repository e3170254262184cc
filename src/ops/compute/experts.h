/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXPERTS_H
#define CEI_EXPERTS_H

/*
 * What an executor does for mixtures of experts. A rank sends one block to each rank; its own one
 * stays where it is. A block has n_header_rows rows, and then up to `capacity` rows for the experts
 * of the run's group. In a dispatch that chooses places, the header holds how many rows there are
 * for each expert of the rank that gets it, of all groups (uint32_t).
 *
 * Slots number the rows of all groups' blocks: (group * n_ranks + target) * capacity + row.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

struct cei_executor;                    /* executor.h */

/* One run. All memory is the rank's. */
struct cei_experts_job {
	enum ceov_dtype dtype;
	uint32_t        n_ranks;
	uint32_t        own;
	uint32_t        n_local;        /* experts of a rank */
	uint32_t        n_groups;       /* of a rank's experts; it divides n_local */
	uint32_t        group;          /* of this run */
	uint32_t        top_k;
	uint32_t        n_header_rows;
	uint64_t        n_tokens;       /* of this run */
	uint64_t        capacity;       /* rows of a block */
	uint64_t        total_capacity; /* of all groups: of the copies for a target, those
					 * behind so many go nowhere. Copies that find their
					 * group's block full go nowhere, too, and are
					 * counted here as well */
	uint64_t        n_received;     /* rows that `rows` has room for */
	uint64_t        row_bytes;
	char           *leaving;        /* n_ranks blocks, [target] */
	char           *arriving;       /* n_ranks blocks, [source]; the own one is not used */
	uint64_t       *n_rows;         /* [target], in host memory: the rows of a block that are
					 * sent, with those of the header */
	const int32_t  *experts;        /* [n_tokens][top_k] */
	int32_t        *slots;          /* as in struct ceov_moe_routing */
	uint32_t       *arrived;        /* as in struct ceov_moe_routing */
	uint32_t       *sent;           /* as in struct ceov_moe_dispatch_run; may be NULL */
	int32_t        *ends;           /* [n_local / n_groups] */
	const void     *tokens;
	void           *rows;           /* in the order of experts */
	const float    *weights;        /* NULL: all are 1 */
	void           *sums;
};

/* What a job returns that all ranks refuse alike, after they have made its exchange: it has raised
 * CEOV_ERR_INVALID, and later runs go on. */
#define CEI_RUN_REFUSED 1000            /* no value of enum ceov_condition */

/* Each queues one step of a run behind the work on the stream, as the functions of struct
 * cei_executor_ops do. What peers have sent, and what the caller's routing says, is checked before
 * it is used as a place. If it is wrong, the host's executor raises CEOV_ERR_INVALID; a GPU's does
 * so in status(), its later steps copy nothing, and n_rows get a number that the engine refuses.
 * Where a token names an expert that does not exist, the host's place() has all ranks refuse the
 * dispatch in receive(): CEI_RUN_REFUSED. */
struct cei_experts_ops {
	/* A dispatch: place() chooses the slots of all groups, and writes headers, sent and
	 * n_rows; place_again() takes slots and sent as they are, and writes n_rows. pack() copies
	 * tokens to their slots in the group's blocks. */
	int (*place)(struct cei_executor *executor, void *stream,
		     const struct cei_experts_job *job);
	int (*place_again)(struct cei_executor *executor, void *stream,
			   const struct cei_experts_job *job);
	int (*pack)(struct cei_executor *executor, void *stream,
		    const struct cei_experts_job *job);

	/* When all blocks have come: receive() takes `arrived` from their headers; sort() computes
	 * ends, and copies rows from blocks to the order of experts. */
	int (*receive)(struct cei_executor *executor, void *stream,
		       const struct cei_experts_job *job);
	int (*sort)(struct cei_executor *executor, void *stream,
		    const struct cei_experts_job *job);

	/* A combine: give_back() copies rows to the blocks of the ranks that they came from, and
	 * writes n_rows. add_up(), when all blocks have come, makes the sums. */
	int (*give_back)(struct cei_executor *executor, void *stream,
			 const struct cei_experts_job *job);
	int (*add_up)(struct cei_executor *executor, void *stream,
		      const struct cei_experts_job *job);
};

/* The experts of a rank in each group. */
static inline uint32_t cei_experts_each(const struct cei_experts_job *job)
{
	return job->n_local / job->n_groups;
}

static inline uint64_t cei_experts_block_bytes(const struct cei_experts_job *job)
{
	return (job->n_header_rows + job->capacity) * job->row_bytes;
}

#endif /* CEI_EXPERTS_H */
