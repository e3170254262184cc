/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Maps regions for members on a GPU: memory of the same GPU by its address, memory of another GPU
 * of this process by peer access, GPU memory of another process by CUDA IPC or as a descriptor,
 * and host memory by registering it with the driver. No bytes are moved. The member's CUDA context
 * is current throughout.
 *
 * A process cannot open an IPC handle to its own memory (driver error 201). So an import of memory
 * that belongs to this process is used by its address.
 */

#include "ipc/share_cuda.h"

#include <string.h>
#include <unistd.h>

#include "base/cuda_table.h"
#include "ipc/pinned.h"
#include "ipc/vmm_cuda.h"

static int host_address(struct cei_region *region, uint32_t member,
			CUdeviceptr *ret_address)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUresult result = cuda->calls.host_address(ret_address, region->host, 0);

	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, member),
			      "GPU %u: no device address for host memory at %p",
			      cei_share_cuda_gpu(region, member), region->host);
}

/* The driver's registrations belong to the process and are not counted. So all contexts of the
 * process share this list, which is the only state of the file that does not belong to a context
 * (see docs/internals/memory.md). */
static struct cei_pinned pinned;
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

struct pinning {                        /* argument of pin(): which region, for which member */
	struct cei_region *region;
	uint32_t           member;
};

/* Returns whether the whole region lies in one range that the driver has already pinned. */
static int is_known(const struct cei_region *region)
{
	const struct cei_cuda_calls *calls = &region->site->cuda->calls;
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)region->host, start = 0;
	size_t n_bytes = 0;

	return calls->pointer_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					host) == CUDA_SUCCESS &&
	       calls->pointer_attribute(&n_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
					host) == CUDA_SUCCESS &&
	       host >= start && host - start <= n_bytes &&
	       region->size_bytes <= n_bytes - (host - start);
}

/* Pins host memory. If the application has registered the memory, the driver returns a specific
 * error. If the driver allocated it (cuMemHostAlloc, such as PyTorch's pinned tensors), the driver
 * returns the same error as for bad arguments, so the error alone does not show which it is. */
static int pin(void *arg, uint64_t base, uint64_t n_bytes)
{
	const struct pinning *pinning = arg;
	const struct cei_region *region = pinning->region;
	struct cei_cuda *cuda = region->site->cuda;
	CUresult result;

	result = cuda->calls.host_register((void *)(uintptr_t)base, n_bytes,
					   CU_MEMHOSTREGISTER_PORTABLE |
					   CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result == CUDA_SUCCESS)
		return 0;
	if ((result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED ||
	     result == CUDA_ERROR_INVALID_VALUE) && is_known(region))
		return CEOV_NONE;
	if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "host memory at %p (%llu bytes) is registered with CUDA in "
				 "parts: register it as one, or not at all", region->host,
				 (unsigned long long)n_bytes);
	return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, pinning->member),
			      "registering %llu bytes of host memory at %p (see ulimit -l)",
			      (unsigned long long)n_bytes, region->host);
}

static void unpin(void *arg, uint64_t base)
{
	const struct pinning *pinning = arg;
	struct cei_site *site = pinning->region->site;
	CUresult result = site->cuda->calls.host_unregister((void *)(uintptr_t)base);

	if (result != CUDA_SUCCESS)
		cei_log(site->report, CEI_LOG_WARN,
			"CUDA: unregistering host memory at 0x%llx: error %d",
			(unsigned long long)base, (int)result);
}

static int register_host(struct cei_region *region, uint32_t member)
{
	struct pinning pinning = { region, member };
	const struct cei_pinned_driver driver = { pin, unpin, &pinning };
	uint64_t base = (uint64_t)(uintptr_t)region->host;
	int r;

	pthread_mutex_lock(&pinned_lock);
	r = cei_pinned_take(&pinned, base, base + region->size_bytes, &driver);
	pthread_mutex_unlock(&pinned_lock);
	region->is_pinned = !r;
	if (r == CEOV_ERR_NO_MEMORY)
		return cei_raise(region->site->report, r, 0,
				 "no memory to note that host memory at %p is registered",
				 region->host);
	if (r == CEI_PINNED_IN_PART)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "host memory at %p (%llu bytes) overlaps that of another "
				 "buffer in part: CUDA copies within what is registered as "
				 "one, so register a buffer around both first", region->host,
				 (unsigned long long)region->size_bytes);
	return r == CEOV_NONE ? 0 : r;
}

