/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BULK_CUH
#define CEI_BULK_CUH

/*
 * Bulk copies between global and shared memory, which one thread starts and an SM's copy unit makes
 * without threads, and the barriers in shared memory that tell of them. They need sm_90. See PTX
 * ISA 8.x, chapters "mbarrier" and "cp.async.bulk". The instructions take 32-bit addresses of
 * shared memory (cei_shared).
 */

#include <stdint.h>

static __device__ __forceinline__ uint32_t cei_shared(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* --- barriers in shared memory ------------------------------------------------------ */

static __device__ __forceinline__ void cei_bar_init(uint64_t *bar, uint32_t n_arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
		     :: "r"(cei_shared(bar)), "r"(n_arrivals) : "memory");
}

/* Makes initialised barriers visible to the cluster, and to the SM's unit for tensor copies. */
static __device__ __forceinline__ void cei_bar_init_fence()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void cei_bar_wait(uint64_t *bar, uint32_t parity)
{
	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "again:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
		     "@done bra out;\n"
		     "bra again;\n"
		     "out:\n"
		     "}\n" :: "r"(cei_shared(bar)), "r"(parity) : "memory");
}

/* Returns whether the phase of that parity is over, without waiting. If it is, cei_bar_wait() must
 * still be called for what the phase's arrivals have published. */
static __device__ __forceinline__ bool cei_bar_is_over(uint64_t *bar, uint32_t parity)
{
	uint32_t is_over;

	asm volatile("{\n"
		     ".reg .pred done;\n"
		     "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
		     "selp.u32 %0, 1, 0, done;\n"
		     "}\n" : "=r"(is_over) : "r"(cei_shared(bar)), "r"(parity) : "memory");
	return is_over;
}

static __device__ __forceinline__ void cei_bar_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
		     :: "r"(cei_shared(bar)) : "memory");
}

static __device__ __forceinline__ void cei_bar_expect(uint64_t *bar, uint32_t n_bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
		     :: "r"(cei_shared(bar)), "r"(n_bytes) : "memory");
}

/* --- bulk copies --------------------------------------------------------------------- */

/* Begins to copy n_bytes to shared memory, and counts them at the barrier when they have come. Both
 * addresses and n_bytes are multiples of 16. */
static __device__ __forceinline__ void
cei_bulk_load(void *target, const void *source, uint32_t n_bytes, uint64_t *bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
		     " [%0], [%1], %2, [%3];"
		     :: "r"(cei_shared(target)), "l"(source), "r"(n_bytes), "r"(cei_shared(bar))
		     : "memory");
}

/* Begins to copy n_bytes from shared memory to memory of this GPU or a peer's; otherwise as
 * cei_bulk_load(). What the thread stores belongs to the group that it commits next. */
static __device__ __forceinline__ void
cei_bulk_store(void *target, const void *source, uint32_t n_bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
		     :: "l"(target), "r"(cei_shared(source)), "r"(n_bytes) : "memory");
}

static __device__ __forceinline__ void cei_store_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until the thread's stores have been read from shared memory, except those of its last N
 * groups. */
template <int N> static __device__ __forceinline__ void cei_store_wait_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory");
}

/* Waits until the thread's stores have been written to global memory, except those of its last N
 * groups. */
template <int N> static __device__ __forceinline__ void cei_store_wait_all_but()
{
	asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory");
}

/* Waits until all of the thread's stores have been written to global memory. */
static __device__ __forceinline__ void cei_store_wait()
{
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Orders ordinary memory accesses and those of tensor copies and tensor cores. */
static __device__ __forceinline__ void cei_fence_async()
{
	asm volatile("fence.proxy.async;" ::: "memory");
}

static __device__ __forceinline__ void cei_fence_async_shared()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif /* CEI_BULK_CUH */
