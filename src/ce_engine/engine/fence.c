/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "ce_engine/engine/fence.h"

#include <string.h>

#include "base/clock.h"
#include "ce_engine/exec/movers.h"

void cei_fence_init(struct cei_fence *fence, int looks)
{
	fence->look_at_ns = looks ? 0 : CEI_FOREVER;
	pthread_mutex_init(&fence->lock, NULL);
}

void cei_fence_fini(struct cei_fence *fence)
{
	pthread_mutex_destroy(&fence->lock);
}

void cei_fence_look(struct cei_fence *fence, struct cei_movers *movers)
{
	char text[CEI_LOST_BYTES] = "";
	struct cei_backend *backend;
	int error = fence->error;
	uint32_t i;

	for (i = 0; !error && i < movers->n_own; i++) {
		backend = &movers->mover[i].backend;
		if (backend->ops->lost)
			error = backend->ops->lost(backend, text);
	}
	if (error == fence->error)
		return;
	pthread_mutex_lock(&fence->lock);
	fence->error = error;
	memcpy(fence->text, text, sizeof(text));
	pthread_mutex_unlock(&fence->lock);
}

int cei_fence_read(struct cei_fence *fence, char ret_text[CEI_LOST_BYTES])
{
	int error;

	pthread_mutex_lock(&fence->lock);
	error = fence->error;
	if (error)
		memcpy(ret_text, fence->text, sizeof(fence->text));
	pthread_mutex_unlock(&fence->lock);
	return error;
}
