/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_GPU_CUDA_H
#define CEI_CHANNEL_GPU_CUDA_H

/* A rank's channel on its GPU, for *_cuda.c files of channels and of their pools. */

#include "base/cuda_table.h"
#include "kernels/module.h"
#include "ops/channel/gpu.h"
#include "ops/exec_cuda/order_cuda.h"

struct cei_gpu_channel {
	struct cei_cuda            *cuda;
	uint32_t                    gpu;
	struct cei_module          *module;
	void                       *functions[CEI_GPU_KERNELS]; /* CUfunction */
	struct cei_channel_status  *status;             /* pinned */
	struct cei_channel_place    place;
	struct cei_gpu_order        calls;              /* guarded by the channel's lock, as is all
							 * that follows */
	struct cei_gpu_order        messages_order;
	struct cei_channel_run      run;
	struct cei_channel_messages messages;
};

/* Queues a kernel of the channel, if it has blocks. parameters: its one struct. */
CUresult cei_gpu_channel_launch(const ceov_channel *channel, const struct cei_gpu_launch *how,
				void *parameters, CUstream stream);

/* Returns 0, or raises what the driver has answered. */
int cei_gpu_channel_check(const ceov_channel *channel, CUresult result, const char *what);

#endif /* CEI_CHANNEL_GPU_CUDA_H */
