/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Every backend there is, by the place kind it serves. */

#include "backend/backend.h"

#include <stddef.h>

#include "config.h"

extern const struct cei_backend_ops cei_backend_host;
#if HAVE_CUDA
extern const struct cei_backend_ops cei_backend_cuda;
#endif

const struct cei_backend_ops *cei_backend_for(enum ceov_place_kind kind)
{
	switch (kind) {
	case CEOV_PLACE_HOST:
		return &cei_backend_host;
	case CEOV_PLACE_GPU:
#if HAVE_CUDA
		return &cei_backend_cuda;
#else
		return NULL;
#endif
	}
	return NULL;
}
