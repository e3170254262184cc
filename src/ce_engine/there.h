/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_THERE_H
#define CEI_THERE_H

/*
 * The door to a daemon: plans that it can reach are carried out by its engines, and all others by
 * those of this process, as they would be without a daemon. Memory, signals, streams and what
 * kernels do stay in this process; the daemon maps the memory that its plans name.
 */

#include "ce_engine/objects/door.h"

extern const struct cei_door cei_door_there;

/* Connects the context to the daemon at the path. Its members, mappings and engines are there.
 * Raises. CEOV_NONE: the context has no rank that a daemon serves. */
int  cei_there_open(ceov_context *context, const char *path, uint64_t deadline_ns);

/* Ends the connection; the daemon does not move the context's data any more. Accepts a context that
 * has none. */
void cei_there_close(ceov_context *context);

#endif /* CEI_THERE_H */
