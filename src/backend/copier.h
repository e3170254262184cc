/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COPIER_H
#define CEI_COPIER_H

/*
 * Copies between host memory and memory of this process's GPUs for rails (net/far_copier.h), by
 * lanes of the members' first movers. A unit is a member's index in the site. Each member that
 * needs it gets a backend of its own, apart from that of its engine, since rails' lanes close later
 * than engines.
 */

#include <pthread.h>

#include "backend/place.h"
#include "net/far_copier.h"

struct cei_copier {
	struct cei_site   *site;
	pthread_mutex_t    lock;                        /* guards the next one */
	struct cei_backend backends[CEI_MEMBERS_MAX];   /* zeroed: not open */
};

extern const struct cei_far_copier_ops cei_copier_ops;         /* arg: struct cei_copier */

/* The site's members and movers are known when the first memory or line is opened. */
void cei_copier_init(struct cei_copier *copier, struct cei_site *site);

/* All lines and memories are closed. */
void cei_copier_fini(struct cei_copier *copier);

#endif /* CEI_COPIER_H */
