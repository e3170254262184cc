/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTE_CUDA_H
#define CEI_EXECUTE_CUDA_H

/* What the files of the GPU's executor share. */

#include <stdatomic.h>
#include <stdint.h>

#include "base/cuda_table.h"
#include "kernels/module.h"
#include "ops/compute/executor.h"
#include "ops/exec_cuda/blas_cuda.h"
#include "ops/exec_cuda/order_cuda.h"

/* The same values as enum ceov_device_result in device.cuh, which only CUDA C++ can include. */
enum cei_gpu_status { CEI_GPU_REACHED = 0, CEI_GPU_ABORTED = 1, CEI_GPU_TIMEOUT = 2 };

/* Words of an executor in its GPU's memory. */
enum cei_gpu_word {
	CEI_GPU_WORD_CLAIMED,           /* for struct cei_gemm; runs can share one word, because
					 * they follow each other */
	CEI_GPU_WORD_FAILED,            /* for struct cei_gemm_marks, cei_experts_work and
					 * cei_embedding_work */
	CEI_GPU_WORDS,
};

struct cei_gpu_executor {
	ceov_context      *context;
	struct cei_cuda   *cuda;
	uint32_t           rank;
	uint32_t           gpu;
	uint32_t           n_sms;
	int                has_kernels;         /* 1: the GPU is an sm_90, for which there are
						 * kernels */
	uint32_t           n_clusters;          /* clusters of the GEMM kernel that can run at
						 * once; 0: not even one */
	CUdeviceptr        words;               /* [enum cei_gpu_word]: words in GPU memory for
						 * kernels; zero at first */
	struct cei_module *module;
	struct cei_blas   *blas;                /* NULL: cuBLAS is missing */
	const char        *no_blas;             /* if blas is NULL: why, in words */
	_Atomic uint32_t  *status;              /* in pinned memory: enum cei_gpu_status,
						 * cei_experts_fault or cei_embedding_fault */
	int                error;               /* the error that status showed; it is reported
						 * once */
	struct cei_gpu_order order;             /* of runs; follows that of the executor's leader */
	CUstream           lane;                /* for lanes that SMs carry out, as are the next
						 * two; NULL: no op needs one */
	uint32_t           lane_blocks;         /* SMs that the lane of the run that is being
						 * queued needs; 0: it has none */
	CUevent            lane_begun;          /* orders the lane behind a run's stream */
	CUevent            lane_ended;          /* orders the stream behind the lane */
	CUevent            times[2];            /* begin and end of a measurement */
};

/* Returns the address of one of the executor's words in GPU memory, for kernels. */
uint32_t *cei_gpu_word(const struct cei_gpu_executor *own, enum cei_gpu_word word);

/* Returns how many SMs a job may use on this stream: those of the executor, or fewer if the stream
 * belongs to a green context with fewer. The GPU's context need not be current. */
uint32_t cei_gpu_sms(const struct cei_gpu_executor *own, void *stream);

/* Returns 0 for CUDA_SUCCESS; else raises the driver's error with rank and GPU. `what` names the
 * attempted action in the message. */
int  cei_gpu_executor_check(const struct cei_gpu_executor *own, CUresult result,
			    const char *what);

/* Refuses a kernel whose n_blocks blocks wait for peers, if together with the lane of the same run
 * they would need more SMs than there are: they would wait for what finds no SM. */
int  cei_gpu_check_waiting(const struct cei_gpu_executor *own, uint32_t n_blocks,
			   const char *kernel);

/* Returns the view of the signal that the rank's kernels use; if signal is NULL, a view of all
 * zeros. */
int  cei_gpu_signal(const struct cei_gpu_executor *own, ceov_signal *signal,
		    struct ceov_device_signal *ret_view);

/* Queues a sum (the function `reduce` of struct cei_executor_ops). */
int  cei_gpu_reduce(struct cei_gpu_executor *own, void *stream,
		    const struct cei_reduce_job *job);

/* direct_cuda.c: direct collectives. cei_gpu_direct_open() lets the kernels of sums in steps use
 * their shared memory; it is called once, with the context current, where the GPU has these
 * kernels. cei_gpu_direct() is the function `direct` of struct cei_executor_ops. */
int  cei_gpu_direct_open(struct cei_gpu_executor *own);
int  cei_gpu_direct(struct cei_executor *executor, void *stream,
		    const struct cei_direct_job *job);

