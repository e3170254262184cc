/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MARKS_CUH
#define CEI_MARKS_CUH

/*
 * Waits of an operator's kernels for marks, and what they do on failure: a status word for
 * the host, which keeps the first failure, and the poisoned number of a run that is counted
 * in GPU memory (gemm.h, reduce.h, begin.h). Each function is called by one thread.
 */

#include <stdint.h>

#include <ceoverlap/device.cuh>

/* After this time a wait checks whether a run has failed already. */
#define CEI_MARK_PATIENCE_NS UINT64_C(50000)

/*
 * ceov_device_await(), bounded by timeout_ns and CEI_MARK_PATIENCE_NS more, but for two
 * things. A value past the limit is that of a poisoned run: ABORTED at once. Where
 * *failed says after CEI_MARK_PATIENCE_NS that a run of this workspace has failed:
 * ABORTED. So runs that were queued behind it do not wait a whole timeout each. failed is
 * GPU memory or NULL, never the status: waiting threads of all SMs that read host memory
 * made GEMM + reduce-scatter 200 us longer (measured).
 */
static __device__ __forceinline__ int
cei_mark_await(const struct ceov_device_signal &signal, uint32_t index, uint64_t value,
	       uint64_t timeout_ns, const uint32_t *failed)
{
	bool has_looked = false;
	int result;

	if (value >= CEOV_VALUE_LIMIT)
		return CEOV_DEVICE_ABORTED;
#pragma unroll 1
	for (;; has_looked = true) {
		result = ceov_device_await(signal, index, value,
					   has_looked ? timeout_ns : CEI_MARK_PATIENCE_NS);
		if (result != CEOV_DEVICE_TIMEOUT || has_looked)
			return result;
		if (failed && *(const volatile uint32_t *)failed)
			return CEOV_DEVICE_ABORTED;
	}
}

/* Where failures are written; see struct cei_gemm_marks. */
struct cei_mark_words {
	uint32_t *status;
	uint32_t *failed;
	uint64_t *epoch;
};

/*
 * A wait has ended with result, which is not REACHED. epoch NULL: the run does not count
 * itself; failed NULL: nobody looks. The poison is visible to all before this returns.
 *
 * Who finds the poison, here or at a peer that sends poison back, must find the status
 * of its cause as well, or the host is told ABORTED of what was a TIMEOUT. Hence the
 * first fence, which makes whoever has read poison read what stands behind it, and the
 * second, between status and poison. Two that fail of themselves in the same moment
 * may both find 0; then either is told, and either is true.
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
