/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIM_CLIENT_H
#define CEI_SIM_CLIENT_H

/*
 * A client of a simulated machine, which keeps some launches of one plan in flight: as soon as the
 * engines have seen all copies of a launch, it launches again.
 */

#include "sim/sim.h"

#define SIM_CLIENT_COPIES   256u        /* of a plan, at most */
#define SIM_CLIENT_LAUNCHES 16u         /* in flight, at most */

struct sim_client_launch;

struct sim_client {
	struct sim *sim;
	uint32_t    slot;               /* see ce_engine/sched/flows.h */
	uint8_t     urgency;
	uint8_t     keeps_order;
	uint64_t    chunk_bytes;        /* of each copy */
	uint64_t    gap_bytes;          /* likewise: see struct cei_job */
	uint8_t     hides_links;        /* the scheduler does not know its copies' links */
	struct {
		uint32_t from, to;      /* places */
	} copies[SIM_CLIENT_COPIES];    /* the plan */
	uint32_t    n_copies;
	int         is_paused;          /* launches nothing again */
	uint64_t    n_bytes;            /* of copies that have ended, ... */
	uint64_t    n_ended;            /* ... and how many these are */
	uint64_t    slowest_ns;         /* the longest time that any copy took */
	uint32_t    n_open;             /* launches in flight */
	uint32_t    n_launches;
	struct sim_client_launch *launches[SIM_CLIENT_LAUNCHES];
};

/* Adds a copy to the plan. */
void sim_client_add(struct sim_client *client, uint32_t from, uint32_t to);

/* Adds an all-gather of shards of n_chunks chunks in the order of the template: in each step every
 * GPU sends to another GPU. */
void sim_client_add_gather(struct sim_client *client, uint32_t n_chunks);

/* Launches n times. */
void sim_client_launch(struct sim_client *client, uint32_t n);

/* Launches as often as before the client was paused. All of its launches have ended. */
void sim_client_resume(struct sim_client *client);

/* Frees the launches, of which the simulation may not run any more. */
void sim_client_fini(struct sim_client *client);

#endif /* CEI_SIM_CLIENT_H */
