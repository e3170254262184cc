/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_OP_RIG_H
#define CEI_GPU_OP_RIG_H

/*
 * Operators on GPU ranks, rank i on GPU gpu_of_rank(i): either all ranks in one process with a
 * thread each, or a process each. Operands are generated on the GPU from numbers, so that every
 * rank can generate the operands of all others again and compute the expected results. Asserts
 * with Check.
 *
 * MEMORY Each rank has an arena, which is allocated before anything runs: operators that wait for
 * each other must not wait for the driver's allocations. Calls that allocate or free (workspaces,
 * ops) stand between two calls of gpu_op_meet().
 */

#include <pthread.h>
#include <stdint.h>

#include <ceoverlap/ops.h>

#include "gpu_rig.h"
#include "unit/op_rig.h"

#define GPU_OP_RANKS_MAX   4u           /* the most ranks of most suites, so that they end soon */
#define GPU_OP_RANKS_ROOM  8u           /* the most ranks of a rig */
#define GPU_OP_SCRATCH     (UINT64_C(64) << 20) /* size of each workspace's scratch memory, enough
						 * for all cases */
#define GPU_OP_ARENA_BYTES (UINT64_C(1) << 30)

#define GPU_OP_WORKSPACES_MAX 4u

struct gpu_op_rig;

struct gpu_op_rank {
	struct gpu_op_rig *rig;
	ceov_context      *context;
	uint32_t           rank;
	struct gpu         gpu;
	ceov_workspace    *workspaces[GPU_OP_WORKSPACES_MAX];   /* made by gpu_op_workspace() and
							 * not released yet; else NULL */
	char              *arena;
	uint64_t           used_bytes;
};

struct gpu_op_rig {
	ceov_context      *context;     /* NULL: the ranks' contexts are the caller's */
	uint32_t           n_ranks;
	uint32_t           first;       /* first rank of this process */
	uint32_t           n_here;      /* number of ranks of this process */
	pthread_barrier_t  barrier;     /* for the threads of this process's ranks */
	struct gpu_op_rank ranks[GPU_OP_RANKS_ROOM];
};

/* Open either all ranks in this process, or one rank, which meets its peers at a path. */
void gpu_op_open(struct gpu_op_rig *rig, uint32_t n_ranks);
void gpu_op_open_one(struct gpu_op_rig *rig, uint32_t rank, uint32_t n_ranks,
		     const char *path);
void gpu_op_close(struct gpu_op_rig *rig);

/* The same for ranks that are all in this process, rank r in contexts[r], which the caller closes
 * after gpu_op_close(). */
void gpu_op_open_in(struct gpu_op_rig *rig, uint32_t n_ranks, ceov_context *const *contexts);

/* Takes memory from the rank's arena. rank->used_bytes = 0 gives all back. */
#define GPU_OP_ALIGN_BYTES UINT64_C(256)
void *gpu_op_take(struct gpu_op_rank *rank, uint64_t n_bytes);

/* Runs body in a thread per rank of this process; returns when all have ended. */
void gpu_op_each(struct gpu_op_rig *rig,
		 void (*body)(struct gpu_op_rank *rank, const void *arg), const void *arg);

/* Barrier of all ranks. */
void gpu_op_meet(struct gpu_op_rank *rank);

struct gpu_op_mode {
	const char *name;               /* name of the workspace */
	uint64_t    deadline_ns;        /* 0: the context's deadline */
	int         shares_sms;
	uint32_t    n_at_once;          /* workspaces of a rank whose runs overlap in time; 0: 1 */
};

/* Create and connect a workspace, and release it. All ranks must call both. */
ceov_workspace *gpu_op_workspace(struct gpu_op_rank *rank, const struct gpu_op_mode *mode);
void            gpu_op_workspace_release(struct gpu_op_rank *rank,
					 ceov_workspace *workspace);

/* Fails with the library's words if the result, or a run of the workspace, is an error. */
void            gpu_op_result_check(const struct gpu_op_rank *rank, int result);
void            gpu_op_status_check(const struct gpu_op_rank *rank, ceov_workspace *workspace);

/* Waits until the stream is idle, then does so for all workspaces of the rank. Call it before
 * results are compared: where a run has failed they are wrong, too, and say less. */
void            gpu_op_idle(struct gpu_op_rank *rank, enum gpu_stream stream);

