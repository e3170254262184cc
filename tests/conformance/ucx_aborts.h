/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef UCX_ABORTS_H
#define UCX_ABORTS_H

/*
 * UCX before 1.14 can end a process by an assertion when another process that it is connected to
 * dies: docs/nodes.md says when. Tests of such losses take that for what it is.
 */

#include <sys/types.h>

/* Whether the UCX of this machine is one that does. Looks in a child, so that the caller and the
 * processes that it forks begin without UCX. */
int ucx_aborts_on_loss(void);

/* Runs the function in a child, which loses its peer, and asserts that the child ends well, or that
 * UCX has aborted it and is one that does. */
void ucx_run_survivor(void (*run)(int number), int number);

#endif /* UCX_ABORTS_H */
