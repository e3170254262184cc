/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_H
#define CEI_UCX_H

/* The transport over UCX. This header needs none of UCX's. */

#include "net/transport.h"

/* `kinds` and `device` of its configuration are UCX's TLS and NET_DEVICES. */
extern const struct cei_transport_ops cei_transport_ucx;

#endif /* CEI_UCX_H */
