/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Opens the CUDA driver at run time: looks up its functions, lists its GPUs, and keeps their
 * primary contexts. A context is created when it is first needed. Nothing is allocated or copied
 * here.
 */

#include "base/cuda_table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cuda_errors.h"

#define TEXT_BYTES 160

struct symbol {
	const char *name;
	int         version;            /* of the driver function, as in its pointer's type */
	size_t      offset;             /* of the pointer in struct cei_cuda_calls */
	int         is_optional;        /* 1: the pointer may stay NULL */
};

/* The driver functions that are called before cuGetProcAddress looks up all others. */
struct first_calls {
	PFN_cuInit_v2000              init;
	PFN_cuDriverGetVersion_v2020  version;
	PFN_cuGetErrorString_v6000    error_string;
	PFN_cuGetProcAddress_v12000   symbol;
};

#define AT(field) offsetof(struct cei_cuda_calls, field)

static const struct symbol symbols[] = {
	{ "cuGetErrorName", 6000, AT(error_name), 0 },
	{ "cuGetErrorString", 6000, AT(error_string), 0 },
	{ "cuDeviceGet", 2000, AT(device_get), 0 },
	{ "cuDeviceGetCount", 2000, AT(device_count), 0 },
	{ "cuDeviceGetName", 2000, AT(device_name), 0 },
	{ "cuDeviceGetUuid", 11040, AT(device_uuid), 0 },
	{ "cuDeviceGetAttribute", 2000, AT(device_attribute), 0 },
	{ "cuDeviceGetPCIBusId", 4010, AT(device_bus_id), 0 },
	{ "cuDeviceCanAccessPeer", 4000, AT(device_can_access_peer), 0 },
	{ "cuDeviceGetP2PAttribute", 8000, AT(device_p2p), 1 },
	{ "cuDevicePrimaryCtxRetain", 7000, AT(primary_retain), 0 },
	{ "cuDevicePrimaryCtxRelease", 11000, AT(primary_release), 0 },
	{ "cuCtxPushCurrent", 4000, AT(ctx_push), 0 },
	{ "cuCtxPopCurrent", 4000, AT(ctx_pop), 0 },
	{ "cuCtxSetCurrent", 4000, AT(ctx_set), 0 },
	{ "cuCtxGetCurrent", 4000, AT(ctx_get), 0 },
	{ "cuCtxGetDevice", 2000, AT(ctx_device), 0 },
	{ "cuCtxGetStreamPriorityRange", 5050, AT(ctx_priorities), 0 },
	{ "cuCtxEnablePeerAccess", 4000, AT(ctx_enable_peer), 0 },
	{ "cuThreadExchangeStreamCaptureMode", 10010, AT(capture_mode), 0 },
	{ "cuStreamCreateWithPriority", 5050, AT(stream_create), 0 },
	{ "cuStreamDestroy", 4000, AT(stream_destroy), 0 },
	{ "cuStreamQuery", 2000, AT(stream_query), 0 },
	{ "cuStreamGetCtx", 9020, AT(stream_ctx), 0 },
	{ "cuStreamGetId", 12000, AT(stream_id), 0 },
	{ "cuStreamIsCapturing", 10000, AT(stream_is_capturing), 0 },
	{ "cuStreamGetCaptureInfo", 10010, AT(capture_info), 0 },
	{ "cuStreamWaitValue64", 11070, AT(stream_wait_value), 0 },
	{ "cuStreamWriteValue64", 11070, AT(stream_write_value), 0 },
	{ "cuStreamBatchMemOp", 11070, AT(stream_batch), 0 },
	{ "cuEventCreate", 2000, AT(event_create), 0 },
	{ "cuEventDestroy", 4000, AT(event_destroy), 0 },
	{ "cuEventRecord", 2000, AT(event_record), 0 },
	{ "cuEventQuery", 2000, AT(event_query), 0 },
	{ "cuEventElapsedTime", 2000, AT(event_elapsed), 0 },
	{ "cuStreamWaitEvent", 3020, AT(stream_wait_event), 0 },
	{ "cuStreamBeginCapture", 10010, AT(capture_begin), 0 },
	{ "cuStreamEndCapture", 10000, AT(capture_end), 0 },
	{ "cuGraphInstantiateWithFlags", 11040, AT(graph_instantiate), 0 },
	{ "cuGraphLaunch", 10000, AT(graph_launch), 0 },
	{ "cuGraphExecDestroy", 10000, AT(graph_exec_destroy), 0 },
	{ "cuGraphDestroy", 10000, AT(graph_destroy), 0 },
	{ "cuMemcpyAsync", 4000, AT(copy), 0 },
	{ "cuMemcpy2DAsync", 3020, AT(copy_2d), 0 },
	{ "cuMemcpyBatchAsync", 13000, AT(copy_batch), 1 },
	{ "cuMemAlloc", 3020, AT(mem_alloc), 0 },
	{ "cuMemFree", 3020, AT(mem_free), 0 },
	{ "cuMemGetAddressRange", 3020, AT(mem_range), 0 },
	{ "cuMemHostAlloc", 2020, AT(host_alloc), 0 },
	{ "cuMemFreeHost", 2000, AT(host_free), 0 },
	{ "cuMemHostRegister", 6050, AT(host_register), 0 },
	{ "cuMemHostUnregister", 4000, AT(host_unregister), 0 },
	{ "cuMemHostGetDevicePointer", 3020, AT(host_address), 0 },
	{ "cuPointerGetAttribute", 4000, AT(pointer_attribute), 0 },
	{ "cuPointerGetAttributes", 7000, AT(pointer_attributes), 0 },
	{ "cuFlushGPUDirectRDMAWrites", 11030, AT(flush_writes), 0 },
	{ "cuIpcGetMemHandle", 4010, AT(ipc_get), 0 },
	{ "cuIpcOpenMemHandle", 11000, AT(ipc_open), 0 },
	{ "cuIpcCloseMemHandle", 4010, AT(ipc_close), 0 },
	{ "cuMemCreate", 10020, AT(vmm_create), 0 },
	{ "cuMemRelease", 10020, AT(vmm_release), 0 },
	{ "cuMemAddressReserve", 10020, AT(vmm_reserve), 0 },
	{ "cuMemAddressFree", 10020, AT(vmm_unreserve), 0 },
	{ "cuMemMap", 10020, AT(vmm_map), 0 },
	{ "cuMemUnmap", 10020, AT(vmm_unmap), 0 },
	{ "cuMemSetAccess", 10020, AT(vmm_set_access), 0 },
	{ "cuMemExportToShareableHandle", 10020, AT(vmm_export), 0 },
	{ "cuMemImportFromShareableHandle", 10020, AT(vmm_import), 0 },
	{ "cuMemGetAllocationPropertiesFromHandle", 10020, AT(vmm_properties), 0 },
	{ "cuCtxSynchronize", 2000, AT(ctx_synchronize), 0 },
	{ "cuCtxGetDevResource", 12040, AT(ctx_resource), 1 },
	{ "cuModuleLoadData", 2000, AT(module_load), 0 },
	{ "cuModuleUnload", 2000, AT(module_unload), 0 },
	{ "cuModuleGetFunction", 2000, AT(module_function), 0 },
	{ "cuFuncGetAttribute", 2020, AT(function_attribute), 0 },
	{ "cuFuncSetAttribute", 9000, AT(function_set), 0 },
	{ "cuTensorMapEncodeTiled", 12000, AT(tensor_map), 0 },
	{ "cuFuncLoad", 12040, AT(function_load), 1 },
	{ "cuOccupancyMaxActiveClusters", 11070, AT(max_clusters), 1 },
	{ "cuLaunchKernel", 4000, AT(launch), 0 },
};

