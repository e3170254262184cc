/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTOR_H
#define CEI_EXECUTOR_H

/*
 * An executor computes: the host's executor tile by tile in the calling thread, a GPU's by kernels
 * on the caller's stream. It knows neither operators nor plans, only matrices, lists of tiles, and
 * marks. Executors are defined in execute_host.c and execute_cuda.c.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "kernels/gemm.h"
#include "ops/compute/tiles.h"

#define CEI_MACHINE_BYTES 96u           /* room for cei_executor.machine */

struct cei_matrix {                     /* row-major */
	const void *base;               /* NULL: unused */
	uint64_t    rows;
	uint64_t    columns;
	uint64_t    pitch;              /* elements from one row to the next; 0: no gaps. Only a B
					 * may have gaps, and not where cuBLAS computes */
};

static inline uint64_t cei_matrix_pitch(const struct cei_matrix *matrix)
{
	return matrix->pitch ? matrix->pitch : matrix->columns;
}

/* The marks that one job awaits and raises. In each run the counters rise to `value`, which is the
 * number of the run, counted from 1. */
struct cei_job_marks {
	ceov_signal *awaited;           /* NULL: tiles await nothing */
	ceov_signal *ready;             /* NULL: tiles arrive nowhere */
	ceov_signal *sent;              /* awaited at the end of the job; NULL: nothing */
	uint32_t     sent_index;        /* the first counter of sent that is awaited */
	uint32_t     n_sent;            /* how many of its counters are awaited; 0: none */
	uint64_t     value;
	uint64_t     timeout_ns;
	uint64_t    *epoch;             /* only for captured runs on a GPU: the word in GPU
					 * memory that holds the run's number, used instead of
					 * value (see struct cei_gemm_marks); else NULL */
};

/* Rows that are copied, with gaps between them at either side. */
struct cei_rows {
	void       *target;
	const void *source;
	uint64_t    row_bytes;
	uint64_t    n_rows;
	uint64_t    target_pitch_bytes; /* from one row to the next, at most 2^31 - 1 */
	uint64_t    source_pitch_bytes;
};

/* The counters first to first + n - 1 of a signal. */
struct cei_counters {
	ceov_signal *signal;
	uint32_t     first;
	uint32_t     n;
};

struct cei_gemm_job {
	enum ceov_dtype       dtype;
	struct cei_tile_shape shape;
	uint64_t              k;
	int                   b_is_k_by_n;      /* 1: each B is k x n, and C = A B; 0: each B is
						 * n x k, and C = A B^T */
	const struct cei_tiles *tiles;
	const void           *held_tiles;       /* the executor's copy of tiles, made by
						 * hold() */
	struct cei_matrix     a[CEI_GEMM_A_COUNT];
	struct cei_matrix     b[CEI_GEMM_B_MAX];
	struct cei_matrix     c[CEI_GEMM_C_MAX];        /* the results */
	/* If not NULL, the product also copies the rows of A to this memory, which has a row of k
	 * elements for each row of all ranks, in the order of c_row. Only if keeps() allows it. */
	void                 *kept;
	const void           *partials;         /* from here to n_pieces: as in struct
						 * cei_gemm_partials */
	uint64_t              partial_stride_bytes;
	uint32_t              n_sources;
	uint32_t              own;
	uint32_t              n_pieces;
	struct cei_row_cut    cut;
	uint32_t              n_blocks;         /* on a GPU: how many SMs our own kernel uses at
						 * most; 0: as many as the executor may */
	int                   is_claimed;       /* 1: whichever cluster is free takes the next
						 * tiles; 0: they are assigned in advance, but for
						 * those of clusters that find no SM before others
						 * have to wait for peers */
	struct cei_job_marks  marks;
};

struct cei_reduce_job {
	enum ceov_dtype      dtype;
	/* The fields from here to `arrived` mean the same as in struct cei_reduce. */
	const void          *source;
	void                *target;
	const void          *partials;
	const void          *gathered;
	uint64_t             partial_stride_bytes;
	const uint64_t      *counts;
	const uint64_t      *piece_elements;
	float                scale;
	uint32_t             n_ranks;
	uint32_t             own;
	uint32_t             n_pieces;
	uint32_t             is_tail_cut;
	uint32_t             n_blocks;          /* on a GPU: how many SMs to use */
	uint32_t             first_arrived;
	ceov_signal         *arrived;
	struct cei_job_marks marks;
};

struct cei_direct_job;                  /* direct.h */
struct cei_executor_ops;
struct cei_sm_lane_ops;
struct cei_experts_ops;
struct cei_embedding_ops;

struct cei_executor {
	const struct cei_executor_ops *ops;
	ceov_context                  *context;
	uint32_t                       rank;
	uint64_t                       n_sms;   /* how many SMs jobs may use at once; 0: all. The
						 * GPU's open() sets it to the actual number */
	/* An open executor of the same rank whose runs and this one's follow each other, and which
	 * closes after this one; NULL: there is none. Set before open(). */
	struct cei_executor           *leader;
	void                          *private; /* belongs to the executor */
	/* The name of the hardware, for stored tunings; set by open(). "": tunings are not
	 * stored. */
	char                           machine[CEI_MACHINE_BYTES];
	/* Why cuBLAS cannot be used, in words; set by open(). NULL: it can be, or the executor
	 * does not need it. */
	const char                    *lacks;
};

struct cei_executor_ops {
	const char *name;

