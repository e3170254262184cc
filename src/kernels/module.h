/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MODULE_H
#define CEI_MODULE_H

/*
 * Embedded kernels on one GPU. All of an image are loaded at once: a
 * kernel's first launch otherwise waits for the GPU to be idle, which it may never
 * be while another kernel awaits a mark. Needs no cuda.h.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cuda_driver.h"

struct cei_module;

struct cei_module_image {
	const unsigned char *fatbin;
	const char *const   *names;     /* of its kernels */
	size_t               n_names;
};

/* The library's. Those of tools and tests are in tools/kernels. */
extern const struct cei_module_image cei_kernels;

struct cei_module_launch {
	const char *name;               /* of the kernel */
	uint32_t    n_blocks;
	uint32_t    n_threads;          /* per block */
	uint32_t    shared_bytes;       /* dynamic */
	void       *stream;             /* CUstream */
	void      **arguments;          /* address of each argument */
};

/* Adds the image's kernels to *module, which is NULL at first; one GPU, one module. On failure
 * it stays as it was. CEOV_ERR_CUDA where the GPU is older than the kernels' PTX;
 * CEOV_ERR_INVALID in a build without CUDA. */
int  cei_module_open(struct cei_cuda *cuda, uint32_t gpu, const struct cei_module_image *image,
		     struct cei_module **module);

/* Of all its images. No kernel of them runs any more. NULL is allowed. */
void cei_module_close(struct cei_module *module);

/* The kernel as a CUfunction. CEOV_ERR_INVALID names one that does not exist. */
int  cei_module_find(struct cei_module *module, const char *name, void **ret_function);

/* Queues one kernel. Any thread. */
int  cei_module_launch(struct cei_module *module, const struct cei_module_launch *launch);

#endif /* CEI_MODULE_H */
