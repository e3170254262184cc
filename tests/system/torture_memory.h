/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef TORTURE_MEMORY_H
#define TORTURE_MEMORY_H

/* What a client under torture, or a test of it, needs of the memory that its buffers are in: host
 * memory, or a GPU's. Asserts with Check. */

#include <stdint.h>

struct torture_memory;

/* Opens host memory (gpu -1), or a GPU. A process that has opened a GPU must not fork. It stays
 * open until the process ends. */
struct torture_memory *torture_memory_open(int gpu);

/* Copy between the program's memory and a buffer's. They return when all is there. */
void torture_memory_put(struct torture_memory *memory, void *buffer, const void *from,
			uint64_t n_bytes);
void torture_memory_get(struct torture_memory *memory, void *to, const void *buffer,
			uint64_t n_bytes);

#endif /* TORTURE_MEMORY_H */
