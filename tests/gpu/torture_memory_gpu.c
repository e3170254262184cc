/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Memory of clients under torture where there may be GPUs. */

#include "system/torture_memory.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu_rig.h"

struct torture_memory {                 /* of a GPU; host memory needs none */
	struct gpu gpu;
};

struct torture_memory *torture_memory_open(int gpu)
{
	struct torture_memory *memory;

	if (gpu < 0)
		return NULL;
	memory = calloc(1, sizeof(*memory));
	ck_assert_ptr_nonnull(memory);
	gpu_open(&memory->gpu, (uint32_t)gpu);
	return memory;
}

static void copy(struct torture_memory *memory, void *to, const void *from, uint64_t n_bytes)
{
	if (memory)
		gpu_move(&memory->gpu, to, from, n_bytes);
	else
		memcpy(to, from, n_bytes);
}

void torture_memory_put(struct torture_memory *memory, void *buffer, const void *from,
			uint64_t n_bytes)
{
	copy(memory, buffer, from, n_bytes);
}

void torture_memory_get(struct torture_memory *memory, void *to, const void *buffer,
			uint64_t n_bytes)
{
	copy(memory, to, buffer, n_bytes);
}
