/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MOVERS_H
#define CEI_MOVERS_H

/*
 * The movers that an engine has open: its own, which are those of the site's table that
 * serve its member, in their order; and helpers, which drive the copy engines of other
 * GPUs for it. The first of its own is the member's: it reads and writes small things,
 * works on streams, and has the lanes that wait.
 *
 * Commits add helpers, lanes and staged paths with the lock held. The engine's thread
 * knows movers by its lanes only.
 */

#include <pthread.h>
#include <stdint.h>

#include "backend/place.h"

#define CEI_MOVERS_OWN_MAX 4u
#define CEI_HELPERS_MAX    16u
#define CEI_MOVERS_MAX     (CEI_MOVERS_OWN_MAX + CEI_HELPERS_MAX)

/* Helpers for paths that only make a transfer faster leave the rest to plans to come that
 * have no other path. */
#define CEI_HELPERS_SPARE 8u

struct cei_mover {
	struct cei_backend backend;
	uint32_t           place;       /* of a helper: its GPU in the machine */
};

struct cei_movers {
	pthread_mutex_t  lock;
	int              is_begun;
	uint32_t         n_own;         /* the first so many; the others are helpers */
	uint32_t         n;
	struct cei_mover mover[CEI_MOVERS_MAX];
};

/* Opens the site's movers for the member. CEOV_ERR_INVALID, raised: none serves it. Zeroed
 * before; on failure it accepts close. */
int  cei_movers_open(struct cei_movers *movers, struct cei_site *site, uint32_t member);

/* After the lanes are closed. Accepts zeroes. */
void cei_movers_close(struct cei_movers *movers);

/* Finds or opens the helper at a place of the machine, which backends name `where`; with the
 * lock held. CEOV_ERR_NO_ROUTE, not raised: there are n_max helpers already. */
int  cei_movers_helper(struct cei_movers *movers, uint32_t place, struct ceov_place where,
		       uint32_t n_max, struct cei_backend **ret_backend);

#endif /* CEI_MOVERS_H */