/* Returns how many graphs a workspace should have cached: n, or 0 if ranks share a context. */
uint32_t gpu_op_n_graphs(const struct gpu_op_rig *rig, uint32_t n);

/* Returns whether SMs can make the transfers of products: where there are kernels for these, and
 * the workspace does not share its SMs. */
int gpu_op_has_sm_lane(ceov_workspace *workspace);

/* Returns whether cuBLAS is available. */
int gpu_op_has_library(ceov_workspace *workspace);

/* Queues a kernel of one block that holds the stream for so long. */
void gpu_op_hold(struct gpu_op_rank *rank, enum gpu_stream stream, uint64_t ns);

/* Delays the rank's next run by 0 to 10 ms: its thread sleeps, or a kernel holds its
 * stream. */
void gpu_op_be_late(struct gpu_op_rank *rank, enum gpu_stream stream, uint64_t *random);

/* Waits, with a deadline, until the workspace has an error, and returns it. */
int gpu_op_error(struct gpu_op_rank *rank, ceov_workspace *workspace);

/* --- cases, operands, results (gpu_op_data.c) ------------------------------ */

struct gpu_op_data {
	struct gpu_op_rank   *rank;
	const struct op_case *one;      /* the case; must outlive this struct */
	void    *a;                     /* or the source of a sum */
	void    *b[CEOV_OP_GEMMS_MAX];
	void    *c[CEOV_OP_GEMMS_MAX];  /* or the target of a sum in c[0]; with guard words behind,
					 * as has gathered */
	void    *gathered;              /* NULL: not wanted */
	uint64_t c_bytes[CEOV_OP_GEMMS_MAX];
	uint64_t gathered_bytes;
};

/* Allocates from the rank's arena, uninitialised but for guards. */
void gpu_op_data_make(struct gpu_op_rank *rank, const struct op_case *one,
		      struct gpu_op_data *ret_data);

/* Each queues work on a stream: the operands of that number; other data into the results; the run,
 * returning the public call's result. */
void gpu_op_data_fill(const struct gpu_op_data *data, enum gpu_stream stream,
		      uint64_t number);
void gpu_op_data_spoil(const struct gpu_op_data *data, enum gpu_stream stream);
int  gpu_op_data_run(const struct gpu_op_data *data, ceov_op *op, enum gpu_stream stream);

/* Queues all three in this order; asserts that the run's call succeeds. */
void gpu_op_data_turn(const struct gpu_op_data *data, ceov_op *op, enum gpu_stream stream,
		      uint64_t number);

/* Asserts that the results follow from that number's operands, and that nothing was written behind
 * them. The stream must be idle. */
void gpu_op_data_check(const struct gpu_op_data *data, enum gpu_stream stream,
		       uint64_t number);

/* gpu_op_data_keep() copies results; gpu_op_data_same() asserts that results have the same bits as
 * the copies. The stream must be idle. */
void gpu_op_data_keep(const struct gpu_op_data *data, enum gpu_stream stream,
		      const struct gpu_op_data *kept);
void gpu_op_data_same(const struct gpu_op_data *data, enum gpu_stream stream,
		      const struct gpu_op_data *kept);

/* --- one operator of each kind --------------------------------------------- */

/* Returns a case of medium size, overlapped, in 3 pieces. */
struct op_case gpu_op_case_plain(enum op_sort sort, uint32_t n_ranks);

/* The same for products whose transfers SMs make, with the sorts that can be so. */
#define GPU_OP_LANE_SORTS 3u
extern const enum op_sort gpu_op_lane_sorts[GPU_OP_LANE_SORTS];
struct op_case gpu_op_case_lane(enum op_sort sort, uint32_t n_ranks);

struct gpu_op_plain {
	struct op_case     cases[OP_SORTS];
	struct gpu_op_data data[OP_SORTS];
	ceov_op           *ops[OP_SORTS];
};

/* Create an operator of each kind with its data at the begin of the arena, and release them. All
 * ranks must call both. */
void gpu_op_plain_make(struct gpu_op_rank *rank, ceov_workspace *workspace,
		       struct gpu_op_plain *ret_plain);
void gpu_op_plain_release(struct gpu_op_rank *rank, struct gpu_op_plain *plain);

#endif /* CEI_GPU_OP_RIG_H */