#undef AT

/* Looks up one function by dlsym(). The address is copied, because C has no cast from an object
 * pointer to a function pointer. */
static int find_first(void *library, const char *name, void *ret_call)
{
	void *address = dlsym(library, name);

	memcpy(ret_call, &address, sizeof(address));
	return address ? 0 : CEOV_NONE;
}

/* Initialises the driver. If the installation is broken, a warning says so, but it is not an error,
 * because a process may do without GPUs. (Code 802: the fabric manager is not up; 803: library and
 * kernel module differ.) */
static int init(struct cei_report *report, const struct first_calls *first,
		const char **ret_why)
{
	CUresult result = first->init(0);
	const char *text = NULL;

	if (result == CUDA_SUCCESS)
		return 0;
	if (result == CUDA_ERROR_NO_DEVICE) {
		*ret_why = "the CUDA driver sees no GPU";
		return CEOV_NONE;
	}
	if (result == CUDA_ERROR_STUB_LIBRARY) {
		*ret_why = "libcuda.so.1 is the toolkit's stub";
		return CEOV_NONE;
	}
	if (first->error_string(result, &text) != CUDA_SUCCESS || !text)
		text = "cuInit failed";
	cei_log(report, CEI_LOG_WARN,
		"CUDA driver: cuInit: %s (%d); going on without GPUs", text, (int)result);
	*ret_why = text;
	return CEOV_NONE;
}

