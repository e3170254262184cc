/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTOR_H
#define CEI_EXECUTOR_H

/*
 * Executors compute: the host's tile by tile in the calling thread, a GPU's by kernels on
 * the caller's stream. An executor knows neither operators nor plans: it gets matrices, a
 * list of tiles, and marks. Executors: execute_host.c, execute_cuda.c.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#include "kernels/gemm.h"
#include "ops/compute/tiles.h"

#define CEI_MACHINE_BYTES 96u

struct cei_matrix {                     /* row-major, no gaps */
	const void *base;               /* NULL: unused */
	uint64_t    rows;
	uint64_t    columns;
};

/* The marks that one job awaits and raises. In each run they rise to value, the run's
 * number, which counts from 1. */
struct cei_job_marks {
	ceov_signal *awaited;           /* NULL: tiles await nothing */
	ceov_signal *ready;             /* NULL: tiles arrive nowhere */
	ceov_signal *sent;              /* awaited at the end of the job; NULL: nothing */
	uint32_t     sent_index;        /* the first counter of sent that is awaited */
	uint32_t     n_sent;            /* how many of its counters are awaited; 0: none */
	uint64_t     value;
	uint64_t     timeout_ns;
	uint64_t    *epoch;             /* GPU, captured runs: the word that holds the run's
					 * number, used instead of value (see struct
					 * cei_gemm_marks); else NULL */
};

struct cei_counters {
	ceov_signal *signal;
	uint32_t     first;
	uint32_t     n;
};

struct cei_gemm_job {
	enum ceov_dtype       dtype;
	struct cei_tile_shape shape;
	uint64_t              k;
	int                   b_is_k_by_n;      /* 1: b are k x n, C = A B; 0: n x k, A B^T */
	const struct cei_tiles *tiles;
	const void           *held_tiles;       /* the executor's copy of tiles, made by
						 * hold_tiles() */
	struct cei_matrix     a[CEI_GEMM_A_COUNT];
	struct cei_matrix     b[CEI_GEMM_B_MAX];
	struct cei_matrix     c[CEI_GEMM_C_MAX];        /* the results */
	void                 *kept;             /* memory of all rows x k, in the order of c_row,
						 * to which the product also stores the rows of A;
						 * NULL: it does not. Requires keeps() */
	const void           *partials;         /* as in struct cei_gemm_partials */
	uint64_t              partial_stride_bytes;
	uint32_t              n_sources;
	uint32_t              own;
	uint32_t              n_pieces;
	int                   is_claimed;       /* tiles are claimed by whichever cluster is free,
						 * instead of assigned in advance */
	struct cei_job_marks  marks;
};

struct cei_reduce_job {
	enum ceov_dtype      dtype;
	const void          *source;            /* from here on as in struct cei_reduce */
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
	uint32_t             n_blocks;          /* GPU: how many SMs to use */
	uint32_t             first_arrived;
	ceov_signal         *arrived;
	struct cei_job_marks marks;
};

struct cei_executor_ops;

struct cei_executor {
	const struct cei_executor_ops *ops;
	ceov_context                  *context;
	uint32_t                       rank;
	uint64_t                       n_sms;   /* how many SMs jobs may use at once; 0: all. A
						 * GPU's open() replaces it by the actual number */
	void                          *private; /* belongs to the executor */
	char                           machine[CEI_MACHINE_BYTES]; /* name of the hardware, for
								    * stored tunings; set by open;
								    * "": tunings are not stored */
	const char                    *lacks;   /* why there is no library for products, in words;
						 * set by open; NULL: there is one, or none is
						 * needed */
};

struct cei_executor_ops {
	const char *name;

	/* close also cleans up after a failed open. */
	int      (*open)(struct cei_executor *executor);
	void     (*close)(struct cei_executor *executor);

	/* is_fit returns whether tiles of that shape can be executed; pair returns how many
	 * of them are executed together (tiles.h). */
	int      (*is_fit)(const struct cei_executor *executor, struct cei_tile_shape shape);
	uint32_t (*pair)(const struct cei_executor *executor, struct cei_tile_shape shape);

	/* hold_tiles copies the list to where jobs read it; *ret_held NULL: jobs read the
	 * list itself. drop_tiles frees the copy, after the last job that uses it. */
	int      (*hold_tiles)(struct cei_executor *executor, const struct cei_tiles *tiles,
			       void **ret_held);
	void     (*drop_tiles)(struct cei_executor *executor, void *held);

	/* Loads the kernels that such a job needs. Without that gemm would load them, and
	 * loading may wait for running kernels, which may be waiting for this rank. Reads
	 * dtype, shape, k, b_is_k_by_n, tiles and the columns of c. May allocate and wait
	 * for the GPU; computes nothing. Must not be called at the same time as gemm. */
	int      (*load)(struct cei_executor *executor, const struct cei_gemm_job *job);

	/* Returns whether job->kept may be set, so that gemm also stores A there. The answer
	 * depends on the job's other fields. */
	int      (*keeps)(const struct cei_executor *executor,
			  const struct cei_gemm_job *job);

	/* Queue a job behind the work on the stream. The host's executor returns when the
	 * job has ended, with the job's error. A GPU's executor returns when the job is
	 * queued; status() reports later errors. */
	int      (*gemm)(struct cei_executor *executor, void *stream,
			 const struct cei_gemm_job *job);
	int      (*reduce)(struct cei_executor *executor, void *stream,
			   const struct cei_reduce_job *job);
	int      (*copy)(struct cei_executor *executor, void *stream, void *target,
			 const void *source, uint64_t n_bytes);

	/* Holds the stream until counters first to first + n - 1 of signal have reached the
	 * run's number. Of the marks, value, epoch and timeout_ns are used. */
	int      (*await)(struct cei_executor *executor, void *stream,
			  const struct cei_job_marks *marks,
			  const struct cei_counters *counters);

	/* Returns in *ret_is whether a graph is being captured on the stream. */
	int      (*is_capturing)(struct cei_executor *executor, void *stream, int *ret_is);

	/* Orders two streams of a caller: work that is on the stream at mark_stream() comes
	 * before work queued after follow_mark(). No-ops on the host. */
	int      (*mark_stream)(struct cei_executor *executor, void *stream);
	int      (*follow_mark)(struct cei_executor *executor, void *stream);

	/* 0, or the error that a job ended with; never blocks. */
	int      (*status)(struct cei_executor *executor);

	/* Blocks until the work before the last mark_stream() has ended. CEOV_PENDING: not
	 * within timeout_ns. */
	int      (*idle)(struct cei_executor *executor, uint64_t timeout_ns);

	/* For measurements: take allocates n numbers of dtype in memory that jobs can use,
	 * and fills them, on the stream, with numbers below 1 in magnitude; n 0 gives NULL.
	 * give frees them when no job uses them any more; NULL is allowed. */
	int      (*take)(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
			 uint64_t n, void **ret_memory);
	void     (*give)(struct cei_executor *executor, void *memory);

	/* Times the stream's work between begin and end; end blocks until it has ended.
	 * CEOV_PENDING: not within timeout_ns. INVALID: the stream is being captured. One
	 * measurement at a time. */
	int      (*time_begin)(struct cei_executor *executor, void *stream);
	int      (*time_end)(struct cei_executor *executor, void *stream,
			     uint64_t timeout_ns, uint64_t *ret_ns);
};

extern const struct cei_executor_ops cei_executor_host;
extern const struct cei_executor_ops cei_executor_cuda; /* builds with CUDA only */

#endif /* CEI_EXECUTOR_H */
