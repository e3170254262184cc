/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_OP_RIG_H
#define CEI_GPU_OP_RIG_H

/*
 * Operators on GPU ranks, rank i on GPU gpu_of_rank(i): all of one process with a thread
 * each, or a process each. Operands are made on the GPU from numbers, so that every rank can make
 * those of all others again and compute what results should be. Asserts with Check.
 *
 * MEMORY  Each rank has an arena, taken before anything runs: operators that wait for
 *         each other must not wait for the driver's allocations. What allocates or
 *         frees (workspaces, ops) stands between two gpu_op_meet().
 */

#include <pthread.h>
#include <stdint.h>

#include <ceoverlap/ops.h>

#include "gpu_rig.h"
#include "unit/op_rig.h"

#define GPU_OP_RANKS_MAX   4u
#define GPU_OP_SCRATCH     (UINT64_C(48) << 20) /* of every workspace: cases fit */
#define GPU_OP_ARENA_BYTES (UINT64_C(1) << 30)

struct gpu_op_rig;

struct gpu_op_rank {
	struct gpu_op_rig *rig;
	uint32_t           rank;
	struct gpu         gpu;
	char              *arena;
	uint64_t           used_bytes;
};

struct gpu_op_rig {
	ceov_context      *context;
	uint32_t           n_ranks;
	uint32_t           first;       /* ranks of this process ... */
	uint32_t           n_here;      /* ... so many */
	pthread_barrier_t  barrier;     /* of their threads */
	struct gpu_op_rank ranks[GPU_OP_RANKS_MAX];
};

/* All ranks in this process; or one, with its peers met at a path. */
void gpu_op_open(struct gpu_op_rig *rig, uint32_t n_ranks);
void gpu_op_open_one(struct gpu_op_rig *rig, uint32_t rank, uint32_t n_ranks,
		     const char *path);
void gpu_op_close(struct gpu_op_rig *rig);

/* A thread for each rank of this process; returns when all have. */
void gpu_op_each(struct gpu_op_rig *rig,
		 void (*body)(struct gpu_op_rank *rank, const void *arg), const void *arg);

/* All ranks are here. */
void gpu_op_meet(struct gpu_op_rank *rank);

struct gpu_op_mode {
	const char *name;               /* of the workspace */
	int         is_capturable;
	uint64_t    deadline_ns;        /* 0: the context's */
	int         shares_sms;
	uint32_t    n_at_once;          /* workspaces of a rank that run at once; 0: 1 */
};

/* Creates and connects; releases. All ranks call them. */
ceov_workspace *gpu_op_workspace(struct gpu_op_rank *rank, const struct gpu_op_mode *mode);
void            gpu_op_workspace_release(struct gpu_op_rank *rank,
					 ceov_workspace *workspace);

/* How many graphs workspaces keep where they would keep n: none where ranks share a
 * context. */
uint32_t gpu_op_n_graphs(const struct gpu_op_rig *rig, uint32_t n);

/* Tiles that no kernel of ours has: 0 where there is no cuBLAS to take them. */
int gpu_op_has_library(ceov_workspace *workspace);
#define GPU_OP_WIDE_ROWS    512u
#define GPU_OP_WIDE_COLUMNS 65536u

/* Lets the rank's next run come 0 to 10 ms later: its thread sleeps, or its stream is
 * held by a kernel. */
void gpu_op_be_late(struct gpu_op_rank *rank, enum gpu_stream stream, uint64_t *random);

/* Waits, bounded, until the workspace knows of an error, and returns that. */
int gpu_op_error(struct gpu_op_rank *rank, ceov_workspace *workspace);

/* --- cases, operands, results (gpu_op_data.c) ------------------------------ */

/* Up to some 2000 rows (elements of sums: 2 million), n and k; uneven rows, some 0. */
struct op_case gpu_op_case_random(uint64_t *random, uint32_t n_ranks, enum op_sort sort,
				  int has_library);

struct gpu_op_data {
	struct gpu_op_rank   *rank;
	const struct op_case *one;      /* outlives it */
	void    *a;                     /* or source */
	void    *b[CEOV_OP_GEMMS_MAX];
	void    *c[CEOV_OP_GEMMS_MAX];  /* or target in c[0]; guarded, as is gathered */
	void    *gathered;              /* NULL: not wanted */
	uint64_t c_bytes[CEOV_OP_GEMMS_MAX];
	uint64_t gathered_bytes;
};

/* From the rank's arena. Contents: none, and guards. */
void gpu_op_data_make(struct gpu_op_rank *rank, const struct op_case *one,
		      struct gpu_op_data *ret_data);

/* Queue: the operands of that number; rubbish where results will be; the run, with the
 * public call's result. */
void gpu_op_data_fill(const struct gpu_op_data *data, enum gpu_stream stream,
		      uint64_t number);
void gpu_op_data_spoil(const struct gpu_op_data *data, enum gpu_stream stream);
int  gpu_op_data_run(const struct gpu_op_data *data, ceov_op *op, enum gpu_stream stream);

/* All three, in this order; the call's result must be 0. */
void gpu_op_data_turn(const struct gpu_op_data *data, ceov_op *op, enum gpu_stream stream,
		      uint64_t number);

/* When the stream is idle: results are those of that number's operands, and nothing was
 * written behind them. */
void gpu_op_data_check(const struct gpu_op_data *data, enum gpu_stream stream,
		       uint64_t number);

/* Likewise: results have the bits of another's, which gpu_op_data_keep() copied. */
void gpu_op_data_keep(const struct gpu_op_data *data, enum gpu_stream stream,
		      const struct gpu_op_data *kept);
void gpu_op_data_same(const struct gpu_op_data *data, enum gpu_stream stream,
		      const struct gpu_op_data *kept);

/* --- one op of each kind --------------------------------------------------- */

/* Overlapped in 3 pieces, of medium size. */
struct op_case gpu_op_case_plain(enum op_sort sort, uint32_t n_ranks);

struct gpu_op_plain {
	struct op_case     cases[OP_SORTS];
	struct gpu_op_data data[OP_SORTS];
	ceov_op           *ops[OP_SORTS];
};

/* Creates them, and takes the arena from its beginning; releases them. All ranks call
 * them. */
void gpu_op_plain_make(struct gpu_op_rank *rank, ceov_workspace *workspace,
		       struct gpu_op_plain *ret_plain);
void gpu_op_plain_release(struct gpu_op_rank *rank, struct gpu_op_plain *plain);

#endif /* CEI_GPU_OP_RIG_H */
