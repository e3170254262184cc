/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Memory of clients under torture where the library is built without CUDA. */

#include "system/torture_memory.h"

#include <check.h>
#include <stddef.h>
#include <string.h>

struct torture_memory *torture_memory_open(int gpu)
{
	ck_assert_msg(gpu < 0, "GPU %d: this test is built without CUDA", gpu);
	return NULL;
}

void torture_memory_put(struct torture_memory *memory, void *buffer, const void *from,
			uint64_t n_bytes)
{
	(void)memory;
	memcpy(buffer, from, n_bytes);
}

void torture_memory_get(struct torture_memory *memory, void *to, const void *buffer,
			uint64_t n_bytes)
{
	(void)memory;
	memcpy(to, buffer, n_bytes);
}
