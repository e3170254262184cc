/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The slots of a rail, and the lines that copy between them and memory of GPUs. */

#include "net/far_slots.h"

#include <string.h>

#define N_SLOTS   (CEI_FAR_LINES * CEI_FAR_SLOTS)
#define ALL_BYTES (N_SLOTS * CEI_FAR_SLOT_BYTES)

void cei_far_slots_init(struct cei_far_slots *slots, const struct cei_far_copier_ops *ops,
			void *arg, struct cei_far_table *table)
{
	memset(slots, 0, sizeof(*slots));
	slots->ops = ops;
	slots->arg = arg;
	slots->table = table;
}

static void place_slots(struct cei_far_slots *slots)
{
	uint64_t address = (uint64_t)(uintptr_t)slots->host;
	uint32_t i;

	for (i = 0; i < N_SLOTS; i++) {
		slots->slots[i].address = address + i * CEI_FAR_SLOT_BYTES;
		slots->slots[i].direction = i / CEI_FAR_SLOTS;
	}
}

static int open_memory(struct cei_far_slots *slots, uint32_t unit)
{
	int r;

	if (slots->host)
		return 0;
	r = slots->ops->memory_open(slots->arg, unit, ALL_BYTES, &slots->host);
	if (r)
		return r;
	slots->host_unit = unit;
	r = cei_far_memory_open(slots->table, slots->host, ALL_BYTES, &slots->registered);
	if (r) {
		slots->ops->memory_close(slots->arg, unit, slots->host);
		slots->host = NULL;
		return r;
	}
	place_slots(slots);
	return 0;
}

int cei_far_slots_use(struct cei_far_slots *slots, uint32_t unit)
{
	struct cei_far_line *line;
	uint32_t direction;
	int r;

	if (!slots->ops || unit >= CEI_FAR_UNITS_MAX)
		return cei_raise(slots->table->transport->config.report, CEOV_ERR_NO_ROUTE, 0,
				 "net: this process has nothing that copies between host memory "
				 "and memory of its member %u", unit);
	r = open_memory(slots, unit);
	for (direction = 0; !r && direction < CEI_FAR_LINES; direction++) {
		line = &slots->lines[unit][direction];
		if (!line->line)
			r = slots->ops->line_open(slots->arg, unit, direction, &line->line);
	}
	return r;
}

void cei_far_slots_fini(struct cei_far_slots *slots)
{
	uint32_t unit, direction;

	for (unit = 0; unit < CEI_FAR_UNITS_MAX; unit++)
		for (direction = 0; direction < CEI_FAR_LINES; direction++)
			if (slots->lines[unit][direction].line)
				slots->ops->line_close(slots->lines[unit][direction].line);
	if (slots->host) {
		(void)cei_far_memory_close(slots->table, slots->registered);
		slots->ops->memory_close(slots->arg, slots->host_unit, slots->host);
	}
	memset(slots, 0, sizeof(*slots));
}

struct cei_far_slot *cei_far_slots_take(struct cei_far_slots *slots,
					enum cei_far_line_direction direction)
{
	struct cei_far_slot *slot = &slots->slots[direction * CEI_FAR_SLOTS];
	uint32_t i;

	for (i = 0; i < CEI_FAR_SLOTS; i++, slot++) {
		if (slot->state != CEI_FAR_SLOT_FREE)
			continue;
		slot->state = CEI_FAR_SLOT_BUSY;
		return slot;
	}
	return NULL;
}

void cei_far_slot_free(struct cei_far_slot *slot)
{
	slot->state = CEI_FAR_SLOT_FREE;
	slot->peer = NULL;
	slot->memory = NULL;
}

struct cei_far_slot *cei_far_slots_find(struct cei_far_slots *slots,
					enum cei_far_line_direction direction,
					const struct cei_far_peer *peer, uint32_t index)
{
	struct cei_far_slot *slot = &slots->slots[direction * CEI_FAR_SLOTS];
	uint32_t i;

	for (i = 0; i < CEI_FAR_SLOTS; i++, slot++)
		if (slot->state != CEI_FAR_SLOT_FREE && slot->peer == peer &&
		    slot->index == index)
			return slot;
	return NULL;
}

int cei_far_slots_copy(struct cei_far_slots *slots, struct cei_far_slot *slot, uint64_t address)
{
	struct cei_far_line *line = &slots->lines[slot->unit][slot->direction];
	int is_out = slot->direction == CEI_FAR_LINE_OUT;
	int r = line->error;

	if (!r)
		r = slots->ops->copy(line->line, is_out ? slot->address : address,
				     is_out ? address : slot->address, slot->n_bytes);
	if (r) {
		line->error = r;
		return r;
	}
	slot->number = ++line->n_begun;
	slot->error = 0;
	slot->state = CEI_FAR_SLOT_COPYING;
	slots->n_copying++;
	return 0;
}

static void reap(const struct cei_far_slots *slots, struct cei_far_line *line)
{
	int r;

	if (line->error || line->n_ended == line->n_begun)
		return;
	r = slots->ops->reap(line->line, &line->n_ended);
	if (r)
		line->error = r;
}

/* Looks at the line once for all its slots, and gives out those that have ended one by one. */
struct cei_far_slot *cei_far_slots_ended(struct cei_far_slots *slots)
{
	struct cei_far_slot *slot = slots->slots;
	struct cei_far_line *line;
	uint32_t i;

	if (!slots->n_copying)
		return NULL;
	for (i = 0; i < N_SLOTS; i++, slot++) {
		if (slot->state != CEI_FAR_SLOT_COPYING)
			continue;
		line = &slots->lines[slot->unit][slot->direction];
		if (line->n_ended < slot->number)
			reap(slots, line);
		if (line->n_ended < slot->number && !line->error)
			continue;
		slot->error = line->n_ended < slot->number ? line->error : 0;
		slot->state = CEI_FAR_SLOT_COPIED;
		slots->n_copying--;
		return slot;
	}
	return NULL;
}

int cei_far_slots_is_copying(const struct cei_far_slots *slots, const struct cei_far_peer *peer)
{
	const struct cei_far_slot *slot = slots->slots;
	uint32_t i;

	for (i = 0; i < N_SLOTS; i++, slot++)
		if (slot->state == CEI_FAR_SLOT_COPYING && slot->peer == peer)
			return 1;
	return 0;
}
