/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_GREEN_H
#define CEI_GPU_GREEN_H

/* Streams of green contexts, whose kernels have only some SMs of a GPU. Asserts with Check. */

#include "gpu_rig.h"

struct gpu_green {
	struct gpu     *gpu;
	enum gpu_stream stream;
	void           *replaced;       /* the rig's own stream */
	void           *library;        /* the driver */
	void           *context;        /* CUgreenCtx */
	uint32_t        n_sms;          /* that the context has: at least as many as were asked
					 * for */
};

/* Returns whether the driver has green contexts. */
int  gpu_green_is_there(void);

/* Replaces a stream of the rig by one of a green context with at least n_sms SMs. Contexts of
 * different parts, which count from 0, share no SM. The stream must be idle, here and at
 * gpu_green_end(), which gives the rig its own stream back. */
void gpu_green_begin(struct gpu_green *green, struct gpu *gpu, enum gpu_stream stream,
		     uint32_t n_sms, uint32_t part);
void gpu_green_end(struct gpu_green *green);

#endif /* CEI_GPU_GREEN_H */
