/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests what works on this machine: how counters are raised, whether streams wait for them, and
 * copies to and from a peer.
 *
 *   CEOVERLAP_FLAG   "write" or "copy": use only that form. Unset: use write, until a test
 *                    shows that a value does not arrive at a peer.
 *
 * All tests run on the control stream, with control_lock held, and all have a time limit.
 */

#include <stdlib.h>
#include <string.h>

#include "backend/cuda_place.h"
#include "base/clock.h"

#define GATE_TEST_NS  UINT64_C(2000000000)
#define GATE_STAYS_NS UINT64_C(200000)
#define WARM_BYTES    64u

/* Offsets in the scratch memory. Lanes warm themselves up in its second half. */
#define SCRATCH_THERE 0u
#define SCRATCH_BACK  64u
#define SCRATCH_FLAG  128u
#define SCRATCH_GATE  256u

static int read_environment(struct cei_cuda_backend *own)
{
	const char *text = secure_getenv("CEOVERLAP_FLAG");

	cei_cuda_flag_set(own, CEI_CUDA_FLAG_WRITE);
	if (!text || !text[0])
		return 0;
	own->is_flag_forced = 1;
	if (!strcmp(text, "write"))
		return 0;
	if (strcmp(text, "copy"))
		return cei_raise(own->cuda->report, CEOV_ERR_INVALID, 0,
				 "CEOVERLAP_FLAG=%s: \"write\" or \"copy\" expected",
				 text);
	cei_cuda_flag_set(own, CEI_CUDA_FLAG_COPY);
	return 0;
}

/* Tests a form: raises a word in the peer's memory, and reads it back through scratch. Returns 1 if
 * the value arrived; 0 if it did not, or the driver refused; < 0 if the GPU reports an error. */
static int try_form(struct cei_cuda_backend *own, enum cei_cuda_flag_form form,
		    uint64_t address)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	uint64_t *bounce = (uint64_t *)(void *)own->pinned->bounce;
	uint64_t value = cei_now_ns() | 1;
	CUresult result;
	int r;

	bounce[0] = value;
	bounce[1] = 0;
	result = cei_cuda_lead(own, own->control, own->pinned->lead);
	if (result == CUDA_SUCCESS && form == CEI_CUDA_FLAG_WRITE)
		result = calls->stream_write_value(own->control, address, value,
						   CU_STREAM_WRITE_VALUE_DEFAULT);
	else if (result == CUDA_SUCCESS)
		result = calls->copy(address, (CUdeviceptr)(uintptr_t)&bounce[0],
				     sizeof(value), own->control);
	if (result != CUDA_SUCCESS) {
		cei_log(own->cuda->report, CEI_LOG_INFO,
			"GPU %u: the driver refuses to raise 0x%llx by a %s (error %d)",
			own->gpu, (unsigned long long)address,
			form == CEI_CUDA_FLAG_WRITE ? "write" : "copy", (int)result);
		return 0;
	}
	result = calls->copy(own->scratch + SCRATCH_BACK, address, sizeof(value),
			     own->control);
	if (result == CUDA_SUCCESS)
		result = calls->copy((CUdeviceptr)(uintptr_t)&bounce[1],
				     own->scratch + SCRATCH_BACK, sizeof(value),
				     own->control);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: reading a raised counter back", own->gpu);
	r = cei_cuda_control_idle(own, "the test of a raised counter");
	return r ? r : bounce[1] == value;
}

static int choose_form(struct cei_cuda_backend *own, uint64_t address)
{
	enum cei_cuda_flag_form form = cei_cuda_flag_form(own);
	int r;

	r = try_form(own, form, address);
	if (!r && form == CEI_CUDA_FLAG_WRITE && !own->is_flag_forced) {
		form = CEI_CUDA_FLAG_COPY;
		r = try_form(own, form, address);
		if (r > 0)
			cei_log(own->cuda->report, CEI_LOG_WARN, "GPU %u: stream memory "
				"operations do not reach a peer; counters are raised by "
				"copies", own->gpu);
	}
	if (r < 0)
		return r;
	if (!r)
		return cei_raise(own->cuda->report, CEOV_ERR_CUDA, 0,
				 "rank %u: GPU %u: a counter raised at 0x%llx does not "
				 "arrive%s", own->rank, own->gpu,
				 (unsigned long long)address,
				 own->is_flag_forced ? " (CEOVERLAP_FLAG forces how)"
						     : "");
	cei_cuda_flag_set(own, form);
	return 0;
}

