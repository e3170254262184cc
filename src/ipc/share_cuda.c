/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Creates, adopts, exports and imports regions in GPU memory. reach_cuda.c maps them for members.
 * No bytes are moved.
 */

#include "ipc/share.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cuda_table.h"
#include "ipc/share_cuda.h"
#include "ipc/vmm_cuda.h"

/* The driver puts several allocations smaller than this into one block, and an IPC handle opens the
 * whole block. So sizes are rounded up to this, and each allocation has a block of its own. */
#define ALLOCATION_BYTES (UINT64_C(2) << 20)

_Static_assert(sizeof(CUipcMemHandle) == CEI_SHARE_HANDLE_BYTES, "IPC handle");
_Static_assert(sizeof(CUuuid) == CEI_CUDA_UUID_BYTES, "GPU uuid");

/* What the driver knows of an address. */
struct pointer_facts {
	unsigned int       memory_type;         /* CUmemorytype; 0: the memory is not CUDA's */
	int                gpu;
	unsigned int       is_managed;
	CUdeviceptr        start;
	size_t             n_bytes;
	unsigned long long buffer_id;
};

/* Returns a number that identifies this process on the machine, which its pid alone does not do if
 * there are containers. */
static uint64_t process_identity(void)
{
	struct stat namespace;

	if (stat("/proc/self/ns/pid", &namespace))
		return (uint64_t)getpid();
	return (uint64_t)namespace.st_ino << 32 | (uint64_t)getpid();
}

/* Queries the driver about an address. A context must be current. For an address that is not
 * CUDA's, all facts are 0. */
static CUresult look_up(struct cei_cuda *cuda, uint64_t address,
			struct pointer_facts *ret_facts)
{
	struct pointer_facts facts = { 0, -1, 0, 0, 0, 0 };
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_BUFFER_ID,
	};
	void *values[] = {
		&facts.memory_type, &facts.gpu, &facts.is_managed,
		&facts.start, &facts.n_bytes, &facts.buffer_id,
	};
	const unsigned int n = sizeof(attributes) / sizeof(attributes[0]);
	CUresult result;

	result = cuda->calls.pointer_attributes(n, attributes, values, address);
	/* for an address that is not CUDA's, a driver returns one of these two errors */
	if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT) {
		memset(&facts, 0, sizeof(facts));
		result = CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS)
		*ret_facts = facts;
	return result;
}

/* Fills the fields that created and adopted regions have in common. */
static void fill(struct cei_region *region, uint32_t member, uint64_t size_bytes,
		 enum cei_region_origin origin)
{
	struct cei_site *site = region->site;

	region->origin = origin;
	region->kind = CEOV_PLACE_GPU;
	region->gpu = cei_share_cuda_gpu(region, member);
	region->size_bytes = size_bytes;
	region->fd = -1;
	memcpy(region->instance, site->instance, sizeof(region->instance));
	memcpy(region->uuid, &site->cuda->gpus[region->gpu].uuid, sizeof(region->uuid));
}

static int look_up_id(struct cei_region *region, uint32_t rank)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct pointer_facts facts;
	CUresult result = look_up(cuda, region->device, &facts);

	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, rank, "GPU %u: looking up an allocation",
				      region->gpu);
	region->buffer_id = facts.buffer_id;
	return 0;
}

static int allocate(struct cei_region *region, uint32_t member)
{
	struct cei_cuda *cuda = region->site->cuda;
	uint64_t n_bytes = (region->size_bytes + ALLOCATION_BYTES - 1) /
			   ALLOCATION_BYTES * ALLOCATION_BYTES;
	CUdeviceptr device;
	CUresult result;

	result = cuda->calls.mem_alloc(&device, n_bytes);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, member),
				      "GPU %u: allocating %llu bytes", region->gpu,
				      (unsigned long long)n_bytes);
	region->device = device;
	region->is_open = 1;
	return 0;
}

static int create(struct cei_region *region, uint32_t member, uint64_t size_bytes)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct cei_cuda_hold hold;
	int r;

	if (!size_bytes || size_bytes > UINT64_MAX - ALLOCATION_BYTES)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "rank %u: a buffer of %llu bytes cannot be created",
				 cei_share_cuda_rank(region, member),
				 (unsigned long long)size_bytes);
	r = cei_cuda_push(cuda, cei_share_cuda_gpu(region, member), &hold);
	if (r)
		return r;
	fill(region, member, size_bytes, CEI_REGION_CREATED);
	if (region->site->keeps_files && cei_vmm_is_supported(region->site, region->gpu))
		r = cei_vmm_create(region, cei_share_cuda_rank(region, member));
	else
		r = allocate(region, member);
	if (!r)
		r = look_up_id(region, cei_share_cuda_rank(region, member));
	cei_cuda_pop(cuda, &hold);
	return r;
}

