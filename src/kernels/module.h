/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MODULE_H
#define CEI_MODULE_H

/*
 * Loads the embedded kernels on a GPU. All kernels of an image are loaded at once: otherwise the
 * first launch of a kernel would wait until the GPU is idle, which may never happen while another
 * kernel awaits a mark. This header does not need cuda.h.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cuda_driver.h"

struct cei_module;

struct cei_module_image {
	const unsigned char *fatbin;
	const char *const   *names;     /* of the kernels in fatbin */
	size_t               n_names;
};

/* The library's kernels. Those of tools and tests are in tools/kernels. */
extern const struct cei_module_image cei_kernels;

struct cei_module_launch {
	const char *name;               /* the kernel's name */
	uint32_t    n_blocks;
	uint32_t    n_threads;          /* of each block */
	uint32_t    shared_bytes;       /* dynamic shared memory of each block */
	void       *stream;             /* CUstream */
	void      **arguments;          /* address of each argument */
};

/* Loads the kernels of an image and adds them to *module, which must be NULL at first and belongs
 * to one GPU. On failure *module stays unchanged. CEOV_ERR_CUDA: for example, the GPU is older than
 * the kernels' PTX. CEOV_ERR_INVALID: the build has no CUDA. */
int  cei_module_open(struct cei_cuda *cuda, uint32_t gpu, const struct cei_module_image *image,
		     struct cei_module **module);

/* Unloads all images of the module. None of their kernels may be running. NULL is allowed. */
void cei_module_close(struct cei_module *module);

/* Finds a kernel by its name and returns it as a CUfunction. CEOV_ERR_INVALID, raised with the
 * name: there is no such kernel. */
int  cei_module_find(struct cei_module *module, const char *name, void **ret_function);

/* Queues a kernel on launch->stream. Any thread. */
int  cei_module_launch(struct cei_module *module, const struct cei_module_launch *launch);

#endif /* CEI_MODULE_H */
