/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Counts the streams of a GPU that wait because of our calls: lanes, and streams of the
 * application. backend/waits.h says why they are counted.
 *
 * CEOVERLAP_RESERVED_QUEUES says how many of the GPU's hardware queues the application's own
 * streams need. As many streams may wait as there are further queues.
 */

#include "backend/cuda_place.h"
#include "base/variables.h"

#define RESERVED_QUEUES 2u              /* default of CEOVERLAP_RESERVED_QUEUES: one stream for
					 * kernels and one beside it */

/* Registers with the driver the words that streams write when a wait is over. They may be
 * registered already, for another rank on the GPU or another context of this process. If it fails,
 * streams count as waiting for longer than they do. */
static void register_words(struct cei_cuda_backend *own)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	uint64_t n_bytes = 0;
	_Atomic uint64_t *words = cei_waits_words(own->waits, &n_bytes);
	CUresult result;

	result = calls->host_register((void *)words, n_bytes, CU_MEMHOSTREGISTER_PORTABLE |
				      CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		result = calls->host_address(&own->wait_words, (void *)words, 0);
	if (result == CUDA_SUCCESS)
		cei_waits_allow_marks(own->waits);
	else
		cei_log(own->cuda->report, CEI_LOG_INFO,
			"GPU %u: streams that wait cannot say when they go on (driver error "
			"%d): they count as waiting until their next wait", own->gpu,
			(int)result);
}

/* Reports that ranks share a GPU with too few hardware queues. Each rank has several streams, its
 * own and the application's, and the driver counts a stream as busy until it is queried; so two
 * ranks already fill 8 queues. */
static void look_for_sharing(struct cei_backend *backend, uint32_t n_queues)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	uint32_t n = cei_site_n_on_gpu(backend->site, own->gpu);

	own->shares_queues = n > 1 && n_queues < CEI_WAITS_QUEUES_MAX;
	if (own->shares_queues && backend->place.index ==
	    backend->site->members[backend->member].place.index)
		cei_log(own->cuda->report, CEI_LOG_INFO,
			"rank %u: %u ranks of this process share GPU %u and its %u hardware "
			"queues: copies within the GPU go by way of host memory; set "
			"CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts for more queues",
			own->rank, n, own->gpu, n_queues);
}

int cei_cuda_waits_open(struct cei_backend *backend)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	uint32_t n_queues = cei_waits_n_queues();
	uint64_t n_reserved = RESERVED_QUEUES;
	int r = cei_variable_number(own->cuda->report, "CEOVERLAP_RESERVED_QUEUES",
				    CEI_WAITS_QUEUES_MAX - 1, &n_reserved);

	if (r)
		return r;
	own->waits = cei_waits_of(own->gpu);
	own->waits_bound = cei_waits_bound(n_queues, (uint32_t)n_reserved);
	if (own->waits)
		register_words(own);
	look_for_sharing(backend, n_queues);
	return 0;
}

uint32_t cei_cuda_waits_left(struct cei_backend *backend)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	uint32_t n;

	if (cei_waits_is_below(own->waits, 1))
		return own->waits_bound;
	n = cei_waits_count(own->waits);
	return n < own->waits_bound ? own->waits_bound - n : 0;
}

/* --- streams of the application --------------------------------------------------- */

static void warn_once(struct cei_cuda_backend *own)
{
	/* relaxed: a duplicate warning would not matter */
	if (atomic_exchange_explicit(&own->has_warned_of_waits, 1, memory_order_relaxed))
		return;
	cei_log(own->cuda->report, CEI_LOG_WARN,
		"rank %u: GPU %u: more than %u streams wait for marks at once. When waiting "
		"streams hold all %u hardware queues, no new kernel starts on this GPU, not "
		"even one that would raise their marks. Let fewer streams wait, or set "
		"CUDA_DEVICE_MAX_CONNECTIONS (at most 32) before CUDA starts", own->rank,
		own->gpu, own->waits_bound, cei_waits_n_queues());
}

static void say_once(struct cei_cuda_backend *own)
{
	/* relaxed: one line more or less would not matter */
	if (!cei_waits_may_block(own->waits, own->waits_bound) ||
	    atomic_exchange_explicit(&own->has_said_many_wait, 1, memory_order_relaxed))
		return;
	cei_log(own->cuda->report, CEI_LOG_INFO,
		"rank %u: GPU %u: so many streams waited for marks at once that some share one "
		"of the %u hardware queues: from now on copies within the GPU go by way of "
		"host memory", own->rank, own->gpu, cei_waits_n_queues());
}

struct cei_wait cei_cuda_waits_begin(struct cei_cuda_backend *own, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	struct cei_wait wait = cei_waits_enter(own->waits, stream);

	if (!wait.wants_mark)
		return wait;
	say_once(own);
	/* A stream that is being captured does not wait now. And its graph must not write this
	 * number, which is then old, at each of its launches. */
	if (own->cuda->calls.stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
	    status != CU_STREAM_CAPTURE_STATUS_NONE) {
		cei_waits_leave(own->waits, &wait);
		wait.wants_mark = 0;
		return wait;
	}
	if (!cei_waits_is_below(own->waits, own->waits_bound + 1))
		warn_once(own);
	return wait;
}

void cei_cuda_waits_mark_op(const struct cei_cuda_backend *own, const struct cei_wait *wait,
			    CUstreamBatchMemOpParams *op)
{
	cei_cuda_write_op(op, own->wait_words + wait->slot * sizeof(uint64_t), wait->number);
}