/* Checks whether the caller's memory can be a buffer of this member; if not, raises why. */
static int judge(struct cei_region *region, uint32_t member, uint64_t address,
		 const struct pointer_facts *facts)
{
	struct cei_report *report = region->site->report;
	uint32_t rank = cei_share_cuda_rank(region, member);
	uint64_t behind = address - facts->start;

	if (facts->memory_type != CU_MEMORYTYPE_DEVICE || facts->is_managed)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "rank %u: 0x%llx is %s: register memory of cudaMalloc",
				 rank, (unsigned long long)address,
				 facts->is_managed ? "managed memory" : "not GPU memory");
	if (facts->gpu < 0 || (uint32_t)facts->gpu != cei_share_cuda_gpu(region, member))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "rank %u is on GPU %u, but 0x%llx is memory of GPU %d: "
				 "register it for the rank on that GPU", rank,
				 cei_share_cuda_gpu(region, member),
				 (unsigned long long)address, facts->gpu);
	if (behind >= facts->n_bytes || region->size_bytes > facts->n_bytes - behind)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "rank %u: 0x%llx + %llu bytes leaves its allocation "
				 "(0x%llx + %zu)", rank, (unsigned long long)address,
				 (unsigned long long)region->size_bytes,
				 (unsigned long long)facts->start, facts->n_bytes);
	return 0;
}

static int adopt(struct cei_region *region, uint32_t member, void *base,
		 uint64_t size_bytes)
{
	struct cei_cuda *cuda = region->site->cuda;
	uint64_t address = (uint64_t)(uintptr_t)base;
	struct pointer_facts facts;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	if (!base || !size_bytes)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "rank %u: a buffer needs an address and a size",
				 cei_share_cuda_rank(region, member));
	r = cei_cuda_push(cuda, cei_share_cuda_gpu(region, member), &hold);
	if (r)
		return r;
	result = look_up(cuda, address, &facts);
	cei_cuda_pop(cuda, &hold);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, cei_share_cuda_rank(region, member),
				      "looking up 0x%llx", (unsigned long long)address);
	if (!facts.is_managed && facts.memory_type != CU_MEMORYTYPE_DEVICE)
		return CEOV_NONE;       /* it is host memory, which share_host.c adopts */
	fill(region, member, size_bytes, CEI_REGION_ADOPTED);
	r = judge(region, member, address, &facts);
	if (r)
		return r;
	region->device = address;
	region->buffer_id = facts.buffer_id;
	r = cei_share_cuda_is_legacy(region);
	region->is_open = r > 0;
	return r < 0 ? r : 0;
}

int cei_share_cuda_is_legacy(struct cei_region *region)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
	int capable = 0;
	CUresult result;

	result = cuda->calls.pointer_attribute(&capable, wanted, region->device);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u: asking how 0x%llx can be shared",
				      region->gpu, (unsigned long long)region->device);
	return capable != 0;
}

static int get_handle(struct cei_region *region)
{
	struct cei_cuda *cuda = region->site->cuda;
	CUipcMemHandle handle;
	CUdeviceptr start;
	CUresult result;
	size_t n_bytes;
	int r;

	r = cei_share_cuda_is_legacy(region);
	if (r < 0)
		return r;
	if (!r)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "GPU %u: 0x%llx cannot be shared with other processes: "
				 "it comes from a memory pool or the virtual memory "
				 "calls (cudaMallocAsync, expandable segments); use "
				 "cudaMalloc or ceov_buffer_create()", region->gpu,
				 (unsigned long long)region->device);
	result = cuda->calls.mem_range(&start, &n_bytes, region->device);
	if (result == CUDA_SUCCESS)
		result = cuda->calls.ipc_get(&handle, start);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u: exporting 0x%llx", region->gpu,
				      (unsigned long long)region->device);
	memcpy(region->handle, &handle, sizeof(region->handle));
	region->offset_bytes = region->device - start;
	return 0;
}

static int check(struct cei_region *region);

