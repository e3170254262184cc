/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTOR_H
#define CEI_EXECUTOR_H

/*
 * Who computes: the host, tile by tile in the calling thread, or a GPU's kernels on the
 * caller's stream. An executor knows no op and no plan: it is handed matrices, a list
 * of tiles and marks. Executors: execute_host.c, execute_cuda.c.
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

/* Marks of one job. Every value is that of one run, which counts from 1. */
struct cei_job_marks {
	ceov_signal *awaited;           /* NULL: tiles await nothing */
	ceov_signal *ready;             /* NULL: tiles arrive nowhere */
	ceov_signal *sent;              /* awaited at the end; NULL: not */
	uint32_t     sent_index;        /* its counters from this one on, ... */
	uint32_t     n_sent;            /* ... so many of them; 0: none */
	uint64_t     value;
	uint64_t     timeout_ns;
	uint64_t    *epoch;             /* GPU, captured runs: not NULL, and value is not
					 * used: see struct cei_gemm_marks */
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
	const void           *held_tiles;       /* the executor's copy of them */
	struct cei_matrix     a[CEI_GEMM_A_COUNT];
	struct cei_matrix     b[CEI_GEMM_B_MAX];
	struct cei_matrix     c[CEI_GEMM_C_MAX];        /* written */
	void                 *kept;             /* all rows x k: A is left there, in the order
						 * of c_row; NULL: it is not. Only where
						 * keeps() */
	const void           *partials;         /* as in struct cei_gemm_partials */
	uint64_t              partial_stride_bytes;
	uint32_t              n_sources;
	uint32_t              own;
	uint32_t              n_pieces;
	int                   is_claimed;       /* tiles are done by whoever has room for
						 * them, else dealt out beforehand */
	struct cei_job_marks  marks;
};

struct cei_reduce_job {
	enum ceov_dtype      dtype;
	const void          *source;            /* these as in struct cei_reduce */
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
	uint32_t             n_blocks;          /* GPU: SMs to take */
	uint32_t             first_arrived;
	ceov_signal         *arrived;
	struct cei_job_marks marks;
};

struct cei_executor_ops;

struct cei_executor {
	const struct cei_executor_ops *ops;
	ceov_context                  *context;
	uint32_t                       rank;
	uint64_t                       n_sms;   /* that jobs may take at once; 0: all. A
						 * GPU's open sets how many that is */
	void                          *private; /* the executor's */
	char                           machine[CEI_MACHINE_BYTES]; /* what computes, for
						 * remembered tunings, set by open; "":
						 * nothing is remembered */
	const char                    *lacks;   /* why it cannot use a library for products,
						 * in words, set by open; NULL: it can, or
						 * needs none */
};

struct cei_executor_ops {
	const char *name;

	/* close accepts what open left half done. */
	int      (*open)(struct cei_executor *executor);
	void     (*close)(struct cei_executor *executor);

	/* Whether tiles of that shape can be executed; how many go together then, see
	 * tiles.h. */
	int      (*is_fit)(const struct cei_executor *executor, struct cei_tile_shape shape);
	uint32_t (*pair)(const struct cei_executor *executor, struct cei_tile_shape shape);

	/* A copy of the list where jobs need it; drop after the last job is done. */
	int      (*hold_tiles)(struct cei_executor *executor, const struct cei_tiles *tiles,
			       void **ret_held);
	void     (*drop_tiles)(struct cei_executor *executor, void *held);

	/* Loads what such a job needs, or its gemm would do that while kernels wait, which
	 * may wait for them: dtype, shape, k, b_is_k_by_n, tiles and the columns of c count.
	 * May take memory and wait for the GPU; computes nothing. One thread at a time with
	 * gemm. */
	int      (*load)(struct cei_executor *executor, const struct cei_gemm_job *job);

	/* Whether gemm can leave A at job->kept; the rest of the job counts. */
	int      (*keeps)(const struct cei_executor *executor,
			  const struct cei_gemm_job *job);

	/* After what is on the stream. The host's return when the job is done, with its
	 * error; a GPU's when it is queued: what goes wrong later is in status(). */
	int      (*gemm)(struct cei_executor *executor, void *stream,
			 const struct cei_gemm_job *job);
	int      (*reduce)(struct cei_executor *executor, void *stream,
			   const struct cei_reduce_job *job);
	int      (*copy)(struct cei_executor *executor, void *stream, void *target,
			 const void *source, uint64_t n_bytes);

	/* The stream goes on when counters first to first + n - 1 of signal have reached
	 * the run's number: of marks, the value, epoch and timeout_ns count. */
	int      (*await)(struct cei_executor *executor, void *stream,
			  const struct cei_job_marks *marks,
			  const struct cei_counters *counters);

	/* Whether a graph is being captured on the stream. */
	int      (*is_capturing)(struct cei_executor *executor, void *stream, int *ret_is);

	/* What is on the stream now comes before what the next mark's followers queue:
	 * orders two streams of a caller. No-ops on the host. */
	int      (*mark_stream)(struct cei_executor *executor, void *stream);
	int      (*follow_mark)(struct cei_executor *executor, void *stream);

	/* 0, or the error that a job ended with; never blocks. */
	int      (*status)(struct cei_executor *executor);

	/* Blocks until what mark_stream() marked last is done. CEOV_PENDING: not within
	 * timeout_ns. */
	int      (*idle)(struct cei_executor *executor, uint64_t timeout_ns);

	/* For measuring: n numbers of dtype where jobs can use them, of all sizes below 1
	 * and none a NaN, written on the stream; NULL for n 0. give when no job uses them
	 * any more; NULL is allowed. */
	int      (*take)(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
			 uint64_t n, void **ret_memory);
	void     (*give)(struct cei_executor *executor, void *memory);

	/* What the stream does from here, and how long that took: end blocks until it is
	 * done. CEOV_PENDING: not within timeout_ns. INVALID: the stream is captured.
	 * One measurement at a time. */
	int      (*time_begin)(struct cei_executor *executor, void *stream);
	int      (*time_end)(struct cei_executor *executor, void *stream,
			     uint64_t timeout_ns, uint64_t *ret_ns);
};

extern const struct cei_executor_ops cei_executor_host;
extern const struct cei_executor_ops cei_executor_cuda; /* builds with CUDA only */

#endif /* CEI_EXECUTOR_H */
