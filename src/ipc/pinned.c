/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Ranges of pinned memory. A range is exactly what one call of pin() pinned; it is never split or
 * merged, because a driver unpins only what it pinned in one call. */

#include "ipc/pinned.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define ROOM_MIN 16u

struct cei_pinned_range {
	uint64_t base;
	uint64_t end;
	uint32_t n_users;
};

/* Returns the index of the first range that ends behind this address; n_ranges: there is none. */
static uint32_t first_behind(const struct cei_pinned *pinned, uint64_t address)
{
	uint32_t low = 0, high = pinned->n_ranges, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (pinned->ranges[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int make_room(struct cei_pinned *pinned)
{
	uint32_t n_room = pinned->n_room ? 2 * pinned->n_room : ROOM_MIN;
	struct cei_pinned_range *ranges;

	if (pinned->n_ranges < pinned->n_room)
		return 0;
	ranges = realloc(pinned->ranges, n_room * sizeof(*ranges));
	if (!ranges)
		return CEOV_ERR_NO_MEMORY;
	pinned->ranges = ranges;
	pinned->n_room = n_room;
	return 0;
}

static void free_if_empty(struct cei_pinned *pinned)
{
	if (pinned->n_ranges)
		return;
	free(pinned->ranges);
	memset(pinned, 0, sizeof(*pinned));
}

static int add(struct cei_pinned *pinned, uint32_t index, const struct cei_pinned_range *range,
	       const struct cei_pinned_driver *driver)
{
	int r = make_room(pinned);

	if (!r)
		r = driver->pin(driver->arg, range->base, range->end - range->base);
	if (r) {
		free_if_empty(pinned);
		return r;
	}
	memmove(&pinned->ranges[index + 1], &pinned->ranges[index],
		(pinned->n_ranges - index) * sizeof(*range));
	pinned->ranges[index] = *range;
	pinned->n_ranges++;
	return 0;
}

int cei_pinned_take(struct cei_pinned *pinned, uint64_t base, uint64_t end,
		    const struct cei_pinned_driver *driver)
{
	const struct cei_pinned_range made = { base, end, 1 };
	uint32_t i = first_behind(pinned, base);

	if (i == pinned->n_ranges || pinned->ranges[i].base >= end)
		return add(pinned, i, &made, driver);
	if (pinned->ranges[i].base > base || pinned->ranges[i].end < end)
		return CEI_PINNED_IN_PART;
	pinned->ranges[i].n_users++;
	return 0;
}

void cei_pinned_give(struct cei_pinned *pinned, uint64_t base,
		     const struct cei_pinned_driver *driver)
{
	uint32_t i = first_behind(pinned, base);

	if (i == pinned->n_ranges || --pinned->ranges[i].n_users)
		return;
	driver->unpin(driver->arg, pinned->ranges[i].base);
	pinned->n_ranges--;
	memmove(&pinned->ranges[i], &pinned->ranges[i + 1],
		(pinned->n_ranges - i) * sizeof(*pinned->ranges));
	free_if_empty(pinned);
}
