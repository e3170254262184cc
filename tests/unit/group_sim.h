/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GROUP_SIM_H
#define CEI_GROUP_SIM_H

/*
 * Random schedules for the state machine of a group (ipc/group/group.h): several processes whose
 * carriers lose, repeat, delay and reorder messages or have no room for them, and which are killed,
 * stopped or leave, while they call what they like. What calls tell is compared with what really
 * happened. A schedule is its number: the same one is the same run.
 */

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "ipc/group/group.h"

#define SIM_PROCESSES_MAX 9u
#define SIM_RANKS_MAX     (2 * SIM_PROCESSES_MAX)
#define SIM_TICK          UINT64_C(10000000)    /* ns */
#define SIM_TIMEOUT       240u                  /* ticks of silence */
#define SIM_CALLS         700u                  /* until when processes make calls */
#define SIM_LAST          1400u                 /* when all come to one more barrier */
#define SIM_LEAVE         300u                  /* how long a farewell may take */
#define SIM_LAST_TICKS    2500u                 /* until its deadline */
#define SIM_END           5200u
#define SIM_FINDS         8u
#define SIM_HELD          16u
#define SIM_EXPORTS       48u
#define SIM_GENERATIONS   24u
#define SIM_NAMES         3u
#define SIM_HIGHEST       5000u                 /* more than any other value */
#define SIM_WORDS         2u                    /* counters of an export */

enum sim_event { SIM_MESSAGE, SIM_DOWN, SIM_REFUSAL, SIM_READY, SIM_QUIET };

struct sim_flight {
	enum sim_event            what;
	uint32_t                  from, to;
	uint32_t                  at;           /* tick */
	struct cei_group_message *message;      /* a copy */
	struct cei_group_fds      fds;
};

struct sim_queue {
	struct sim_flight *flights;
	uint32_t           n, room;
};

struct sim_find {
	int                    is_open;
	uint32_t               rank, name, since, deadline;
	struct cei_group_call  call;
	struct cei_group_found found;
};

struct sim_image {
	_Atomic uint64_t words[SIM_WORDS];
	uint64_t         asked[SIM_WORDS];              /* in this generation */
};

struct sim_held {
	uint32_t          rank, id, generation;
	uint64_t          use;
	struct sim_image *image;                        /* of another node's; else NULL */
	uint32_t          aborted, heard_aborted;       /* by its owner: this generation; as told */
};

struct sim_export {
	uint32_t id, rank, name, from, to;      /* the ticks in which it was there */
	uint32_t generation;
	uint32_t since[SIM_GENERATIONS];        /* by generation: its first tick */
	_Atomic uint64_t words[SIM_WORDS];
	uint64_t raised[SIM_WORDS];             /* the highest value, in this generation */
	uint32_t aborts;                        /* a bit for each generation that was aborted */
	uint32_t aborted, heard_aborted;        /* by another node: this generation; and as told */
};

struct sim_process {
	struct cei_group     *group;
	struct cei_roster     roster;
	uint32_t              kill_at, stop_at, stop_until, leave_at;   /* 0: never */
	uint32_t              left_at;          /* when it has begun to leave */
	int                   is_dead, is_out, wants_out, has_raised_all;
	struct sim_queue      kept;             /* what came while it was stopped */
	struct sim_find       finds[SIM_FINDS];
	struct sim_held       held[SIM_HELD];
	uint32_t              n_held;
	struct sim_export     exports[SIM_EXPORTS];
	uint32_t              n_exports;
	struct cei_group_call barrier, renew, leave;
	uint32_t              barrier_deadline, renew_deadline;
	int                   in_barrier, in_renew, barrier_timed_out, has_failed;
	uint32_t              renew_export;
	uint64_t              n_calls;          /* of the barrier */
	int                   last;             /* 1: in the last barrier; 2: that has ended */
	uint32_t              waits_since;      /* for users of its exports: tick; 0: no */
	uint32_t              told_lost[SIM_PROCESSES_MAX];     /* tick */
	uint8_t               is_quiet[SIM_PROCESSES_MAX];
	uint8_t               has_given_up[SIM_PROCESSES_MAX];
};