/* Looks up and calls the driver's first functions: initialises it and checks its version. */
static int begin(struct cei_cuda *cuda, struct first_calls *first, const char **ret_why)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int r;

	if (!library) {
		*ret_why = "libcuda.so.1 cannot be loaded: no NVIDIA driver";
		return CEOV_NONE;
	}
	if (find_first(library, "cuInit", &first->init) ||
	    find_first(library, "cuDriverGetVersion", &first->version) ||
	    find_first(library, "cuGetErrorString", &first->error_string)) {
		*ret_why = "libcuda.so.1 is no CUDA driver";
		return CEOV_NONE;
	}
	r = init(cuda->report, first, ret_why);
	if (r)
		return r;
	if (first->version(&cuda->version) != CUDA_SUCCESS)
		cuda->version = 0;
	if (cuda->version < CEI_CUDA_VERSION_MIN ||
	    find_first(library, "cuGetProcAddress_v2", &first->symbol))
		return cei_raise(cuda->report, CEOV_ERR_VERSION, cuda->version,
				 "CUDA driver: version %d.%d found, %d.%d or newer "
				 "needed: update the NVIDIA driver", cuda->version / 1000,
				 cuda->version % 1000 / 10, CEI_CUDA_VERSION_MIN / 1000,
				 CEI_CUDA_VERSION_MIN % 1000 / 10);
	return 0;
}

static int find_calls(struct cei_cuda *cuda, const struct first_calls *first)
{
	CUdriverProcAddressQueryResult status;
	const struct symbol *symbol;
	CUresult result;
	void *address;
	size_t i;

	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		symbol = &symbols[i];
		address = NULL;
		result = first->symbol(symbol->name, &address, symbol->version,
				       CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
		if (result != CUDA_SUCCESS)
			address = NULL;
		if (!address && !symbol->is_optional)
			return cei_raise(cuda->report, CEOV_ERR_VERSION, (int)result,
					 "CUDA driver %d.%d has no %s of version %d.%d: "
					 "update the NVIDIA driver", cuda->version / 1000,
					 cuda->version % 1000 / 10, symbol->name,
					 symbol->version / 1000,
					 symbol->version % 1000 / 10);
		memcpy((char *)&cuda->calls + symbol->offset, &address, sizeof(address));
	}
	return 0;
}

static CUresult read_attributes(struct cei_cuda *cuda, struct cei_cuda_gpu *gpu)
{
	const struct { CUdevice_attribute attribute; int *value; } wanted[] = {
		{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &gpu->n_copy_engines },
		{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, &gpu->has_memops },
		{ CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, &gpu->can_flush },
		{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
		  &gpu->writes_ordering },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &gpu->capability_major },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &gpu->capability_minor },
	};
	CUresult result = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && result == CUDA_SUCCESS; i++)
		result = cuda->calls.device_attribute(wanted[i].value,
						      wanted[i].attribute, gpu->device);
	return result;
}

static int read_gpu(struct cei_cuda *cuda, uint32_t index)
{
	struct cei_cuda_gpu *gpu = &cuda->gpus[index];
	CUresult result;

	result = cuda->calls.device_get(&gpu->device, (int)index);
	if (result == CUDA_SUCCESS)
		result = cuda->calls.device_uuid(&gpu->uuid, gpu->device);
	if (result == CUDA_SUCCESS)
		result = cuda->calls.device_bus_id(gpu->bus_id, (int)sizeof(gpu->bus_id),
						   gpu->device);
	if (result == CUDA_SUCCESS)
		result = read_attributes(cuda, gpu);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY, "GPU %u: cannot be read",
				      index);
	return 0;
}

