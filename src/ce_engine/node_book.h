/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NODE_BOOK_H
#define CEI_NODE_BOOK_H

#include <ceoverlap/ceoverlap.h>

/* Has the processes of this node share one copy of the book of a group of several nodes: that
 * which the process with the node's lowest rank offers. All of them call it when they have met.
 * Does nothing in a group of one node, or if this process is the only one of its node. Where that
 * process has no memory for the copy, each keeps its own. Errors are raised. */
int cei_node_book_share(ceov_context *context);

#endif /* CEI_NODE_BOOK_H */
