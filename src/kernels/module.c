/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Loads the embedded kernels into a GPU's primary context, and launches them. */

#include "kernels/module.h"

#include <stdlib.h>
#include <string.h>

#include "base/cuda_table.h"

struct cei_module {
	struct cei_cuda               *cuda;
	uint32_t                       gpu;
	const struct cei_module_image *image;
	struct cei_module             *next;    /* the module of another image, or NULL */
	CUmodule                       module;
	CUfunction                     functions[];     /* [i]: the kernel image->names[i] */
};

/* Finds a kernel and loads it now. Drivers without cuFuncLoad load it when an attribute of it is
 * queried. */
static CUresult load_function(struct cei_module *module, size_t index)
{
	const struct cei_cuda_calls *calls = &module->cuda->calls;
	CUfunction *function = &module->functions[index];
	CUresult result;
	int n_registers;

	result = calls->module_function(function, module->module,
					module->image->names[index]);
	if (result != CUDA_SUCCESS)
		return result;
	if (calls->function_load)
		return calls->function_load(*function);
	return calls->function_attribute(&n_registers, CU_FUNC_ATTRIBUTE_NUM_REGS,
					 *function);
}

static int load(struct cei_module *module)
{
	struct cei_cuda *cuda = module->cuda;
	CUresult result;
	size_t i;

	result = cuda->calls.module_load(&module->module, module->image->fatbin);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u (compute capability %d.%d): loading "
				      "kernels", module->gpu,
				      cuda->gpus[module->gpu].capability_major,
				      cuda->gpus[module->gpu].capability_minor);
	for (i = 0; i < module->image->n_names; i++) {
		result = load_function(module, i);
		if (result != CUDA_SUCCESS)
			return cei_cuda_raise(cuda, result, CEOV_NOBODY,
					      "GPU %u: loading kernel %s", module->gpu,
					      module->image->names[i]);
	}
	return 0;
}

int cei_module_open(struct cei_cuda *cuda, uint32_t gpu, const struct cei_module_image *image,
		    struct cei_module **module)
{
	struct cei_module *made = calloc(1, sizeof(*made) +
					 image->n_names * sizeof(made->functions[0]));
	struct cei_cuda_hold hold;
	int r;

	if (!made)
		return cei_raise(cuda->report, CEOV_ERR_NO_MEMORY, 0,
				 "GPU %u: no memory for kernels", gpu);
	made->cuda = cuda;
	made->gpu = gpu;
	made->image = image;
	r = cei_cuda_push(cuda, gpu, &hold);
	if (!r) {
		r = load(made);
		cei_cuda_pop(cuda, &hold);
	}
	if (r) {
		cei_module_close(made);
		return r;
	}
	made->next = *module;
	*module = made;
	return 0;
}

static void close_one(struct cei_module *module)
{
	struct cei_cuda_hold hold;

	if (module->module && !cei_cuda_push(module->cuda, module->gpu, &hold)) {
		/* The push fails only after a sticky CUDA error; then the module is gone. */
		(void)module->cuda->calls.module_unload(module->module);
		cei_cuda_pop(module->cuda, &hold);
	}
	free(module);
}

void cei_module_close(struct cei_module *module)
{
	struct cei_module *next;

	for (; module; module = next) {
		next = module->next;
		close_one(module);
	}
}

int cei_module_find(struct cei_module *module, const char *name, void **ret_function)
{
	const struct cei_module *at;
	size_t i;

	for (at = module; at; at = at->next)
		for (i = 0; i < at->image->n_names; i++)
			if (!strcmp(at->image->names[i], name)) {
				*ret_function = at->functions[i];
				return 0;
			}
	return cei_raise(module->cuda->report, CEOV_ERR_INVALID, 0,
			 "there is no kernel named %s", name);
}

int cei_module_launch(struct cei_module *module, const struct cei_module_launch *launch)
{
	struct cei_cuda *cuda = module->cuda;
	struct cei_cuda_hold hold;
	void *function = NULL;
	CUresult result;
	int r;

	r = cei_module_find(module, launch->name, &function);
	if (!r)
		r = cei_cuda_push(cuda, module->gpu, &hold);
	if (r)
		return r;
	result = cuda->calls.launch(function, launch->n_blocks, 1, 1, launch->n_threads,
				    1, 1, launch->shared_bytes, launch->stream,
				    launch->arguments, NULL);
	cei_cuda_pop(cuda, &hold);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY, "GPU %u: launching %s",
				      module->gpu, launch->name);
	return 0;
}