/* Returns the word that the gate test's stream writes. acquire: pairs with that write */
static uint64_t seen(const struct cei_cuda_backend *own)
{
	return atomic_load_explicit(&own->pinned->seen, memory_order_acquire);
}

/* Spins until the stream has got past its wait, or for timeout_ns. */
static void watch_gate(const struct cei_cuda_backend *own, uint64_t timeout_ns)
{
	uint64_t deadline = cei_deadline(timeout_ns);

	while (!seen(own) && cei_now_ns() < deadline)
		cei_relax();
}

/* Queues a small store to the gate, on the control stream behind a wait that the processor ends. */
static CUresult queue_release(struct cei_cuda_backend *own, uint64_t gate)
{
	const uint64_t open = 1;
	CUresult result;

	result = own->cuda->calls.stream_wait_value(own->control,
						    (CUdeviceptr)(uintptr_t)&own->pinned->go, 1,
						    CU_STREAM_WAIT_VALUE_GEQ);
	return result == CUDA_SUCCESS ? cei_cuda_queue_store(own, gate, &open, sizeof(open))
		: result;
}

/* Tests whether a small store releases a stream that waits. An abort must be able to release every
 * gated lane in that way. While a stream waits, another thread of the process may hold the driver's
 * locks until the GPU is idle, as the creation of a stream does: so the store is queued at once,
 * and the processor starts it without a further call of the driver. */
static int run_gate(struct cei_cuda_backend *own, CUstream stream)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	uint64_t gate = own->scratch + SCRATCH_GATE;
	const uint64_t open = 1;
	CUresult result, release;
	int held;
	int r;

	result = calls->stream_wait_value(stream, gate, open, own->wait_flags);
	if (result != CUDA_SUCCESS)
		return 0;
	result = calls->stream_write_value(stream,
					   (CUdeviceptr)(uintptr_t)&own->pinned->seen, 1,
					   CU_STREAM_WRITE_VALUE_DEFAULT);
	release = queue_release(own, gate);
	watch_gate(own, GATE_STAYS_NS);
	held = !seen(own);
	/* release: pairs with the wait of the control stream */
	atomic_store_explicit(&own->pinned->go, 1, memory_order_release);
	r = release == CUDA_SUCCESS
		? cei_cuda_control_idle(own, "the release of a stream that waits")
		: cei_cuda_store_locked(own, gate, &open, sizeof(open));
	if (!r && result == CUDA_SUCCESS)
		watch_gate(own, GATE_TEST_NS);
	own->can_gate = held && !r && seen(own);
	own->is_stuck = result == CUDA_SUCCESS && !seen(own);
	return r;
}

static int test_gate(struct cei_cuda_backend *own)
{
	const uint64_t closed = 0;
	CUstream stream = NULL;
	CUresult result;
	int r;

	r = cei_cuda_store_locked(own, own->scratch + SCRATCH_GATE, &closed,
				  sizeof(closed));
	if (r)
		return r;
	result = own->cuda->calls.stream_create(&stream, CU_STREAM_NON_BLOCKING,
						own->gate_priority);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: creating a stream", own->gpu);
	r = run_gate(own, stream);
	/* Even if the stream is stuck, stream_destroy() does not wait. */
	(void)own->cuda->calls.stream_destroy(stream);
	if (!r && !own->can_gate)
		cei_log(own->cuda->report, CEI_LOG_WARN,
			"GPU %u: streams do not wait for counters as they should; "
			"launches are polled", own->gpu);
	return r;
}

int cei_cuda_probe(struct cei_cuda_backend *own)
{
	int r;

	r = read_environment(own);
	if (r)
		return r;
	pthread_mutex_lock(&own->control_lock);
	r = choose_form(own, own->scratch + SCRATCH_FLAG);
	if (!r)
		r = test_gate(own);
	pthread_mutex_unlock(&own->control_lock);
	return r;
}