static void unregister_host(struct cei_region *region, uint32_t member)
{
	struct pinning pinning = { region, member };
	const struct cei_pinned_driver driver = { pin, unpin, &pinning };

	if (!region->is_pinned)
		return;
	pthread_mutex_lock(&pinned_lock);
	cei_pinned_give(&pinned, (uint64_t)(uintptr_t)region->host, &driver);
	pthread_mutex_unlock(&pinned_lock);
	region->is_pinned = 0;
}

static int map_host(struct cei_region *region, uint32_t member)
{
	CUdeviceptr address = 0;
	int r = 0;

	if (!region->host || !region->size_bytes)
		return 0;
	if (!region->n_host_users)
		r = register_host(region, member);
	if (!r)
		r = host_address(region, member, &address);
	if (r) {
		if (!region->n_host_users)
			unregister_host(region, member);
		return r;
	}
	region->n_host_users++;
	region->address[member] = address;
	return 0;
}

/* Returns whether peer access covers the memory. It covers what cuMemAlloc and cudaMalloc allocate.
 * Pools and virtual memory have permissions of their own, and a copy without these destroys the
 * context. */
static int is_open_to_member(struct cei_region *region)
{
	struct cei_cuda *cuda = region->site->cuda;
	int flags = 0;
	int r;

	r = cei_share_cuda_is_legacy(region);
	if (r)
		return r;
	if (cuda->calls.pointer_attribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
					  region->device) != CUDA_SUCCESS)
		return 0;
	return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Returns 1 if the member's GPU can access the memory of the region's GPU, 0 if it cannot, or an
 * error (< 0). */
static int has_peer_access(struct cei_region *region, uint32_t member)
{
	struct cei_cuda *cuda = region->site->cuda;
	uint32_t own = cei_share_cuda_gpu(region, member);
	CUresult result;
	int can = 0;

	result = cuda->calls.device_can_access_peer(&can, cuda->gpus[own].device,
						    cuda->gpus[region->gpu].device);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, member),
				      "asking whether GPU %u reaches GPU %u", own,
				      region->gpu);
	return can != 0;
}

/* Maps GPU memory that has a descriptor, which is at one address for all members. */
static int map_vmm(struct cei_region *region, uint32_t member)
{
	uint32_t own = cei_share_cuda_gpu(region, member);
	int r;

	if (!region->device) {
		cei_log(region->site->report, CEI_LOG_INFO,
			"GPU %u cannot map memory of a GPU that this process does not see: set "
			"CUDA_VISIBLE_DEVICES wider", own);
		return 0;
	}
	r = own == region->gpu ? 1 : has_peer_access(region, member);
	if (r <= 0)
		return r;
	r = cei_vmm_give_access(region, own, cei_share_cuda_rank(region, member));
	if (!r)
		region->address[member] = region->device;
	return r;
}

/* Maps GPU memory of this process. */
static int map_own(struct cei_region *region, uint32_t member)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUcontext owner;
	CUresult result;
	int r;

	if (region->gpu == cei_share_cuda_gpu(region, member)) {
		region->address[member] = region->device;
		return 0;
	}
	r = has_peer_access(region, member);
	if (r <= 0)
		return r;
	r = cei_cuda_context(cuda, region->gpu, &owner);
	if (r)
		return r;
	result = cuda->calls.ctx_enable_peer(owner, 0);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
		return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, member),
				      "GPU %u: peer access to GPU %u",
				      cei_share_cuda_gpu(region, member), region->gpu);
	r = is_open_to_member(region);
	if (r < 0)
		return r;
	if (r)
		region->address[member] = region->device;
	else
		cei_log(region->site->report, CEI_LOG_INFO,
			"GPU %u may not access 0x%llx of GPU %u: its pool or virtual "
			"memory is not open to peers", cei_share_cuda_gpu(region, member),
			(unsigned long long)region->device, region->gpu);
	return 0;
}

/* Checks that the opened allocation is as large as the export claims; an IPC handle opens exactly
 * the owner's allocation. If the driver does not report sizes, the GPU's own protection remains. */