struct sim {
	uint64_t           schedule, random;
	uint32_t           now, n, n_nodes, n_ranks;
	uint32_t           process_of[SIM_RANKS_MAX], node_of[SIM_PROCESSES_MAX];
	uint32_t           first_rank[SIM_PROCESSES_MAX], in_node[SIM_PROCESSES_MAX];
	uint32_t           node_at[SIM_PROCESSES_MAX + 1];
	uint32_t           lose, repeat, full, delay;           /* percents, and ticks */
	int                near_is_sure, far_is_sure, far_tells;
	uint8_t            have_met[SIM_PROCESSES_MAX][SIM_PROCESSES_MAX];
	uint32_t           in_a_row[SIM_PROCESSES_MAX][SIM_PROCESSES_MAX];      /* lost */
	uint8_t            is_full[SIM_PROCESSES_MAX][SIM_PROCESSES_MAX];
	uint32_t           full_again[SIM_PROCESSES_MAX][SIM_PROCESSES_MAX];    /* not before */
	struct sim_queue   in_order[SIM_PROCESSES_MAX][SIM_PROCESSES_MAX];
	struct sim_queue   at[64];                              /* by tick, in any order */
	struct sim_process processes[SIM_PROCESSES_MAX];
	FILE              *trace;                               /* NULL: none */
	const char        *failure;                             /* the first, and when */
	uint32_t           failed_at;
	uint64_t           n_messages, n_lost, n_found, n_passed, n_renewed, n_gone, n_expelled;
};

/* Runs schedules first to first + n - 1 and writes what they did; is_told: each event of theirs,
 * too. Returns 0, or the number of the schedule that failed, which it has written with the
 * reason. */
uint64_t group_sim_run(uint64_t first, uint64_t n, int is_told, FILE *out);

/* --- group_sim.c: what processes and their carriers do in a tick ---------------------------- */

uint32_t sim_draw(struct sim *sim, uint32_t below);
void     sim_deliver(struct sim *sim);
void     sim_step(struct sim *sim, uint32_t who);

/* --- group_sim_check.c: called by the schedules ------------------------------------------ */

/* The export that is held. */
struct sim_export *sim_export_of(struct sim *sim, const struct sim_held *held);

/* Notes the failure if it is the first. */
void sim_expect(struct sim *sim, int is_so, const char *text);

/* Whether the process has done something for which others may take it as lost. */
int  sim_is_faulty(const struct sim *sim, uint32_t process);

/* Look at calls that have ended. */
void sim_find_ended(struct sim *sim, uint32_t who, struct sim_find *find);
void sim_barrier_ended(struct sim *sim, uint32_t who);
void sim_renew_ended(struct sim *sim, uint32_t who);

void sim_withdrawn(struct sim *sim, uint32_t who, const struct sim_export *export);
void sim_told_gone(struct sim *sim, uint32_t who, const struct cei_group_action *action);

/* Whoever waits for users of its exports learns of their death. */
void sim_check_users(struct sim *sim, uint32_t who);

/* At the end of a schedule. */
void sim_check_end(struct sim *sim);

/* --- group_sim_counters.c ------------------------------------------------------------------ */

void sim_watch(struct sim *sim, uint32_t who, struct sim_held *held);
void sim_forget(struct sim_process *p, struct sim_held *held);

/* Raises all own counters beyond what anybody asks for. */
void sim_raise_all(struct sim_process *p);
void sim_zero(_Atomic uint64_t *words);
void sim_call_counters(struct sim *sim, uint32_t who);
void sim_aborted(struct sim *sim, uint32_t who, const struct cei_group_abort *abort);
void sim_check_images(struct sim *sim, uint32_t who);
void sim_check_counters(struct sim *sim, uint32_t who);

#endif /* CEI_GROUP_SIM_H */
