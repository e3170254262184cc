/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The table of transports that a transport has had to do with. */

#include "net/ucx_remote.h"

#include <stdlib.h>

/* Processes that come and go leave their entries, of 40 bytes. */
#define REMOTES_MAX 131072u

struct cei_ucx_remote *cei_ucx_remote_get(struct cei_ucx *ucx, uint64_t identity)
{
	/* Identities are random numbers: any bits of them do. */
	struct cei_ucx_remote **slot = &ucx->remotes[identity % CEI_UCX_REMOTE_SLOTS];
	struct cei_ucx_remote *remote;

	for (remote = *slot; remote; remote = remote->next)
		if (remote->identity == identity)
			return remote;
	if (ucx->n_remotes == REMOTES_MAX)
		return NULL;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return NULL;
	remote->identity = identity;
	remote->next = *slot;
	*slot = remote;
	ucx->n_remotes++;
	return remote;
}

void cei_ucx_remotes_fini(struct cei_ucx *ucx)
{
	struct cei_ucx_remote *remote;
	uint32_t i;

	for (i = 0; i < CEI_UCX_REMOTE_SLOTS; i++)
		while ((remote = ucx->remotes[i])) {
			ucx->remotes[i] = remote->next;
			free(remote);
		}
}
