/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Loads the embedded kernels into a GPU's primary context, and launches them. */

#include "kernels/module.h"

#include <stdlib.h>
#include <string.h>

#include "base/cuda_table.h"

extern const unsigned char cei_kernels_fatbin[]
	__attribute__((visibility("hidden")));          /* kernels_fatbin.S */

static const char *const names[] = {
	"cei_kernel_raise",
	"cei_kernel_await",
	"cei_kernel_pingpong",
	"cei_kernel_spin",
	"cei_kernel_fill",
	"cei_kernel_verify",
	"cei_kernel_fill_rows",
	"cei_kernel_verify_rows",
	"cei_kernel_consume",
	"cei_kernel_arrive",
	"cei_kernel_produce",
	"cei_kernel_produce_rounds",
	"cei_kernel_consume_rounds",
	"cei_kernel_fill_bf16",
	"cei_kernel_compare_bf16",
	"cei_kernel_reference",
	"cei_kernel_compare_near",
	"cei_reduce_bf16",
	"cei_reduce_fp16",
	"cei_reduce_fp32",
	"cei_op_begin",
	"cei_op_await",
	"cei_gemm_bf16_128x256",
	"cei_gemm_bf16_128x192",
	"cei_gemm_bf16_128x128",
	"cei_gemm_fp16_128x256",
	"cei_gemm_fp16_128x192",
	"cei_gemm_fp16_128x128",
	"cei_gemm_bf16_128x256_kn",
	"cei_gemm_bf16_128x192_kn",
	"cei_gemm_bf16_128x128_kn",
	"cei_gemm_fp16_128x256_kn",
	"cei_gemm_fp16_128x192_kn",
	"cei_gemm_fp16_128x128_kn",
};

#define N_KERNELS (sizeof(names) / sizeof(names[0]))

struct cei_module {
	struct cei_cuda *cuda;
	uint32_t         gpu;
	CUmodule         module;
	CUfunction       functions[N_KERNELS];
};

/* Asking for an attribute loads a function where cuFuncLoad is missing. */
static CUresult load_function(struct cei_module *module, size_t index)
{
	const struct cei_cuda_calls *calls = &module->cuda->calls;
	CUfunction *function = &module->functions[index];
	CUresult result;
	int n_registers;

	result = calls->module_function(function, module->module, names[index]);
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

	result = cuda->calls.module_load(&module->module, cei_kernels_fatbin);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(cuda, result, CEOV_NOBODY,
				      "GPU %u (compute capability %d.%d): loading "
				      "kernels", module->gpu,
				      cuda->gpus[module->gpu].capability_major,
				      cuda->gpus[module->gpu].capability_minor);
	for (i = 0; i < N_KERNELS; i++) {
		result = load_function(module, i);
		if (result != CUDA_SUCCESS)
			return cei_cuda_raise(cuda, result, CEOV_NOBODY,
					      "GPU %u: loading kernel %s", module->gpu,
					      names[i]);
	}
	return 0;
}

int cei_module_open(struct cei_cuda *cuda, uint32_t gpu, struct cei_module **ret_module)
{
	struct cei_module *module = calloc(1, sizeof(*module));
	struct cei_cuda_hold hold;
	int r;

	if (!module)
		return cei_raise(cuda->report, CEOV_ERR_NO_MEMORY, 0,
				 "GPU %u: no memory for kernels", gpu);
	module->cuda = cuda;
	module->gpu = gpu;
	r = cei_cuda_push(cuda, gpu, &hold);
	if (r)
		goto fail;
	r = load(module);
	cei_cuda_pop(cuda, &hold);
	if (r)
		goto fail;
	*ret_module = module;
	return 0;
fail:
	cei_module_close(module);
	return r;
}

void cei_module_close(struct cei_module *module)
{
	struct cei_cuda_hold hold;

	if (!module)
		return;
	if (module->module && !cei_cuda_push(module->cuda, module->gpu, &hold)) {
		/* Fails after a sticky error only: then it is gone already. */
		(void)module->cuda->calls.module_unload(module->module);
		cei_cuda_pop(module->cuda, &hold);
	}
	free(module);
}

int cei_module_find(struct cei_module *module, const char *name, void **ret_function)
{
	size_t i;

	for (i = 0; i < N_KERNELS; i++) {
		if (strcmp(names[i], name))
			continue;
		*ret_function = module->functions[i];
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
