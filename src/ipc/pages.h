/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PAGES_H
#define CEI_PAGES_H

/*
 * Pages that are pinned for a driver, and how many use them. A driver pins whole pages,
 * and each once: where two buffers share a page, or lie in one another, the second to
 * come pins only what is missing, and a page stays pinned until its last user has gone.
 *
 * Knows no driver: the caller pins and unpins, and serialises calls on one list.
 */

#include <stdint.h>

struct cei_pages_piece;

struct cei_pages {                      /* zeroed: nothing is pinned */
	struct cei_pages_piece *pieces; /* in order of addresses, none in another */
	uint32_t                n_pieces;
	uint32_t                n_room;
};

struct cei_pages_driver {
	/* 0. CEOV_NONE: somebody else has pinned pages of this range, so it is used as
	 * it is and unpin() is never called for it. < 0: refused, raised there. */
	int  (*pin)(void *arg, uint64_t base, uint64_t n_bytes);
	/* base: as for pin(). */
	void (*unpin)(void *arg, uint64_t base);
	void  *arg;
};

/* One user more for all pages of [base, end), which begins and ends with a page.
 * CEOV_ERR_NO_MEMORY (not raised), or pin()'s error: then nothing has changed. */
int  cei_pages_take(struct cei_pages *pages, uint64_t base, uint64_t end,
		    const struct cei_pages_driver *driver);

/* One less, for exactly what a take() was for. The last one frees the list, too. */
void cei_pages_give(struct cei_pages *pages, uint64_t base, uint64_t end,
		    const struct cei_pages_driver *driver);

#endif /* CEI_PAGES_H */
