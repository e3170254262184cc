/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MARKS_CUH
#define CEI_MARKS_CUH

/*
 * How an operator's kernels wait for marks, and what they do if a wait fails. They write a status
 * word for the host, which keeps the first failure, and poison the number of a run that is counted
 * in GPU memory (gemm.h, reduce.h, begin.h). Each function is called by one thread.
 */

#include <stdint.h>

#include <ceoverlap/device.cuh>

/* How long a wait lasts before it checks for the first time whether a run has failed, and how long
 * from each check to the next. */
#define CEI_MARK_PATIENCE_NS UINT64_C(50000)
#define CEI_MARK_LOOK_NS     UINT64_C(1000000)

/*
 * Waits like ceov_device_await(), for timeout_ns and CEI_MARK_PATIENCE_NS at most, with two
 * exceptions. A value of CEOV_VALUE_LIMIT or more belongs to a poisoned run, so the function
 * returns ABORTED at once. If *failed says that a run of this workspace has failed, it returns
 * ABORTED. So runs that are queued behind that run do not each wait for a whole timeout, nor does a
 * kernel that waits for a mark of another kernel of the same run, which has left early. failed is
 * GPU memory or NULL, and never the status word in host memory: when waiting threads of all SMs
 * read host memory, GEMM + reduce-scatter took 200 us longer (measured).
 */
static __device__ __forceinline__ int
cei_mark_await(const struct ceov_device_signal &signal, uint32_t index, uint64_t value,
	       uint64_t timeout_ns, const uint32_t *failed)
{
	uint64_t start, now, left = timeout_ns, waited;
	int result;

	if (value >= CEOV_VALUE_LIMIT)
		return CEOV_DEVICE_ABORTED;
	result = ceov_device_await(signal, index, value, CEI_MARK_PATIENCE_NS);
	if (result != CEOV_DEVICE_TIMEOUT)
		return result;
	start = ceov_device_now_ns();
#pragma unroll 1
	while (left) {
		if (failed && *(const volatile uint32_t *)failed)
			return CEOV_DEVICE_ABORTED;
		result = ceov_device_await(signal, index, value,
					   left < CEI_MARK_LOOK_NS ? left : CEI_MARK_LOOK_NS);
		if (result != CEOV_DEVICE_TIMEOUT)
			return result;
		/* now can be less than start when the thread was moved to another SM */
		now = ceov_device_now_ns();
		waited = now > start ? now - start : 0;
		left = waited < timeout_ns ? timeout_ns - waited : 0;
	}
	return CEOV_DEVICE_TIMEOUT;
}

/* Where a failure is recorded; see struct cei_gemm_marks. */
struct cei_mark_words {
	uint32_t *status;
	uint32_t *failed;
	uint64_t *epoch;
};

/*
 * Records that a wait has ended with result, which is not REACHED: in *status, in *failed, and as
 * poison in *epoch. epoch is NULL if the run is not captured; failed is NULL if no kernel looks
 * there. The poison is visible to all before this returns.
 *
 * A thread that finds the poison, here or at a peer that passes it on, must also find the status
 * that was written with it. Otherwise it would tell the host ABORTED where the cause was a TIMEOUT.
 * That is what the two fences are for: the second one stands between writing the status and writing
 * the poison, and the first one makes a thread that has read the poison read the status after that.
 * If two waits fail by themselves at the same moment, both may find status 0; then either result is
 * stored, and either is true.
 */
static __device__ __forceinline__ void cei_mark_fail(const struct cei_mark_words &words,
						     int result)
{
	volatile uint32_t *status = words.status;

	__threadfence_system();
	if (*status == CEOV_DEVICE_REACHED)
		*status = (uint32_t)result;
	__threadfence_system();
	if (words.failed)
		*(volatile uint32_t *)words.failed = 1;
	if (!words.epoch)
		return;
	*(volatile uint64_t *)words.epoch = CEOV_VALUE_LIMIT;
	__threadfence_system();
}

#endif /* CEI_MARKS_CUH */
