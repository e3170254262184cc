/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PINNED_H
#define CEI_PINNED_H

/*
 * Ranges of host memory that are pinned for a driver, each with a count of its users. The driver
 * pins a byte only once, and a copy must not cross from one pinned range into another. So memory
 * that lies within a pinned range uses that range, which stays until its last user has gone.
 *
 * These functions call no driver: the caller supplies pin() and unpin(), and serialises calls on
 * one list.
 */

#include <stdint.h>

struct cei_pinned_range;

struct cei_pinned {                     /* if it is zeroed, nothing is pinned */
	struct cei_pinned_range *ranges; /* in order of addresses; no two overlap */
	uint32_t                 n_ranges;
	uint32_t                 n_room;
};

/* A result of cei_pinned_take() beside those of enum ceov_result. */
#define CEI_PINNED_IN_PART 1000

struct cei_pinned_driver {
	/* Pins a range. CEOV_NONE: the application has already pinned it; it is used as it is, and
	 * unpin() is never called for it. < 0: an error, which pin() has raised. */
	int  (*pin)(void *arg, uint64_t base, uint64_t n_bytes);
	/* Unpins the range that pin() pinned at this base. */
	void (*unpin)(void *arg, uint64_t base);
	void  *arg;
};

/* Adds a user of the bytes [base, end), and pins them if needed. CEOV_NONE: the application has
 * pinned them, and cei_pinned_give() must not be called. CEI_PINNED_IN_PART: they overlap a pinned
 * range without lying within it, so no copy could span them. CEOV_ERR_NO_MEMORY (not raised), or
 * pin()'s error. In all these cases nothing has changed. */
int  cei_pinned_take(struct cei_pinned *pinned, uint64_t base, uint64_t end,
		     const struct cei_pinned_driver *driver);

/* Removes the user that a successful cei_pinned_take() of the same bytes added. Removing the last
 * user of the list also frees the list. */
void cei_pinned_give(struct cei_pinned *pinned, uint64_t base,
		     const struct cei_pinned_driver *driver);

#endif /* CEI_PINNED_H */
