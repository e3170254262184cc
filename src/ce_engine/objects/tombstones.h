/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TOMBSTONES_H
#define CEI_TOMBSTONES_H

/*
 * Tombstones: the memory of handles that were released, and of contexts that were closed, is
 * kept for a while. So a call with such a handle finds there that it was released, instead of
 * memory that belongs to somebody else.
 *
 * One for the process, because it outlives contexts. Bounded: a new entry displaces the
 * oldest one, which is freed. Any thread, without a lock; also in a forked child.
 */

#include <stddef.h>

/* How many released handles, and how many closed contexts, are kept at most. Of a context the
 * pages behind the first are given back to the system, so it costs little. */
#define CEI_TOMBSTONES_HANDLES  1024u
#define CEI_TOMBSTONES_CONTEXTS 16u

/* Takes ownership of malloc()ed memory. */
void cei_tombstones_keep_handle(void *memory);

/* The same for a context; only its first page keeps its contents. */
void cei_tombstones_keep_context(void *memory, size_t n_bytes);

#endif /* CEI_TOMBSTONES_H */