static int export(struct cei_region *region, struct cei_region_wire *ret_wire,
		  int *ret_fd)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct cei_cuda_hold hold;
	int r;

	if (region->origin == CEI_REGION_IMPORTED)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "memory of a peer cannot be shared by us");
	r = check(region);
	if (r)
		return r;
	if (!region->vmm_bytes) {
		r = cei_cuda_push(cuda, region->gpu, &hold);
		if (r)
			return r;
		r = get_handle(region);
		cei_cuda_pop(cuda, &hold);
		if (r)
			return r;
	}
	cei_region_fill_wire(region, ret_wire);
	ret_wire->device = region->device;
	ret_wire->pid = process_identity();
	*ret_fd = region->fd;
	return 0;
}

static int raise_not_ours(struct cei_region *region, const char *why)
{
	return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
			 "a peer's export of GPU memory is refused: it says that the memory at "
			 "0x%llx is this process's own, but %s",
			 (unsigned long long)region->device, why);
}

/* Checks an import whose description says that the memory belongs to this process, which exported
 * it in another of its contexts. Since a peer could name any address of this process, the driver is
 * asked about the memory at that address, and the memory's IPC handle must be the one in the
 * description. A context must be current. */
static int judge_own(struct cei_region *region, const struct cei_region_wire *wire)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct pointer_facts facts;
	CUresult result;
	int r;

	result = look_up(cuda, wire->device, &facts);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY, "looking up 0x%llx",
				      (unsigned long long)wire->device);
	if (facts.memory_type != CU_MEMORYTYPE_DEVICE || facts.is_managed ||
	    facts.gpu < 0 || (uint32_t)facts.gpu != region->gpu)
		return raise_not_ours(region, "there is no memory of that GPU");
	if (facts.buffer_id != wire->buffer_id)
		return raise_not_ours(region, "that allocation is gone, or never was");
	if (wire->device - facts.start >= facts.n_bytes ||
	    wire->size_bytes > facts.n_bytes - (wire->device - facts.start))
		return raise_not_ours(region, "it leaves its allocation");
	r = get_handle(region);
	if (r)
		return r;
	if (memcmp(region->handle, wire->handle, sizeof(region->handle)) ||
	    region->offset_bytes != wire->offset_bytes)
		return raise_not_ours(region, "its handle is another's");
	return 0;
}

static int import_own(struct cei_region *region, const struct cei_region_wire *wire)
{
	struct cei_cuda_hold hold;
	int r;

	region->device = wire->device;
	if (region->gpu == CEOV_NOBODY)
		return raise_not_ours(region, "this process does not see its GPU");
	r = cei_cuda_push(region->site->cuda, region->gpu, &hold);
	if (r)
		return r;
	r = judge_own(region, wire);
	cei_cuda_pop(region->site->cuda, &hold);
	return r;
}

/* The GPU of a member of this process, whose context there is; CEOV_NOBODY: no member is on one. */
static uint32_t any_gpu(const struct cei_site *site)
{
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU)
			return site->members[i].place.index;
	return CEOV_NOBODY;
}

/* Memory that came as a descriptor is mapped at once, for all members; a process that does not see
 * its GPU cannot reach it. A context of that GPU is not needed, and would cost its memory. */
static int import_fd(struct cei_region *region, int fd)
{
	uint32_t gpu = any_gpu(region->site);
	struct cei_cuda_hold hold;
	int r;

	if (region->gpu == CEOV_NOBODY || gpu == CEOV_NOBODY)
		return 0;
	r = cei_cuda_push(region->site->cuda, gpu, &hold);
	if (r)
		return r;
	r = cei_vmm_import(region, fd);
	cei_cuda_pop(region->site->cuda, &hold);
	return r;
}

static int fill_imported(struct cei_region *region, const struct cei_region_wire *wire, int has_fd)
{
	if (wire->kind != CEOV_PLACE_GPU || !wire->size_bytes || has_fd != (int)wire->has_fd ||
	    (has_fd && wire->offset_bytes))
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "a peer's export of GPU memory makes no sense (kind %u, "
				 "%llu bytes)", wire->kind,
				 (unsigned long long)wire->size_bytes);
	region->origin = CEI_REGION_IMPORTED;
	region->kind = CEOV_PLACE_GPU;
	region->gpu = cei_cuda_gpu_of(region->site->cuda, wire->uuid);
	region->size_bytes = wire->size_bytes;
	region->offset_bytes = wire->offset_bytes;
	region->buffer_id = wire->buffer_id;
	memcpy(region->instance, wire->instance, sizeof(region->instance));
	memcpy(region->handle, wire->handle, sizeof(region->handle));
	memcpy(region->uuid, wire->uuid, sizeof(region->uuid));
	if (has_fd)
		region->vmm_bytes = region->size_bytes; /* until it is mapped */
	return 0;
}

