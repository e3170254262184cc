/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OPEN_H
#define CEI_OPEN_H

#include <ceoverlap/ceoverlap.h>

struct cei_backend_ops;                 /* backend/backend.h */

/* ceov_open() with a table of movers to choose from, which NULL ends and which stays until the
 * context is closed. */
int cei_context_open(const struct ceov_config *config,
		     const struct cei_backend_ops *const *movers, ceov_context **ret_context);

#endif /* CEI_OPEN_H */