static int check_opened(struct cei_region *region, uint32_t member, CUdeviceptr base)
{
	struct cei_cuda *cuda = region->site->cuda;
	uint64_t n_left = 0;
	CUdeviceptr start;
	size_t n_bytes;
	CUresult result;

	result = cuda->calls.mem_range(&start, &n_bytes, base);
	if (result != CUDA_SUCCESS) {
		cei_log(region->site->report, CEI_LOG_INFO,
			"GPU %u: the driver does not say how large a peer's memory is "
			"(error %d): its export is not checked",
			cei_share_cuda_gpu(region, member), (int)result);
		return 0;
	}
	if (base - start < n_bytes)
		n_left = n_bytes - (base - start);
	if (region->offset_bytes <= n_left &&
	    region->size_bytes <= n_left - region->offset_bytes)
		return 0;
	return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
			 "GPU %u: a peer exports %llu bytes from byte %llu of an allocation "
			 "that has %llu", cei_share_cuda_gpu(region, member),
			 (unsigned long long)region->size_bytes,
			 (unsigned long long)region->offset_bytes,
			 (unsigned long long)n_left);
}

static void close_opened(struct cei_region *region, uint32_t member, CUdeviceptr base)
{
	CUresult result = region->site->cuda->calls.ipc_close(base);

	if (result != CUDA_SUCCESS)
		cei_log(region->site->report, CEI_LOG_WARN,
			"CUDA: GPU %u: closing a peer's memory: error %d",
			cei_share_cuda_gpu(region, member), (int)result);
}

/* Maps GPU memory of another process. If the owner's GPU is hidden here (CUDA_VISIBLE_DEVICES),
 * peer access cannot be queried, but opening the handle shows it. */
static int map_imported(struct cei_region *region, uint32_t member)
{
	struct cei_cuda *cuda = region->site->cuda;
	int is_hidden = region->gpu == CEOV_NOBODY;
	CUipcMemHandle handle;
	CUdeviceptr base = 0;
	CUresult result;
	int r = 1;

	if (!is_hidden && region->gpu != cei_share_cuda_gpu(region, member))
		r = has_peer_access(region, member);
	if (r <= 0)
		return r;
	memcpy(&handle, region->handle, sizeof(handle));
	result = cuda->calls.ipc_open(&base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (result != CUDA_SUCCESS && is_hidden) {
		cei_log(region->site->report, CEI_LOG_INFO,
			"GPU %u cannot map memory of a GPU that this process does not "
			"see (error %d): set CUDA_VISIBLE_DEVICES wider",
			cei_share_cuda_gpu(region, member), (int)result);
		return 0;
	}
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, member),
				      "GPU %u: opening a peer's memory of GPU %u",
				      cei_share_cuda_gpu(region, member), region->gpu);
	r = check_opened(region, member, base);
	if (r) {
		close_opened(region, member, base);
		return r;
	}
	region->mapped_base[member] = base;
	region->address[member] = base + region->offset_bytes;
	return 0;
}

int cei_share_cuda_map(struct cei_region *region, uint32_t member)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct cei_cuda_hold hold;
	int r;

	if (region->address[member] ||
	    region->site->members[member].place.kind != CEOV_PLACE_GPU)
		return 0;
	r = cei_cuda_push(cuda, cei_share_cuda_gpu(region, member), &hold);
	if (r)
		return r;
	if (region->kind == CEOV_PLACE_HOST)
		r = map_host(region, member);
	else if (region->vmm_bytes)
		r = map_vmm(region, member);
	else if (region->device)
		r = map_own(region, member);
	else
		r = map_imported(region, member);
	cei_cuda_pop(cuda, &hold);
	return r;
}

void cei_share_cuda_unmap(struct cei_region *region, uint32_t member)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct cei_cuda_hold hold;

	if (!region->address[member])
		return;
	region->address[member] = 0;
	if (region->kind == CEOV_PLACE_GPU && !region->mapped_base[member])
		return;
	if (cei_cuda_push(cuda, cei_share_cuda_gpu(region, member), &hold))
		return;
	if (region->kind == CEOV_PLACE_HOST) {
		region->n_host_users--;
		if (!region->n_host_users)
			unregister_host(region, member);
	} else {
		close_opened(region, member, region->mapped_base[member]);
		region->mapped_base[member] = 0;
	}
	cei_cuda_pop(cuda, &hold);
}
