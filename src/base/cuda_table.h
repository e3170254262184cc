/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CUDA_TABLE_H
#define CEI_CUDA_TABLE_H

/*
 * The driver's functions and its GPUs, for cuda*.c, *_cuda.c and kernels/ alone; all other files
 * include base/cuda_driver.h. The type of each pointer contains the version of the function that
 * cuGetProcAddress is asked for. Without it names would be ambiguous, because cuda.h renames many
 * (cuStreamWaitValue64 means cuStreamWaitValue64_v2).
 */

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/cuda_driver.h"

#define CEI_CUDA_VERSION_MIN  12000
#define CEI_CUDA_BUS_ID_BYTES 16u
#define CEI_CUDA_GPUS_MAX     64

struct cei_cuda_calls {
	PFN_cuGetErrorName_v6000                  error_name;
	PFN_cuGetErrorString_v6000                error_string;

	PFN_cuDeviceGet_v2000                     device_get;
	PFN_cuDeviceGetCount_v2000                device_count;
	PFN_cuDeviceGetName_v2000                 device_name;
	PFN_cuDeviceGetUuid_v11040                device_uuid;
	PFN_cuDeviceGetAttribute_v2000            device_attribute;
	PFN_cuDeviceGetPCIBusId_v4010             device_bus_id;
	PFN_cuDeviceCanAccessPeer_v4000           device_can_access_peer;
	PFN_cuDeviceGetP2PAttribute_v8000         device_p2p;    /* may be NULL */
	PFN_cuDevicePrimaryCtxRetain_v7000        primary_retain;
	PFN_cuDevicePrimaryCtxRelease_v11000      primary_release;

	PFN_cuCtxPushCurrent_v4000                ctx_push;
	PFN_cuCtxPopCurrent_v4000                 ctx_pop;
	PFN_cuCtxSetCurrent_v4000                 ctx_set;
	PFN_cuCtxGetCurrent_v4000                 ctx_get;
	PFN_cuCtxGetDevice_v2000                  ctx_device;
	PFN_cuCtxGetStreamPriorityRange_v5050     ctx_priorities;
	PFN_cuCtxSynchronize_v2000                ctx_synchronize;
	PFN_cuCtxGetDevResource_v12040            ctx_resource;  /* NULL before 12.4 */
	PFN_cuCtxEnablePeerAccess_v4000           ctx_enable_peer;
	PFN_cuThreadExchangeStreamCaptureMode_v10010 capture_mode;

	PFN_cuStreamCreateWithPriority_v5050      stream_create;
	PFN_cuStreamDestroy_v4000                 stream_destroy;
	PFN_cuStreamQuery_v2000                   stream_query;
	PFN_cuStreamGetCtx_v9020                  stream_ctx;
	PFN_cuStreamGetId_v12000                  stream_id;
	PFN_cuStreamIsCapturing_v10000            stream_is_capturing;
	PFN_cuStreamGetCaptureInfo_v10010         capture_info;
	PFN_cuStreamWaitValue64_v11070            stream_wait_value;
	PFN_cuStreamWriteValue64_v11070           stream_write_value;
	PFN_cuStreamBatchMemOp_v11070             stream_batch;

	PFN_cuEventCreate_v2000                   event_create;
	PFN_cuEventDestroy_v4000                  event_destroy;
	PFN_cuEventRecord_v2000                   event_record;
	PFN_cuEventQuery_v2000                    event_query;
	PFN_cuEventElapsedTime_v2000              event_elapsed;
	PFN_cuStreamWaitEvent_v3020               stream_wait_event;

	PFN_cuStreamBeginCapture_v10010           capture_begin;
	PFN_cuStreamEndCapture_v10000             capture_end;
	PFN_cuGraphInstantiateWithFlags_v11040    graph_instantiate;
	PFN_cuGraphLaunch_v10000                  graph_launch;
	PFN_cuGraphExecDestroy_v10000             graph_exec_destroy;
	PFN_cuGraphDestroy_v10000                 graph_destroy;

	PFN_cuMemcpyAsync_v4000                   copy;
	PFN_cuMemcpy2DAsync_v3020                 copy_2d;
	PFN_cuMemcpyBatchAsync_v13000             copy_batch;    /* NULL before 13.0 */