/* Copies WARM_BYTES in the way lanes do. While many streams wait, a copy within the GPU goes
 * through host memory. */
static CUresult copy_one(struct cei_cuda_backend *own, uint64_t target, uint64_t source)
{
	const struct cei_piece piece = { .source = source, .target = target,
					 .row_bytes = WARM_BYTES, .n_rows = 1 };
	const struct cei_cuda_bounce bounce = { own->cuda, own->control,
						own->pinned->bounce + 3 * WARM_BYTES,
						WARM_BYTES };
	struct cei_cuda_copies copies;

	if (cei_cuda_queues_may_block(own) && cei_cuda_piece_bounces(own, &piece))
		return cei_cuda_copy_bouncing(&bounce, &piece);
	copies.n = 1;
	copies.targets[0] = target;
	copies.sources[0] = source;
	copies.sizes[0] = WARM_BYTES;
	return cei_cuda_copy_batch(own->cuda, own->control, &copies);
}

/* Queues copies there and back in each direction that lanes use. Copies from host to host are left
 * out, because the driver would execute them synchronously by the processor. */
static CUresult queue_warm_copies(struct cei_cuda_backend *own, uint64_t address,
				  int is_gpu)
{
	const struct cei_cuda_calls *calls = &own->cuda->calls;
	uint64_t bounce = (uint64_t)(uintptr_t)own->pinned->bounce;
	uint64_t there = own->scratch + SCRATCH_THERE;
	uint64_t back = own->scratch + SCRATCH_BACK;
	CUresult result;

	result = cei_cuda_lead(own, own->control, own->pinned->lead);
	if (result == CUDA_SUCCESS)
		result = calls->copy(there, bounce, WARM_BYTES, own->control);
	if (result == CUDA_SUCCESS)
		result = copy_one(own, address, there);
	if (result == CUDA_SUCCESS)
		result = copy_one(own, back, address);
	if (result == CUDA_SUCCESS)
		result = calls->copy(bounce + WARM_BYTES, back, WARM_BYTES, own->control);
	if (!is_gpu || result != CUDA_SUCCESS)
		return result;
	result = calls->copy(address, bounce, WARM_BYTES, own->control);
	if (result == CUDA_SUCCESS)
		result = calls->copy(bounce + 2 * WARM_BYTES, address, WARM_BYTES,
				     own->control);
	return result;
}

static int warm_locked(struct cei_cuda_backend *own, uint64_t address)
{
	uint8_t *bounce = own->pinned->bounce;
	int is_gpu = cei_cuda_is_gpu_memory(own, address);
	uint64_t start = cei_now_ns();
	CUresult result;
	uint32_t i;
	int r;

	for (i = 0; i < WARM_BYTES; i++)
		bounce[i] = (uint8_t)(start >> i % 8 * 8) ^ (uint8_t)(i + 1);
	memset(bounce + WARM_BYTES, 0, 2 * WARM_BYTES);
	result = queue_warm_copies(own, address, is_gpu);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "GPU %u: first copies to and from a peer at 0x%llx",
				      own->gpu, (unsigned long long)address);
	r = cei_cuda_control_idle(own, "a first copy to a peer");
	if (r)
		return r;
	if (memcmp(bounce, bounce + WARM_BYTES, WARM_BYTES) ||
	    (is_gpu && memcmp(bounce, bounce + 2 * WARM_BYTES, WARM_BYTES)))
		return cei_raise(own->cuda->report, CEOV_ERR_CUDA, 0,
				 "rank %u: GPU %u: bytes copied to a peer at 0x%llx came "
				 "back wrong: the link between them is broken (see IOMMU "
				 "and ACS)", own->rank, own->gpu,
				 (unsigned long long)address);
	return is_gpu ? choose_form(own, address) : 0;
}

int cei_cuda_warm(struct cei_backend *backend, uint64_t address)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;
	int r;

	r = cei_cuda_begin_access(own, &hold);
	if (r)
		return r;
	r = warm_locked(own, address);
	cei_cuda_end_access(own, &hold);
	return r;
}