	/* close also cleans up after a failed open. */
	int      (*open)(struct cei_executor *executor);
	void     (*close)(struct cei_executor *executor);

	/* is_fit() returns whether the executor supports tiles of that shape. pair() returns
	 * how many such tiles it executes together, 1 or 2 (tiles.h). */
	int      (*is_fit)(const struct cei_executor *executor, struct cei_tile_shape shape);
	uint32_t (*pair)(const struct cei_executor *executor, struct cei_tile_shape shape);

	/* hold() copies a list of n_bytes to where jobs can read it. *ret_held is NULL if
	 * jobs can read the caller's list. If list is NULL it is memory that jobs can read and
	 * write, whatever is in it; never NULL then. drop() frees it; call it after the last job
	 * that uses it. */
	int      (*hold)(struct cei_executor *executor, const void *list, uint64_t n_bytes,
			 void **ret_held);
	void     (*drop)(struct cei_executor *executor, void *held);

	/* Loads the kernels that a job will need, and computes nothing. If gemm() loaded them
	 * instead, it might wait for running kernels, and these may be waiting for this rank.
	 * Reads the job's dtype, shape, k, b_is_k_by_n, tiles and the columns of c. May allocate
	 * and wait for the GPU. Must not be called at the same time as gemm(). */
	int      (*load)(struct cei_executor *executor, const struct cei_gemm_job *job);

	/* Returns whether job->kept may be set, so that gemm() also stores A there. The answer
	 * depends on the job's other fields. */
	int      (*keeps)(const struct cei_executor *executor,
			  const struct cei_gemm_job *job);

	/* Queue a job behind the work on the stream. The host's executor returns after the job
	 * has ended, and returns the job's error. A GPU's executor returns once the job is
	 * queued; status() reports later errors. */
	int      (*gemm)(struct cei_executor *executor, void *stream,
			 const struct cei_gemm_job *job);
	int      (*reduce)(struct cei_executor *executor, void *stream,
			   const struct cei_reduce_job *job);
	int      (*direct)(struct cei_executor *executor, void *stream,
			   const struct cei_direct_job *job);
	int      (*copy)(struct cei_executor *executor, void *stream, void *target,
			 const void *source, uint64_t n_bytes);
	int      (*copy_rows)(struct cei_executor *executor, void *stream,
			      const struct cei_rows *rows);

	const struct cei_experts_ops *experts;  /* experts.h */
	const struct cei_embedding_ops *embedding;      /* embedding.h */
	const struct cei_sm_lane_ops *sm_lane;          /* sm_lane.h; NULL on the host */

	/* Makes the stream wait until the counters have reached the run's number. Of marks only
	 * value, epoch and timeout_ns are used. */
	int      (*await)(struct cei_executor *executor, void *stream,
			  const struct cei_job_marks *marks,
			  const struct cei_counters *counters);

	/* Returns in *ret_is whether a graph is being captured on the stream. */
	int      (*is_capturing)(struct cei_executor *executor, void *stream, int *ret_is);

	/* Order work on one stream behind work on another: what is on the first stream when
	 * mark_stream() is called comes before what is queued on the second stream after
	 * follow_mark(). Streams that are being captured into one graph, as its branches, are
	 * ordered within it. CEOV_ERR_STATE of follow_mark(), before anything has changed: marked
	 * work is in a capture that has not ended, and the stream is not a part of that capture.
	 * On the host both do nothing. */
	int      (*mark_stream)(struct cei_executor *executor, void *stream);
	int      (*follow_mark)(struct cei_executor *executor, void *stream);

	/* For graphs, whose branches on other streams must begin behind a point within a run.
	 * fork() remembers the present point of the stream, which is being captured, in *fork;
	 * NULL there at the first call makes it. join() orders what is then queued on the other
	 * stream behind that point, as a part of the same graph. end_fork() frees it, NULL is
	 * allowed. NULL functions on the host, which has no graphs. */
	int      (*fork)(struct cei_executor *executor, void *stream, void **fork);
	int      (*join)(struct cei_executor *executor, void *stream, void *fork);
	void     (*end_fork)(struct cei_executor *executor, void *fork);

	/* Returns the error with which a job ended, or 0; never blocks. */
	int      (*status)(struct cei_executor *executor);

	/* Blocks until the work that was on the stream at the last mark_stream() has ended.
	 * CEOV_PENDING: it has not ended within timeout_ns. */
	int      (*idle)(struct cei_executor *executor, uint64_t timeout_ns);

	/* For measurements. take() allocates n numbers of dtype in memory that jobs can use, and
	 * fills them, on the stream, with numbers below 1 in magnitude; for n = 0 it returns
	 * NULL. give() frees them; call it when no job uses them any more. NULL is allowed. */
	int      (*take)(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
			 uint64_t n, void **ret_memory);
	void     (*give)(struct cei_executor *executor, void *memory);

	/* Measure how long the stream's work between time_begin() and time_end() takes.
	 * time_end() blocks until that work has ended; CEOV_PENDING: it has not ended within
	 * timeout_ns. CEOV_ERR_INVALID: the stream is being captured. Only one measurement may
	 * be under way. */
	int      (*time_begin)(struct cei_executor *executor, void *stream);
	int      (*time_end)(struct cei_executor *executor, void *stream,
			     uint64_t timeout_ns, uint64_t *ret_ns);
};

extern const struct cei_executor_ops cei_executor_host;
extern const struct cei_executor_ops cei_executor_cuda; /* builds with CUDA only */

#endif /* CEI_EXECUTOR_H */