	PFN_cuMemAlloc_v3020                      mem_alloc;
	PFN_cuMemFree_v3020                       mem_free;
	PFN_cuMemGetAddressRange_v3020            mem_range;
	PFN_cuMemHostAlloc_v2020                  host_alloc;
	PFN_cuMemFreeHost_v2000                   host_free;
	PFN_cuMemHostRegister_v6050               host_register;
	PFN_cuMemHostUnregister_v4000             host_unregister;
	PFN_cuMemHostGetDevicePointer_v3020       host_address;
	PFN_cuPointerGetAttribute_v4000           pointer_attribute;
	PFN_cuPointerGetAttributes_v7000          pointer_attributes;
	PFN_cuFlushGPUDirectRDMAWrites_v11030     flush_writes;
	PFN_cuMemCreate_v10020                    vmm_create;    /* virtual memory */
	PFN_cuMemRelease_v10020                   vmm_release;
	PFN_cuMemAddressReserve_v10020            vmm_reserve;
	PFN_cuMemAddressFree_v10020               vmm_unreserve;
	PFN_cuMemMap_v10020                       vmm_map;
	PFN_cuMemUnmap_v10020                     vmm_unmap;
	PFN_cuMemSetAccess_v10020                 vmm_set_access;
	PFN_cuMemExportToShareableHandle_v10020   vmm_export;
	PFN_cuMemImportFromShareableHandle_v10020 vmm_import;
	PFN_cuMemGetAllocationPropertiesFromHandle_v10020 vmm_properties;
	PFN_cuIpcGetMemHandle_v4010               ipc_get;
	PFN_cuIpcOpenMemHandle_v11000             ipc_open;
	PFN_cuIpcCloseMemHandle_v4010             ipc_close;

	PFN_cuModuleLoadData_v2000                module_load;
	PFN_cuModuleUnload_v2000                  module_unload;
	PFN_cuModuleGetFunction_v2000             module_function;
	PFN_cuFuncGetAttribute_v2020              function_attribute;
	PFN_cuFuncSetAttribute_v9000              function_set;
	PFN_cuTensorMapEncodeTiled_v12000         tensor_map;
	PFN_cuFuncLoad_v12040                     function_load; /* NULL before 12.4 */
	PFN_cuOccupancyMaxActiveClusters_v11070   max_clusters;  /* may be NULL */
	PFN_cuLaunchKernel_v4000                  launch;
};

struct cei_cuda_gpu {
	CUdevice  device;
	CUcontext context;              /* the primary context; NULL until first needed. Set
					 * with cei_cuda.lock held, constant after that */
	CUuuid    uuid;
	char      bus_id[CEI_CUDA_BUS_ID_BYTES];
	int       n_copy_engines;
	int       has_memops;           /* 1: supports 64-bit stream memory operations */
	int       can_flush;            /* 1: a stream wait can also flush writes that came from
					 * other devices */
	int       writes_ordering;      /* CUGPUDirectRDMAWritesOrdering: for whom the writes of
					 * network interfaces are in order without a flush */
	int       capability_major;
	int       capability_minor;
	_Atomic int fault;              /* CUresult with which the driver has given up the context,
					 * so that every call in it fails; 0: it has not */
};

struct cei_cuda {
	struct cei_report    *report;
	int                   version;  /* of the driver, as 1000 * major + 10 * minor */
	struct cei_cuda_calls calls;
	pthread_mutex_t       lock;
	uint32_t              n_gpus;
	struct cei_cuda_gpu  *gpus;
};

/* What cei_cuda_push() changed in the calling thread, and cei_cuda_pop() restores. */
struct cei_cuda_hold {
	CUstreamCaptureMode capture_mode;
	int                 is_pushed;  /* the context was not current before */
};

/* Whether kernels are loaded when they are launched first (CUDA_MODULE_LOADING), and not with their
 * module. */
int  cei_cuda_loads_lazily(void);

/* Returns the primary context of a GPU; the first call creates and retains it. CEOV_ERR_INVALID:
 * there is no such GPU. Any thread. */
int  cei_cuda_context(struct cei_cuda *cuda, uint32_t gpu, CUcontext *ret_context);

/*
 * cei_cuda_push() makes the GPU's primary context current, and lets the thread make calls
 * (allocations, queries) that a graph capture elsewhere in the process would forbid.
 * cei_cuda_pop() restores both. Pairs may nest.
 */
int  cei_cuda_push(struct cei_cuda *cuda, uint32_t gpu, struct cei_cuda_hold *ret_hold);
void cei_cuda_pop(struct cei_cuda *cuda, const struct cei_cuda_hold *hold);

/* Polls until everything queued on the stream has ended. CUDA_ERROR_NOT_READY: it has not by the
 * deadline, a time of cei_now_ns(). The stream's context must be current. */
CUresult cei_cuda_idle(struct cei_cuda *cuda, CUstream stream, uint64_t deadline_ns);

/* Returns how many SMs a green context leaves to the kernels of its stream; 0: the stream belongs
 * to no green context, or the driver is older than 12.4 and does not know. Any thread. */
uint32_t cei_cuda_stream_sms(const struct cei_cuda *cuda, uint32_t gpu, CUstream stream);

/* Notes that a call in the GPU's context has failed, and tells what was noted: the first error that
 * lasts until the process ends, or CUDA_SUCCESS. Any thread. */
void     cei_cuda_note(struct cei_cuda *cuda, uint32_t gpu, CUresult result);
CUresult cei_cuda_fault(const struct cei_cuda *cuda, uint32_t gpu);

/* Raises CEOV_ERR_CUDA with the given text, and with the name and description of result. rank: the
 * rank that is to blame, or CEOV_NOBODY. */
int  cei_cuda_raise(struct cei_cuda *cuda, CUresult result, uint32_t rank,
		    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif /* CEI_CUDA_TABLE_H */
