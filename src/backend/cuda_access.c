/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Small reads and writes of GPU memory by application threads, on a separate stream (`control`).
 *
 * Addresses are those of GPU memory that is mapped for the member. Host memory is accessed
 * directly, and not by these functions.
 */

#include <string.h>

#include "backend/cuda_place.h"
#include "base/clock.h"

int cei_cuda_control_idle(struct cei_cuda_backend *own, const char *what)
{
	CUresult result;

	result = cei_cuda_idle(own->cuda, own->control, cei_deadline(CEI_CUDA_ACCESS_NS));
	if (result == CUDA_SUCCESS)
		return 0;
	own->is_lost = 1;
	if (result != CUDA_ERROR_NOT_READY)
		return cei_cuda_raise(own->cuda, result, own->rank, "GPU %u: %s",
				      own->gpu, what);
	return cei_raise(own->cuda->report, CEOV_ERR_TIMEOUT, (int)result,
			 "rank %u: GPU %u: %s did not end within %u s: another stream "
			 "stops the GPU (see CUDA_DEVICE_MAX_CONNECTIONS)", own->rank,
			 own->gpu, what,
			 (unsigned int)(CEI_CUDA_ACCESS_NS / 1000000000u));
}

int cei_cuda_begin_access(struct cei_cuda_backend *own, struct cei_cuda_hold *ret_hold)
{
	int r;

	pthread_mutex_lock(&own->control_lock);
	r = cei_cuda_push(own->cuda, own->gpu, ret_hold);
	if (!r && own->is_lost) {
		cei_cuda_pop(own->cuda, ret_hold);
		r = cei_raise(own->cuda->report, CEOV_ERR_STATE, 0,
			      "rank %u: GPU %u takes no small accesses since one failed",
			      own->rank, own->gpu);
	}
	if (r)
		pthread_mutex_unlock(&own->control_lock);
	return r;
}

void cei_cuda_end_access(struct cei_cuda_backend *own, const struct cei_cuda_hold *hold)
{
	cei_cuda_pop(own->cuda, hold);
	pthread_mutex_unlock(&own->control_lock);
}

/* Stores words by stream memory operations, which the driver executes in order, with a fence before
 * each. */
static CUresult store_words(struct cei_cuda_backend *own, uint64_t address,
			    const uint8_t *bytes, uint64_t n_words)
{
	CUstreamBatchMemOpParams ops[CEI_CUDA_WORDS_BYTES / sizeof(uint64_t)];
	uint64_t value;
	uint64_t i;

	for (i = 0; i < n_words; i++) {
		memcpy(&value, bytes + i * sizeof(value), sizeof(value));
		cei_cuda_write_op(&ops[i], address + i * sizeof(value), value);
	}
	return own->cuda->calls.stream_batch(own->control, (unsigned int)n_words, ops, 0);
}

static CUresult copy_words(struct cei_cuda_backend *own, uint64_t address,
			   uint64_t n_words)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t *words = (uint64_t *)(void *)own->pinned->bounce;
	uint64_t i;

	for (i = 0; i < n_words && result == CUDA_SUCCESS; i++)
		result = own->cuda->calls.copy(address + i * sizeof(*words),
					       (CUdeviceptr)(uintptr_t)&words[i],
					       sizeof(*words), own->control);
	return result;
}

_Static_assert(CEI_CUDA_WORDS_BYTES / sizeof(uint64_t) <= CEI_CUDA_OPS_MAX, "one call");
_Static_assert(CEI_CUDA_WORDS_BYTES <= CEI_CUDA_BOUNCE_BYTES, "bounce");

CUresult cei_cuda_queue_store(struct cei_cuda_backend *own, uint64_t address,
			      const void *bytes, uint64_t n_bytes)
{
	uint8_t *bounce = own->pinned->bounce;
	int is_words = n_bytes <= CEI_CUDA_WORDS_BYTES &&
		       !((address | n_bytes) % sizeof(uint64_t));
	CUresult result = cei_cuda_lead(own, own->control, own->pinned->lead);

	if (result != CUDA_SUCCESS)
		return result;
	if (is_words && !cei_cuda_flag_copies(own, cei_cuda_flag_form(own), address))
		return store_words(own, address, bytes, n_bytes / sizeof(uint64_t));
	memcpy(bounce, bytes, n_bytes);
	if (is_words)
		return copy_words(own, address, n_bytes / sizeof(uint64_t));
	return own->cuda->calls.copy(address, (CUdeviceptr)(uintptr_t)bounce, n_bytes,
				     own->control);
}

int cei_cuda_store_locked(struct cei_cuda_backend *own, uint64_t address,
			  const void *bytes, uint64_t n_bytes)
{
	const uint8_t *next = bytes;
	CUresult result;
	uint64_t part;
	int r = 0;

	for (; n_bytes && !r; n_bytes -= part) {
		part = n_bytes < CEI_CUDA_BOUNCE_BYTES ? n_bytes : CEI_CUDA_BOUNCE_BYTES;
		result = cei_cuda_queue_store(own, address, next, part);
		if (result != CUDA_SUCCESS)
			return cei_cuda_raise(own->cuda, result, own->rank,
					      "GPU %u: storing %llu bytes at 0x%llx",
					      own->gpu, (unsigned long long)part,
					      (unsigned long long)address);
		r = cei_cuda_control_idle(own, "a small store");
		address += part;
		next += part;
	}
	return r;
}

int cei_cuda_store(struct cei_backend *backend, uint64_t address, const void *bytes,
		   uint64_t n_bytes)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;
	int r;

	r = cei_cuda_begin_access(own, &hold);
	if (r)
		return r;
	r = cei_cuda_store_locked(own, address, bytes, n_bytes);
	cei_cuda_end_access(own, &hold);
	return r;
}

static int load_locked(struct cei_cuda_backend *own, uint64_t address, uint8_t *ret_bytes,
		       uint64_t n_bytes)
{
	uint8_t *bounce = own->pinned->bounce;
	CUresult result;
	uint64_t part;
	int r;

	for (; n_bytes; n_bytes -= part) {
		part = n_bytes < CEI_CUDA_BOUNCE_BYTES ? n_bytes : CEI_CUDA_BOUNCE_BYTES;
		result = own->cuda->calls.copy((CUdeviceptr)(uintptr_t)bounce, address,
					       part, own->control);
		if (result != CUDA_SUCCESS)
			return cei_cuda_raise(own->cuda, result, own->rank,
					      "GPU %u: loading %llu bytes from 0x%llx",
					      own->gpu, (unsigned long long)part,
					      (unsigned long long)address);
		r = cei_cuda_control_idle(own, "a small load");
		if (r)
			return r;
		memcpy(ret_bytes, bounce, part);
		address += part;
		ret_bytes += part;
	}
	return 0;
}

int cei_cuda_load(struct cei_backend *backend, uint64_t address, void *ret_bytes,
		  uint64_t n_bytes)
{
	struct cei_cuda_backend *own = cei_cuda_backend_of(backend);
	struct cei_cuda_hold hold;
	int r;

	r = cei_cuda_begin_access(own, &hold);
	if (r)
		return r;
	r = load_locked(own, address, ret_bytes, n_bytes);
	cei_cuda_end_access(own, &hold);
	return r;
}