static int list_gpus(struct cei_cuda *cuda, const char **ret_why)
{
	CUresult result;
	uint32_t i;
	int n = 0;
	int r = 0;

	result = cuda->calls.device_count(&n);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY, "counting GPUs");
	if (n <= 0) {
		*ret_why = "the CUDA driver sees no GPU";
		return CEOV_NONE;
	}
	if (n > CEI_CUDA_GPUS_MAX)
		n = CEI_CUDA_GPUS_MAX;
	cuda->gpus = calloc((size_t)n, sizeof(*cuda->gpus));
	if (!cuda->gpus)
		return cei_raise(cuda->report, CEOV_ERR_NO_MEMORY, 0,
				 "CUDA driver: no memory for %d GPUs", n);
	cuda->n_gpus = (uint32_t)n;
	for (i = 0; i < cuda->n_gpus && !r; i++)
		r = read_gpu(cuda, i);
	return r;
}

int cei_cuda_loads_lazily(void)
{
	const char *loading = secure_getenv("CUDA_MODULE_LOADING");

	return !loading || !strcmp(loading, "LAZY");
}

/* Warns of environment variables that keep copies and kernels from running side by side. */
static void warn_of_environment(struct cei_report *report)
{
	const char *blocking = secure_getenv("CUDA_LAUNCH_BLOCKING");
	const char *connections = secure_getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	if (blocking && !strcmp(blocking, "1"))
		cei_log(report, CEI_LOG_WARN,
			"CUDA_LAUNCH_BLOCKING=1: kernels and copies will not overlap, "
			"and waits for our own marks may hang: unset it");
	if (connections && !strcmp(connections, "1"))
		cei_log(report, CEI_LOG_WARN,
			"CUDA_DEVICE_MAX_CONNECTIONS=1: all streams share one hardware "
			"queue; a waiting lane stops the others: unset it or set 32");
	if (cei_cuda_loads_lazily())
		cei_log(report, CEI_LOG_INFO,
			"CUDA_MODULE_LOADING is lazy: copies that come after the first "
			"launch of a kernel wait for what waits for them; launch each once "
			"before kernels or streams await marks, or set EAGER");
}

int cei_cuda_open(struct cei_report *report, struct cei_cuda **ret_cuda,
		  const char **ret_why)
{
	struct first_calls first = { NULL, NULL, NULL, NULL };
	struct cei_cuda *cuda = calloc(1, sizeof(*cuda));
	int r;

	if (!cuda)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "CUDA driver: no memory for its table");
	cuda->report = report;
	pthread_mutex_init(&cuda->lock, NULL);

	r = begin(cuda, &first, ret_why);
	if (!r)
		r = find_calls(cuda, &first);
	if (!r)
		r = list_gpus(cuda, ret_why);
	if (r)
		goto fail;
	warn_of_environment(report);
	*ret_cuda = cuda;
	return 0;
fail:
	cei_cuda_close(cuda);
	return r;
}

/* Leaves libcuda loaded, because it cannot be initialised twice in a process. */
void cei_cuda_close(struct cei_cuda *cuda)
{
	uint32_t i;

	if (!cuda)
		return;
	/* The result is ignored: at the end of the process the driver may be gone already. */
	for (i = 0; i < cuda->n_gpus; i++)
		if (cuda->gpus[i].context)
			(void)cuda->calls.primary_release(cuda->gpus[i].device);
	pthread_mutex_destroy(&cuda->lock);
	free(cuda->gpus);
	free(cuda);
}

uint32_t cei_cuda_n_gpus(const struct cei_cuda *cuda)
{
	return cuda ? cuda->n_gpus : 0;
}

void cei_cuda_uuid_of(const struct cei_cuda *cuda, uint32_t gpu, uint8_t *ret_uuid)
{
	memcpy(ret_uuid, &cuda->gpus[gpu].uuid, CEI_CUDA_UUID_BYTES);
}

uint32_t cei_cuda_gpu_of(const struct cei_cuda *cuda, const uint8_t *uuid)
{
	uint32_t i;

	for (i = 0; i < cei_cuda_n_gpus(cuda); i++)
		if (!memcmp(&cuda->gpus[i].uuid, uuid, CEI_CUDA_UUID_BYTES))
			return i;
	return CEOV_NOBODY;
}

