/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CONTEXT_LIFE_H
#define CEI_CONTEXT_LIFE_H

/* What every context begins with, and how what it holds is destroyed. open.c adds the rest of a
 * context that has engines of its own. */

#include "ce_engine/objects/object.h"

/* Begins a zeroed context: its report (log NULL: lines go to stderr), lists, locks and the door to
 * engines of this process. */
void cei_context_begin(ceov_context *context, void (*log)(void *, const char *), void *log_arg);

/* Makes the page by which a forked child is recognised. Raises CEOV_ERR_SYSTEM. */
int  cei_context_make_alive(ceov_context *context);

/* Destroys objects of upper layers, then plans, which use signals and buffers, then these. Nothing
 * may be in flight. Waits for a bounded time until peers no longer use what was shared with
 * them. */
void cei_context_destroy_objects(ceov_context *context);

/* Ends what the two first functions began, and makes the context a tombstone, which a stale handle
 * may still be compared with. */
void cei_context_end(ceov_context *context);

#endif /* CEI_CONTEXT_LIFE_H */
