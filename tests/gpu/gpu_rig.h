/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_RIG_H
#define CEI_GPU_RIG_H

/*
 * Rig of the GPU suites: a GPU with streams, kernels, memory and results that are separate from
 * the library's own use of the GPU. Asserts with Check. CUDA does not survive fork(): a test opens
 * GPUs in the process that uses them, never in main().
 *
 * All waits have deadlines. Allocate before kernels await marks, and free after they have ended,
 * because the driver waits for the whole GPU in both.
 */

#include <check.h>
#include <stddef.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "kernels/module.h"
#include "testing.h"
#include "tools/kernels/work.h"

#define GPU_AWAIT_NS  (10 * TESTING_SECOND)     /* timeout of kernels that must not time out */
#define GPU_RESULTS   64u
#define GPU_THREADS   256u                      /* threads per block by default */
#define GPU_RANKS_MAX 8u

/* The deadline of contexts: shorter than the rig's own, so that the library's message, which says
 * more, comes first. */
#define GPU_DEADLINE  (TESTING_PATIENCE / 2)
#define GPU_SKIPPED   77

/* Each stream has a priority of its own and thus its own hardware queues: a stream that waits
 * blocks its queue, and no other stream may be behind it. */
enum gpu_stream { GPU_PRODUCE, GPU_CONSUME, GPU_WAIT, GPU_CONTROL, GPU_STREAMS };

struct gpu_result {
	unsigned long long n_wrong;
	unsigned long long first_wrong; /* index of the first wrong word; UINT64_MAX: none */
	uint32_t           status;      /* the worst enum ceov_device_result */
	uint32_t           pad;
};

/* Same values as enum ceov_device_result, which only device code has. */
enum gpu_status { GPU_REACHED = 0, GPU_ABORTED = 1, GPU_TIMEOUT = 2 };

struct gpu {
	uint32_t           index;
	void              *streams[GPU_STREAMS];        /* CUstream */
	struct gpu_result *results;                     /* in the GPU's memory */
	struct gpu_private *private;
};

struct gpu_words {                      /* 64-bit words that hold the kernels' pattern */
	void    *p;
	uint64_t n_words;
	uint64_t seed;
};

/* Counts the GPUs in a child process. */
uint32_t gpu_count(void);

/* Runs the suite, or prints why it is skipped; returns main()'s status. For tests that depend on
 * the number of GPUs, not on ranks. */
int gpu_main(uint32_t n_needed, Suite *(*suite)(uint32_t n_gpus));

/* Runs a suite of ranks, or prints why it is skipped; returns main()'s status. With enough GPUs
 * each rank has its own. Otherwise rank r is on GPU r % n_gpus, with 2 ranks or as many as
 * CEOVERLAP_TEST_RANKS says. */
int gpu_main_ranks(Suite *(*suite)(uint32_t n_ranks));

/* Return the GPU of a rank, and how many of n_ranks share a GPU. Call them after
 * gpu_main_ranks(). */
uint32_t gpu_of_rank(uint32_t rank);
uint32_t gpu_n_sharing(uint32_t n_ranks);

/* Returns how many SMs each kernel may take so that n_at_once kernels of each of the n_ranks that
 * share a GPU fit at the same time; 0 (no limit) if no ranks share a GPU. */
uint64_t gpu_sms_for(const struct gpu *gpu, uint32_t n_ranks, uint32_t n_at_once);

/* Returns the number in an environment variable, or the fallback. */
uint32_t gpu_setting(const char *name, uint32_t fallback);

void gpu_open(struct gpu *gpu, uint32_t index);
void gpu_close(struct gpu *gpu);

/* Opens ranks 0 to n - 1 in this process, rank i on GPU indices[i]; log lines go to stderr. */
ceov_context *gpu_context(const uint32_t *indices, uint32_t n);

/* Creates a signal in the memory of the rank's GPU, visible to the host or not. */
ceov_signal *gpu_signal(ceov_context *context, uint32_t rank, uint32_t gpu,
			uint32_t n_counters, uint32_t flags);

struct ceov_device_signal gpu_view(ceov_signal *signal, uint32_t rank);

/* Allocates memory of the GPU by cudaMalloc. */
void *gpu_allocate(struct gpu *gpu, uint64_t n_bytes);
void  gpu_free(struct gpu *gpu, void *p);

/* Reserve addresses for memory of the GPU, without memory, and give them back. */
void *gpu_reserve(struct gpu *gpu, uint64_t n_bytes);
void  gpu_unreserve(struct gpu *gpu, void *p, uint64_t n_bytes);

/* Map new memory of GPU_PAGE_BYTES at a reserved address, and give it back to the driver. */
#define GPU_PAGE_BYTES (UINT64_C(2) << 20)
void  gpu_map(struct gpu *gpu, void *p);
void  gpu_unmap(struct gpu *gpu, void *p);

/* Returns the driver's number of the allocation at an address; 0: it does not know one. */
uint64_t gpu_memory_id(struct gpu *gpu, const void *p);

/* Allocates pinned host memory by cudaHostAlloc. */
void *gpu_host_allocate(struct gpu *gpu, uint64_t n_bytes);
void  gpu_host_free(struct gpu *gpu, void *p);

/* Copies within the GPU, or between it and the host: queues that, or waits until it is done. */
void gpu_copy(struct gpu *gpu, enum gpu_stream stream, void *to, const void *from,
	      uint64_t n_bytes);
void gpu_move(struct gpu *gpu, void *to, const void *from, uint64_t n_bytes);

/* Queues a kernel whose only parameter is *argument. */
void gpu_launch(struct gpu *gpu, enum gpu_stream stream, const char *kernel,
		uint32_t n_blocks, void *argument);

/* Queues a kernel with these launch parameters; fills in their stream. */
void gpu_launch_as(struct gpu *gpu, enum gpu_stream stream,
		   const struct cei_module_launch *launch);

void gpu_fill(struct gpu *gpu, enum gpu_stream stream, const struct gpu_words *words);

/* Queues a kernel that checks the words and adds the number of wrong ones to the result. */
void gpu_verify(struct gpu *gpu, enum gpu_stream stream, const struct gpu_words *words,
		uint32_t result);

/* Asserts that the words hold the pattern, synchronously. */
void gpu_check(struct gpu *gpu, const struct gpu_words *words);

/* Queues a kernel that awaits counter `mark.index` at `mark.value`. */
void gpu_await(struct gpu *gpu, struct ceov_device_signal view,
	       const struct ceov_mark *mark, uint64_t timeout_ns, uint32_t result);

/* Reset and read results. They use GPU_CONTROL, so that they do not wait for the other streams. */
void              gpu_reset(struct gpu *gpu, uint32_t result);
struct gpu_result gpu_result(struct gpu *gpu, uint32_t result);

/* Asserts that all work queued on the stream ends within TESTING_PATIENCE. */
void gpu_idle(struct gpu *gpu, enum gpu_stream stream);
int  gpu_is_idle(struct gpu *gpu, enum gpu_stream stream);

#endif /* CEI_GPU_RIG_H */
