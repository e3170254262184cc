/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/overlap/models.h"

#include <string.h>

/* The model "tiny" is for host memory, where a GEMM is slow. */
const struct bench_model bench_models[] = {
	{ "tiny", 256, 512 },
	{ "llama7b", 4096, 11008 },
	{ "llama8b", 4096, 14336 },
	{ "mistral7b", 4096, 14336 },
	{ "llama70b", 8192, 28672 },
	{ "qwen72b", 8192, 29568 },
	{ "gpt3", 12288, 49152 },
	{ "llama405b", 16384, 53248 },
	{ NULL, 0, 0 },
};

const struct bench_model *bench_model_find(const char *name, size_t length)
{
	size_t i;

	for (i = 0; bench_models[i].name; i++)
		if (strlen(bench_models[i].name) == length &&
		    !strncmp(bench_models[i].name, name, length))
			return &bench_models[i];
	return NULL;
}
