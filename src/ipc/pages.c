/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Pieces of pinned memory: made by one pin() each, never cut or joined, since a driver
 * unpins what it has pinned as a whole. A user counts at every piece that it touches. */

#include "ipc/pages.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define ROOM_MIN 16u

struct cei_pages_piece {
	uint64_t base;
	uint64_t end;
	uint32_t n_users;
	int      is_foreign;            /* somebody else has pinned it */
};

/* The first piece that ends behind this address. */
static uint32_t first_behind(const struct cei_pages *pages, uint64_t address)
{
	uint32_t low = 0, high = pages->n_pieces, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (pages->pieces[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int make_room(struct cei_pages *pages)
{
	uint32_t n_room = pages->n_room ? 2 * pages->n_room : ROOM_MIN;
	struct cei_pages_piece *pieces;

	if (pages->n_pieces < pages->n_room)
		return 0;
	pieces = realloc(pages->pieces, n_room * sizeof(*pieces));
	if (!pieces)
		return CEOV_ERR_NO_MEMORY;
	pages->pieces = pieces;
	pages->n_room = n_room;
	return 0;
}

static int add_piece(struct cei_pages *pages, uint32_t index,
		     const struct cei_pages_piece *range,
		     const struct cei_pages_driver *driver)
{
	int r = make_room(pages);

	if (!r)
		r = driver->pin(driver->arg, range->base, range->end - range->base);
	if (r < 0)
		return r;
	memmove(&pages->pieces[index + 1], &pages->pieces[index],
		(pages->n_pieces - index) * sizeof(*range));
	pages->pieces[index] = *range;
	pages->pieces[index].is_foreign = r == CEOV_NONE;
	pages->n_pieces++;
	return 0;
}

static void remove_piece(struct cei_pages *pages, uint32_t index,
			 const struct cei_pages_driver *driver)
{
	if (!pages->pieces[index].is_foreign)
		driver->unpin(driver->arg, pages->pieces[index].base);
	pages->n_pieces--;
	memmove(&pages->pieces[index], &pages->pieces[index + 1],
		(pages->n_pieces - index) * sizeof(*pages->pieces));
}

int cei_pages_take(struct cei_pages *pages, uint64_t base, uint64_t end,
		   const struct cei_pages_driver *driver)
{
	uint32_t i = first_behind(pages, base);
	struct cei_pages_piece gap = { .base = base, .n_users = 1 };
	int r = 0;

	for (; !r && gap.base < end; i++) {
		if (i < pages->n_pieces && pages->pieces[i].base <= gap.base) {
			pages->pieces[i].n_users++;
			gap.base = pages->pieces[i].end;
			continue;
		}
		gap.end = end;
		if (i < pages->n_pieces && pages->pieces[i].base < end)
			gap.end = pages->pieces[i].base;
		r = add_piece(pages, i, &gap, driver);
		if (!r)
			gap.base = gap.end;
	}
	if (r)                          /* what has been counted ends here */
		cei_pages_give(pages, base, gap.base, driver);
	return r;
}

void cei_pages_give(struct cei_pages *pages, uint64_t base, uint64_t end,
		    const struct cei_pages_driver *driver)
{
	uint32_t i = first_behind(pages, base);

	while (i < pages->n_pieces && pages->pieces[i].base < end) {
		if (--pages->pieces[i].n_users)
			i++;
		else
			remove_piece(pages, i, driver);
	}
	if (pages->n_pieces)
		return;
	free(pages->pieces);
	memset(pages, 0, sizeof(*pages));
}
