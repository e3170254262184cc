/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes green contexts by functions of the driver that the library does not use. */

#include "gpu_green.h"

#include <dlfcn.h>
#include <string.h>

#include "base/cuda_table.h"

#define PARTS_MAX 16u

struct calls {
	PFN_cuDeviceGet_v2000                   device;
	PFN_cuDeviceGetDevResource_v12040       resource;
	PFN_cuDevSmResourceSplitByCount_v12040  split;
	PFN_cuDevResourceGenerateDesc_v12040    describe;
	PFN_cuGreenCtxCreate_v12040             create;
	PFN_cuGreenCtxDestroy_v12040            destroy;
	PFN_cuGreenCtxStreamCreate_v12050       stream;
	PFN_cuStreamDestroy_v4000               stream_destroy;
};

static int find(void *library, const char *name, void *ret_call)
{
	void *address = dlsym(library, name);

	memcpy(ret_call, &address, sizeof(address));
	return address != NULL;
}

static int find_all(void *library, struct calls *calls)
{
	return find(library, "cuDeviceGet", &calls->device) &&
	       find(library, "cuDeviceGetDevResource", &calls->resource) &&
	       find(library, "cuDevSmResourceSplitByCount", &calls->split) &&
	       find(library, "cuDevResourceGenerateDesc", &calls->describe) &&
	       find(library, "cuGreenCtxCreate", &calls->create) &&
	       find(library, "cuGreenCtxDestroy", &calls->destroy) &&
	       find(library, "cuGreenCtxStreamCreate", &calls->stream) &&
	       find(library, "cuStreamDestroy_v2", &calls->stream_destroy);
}

static void check(CUresult result, const char *what)
{
	ck_assert_msg(result == CUDA_SUCCESS, "%s: error %d", what, (int)result);
}

int gpu_green_is_there(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	struct calls calls;
	int is_there = library && find_all(library, &calls);

	if (library)
		dlclose(library);
	return is_there;
}

void gpu_green_begin(struct gpu_green *green, struct gpu *gpu, enum gpu_stream stream,
		     uint32_t n_sms, uint32_t part)
{
	CUdevResource whole, rest, parts[PARTS_MAX];
	unsigned int n_parts = PARTS_MAX;
	CUdevResourceDesc described;
	CUstream made = NULL;
	struct calls calls;
	CUgreenCtx context;
	CUdevice device;

	memset(green, 0, sizeof(*green));
	green->library = dlopen("libcuda.so.1", RTLD_NOW);
	ck_assert(green->library && find_all(green->library, &calls));
	check(calls.device(&device, (int)gpu->index), "cuDeviceGet");
	check(calls.resource(device, &whole, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
	check(calls.split(parts, &n_parts, &whole, &rest, 0, n_sms),
	      "cuDevSmResourceSplitByCount");
	ck_assert_uint_lt(part, n_parts);
	check(calls.describe(&described, &parts[part], 1), "cuDevResourceGenerateDesc");
	check(calls.create(&context, described, device, CU_GREEN_CTX_DEFAULT_STREAM),
	      "cuGreenCtxCreate");
	check(calls.stream(&made, context, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
	green->gpu = gpu;
	green->stream = stream;
	green->context = context;
	green->n_sms = parts[part].sm.smCount;
	green->replaced = gpu->streams[stream];
	gpu->streams[stream] = made;
}

void gpu_green_end(struct gpu_green *green)
{
	struct gpu *gpu = green->gpu;
	struct calls calls;

	ck_assert(find_all(green->library, &calls));
	check(calls.stream_destroy(gpu->streams[green->stream]), "cuStreamDestroy");
	check(calls.destroy(green->context), "cuGreenCtxDestroy");
	gpu->streams[green->stream] = green->replaced;
	dlclose(green->library);
}