/* direct_ll_cuda.c: the same for a job that is_ll. */
int  cei_gpu_direct_ll(const struct cei_gpu_executor *own, void *stream,
		       const struct cei_direct_job *job);

/* Returns the address of a counter of a peer's signal, to which kernels only store. A whole view of
 * the signal would allocate memory for arrivals, which a run must not do. */
int  cei_gpu_peer_counter(const struct cei_gpu_executor *own, ceov_signal *signal,
			  uint32_t index, uint64_t **ret_counter);

/* Makes the stream wait until the counters have reached the run's number. */
int  cei_gpu_await(struct cei_gpu_executor *own, void *stream,
		   const struct cei_job_marks *marks, const struct cei_counters *counters);

/* Raises the counters from the stream, unless a wait of this run or of one before it has failed:
 * what stands behind such a wait must not be taken for good. In a captured run they are raised all
 * the same, because its poison goes with them. */
int  cei_gpu_raise(struct cei_gpu_executor *own, void *stream, const struct cei_job_marks *marks,
		   const struct cei_counters *counters);

/* Returns in *ret_is whether the stream is being captured. The GPU's context must be current. */
int  cei_gpu_is_capturing(const struct cei_gpu_executor *own, void *stream, int *ret_is);

/* measure_cuda.c: measurements, as struct cei_executor_ops describes them. open and close are
 * called once, with the context current; close also after open failed. */
int  cei_gpu_measure_open(struct cei_gpu_executor *own);
void cei_gpu_measure_close(struct cei_gpu_executor *own);
int  cei_gpu_take(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
		  uint64_t n, void **ret_memory);
void cei_gpu_give(struct cei_executor *executor, void *memory);
int  cei_gpu_time_begin(struct cei_executor *executor, void *stream);
int  cei_gpu_time_end(struct cei_executor *executor, void *stream, uint64_t timeout_ns,
		      uint64_t *ret_ns);

/* gemm_cuda.c: products by our own kernel. cei_gpu_gemm_open() is called once, with the context
 * current. cei_gpu_gemm_has() returns whether the kernel supports tiles of that shape on this
 * GPU. */
int  cei_gpu_gemm_open(struct cei_gpu_executor *own);
int  cei_gpu_gemm_has(const struct cei_gpu_executor *own, struct cei_tile_shape shape);
int  cei_gpu_gemm(struct cei_gpu_executor *own, void *stream,
		  const struct cei_gemm_job *job);

/* rows_cuda.c: the function `copy_rows` of struct cei_executor_ops. */
int  cei_gpu_copy_rows(struct cei_executor *executor, void *stream, const struct cei_rows *rows);

/* forks_cuda.c: branches of graphs, as struct cei_executor_ops describes them. */
int  cei_gpu_fork(struct cei_executor *executor, void *stream, void **fork);
int  cei_gpu_join(struct cei_executor *executor, void *stream, void *fork);
void cei_gpu_end_fork(struct cei_executor *executor, void *fork);

/* sm_lane_cuda.c: lanes that SMs carry out (compute/sm_lane.h). close is called once, with the
 * context current, also if there is no lane. */
extern const struct cei_sm_lane_ops cei_gpu_sm_lane;
void cei_gpu_sm_lane_close(struct cei_gpu_executor *own);

/* experts_cuda.c: mixtures of experts. cei_gpu_experts_fault() returns what a value of the status
 * word says of them, in words, or NULL: it says nothing of them. */
extern const struct cei_experts_ops cei_gpu_experts;
const char *cei_gpu_experts_fault(uint32_t status);

/* embedding_cuda.c: embedding bags, likewise. */
extern const struct cei_embedding_ops cei_gpu_embedding;
const char *cei_gpu_embedding_fault(uint32_t status);

/* gemm_blas_cuda.c: computes the tiles of a job by cuBLAS. Each tile must have all columns of its
 * rows. */
int  cei_gpu_gemm_by_blas(struct cei_gpu_executor *own, void *stream,
			  const struct cei_gemm_job *job);

/* Loads the cuBLAS kernels that the job's tiles need, as struct cei_executor_ops describes at load.
 * own->blas must not be NULL. */
int  cei_gpu_load_blas(struct cei_gpu_executor *own, const struct cei_gemm_job *job);

#endif /* CEI_EXECUTE_CUDA_H */
