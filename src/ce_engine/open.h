/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPEN_H
#define CEI_OPEN_H

#include <ceoverlap/ceoverlap.h>

struct cei_place_ops;                 /* backend/place.h */
struct cei_transport_ops;               /* net/transport.h */

/* ceov_open() with a table of movers to choose from, which NULL ends and which stays until the
 * context is closed, and with what carries messages to other nodes; NULL: UCX. */
int cei_context_open(const struct ceov_config *config,
		     const struct cei_place_ops *const *movers,
		     const struct cei_transport_ops *transport, ceov_context **ret_context);

#endif /* CEI_OPEN_H */
