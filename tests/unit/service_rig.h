/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_RIG_H
#define CEI_SERVICE_RIG_H

/*
 * Both ends of a daemon's areas in one process: a launcher, and the readers of its rings. The areas
 * are on the heap, so that a sanitizer sees who uses them after they were given back.
 */

#include <stdint.h>

#include "ipc/service_ring.h"

struct service_rig {
	struct cei_service_launcher launcher;
	struct cei_service_down    *down;       /* NULL: no daemon is attached */
	struct cei_service_up      *up;
	struct cei_service_reader   readers[CEI_MEMBERS_MAX];
	int                         bells[CEI_MEMBERS_MAX];
	uint32_t                    n_rings;
};

/* Makes a launcher without a daemon. */
void service_rig_init(struct service_rig *rig);
void service_rig_fini(struct service_rig *rig);

/* Attaches the launcher to new areas with so many rings; detaches it and frees them. */
void service_rig_attach(struct service_rig *rig, uint32_t n_rings);
void service_rig_detach(struct service_rig *rig);

/* A reader at the begin of a ring. */
struct cei_service_reader service_reader(const struct cei_service_down *down,
					 struct cei_service_up *up, uint32_t ring);

/* A launch with random fields, but for its number. */
struct cei_service_launch service_launch(uint64_t *state);

/* Puts a launch, which must succeed. Returns its number. */
uint64_t service_rig_put(struct service_rig *rig, uint32_t ring);

/* Takes a launch out of a ring, where there must be one. Returns its number. */
uint64_t service_rig_take(struct service_rig *rig, uint32_t ring);

void service_rig_end(struct service_rig *rig, uint64_t number, int result);

/* The result of a launch, without waiting; CEOV_NONE and CEOV_ERR_INVALID as they are. */
int  service_rig_result(struct service_rig *rig, uint64_t number);

/* Takes what the bell of a ring counted: 0 where it was not rung. */
uint64_t service_bell_count(int bell);

#endif /* CEI_SERVICE_RIG_H */
