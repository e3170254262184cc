/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The movers of this build: a new one is a declaration and a line here. */

#include "backend/backend.h"

#include <stddef.h>
#include <string.h>

#include "config.h"

extern const struct cei_backend_ops cei_backend_host;
extern const struct cei_backend_ops cei_backend_cuda;

static const struct cei_backend_ops *const movers[] = {
	&cei_backend_host,
#if HAVE_CUDA
	&cei_backend_cuda,
#endif
};

#define N_MOVERS (sizeof(movers) / sizeof(movers[0]))

const struct cei_backend_ops *cei_backend_for(enum ceov_place_kind kind)
{
	uint32_t i;

	for (i = 0; i < N_MOVERS; i++)
		if (movers[i]->kind == kind)
			return movers[i];
	return NULL;
}

const struct cei_backend_ops *cei_backend_named(const char *name)
{
	uint32_t i;

	for (i = 0; i < N_MOVERS; i++)
		if (!strcmp(movers[i]->name, name))
			return movers[i];
	return NULL;
}

enum cei_moves cei_moves_between(enum ceov_place_kind source, enum ceov_place_kind target)
{
	static const enum cei_moves moves[2][2] = {
		[CEOV_PLACE_HOST] = { [CEOV_PLACE_HOST] = CEI_MOVES_WITHIN_HOST,
				      [CEOV_PLACE_GPU] = CEI_MOVES_HOST_TO_GPU },
		[CEOV_PLACE_GPU] = { [CEOV_PLACE_HOST] = CEI_MOVES_GPU_TO_HOST,
				     [CEOV_PLACE_GPU] = CEI_MOVES_AMONG_GPUS },
	};

	return moves[source][target];
}

int cei_backend_moves(const struct cei_backend_ops *ops, enum ceov_place_kind source,
		      enum ceov_place_kind target)
{
	return (ops->moves & cei_moves_between(source, target)) != 0;
}
