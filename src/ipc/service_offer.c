/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Offers of memory to a daemon: gathering, writing and reading them. */

#include "ipc/service_offer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "ipc/wire.h"

int cei_offer_init(struct cei_service_offer *offer, uint32_t n_room)
{
	memset(offer, 0, sizeof(*offer));
	offer->memories = calloc((size_t)n_room + 1, sizeof(*offer->memories));
	offer->fds = calloc((size_t)n_room + 1, sizeof(*offer->fds));
	offer->n_room = n_room;
	return offer->memories && offer->fds ? 0 : CEOV_ERR_NO_MEMORY;
}

void cei_offer_fini(struct cei_service_offer *offer)
{
	free(offer->memories);
	free(offer->fds);
	memset(offer, 0, sizeof(*offer));
}

int cei_offer_add(struct cei_service_offer *offer, struct cei_region *region)
{
	int fd, r;

	assert(offer->n_memories < offer->n_room);
	r = cei_region_describe(region, &offer->memories[offer->n_memories], &fd);
	if (r)
		return r;
	offer->n_memories++;
	if (fd >= 0)
		offer->fds[offer->n_fds++] = fd;
	return 0;
}

size_t cei_offer_bytes(const struct cei_service_offer *offer)
{
	return (size_t)offer->n_memories * CEI_WIRE_REGION_BYTES;
}

void cei_offer_write(const struct cei_service_offer *offer, uint8_t *bytes)
{
	struct cei_writer writer = cei_writer_on(bytes, cei_offer_bytes(offer));
	uint32_t i;

	for (i = 0; i < offer->n_memories; i++)
		cei_put_layout(&writer, &cei_region_layout, &offer->memories[i]);
}

int cei_offer_take(struct cei_service_taken *taken, struct cei_region_wire *ret_wire, int *ret_fd)
{
	struct cei_reader reader;

	if (taken->next_memory == taken->n_memories)
		return CEOV_ERR_INVALID;
	reader = cei_reader_on(taken->bytes + (size_t)taken->next_memory * CEI_WIRE_REGION_BYTES,
			       CEI_WIRE_REGION_BYTES);
	cei_get_layout(&reader, &cei_region_layout, ret_wire);
	if (cei_reader_end(&reader) || (ret_wire->has_fd && taken->next_fd == taken->n_fds))
		return CEOV_ERR_INVALID;
	taken->next_memory++;
	*ret_fd = -1;
	if (!ret_wire->has_fd)
		return 0;
	*ret_fd = taken->fds[taken->next_fd];
	taken->fds[taken->next_fd++] = -1;
	return 0;
}

int cei_offer_is_taken(const struct cei_service_taken *taken)
{
	return taken->next_memory == taken->n_memories && taken->next_fd == taken->n_fds;
}