int cei_cuda_context(struct cei_cuda *cuda, uint32_t gpu, CUcontext *ret_context)
{
	CUresult result = CUDA_SUCCESS;
	CUcontext context;

	if (gpu >= cuda->n_gpus)
		return cei_raise(cuda->report, CEOV_ERR_INVALID, 0,
				 "GPU %u asked for, but there are %u (see "
				 "CUDA_VISIBLE_DEVICES)", gpu, cuda->n_gpus);
	pthread_mutex_lock(&cuda->lock);
	context = cuda->gpus[gpu].context;
	if (!context)
		result = cuda->calls.primary_retain(&context, cuda->gpus[gpu].device);
	if (result == CUDA_SUCCESS)
		cuda->gpus[gpu].context = context;
	pthread_mutex_unlock(&cuda->lock);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u: no primary context", gpu);
	*ret_context = context;
	return 0;
}

int cei_cuda_push(struct cei_cuda *cuda, uint32_t gpu, struct cei_cuda_hold *ret_hold)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext context, current = NULL;
	CUresult result;
	int r;

	r = cei_cuda_context(cuda, gpu, &context);
	if (r)
		return r;
	/* Frameworks have it current most of the time. */
	ret_hold->is_pushed = cuda->calls.ctx_get(&current) != CUDA_SUCCESS || current != context;
	result = ret_hold->is_pushed ? cuda->calls.ctx_push(context) : CUDA_SUCCESS;
	cei_cuda_note(cuda, gpu, result);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u: its context cannot be made current", gpu);
	result = cuda->calls.capture_mode(&mode);
	if (result != CUDA_SUCCESS) {
		if (ret_hold->is_pushed)
			(void)cuda->calls.ctx_pop(&context);
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u: capture mode cannot be set", gpu);
	}
	ret_hold->capture_mode = mode;
	return 0;
}

/* Ignores the results of both calls: neither can fail after a push that succeeded. */
void cei_cuda_pop(struct cei_cuda *cuda, const struct cei_cuda_hold *hold)
{
	CUstreamCaptureMode mode = hold->capture_mode;
	CUcontext context;

	(void)cuda->calls.capture_mode(&mode);
	if (hold->is_pushed)
		(void)cuda->calls.ctx_pop(&context);
}

uint32_t cei_cuda_stream_sms(const struct cei_cuda *cuda, uint32_t gpu, CUstream stream)
{
	const struct cei_cuda_calls *calls = &cuda->calls;
	CUcontext context = NULL;
	CUdevResource resource;

	if (stream == CU_STREAM_LEGACY || !calls->ctx_resource ||
	    calls->stream_ctx(stream, &context) != CUDA_SUCCESS ||
	    context == cuda->gpus[gpu].context)
		return 0;
	memset(&resource, 0, sizeof(resource));
	if (calls->ctx_resource(context, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS)
		return 0;
	return resource.sm.smCount;
}

CUresult cei_cuda_idle(struct cei_cuda *cuda, CUstream stream, uint64_t deadline_ns)
{
	struct cei_backoff backoff;
	CUresult result;
	int late;

	cei_backoff_reset(&backoff);
	for (;;) {
		/* The clock is read before the query, so that the stream is queried once more
		 * after the deadline. */
		late = cei_now_ns() >= deadline_ns;
		result = cuda->calls.stream_query(stream);
		if (result != CUDA_ERROR_NOT_READY || late)
			return result;
		cei_backoff_step(&backoff);
	}
}

void cei_cuda_note(struct cei_cuda *cuda, uint32_t gpu, CUresult result)
{
	int none = CUDA_SUCCESS;

	if (cei_cuda_error_lasts((int)result))  /* relaxed, all: the value alone is of interest */
		(void)atomic_compare_exchange_strong_explicit(&cuda->gpus[gpu].fault, &none,
							      (int)result, memory_order_relaxed,
							      memory_order_relaxed);
}

CUresult cei_cuda_fault(const struct cei_cuda *cuda, uint32_t gpu)
{
	return (CUresult)atomic_load_explicit(&cuda->gpus[gpu].fault, memory_order_relaxed);
}

int cei_cuda_raise(struct cei_cuda *cuda, CUresult result, uint32_t rank,
		   const char *format, ...)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_CUDA, (int)result);
	const char *words = NULL;
	const char *name = NULL;
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (cuda->calls.error_name(result, &name) != CUDA_SUCCESS || !name)
		name = "unknown CUDA error";
	if (cuda->calls.error_string(result, &words) != CUDA_SUCCESS || !words)
		words = "no description";
	failure.rank = rank;
	return cei_raise_failure(cuda->report, &failure, "CUDA: %s: %s (%d): %s", text,
				 name, (int)result, words);
}
