/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GROUP_RIG_H
#define CEI_GROUP_RIG_H

/*
 * A few state machines of a group, whose messages are delivered at once and in order, but where a
 * test holds them. Process i holds rank i; process 0 also holds rank n, if there is one more rank
 * than processes.
 */

#include <stdint.h>

#include "ipc/group/group.h"

#define RIG_MAX    4u
#define RIG_FLIGHTS 256u

struct rig_flight {
	uint32_t                 from, to;
	struct cei_group_message message;
	struct cei_group_fds     fds;
};

struct rig {
	uint32_t            n, n_nodes;
	uint64_t            now_ns;
	struct cei_group   *groups[RIG_MAX];
	struct cei_roster   rosters[RIG_MAX];
	uint32_t            process_of[RIG_MAX + 1], node_of[RIG_MAX], first_rank[RIG_MAX];
	uint32_t            in_node[RIG_MAX], node_at[RIG_MAX + 1];
	int                 is_full[RIG_MAX][RIG_MAX];  /* from, to: the carrier has no room */
	int                 is_held[RIG_MAX][RIG_MAX];  /* messages stay under way */
	int                 fds_fail;                   /* an errno: descriptors cannot be sent */
	int                 fds_vanish;                 /* they do not come */
	int                 stays_loud;                 /* nothing becomes quiet */
	struct rig_flight   flights[RIG_FLIGHTS];       /* under way */
	uint32_t            n_flights;
	struct rig_flight   last[RIG_MAX][RIG_MAX];     /* that was delivered */
	uint32_t            n_sent[RIG_MAX];
	uint32_t            gave_up[RIG_MAX][RIG_MAX];
	enum cei_group_life gone[RIG_MAX][RIG_MAX];     /* as told upwards */
	uint32_t            n_renewed[RIG_MAX];
	uint32_t            n_closed[RIG_MAX];          /* descriptors */
	uint32_t            n_aborted[RIG_MAX];
	struct cei_group_abort aborted[RIG_MAX];        /* the last one */
};

/* Makes n processes on so many nodes, each with as many neighbours in a row. is_sure: of all
 * carriers. */
void rig_make(struct rig *rig, uint32_t n, uint32_t n_nodes, int is_sure);
void rig_free(struct rig *rig);

/* Takes all actions, and delivers what is not held, until nothing moves. */
void rig_run(struct rig *rig);

/* The time goes on everywhere. */
void rig_wait(struct rig *rig, uint64_t ns);

/* Delivers a message that nobody has sent. */
void rig_tell(struct rig *rig, uint32_t from, uint32_t to,
	      const struct cei_group_message *message);

/* Exports without descriptors. Returns the number. */
uint32_t rig_export(struct rig *rig, uint32_t rank, const char *name);

/* Asks for it within 5 s, and runs. */
struct rig_find {
	struct cei_group_call  call;
	struct cei_group_found found;
};
void rig_find(struct rig *rig, uint32_t who, struct rig_find *find, uint32_t rank,
	      const char *name);

/* Calls the barrier, with a deadline in so many ns, and runs. */
void rig_barrier(struct rig *rig, uint32_t who, struct cei_group_call *call, uint64_t ns);

/* A process dies, as those of its node notice. */
void rig_kill(struct rig *rig, uint32_t who);

#endif /* CEI_GROUP_RIG_H */
