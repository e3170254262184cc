/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_DEVICE_CUH
#define CEOVERLAP_DEVICE_CUH

/*
 * Functions for kernels: count that a tile has arrived at a signal, and await a mark.
 * CUDA C++ for sm_70 and newer, without other dependencies. A ceov_device_signal comes
 * from ceov_signal_for_device() and is passed to the kernel by value.
 *
 *   producer                                consumer
 *     every thread: store the tile            one thread: ceov_device_await()
 *     (TMA stores: wait_group 0)              __syncthreads()
 *     __syncthreads()                         (TMA loads: fence.proxy.async)
 *     one thread: ceov_device_arrive()        every thread: load
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

enum ceov_device_result {
	CEOV_DEVICE_REACHED = 0,
	CEOV_DEVICE_ABORTED = 1,        /* the data must not be used: leave */
	CEOV_DEVICE_TIMEOUT = 2
};

/* ceov_device_await() checks its timeout and the abort word once in so many iterations. */
#define CEOV_DEVICE_LOOK_TURNS 64u

static __device__ __forceinline__ uint64_t ceov_device_now_ns()
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

static __device__ __forceinline__ uint64_t ceov_device_load(const uint64_t *counter)
{
	uint64_t value;

	asm volatile("ld.acquire.sys.u64 %0, [%1];"
		     : "=l"(value) : "l"(counter) : "memory");
	return value;
}

static __device__ __forceinline__ bool
ceov_device_is_aborted(const ceov_device_signal &signal)
{
	uint32_t word = 0;

	if (signal.abort_word)
		asm volatile("ld.acquire.sys.u32 %0, [%1];"
			     : "=r"(word) : "l"(signal.abort_word) : "memory");
	return word != 0;
}

static __device__ __forceinline__ void ceov_device_raise(uint64_t *counter,
							 uint64_t value)
{
	asm volatile("st.release.sys.u64 [%0], %1;"
		     :: "l"(counter), "l"(value) : "memory");
}

/*
 * Counts that one tile of n_tiles is stored; the call for the last tile raises the counter
 * to value. The count of arrivals then returns to 0 by itself for the next round. All calls
 * of a round name the same n_tiles and value, and calls of the next round come after the
 * raise of this one.
 *
 * Called by one thread, behind a barrier of all threads that stored the tile. A
 * thread that stored by TMA runs cp.async.bulk.wait_group 0 before that barrier
 * (not wait_group.read, which only frees the source).
 *
 * A view for awaiting only (arrivals NULL) traps: a tile that nobody counts would
 * hang everybody who waits for it.
 */
static __device__ __forceinline__ void
ceov_device_arrive(const ceov_device_signal &signal, uint32_t index, uint32_t n_tiles,
		   uint64_t value)
{
	const uint32_t last = n_tiles - 1;
	uint32_t n_before;

	if (!signal.arrivals)
		__trap();
	/* The fence and the atomic operation release this tile, which other threads of the
	 * block stored, and acquire the tiles that arrived before: the raise publishes all. */
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
	asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
		     : "=r"(n_before)
		     : "l"(signal.arrivals + index), "r"(last) : "memory");
	if (n_before != last)
		return;
	ceov_device_raise(signal.counters + index, value);
	if (signal.words)
		ceov_device_raise(signal.words + index, value);
}

/*
 * Waits until the counter has reached value, at most timeout_ns. Called by one
 * thread; a barrier then lets the others go on. Returns a ceov_device_result.
 *
 * The abort word is read again when the mark is reached: a copy that already waited in its
 * lane when its launch was aborted is still made, and raises its mark as usual.
 */
static __device__ __forceinline__ int
ceov_device_await(const ceov_device_signal &signal, uint32_t index, uint64_t value,
		  uint64_t timeout_ns)
{
	const uint64_t *counter = signal.counters + index;
	const uint64_t start = ceov_device_now_ns();
	uint64_t seen = ceov_device_load(counter);
	uint64_t now;
	uint32_t turn;

	for (turn = 1; seen < value; turn++) {
		if (turn % CEOV_DEVICE_LOOK_TURNS == 0) {
			if (ceov_device_is_aborted(signal))
				return CEOV_DEVICE_ABORTED;
			/* now can be less than start when the thread was moved to
			 * another SM. */
			now = ceov_device_now_ns();
			if (now > start && now - start >= timeout_ns)
				return CEOV_DEVICE_TIMEOUT;
		}
		seen = ceov_device_load(counter);
	}
	if (seen >= CEOV_VALUE_LIMIT || ceov_device_is_aborted(signal))
		return CEOV_DEVICE_ABORTED;
	return CEOV_DEVICE_REACHED;
}

#endif /* CEOVERLAP_DEVICE_CUH */
