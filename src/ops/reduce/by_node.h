/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BY_NODE_H
#define CEI_BY_NODE_H

/* Sums over several nodes in two levels: see by_node.c. */

#include "ops/core/run.h"

#define CEI_BY_NODE_STAGES 3u

/* How many slots for a part scratch has for each rank of the group; by_node.c says why these are
 * enough. */
#define CEI_BY_NODE_SLOTS  3u

/* Whether the op adds by node: that was asked for, and the group has several nodes. */
int cei_by_node_is_used(const ceov_op *op);

/* As the functions of struct cei_op_kind. */
int cei_by_node_build(ceov_op *op);
int cei_by_node_job(const struct cei_run *run);

#endif /* CEI_BY_NODE_H */
