/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MODULE_H
#define CEI_MODULE_H

/*
 * The embedded kernels, loaded on one GPU. All kernels of an image are loaded at once:
 * otherwise a kernel's first launch would wait until the GPU is idle, which may never
 * happen while another kernel awaits a mark. Needs no cuda.h.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cuda_driver.h"

struct cei_module;

struct cei_module_image {
	const unsigned char *fatbin;
	const char *const   *names;     /* the names of its kernels */
	size_t               n_names;
};

/* The library's kernels. Those of tools and tests are in tools/kernels. */
extern const struct cei_module_image cei_kernels;

struct cei_module_launch {
	const char *name;               /* the kernel's name */
	uint32_t    n_blocks;
	uint32_t    n_threads;          /* per block */
	uint32_t    shared_bytes;       /* dynamic */
	void       *stream;             /* CUstream */
	void      **arguments;          /* address of each argument */
};

/* Loads the image's kernels and adds them to *module, which is NULL at first and belongs to
 * one GPU. On failure *module stays as it was. CEOV_ERR_CUDA: the GPU is older than the
 * kernels' PTX, for example. CEOV_ERR_INVALID in a build without CUDA. */
int  cei_module_open(struct cei_cuda *cuda, uint32_t gpu, const struct cei_module_image *image,
		     struct cei_module **module);

/* Unloads all images of the module. None of their kernels may be running. NULL is allowed. */
void cei_module_close(struct cei_module *module);

/* Finds a kernel by its name, as a CUfunction. CEOV_ERR_INVALID, raised with the name:
 * there is no such kernel. */
int  cei_module_find(struct cei_module *module, const char *name, void **ret_function);

/* Queues one kernel. Any thread. */
int  cei_module_launch(struct cei_module *module, const struct cei_module_launch *launch);

#endif /* CEI_MODULE_H */
