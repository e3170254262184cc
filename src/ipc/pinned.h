/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PINNED_H
#define CEI_PINNED_H

/*
 * Ranges of host memory that are pinned for a driver, and how many use each. The driver
 * pins a range of bytes once, and copies within one such range only: memory that lies in a
 * range that is pinned already uses that one, and the range stays until its last user has
 * gone.
 *
 * Knows no driver: the caller pins and unpins, and serialises calls on one list.
 */

#include <stdint.h>

struct cei_pinned_range;

struct cei_pinned {                     /* zeroed: nothing is pinned */
	struct cei_pinned_range *ranges; /* in order of addresses; no two overlap */
	uint32_t                 n_ranges;
	uint32_t                 n_room;
};

/* A result of cei_pinned_take() beside those of enum ceov_result. */
#define CEI_PINNED_IN_PART 1000

struct cei_pinned_driver {
	/* 0. CEOV_NONE: somebody else has pinned it, so it is used as it is, and unpin()
	 * is never called for it. < 0: refused, raised there. */
	int  (*pin)(void *arg, uint64_t base, uint64_t n_bytes);
	/* base: as for pin(). */
	void (*unpin)(void *arg, uint64_t base);
	void  *arg;
};

/* One user more for the bytes [base, end), which are pinned if they are not yet. CEOV_NONE:
 * somebody else has pinned them, and give() must not be called. CEI_PINNED_IN_PART: they
 * overlap a pinned range and lie in none, so that no copy could go across; or
 * CEOV_ERR_NO_MEMORY (not raised); or pin()'s error. Then nothing has changed. */
int  cei_pinned_take(struct cei_pinned *pinned, uint64_t base, uint64_t end,
		     const struct cei_pinned_driver *driver);

/* One user less, for exactly what a take() that returned 0 was for. The last one frees the
 * list, too. */
void cei_pinned_give(struct cei_pinned *pinned, uint64_t base,
		     const struct cei_pinned_driver *driver);

#endif /* CEI_PINNED_H */
