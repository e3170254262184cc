/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* GPU memory as file descriptors. */

#include "ipc/vmm_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cuda_table.h"

/* Sizes are rounded up to this, whatever smaller unit a driver allows, because an importer has to
 * compute the same size. It is what all GPUs so far need at least. */
#define UNIT_BYTES (UINT64_C(2) << 20)

static const CUmemAllocationHandleType as_file = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

static int has(const struct cei_cuda *cuda, uint32_t gpu, CUdevice_attribute wanted)
{
	int value = 0;

	return cuda->calls.device_attribute(&value, wanted, cuda->gpus[gpu].device) ==
		CUDA_SUCCESS && value;
}

int cei_vmm_is_supported(const struct cei_site *site, uint32_t gpu)
{
	return has(site->cuda, gpu, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
	       has(site->cuda, gpu,
		   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

static CUmemAllocationProp properties(const struct cei_cuda *cuda, uint32_t gpu)
{
	CUmemAllocationProp made;

	memset(&made, 0, sizeof(made));
	made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	made.requestedHandleTypes = as_file;
	made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	made.location.id = cuda->gpus[gpu].device;
	if (has(cuda, gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
		made.allocFlags.gpuDirectRDMACapable = 1;
	return made;
}

/* Sets vmm_bytes. CEOV_ERR_INVALID, raised: too many bytes for an address space. */
static int round_up(struct cei_region *region)
{
	if (region->size_bytes > INT64_MAX - UNIT_BYTES)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "GPU %u: memory of %llu bytes cannot be mapped", region->gpu,
				 (unsigned long long)region->size_bytes);
	region->vmm_bytes = (region->size_bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
	return 0;
}

/* Maps the allocation at an address of its own. What maps it keeps it from now on. */
static int map(struct cei_region *region, CUmemGenericAllocationHandle allocation, uint32_t rank)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUdeviceptr address = 0;
	CUresult result = cuda->calls.vmm_reserve(&address, region->vmm_bytes, 0, 0, 0);

	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, rank, "GPU %u: an address for %llu bytes",
				      region->gpu, (unsigned long long)region->vmm_bytes);
	result = cuda->calls.vmm_map(address, region->vmm_bytes, 0, allocation, 0);
	if (result == CUDA_SUCCESS) {
		region->device = address;
		return 0;
	}
	(void)cuda->calls.vmm_unreserve(address, region->vmm_bytes);
	return cei_cuda_raise(cuda, result, rank, "GPU %u: mapping %llu bytes of memory that may "
			      "have fewer", region->gpu, (unsigned long long)region->vmm_bytes);
}

/* Exports the allocation. Its number in descriptions is random, so that only who was told of the
 * memory can name it. */
static int export(struct cei_region *region, CUmemGenericAllocationHandle allocation, uint32_t rank)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUresult result = cuda->calls.vmm_export(&region->fd, allocation, as_file, 0);

	if (result != CUDA_SUCCESS) {
		region->fd = -1;
		return cei_cuda_raise(cuda, result, rank, "GPU %u: a descriptor for %llu bytes",
				      region->gpu, (unsigned long long)region->vmm_bytes);
	}
	(void)fcntl(region->fd, F_SETFD, FD_CLOEXEC);
	/* so few bytes come at once, without an interruption: getrandom(2) */
	if (getrandom(region->handle, sizeof(region->handle), 0) == sizeof(region->handle))
		return 0;
	return cei_raise(region->site->report, CEOV_ERR_SYSTEM, errno, "getrandom: %s",
			 strerror(errno));
}

int cei_vmm_create(struct cei_region *region, uint32_t rank)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUmemAllocationProp made = properties(cuda, region->gpu);
	CUmemGenericAllocationHandle allocation;
	CUresult result;
	int r = round_up(region);

	if (r)
		return r;
	result = cuda->calls.vmm_create(&allocation, region->vmm_bytes, &made, 0);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, rank, "GPU %u: allocating %llu bytes that can "
				      "be shared", region->gpu,
				      (unsigned long long)region->vmm_bytes);
	r = export(region, allocation, rank);
	if (!r)
		r = map(region, allocation, rank);
	(void)cuda->calls.vmm_release(allocation);
	return r;
}

/* Checks that the allocation is of the GPU that its description names. */
static int check_place(const struct cei_region *region, CUmemGenericAllocationHandle allocation)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUmemAllocationProp found;
	CUresult result = cuda->calls.vmm_properties(&found, allocation);

	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY, "GPU %u: asking what a peer's "
				      "memory is", region->gpu);
	if (found.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    found.location.id == cuda->gpus[region->gpu].device)
		return 0;
	return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
			 "a peer's memory is not of GPU %u, as its description says", region->gpu);
}

int cei_vmm_import(struct cei_region *region, int fd)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUmemGenericAllocationHandle allocation;
	CUresult result;
	int r = round_up(region);

	if (r)
		return r;
	result = cuda->calls.vmm_import(&allocation, (void *)(intptr_t)fd, as_file);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY, "GPU %u: a descriptor that came "
				      "as GPU memory of a peer", region->gpu);
	r = check_place(region, allocation);
	if (!r)
		r = map(region, allocation, CEOV_NOBODY);
	(void)cuda->calls.vmm_release(allocation);
	return r;
}

int cei_vmm_give_access(const struct cei_region *region, uint32_t gpu, uint32_t rank)
{
	struct cei_cuda *cuda = region->site->cuda;
	const CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
			      .id = cuda->gpus[gpu].device },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult result = cuda->calls.vmm_set_access(region->device, region->vmm_bytes, &access, 1);

	if (result == CUDA_SUCCESS)
		return 0;
	return cei_cuda_raise(cuda, result, rank, "GPU %u: access to memory of GPU %u", gpu,
			      region->gpu);
}

void cei_vmm_release(struct cei_region *region)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUresult result;

	if (region->device) {
		result = cuda->calls.vmm_unmap(region->device, region->vmm_bytes);
		if (result == CUDA_SUCCESS)
			result = cuda->calls.vmm_unreserve(region->device, region->vmm_bytes);
		if (result != CUDA_SUCCESS)
			cei_log(region->site->report, CEI_LOG_WARN,
				"CUDA: GPU %u: unmapping 0x%llx: error %d", region->gpu,
				(unsigned long long)region->device, (int)result);
	}
	region->device = 0;
	if (region->fd >= 0)
		close(region->fd);
	region->fd = -1;
}
