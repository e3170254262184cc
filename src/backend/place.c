/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes backends with their private state, undoes a failed open, and says what a backend
 * serves and reaches. */

#include "backend/place.h"

#include <stdlib.h>
#include <string.h>

int cei_backend_open(struct cei_backend *backend, const struct cei_place_ops *ops,
		     struct cei_site *site, uint32_t member, struct ceov_place place)
{
	int r;

	memset(backend, 0, sizeof(*backend));
	if ((ops->caps & CEI_CAPS_NEEDED) != CEI_CAPS_NEEDED)
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "%s: this backend does not say that marks come behind their "
				 "bytes and that what ended has arrived, which plans need",
				 ops->name);
	backend->ops = ops;
	backend->site = site;
	backend->member = member;
	backend->place = place;
	backend->private = calloc(1, ops->backend_bytes);
	if (!backend->private)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s: no memory for the backend", ops->name);
	r = ops->open(backend);
	if (r)
		cei_backend_close(backend);
	return r;
}

void cei_backend_close(struct cei_backend *backend)
{
	if (backend->private)
		backend->ops->close(backend);
	free(backend->private);
	memset(backend, 0, sizeof(*backend));
}

int cei_backend_serves(const struct cei_place_ops *ops, enum ceov_place_kind kind)
{
	return (ops->serves >> kind & 1) != 0;
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

int cei_backend_reaches(struct cei_backend *backend, const struct cei_memory *memory)
{
	return backend->ops->memory_reaches ? backend->ops->memory_reaches(backend, memory)
		: memory->address != 0;
}
