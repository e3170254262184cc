/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GRAVES_H
#define CEI_GRAVES_H

/*
 * Memory of handles that were released long ago, and of contexts that were closed. It is
 * kept for a while and stays as it was, so that a call with such a handle finds a mark that
 * says so, and does not read what the allocator has given to somebody else.
 *
 * One for the process, since it outlives contexts. Bounded: what is laid in displaces the
 * oldest, which is freed. Any thread, without a lock; also in a forked child.
 */

#include <stddef.h>

/* Handles and contexts that are kept. A context keeps one page of its memory. */
#define CEI_GRAVES_HANDLES  1024u
#define CEI_GRAVES_CONTEXTS 16u

/* Takes memory of malloc(). */
void cei_graves_keep_handle(void *memory);

/* Likewise; only its first page keeps its contents. */
void cei_graves_keep_context(void *memory, size_t n_bytes);

#endif /* CEI_GRAVES_H */