static int import(struct cei_region *region, const struct cei_region_wire *wire, int fd)
{
	int r;

	region->fd = -1;
	r = fill_imported(region, wire, fd >= 0);
	/* if this process uses no GPU, no member can reach the memory, whoever owns it */
	if (!r && region->site->cuda && fd >= 0)
		r = import_fd(region, fd);
	else if (!r && region->site->cuda && wire->pid == process_identity())
		r = import_own(region, wire);
	if (!r && region->site->keeps_files)
		region->fd = fd;
	else if (fd >= 0)
		close(fd);
	return r;
}

/* Returns 1: the description contains the IPC handle, or the random number of memory that comes as
 * a descriptor. Who knows these was told of the memory by its owner, and could pass it on anyway;
 * the descriptor itself cannot be compared with another one. */
static int is_same(const struct cei_region *region, int fd)
{
	(void)region;
	(void)fd;
	return 1;
}

/* A peer's memory came by an IPC handle or as a descriptor; the caller's own may be of a pool. */
static int is_shareable(struct cei_region *region)
{
	struct cei_cuda_hold hold;
	int r;

	if (region->vmm_bytes)
		return region->fd >= 0;
	if (region->origin == CEI_REGION_IMPORTED)
		return 1;
	if (cei_cuda_push(region->site->cuda, region->gpu, &hold))
		return 0;
	r = cei_share_cuda_is_legacy(region);
	cei_cuda_pop(region->site->cuda, &hold);
	return r > 0;
}

/* Memory that the caller's streams may still use is waited for, as cuMemFree() waits. The lanes
 * that moved a peer's memory have ended. */
static void release_vmm(struct cei_region *region)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct cei_cuda_hold hold;

	if (!region->device) {
		cei_vmm_release(region);
		return;
	}
	if (cei_cuda_push(cuda, any_gpu(region->site), &hold))
		return;
	if (region->origin == CEI_REGION_CREATED)
		(void)cuda->calls.ctx_synchronize();    /* an error was told to who caused it */
	cei_vmm_release(region);
	cei_cuda_pop(cuda, &hold);
}

static void release(struct cei_region *region)
{
	struct cei_cuda *cuda;
	struct cei_cuda_hold hold;
	CUresult result;

	if (region->site && region->vmm_bytes) {
		release_vmm(region);
		return;
	}
	if (!region->site || region->origin != CEI_REGION_CREATED || !region->device)
		return;
	cuda = region->site->cuda;
	if (cei_cuda_push(cuda, region->gpu, &hold))
		return;
	result = cuda->calls.mem_free(region->device);
	if (result != CUDA_SUCCESS)
		cei_log(region->site->report, CEI_LOG_WARN,
			"CUDA: GPU %u: freeing 0x%llx: error %d", region->gpu,
			(unsigned long long)region->device, (int)result);
	region->device = 0;
	cei_cuda_pop(cuda, &hold);
}

static int check(struct cei_region *region)
{
	struct cei_cuda *cuda = region->site->cuda;
	struct pointer_facts facts;
	struct cei_cuda_hold hold;
	CUresult result;
	int r;

	if (region->origin != CEI_REGION_ADOPTED)
		return 0;
	r = cei_cuda_push(cuda, region->gpu, &hold);
	if (r)
		return r;
	result = look_up(cuda, region->device, &facts);
	cei_cuda_pop(cuda, &hold);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u: looking up 0x%llx", region->gpu,
				      (unsigned long long)region->device);
	if (facts.memory_type != CU_MEMORYTYPE_DEVICE ||
	    facts.buffer_id != region->buffer_id)
		return cei_raise(region->site->report, CEOV_ERR_STALE, 0,
				 "GPU %u: 0x%llx was freed since it was registered "
				 "(allocation %llu then, %llu now): release the buffer "
				 "before its memory", region->gpu,
				 (unsigned long long)region->device,
				 (unsigned long long)region->buffer_id, facts.buffer_id);
	return 0;
}

const struct cei_share_ops cei_share_cuda = {
	.create  = create,
	.adopt   = adopt,
	.export  = export,
	.import  = import,
	.is_same = is_same,
	.is_shareable = is_shareable,
	.release = release,
	.check   = check,
	.map     = cei_share_cuda_map,
	.unmap   = cei_share_cuda_unmap,
};
