/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stands for the tables by which processes share memory. Fuzzers read descriptions of memory, and
 * share none: whoever calls one of these functions calls NULL. */

#include "ipc/share.h"
#include "ipc/share_cuda.h"

const struct cei_share_ops cei_share_host;
const struct cei_share_ops cei_share_cuda;
