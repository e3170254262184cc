/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Any bytes as the ring of a client, from which a daemon takes launches until there are none, or
 * one is refused. The first 4 bytes say how many launches were taken before, and whether threads of
 * the client wait; the others are entries, from the next one on. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/service_ring.h"

#define HEAD_BYTES  4u
#define ENTRY_BYTES sizeof(struct cei_service_entry)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void *zeroed(size_t n_bytes)
{
	size_t n = (n_bytes + CEI_SERVICE_PAGE - 1) / CEI_SERVICE_PAGE * CEI_SERVICE_PAGE;
	void *area = aligned_alloc(CEI_SERVICE_PAGE, n);

	if (!area)
		abort();
	return memset(area, 0, n);
}

/* Fills the ring, and what its reader has taken before. */
static void fill(struct cei_service_down *down, struct cei_service_reader *reader,
		 const uint8_t *bytes, size_t n_bytes)
{
	uint8_t *ring = (uint8_t *)down->rings;
	size_t i, at;

	atomic_store(&down->n_waiters, bytes[0] & 1);
	reader->n_taken = (uint64_t)bytes[1] | (uint64_t)bytes[2] << 8;
	if (bytes[3])                           /* a ring that was used for long */
		reader->n_taken |= UINT64_MAX << (bytes[3] % 48 + 16);
	at = reader->n_taken % CEI_SERVICE_ENTRIES * ENTRY_BYTES;
	for (i = HEAD_BYTES; i < n_bytes && i < HEAD_BYTES + sizeof(down->rings[0]); i++)
		ring[at++ % sizeof(down->rings[0])] = bytes[i];
}

/* What was taken has to be what is there. */
static void check(const struct cei_service_reader *reader, const struct cei_service_launch *launch)
{
	const struct cei_service_entry *entry =
		&reader->ring->entries[reader->n_taken % CEI_SERVICE_ENTRIES];

	if (atomic_load(&entry->turn) != reader->n_taken + 1 || !launch->number ||
	    launch->number >> 56 || atomic_load(&entry->number) != launch->number ||
	    atomic_load(&entry->plan) != (launch->slot | (uint64_t)launch->generation << 32) ||
	    atomic_load(&entry->base) != launch->base ||
	    atomic_load(&entry->deadline_ns) != launch->deadline_ns)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
	static struct cei_service_down *down;
	static struct cei_service_up *up;
	struct cei_service_reader reader = { 0 };
	struct cei_service_launch launch;
	uint32_t n = 0;
	int r;

	if (n_bytes < HEAD_BYTES)
		return 0;
	if (!down) {
		down = zeroed(cei_service_down_bytes(1));
		up = zeroed(sizeof(*up));
	}
	memset(down->rings, 0, sizeof(down->rings[0]));
	reader.ring = &down->rings[0];
	reader.line = &up->lines[0];
	fill(down, &reader, bytes, n_bytes);
	while (!(r = cei_service_take(&reader, &launch))) {
		check(&reader, &launch);
		cei_service_took(&reader);
		cei_service_end(up, down, launch.number, -(int)(launch.slot % 16));
		if (++n > CEI_SERVICE_ENTRIES)
			abort();                /* more than a ring holds */
	}
	if (r != CEOV_NONE && r != CEOV_ERR_INVALID)
		abort();
	return 0;
}
