/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The table of this build's movers. A new mover needs a declaration and a line here. */

#include "backend/place.h"

#include <stddef.h>
#include <string.h>

#include "config.h"

extern const struct cei_place_ops cei_backend_host;
extern const struct cei_place_ops cei_backend_cuda;
extern const struct cei_place_ops cei_backend_net;

const struct cei_place_ops *const cei_backends[] = {
	&cei_backend_host,
#if HAVE_CUDA
	&cei_backend_cuda,
#endif
	&cei_backend_net,
	NULL,
};

const struct cei_place_ops *cei_backend_named(const char *name)
{
	uint32_t i;

	for (i = 0; cei_backends[i]; i++)
		if (!strcmp(cei_backends[i]->name, name))
			return cei_backends[i];
	return NULL;
}
