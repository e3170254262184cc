/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The functions of kernels/module.h in a build without CUDA, where a struct cei_cuda never
 * exists. */

#include "kernels/module.h"

int cei_module_open(struct cei_cuda *cuda, uint32_t gpu, const struct cei_module_image *image,
		    struct cei_module **module)
{
	(void)cuda;
	(void)gpu;
	(void)image;
	(void)module;
	return CEOV_ERR_INVALID;
}

void cei_module_close(struct cei_module *module)
{
	(void)module;
}

int cei_module_find(struct cei_module *module, const char *name, void **ret_function)
{
	(void)module;
	(void)name;
	(void)ret_function;
	return CEOV_ERR_INVALID;
}

int cei_module_launch(struct cei_module *module, const struct cei_module_launch *launch)
{
	(void)module;
	(void)launch;
	return CEOV_ERR_INVALID;
}
