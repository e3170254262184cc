/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIM_H
#define CEI_SIM_H

/*
 * Simulates a machine's engines in virtual time. Scheduling decisions are made by the product's
 * own code (ce_engine/sched/queues.h, ports.h); copies, and the delay until engines see that they
 * have ended, are simulated.
 *
 * A lane runs its copies one after another. A copy takes t0, then its bytes at the rate of the
 * link or, if less, at an equal share of each port that it crosses, even if other copies cannot
 * use their shares. Measurements show the same: of two copies into one receiver each gets half.
 */

#include <stdint.h>

#include "ce_engine/sched/ports.h"
#include "ce_engine/sched/queues.h"
#include "topology/machine.h"

#define SIM_LANES 3u                    /* lanes of an engine: peer, in, out */

#define SIM_PATIENCE_NS (60 * UINT64_C(1000000000))

struct sim;

struct sim_copy {
	struct cei_job  job;
	const struct cei_machine_link *link;    /* the copy's link; job.link may be unknown */
	uint32_t        engine;         /* the GPU whose engine makes the copy */
	uint64_t        arrives_ns;     /* when the copy reaches its lane */
	double          t0_ns;          /* remaining latency */
	double          bytes;          /* remaining bytes */
	double          slowness;       /* factor on the copy's time: 1 + noise */
	uint64_t        done_ns;        /* time of the end; 0: it has not ended */
	struct sim_copy *behind;        /* the second leg, which waits for this copy, or NULL */
	void (*done)(struct sim *sim, struct sim_copy *copy);   /* called when the engine has seen
								 * the end, or NULL */
	struct sim_copy *next;          /* the next copy on its lane */
};

struct sim_lane {
	struct sim_copy *first;
	struct sim_copy **last;
	struct sim_copy *done;          /* ended copies, which the engine sees in its next turn */
	uint64_t        idle_since_ns;  /* when the lane ran empty although a ready copy could
					 * have started; UINT64_MAX: not the case now */
};

struct sim_engine {
	struct cei_queues queues;
	struct sim_lane   lanes[SIM_LANES];
	uint64_t          turn_ns;      /* time of the engine's next turn */
	uint32_t          n_open;       /* copies that were added and have not ended */
};

struct sim_outcome {
	uint64_t makespan_ns;
	uint64_t longest_meeting_ns;    /* longest period in which a port had more copies than it
					 * carries */
	uint64_t meeting_ns;            /* sum of such periods over all ports */
	uint64_t longest_idle_ns;       /* longest time in which a lane had no work although a
					 * ready copy would have used free ports only */
	uint64_t n_looks;
};

struct sim {
	const struct cei_machine *machine;
	struct cei_ports  *ports;       /* the product's port reservations */
	struct cei_flows  *flows;       /* what clients use; NULL: there is one client */
	uint64_t           seed;        /* seed of the noise */
	uint64_t           begin_ns;
	uint64_t           now_ns;
	struct sim_engine  engines[CEI_MACHINE_GPUS_MAX];
	uint32_t           active[CEI_MACHINE_PORTS_MAX];       /* active copies at each port */
	uint64_t           met_ns[CEI_MACHINE_PORTS_MAX];       /* time during which each port had
								 * more copies than it carries */
	struct sim_outcome outcome;
};

/* Create machines without hwloc: n GPUs on a switch, pairs of GPUs below PCIe switches, or an empty
 * machine that the test fills. */
struct cei_machine *sim_machine_empty(uint32_t n_gpus, uint32_t n_nodes, uint32_t n_ports);
struct cei_machine *sim_machine_switch(uint32_t n_gpus, uint64_t bytes_per_s, uint64_t t0_ns);

/* Creates a simulation with the product's scheduler, or, without port reservations, first come
 * first served. */
struct sim *sim_create(const struct cei_machine *machine, int has_scheduler, uint64_t seed);
void        sim_destroy(struct sim *sim);

/* Several clients may share the engines; before any copy is added. */
void sim_share(struct sim *sim);

/* Opens a client's slot, with room on all lanes. Returns the slot. */
uint32_t sim_open_client(struct sim *sim, const struct cei_flows_limits *limits);

/* Prepares a copy between two places by the engine of a GPU at one of them. The caller owns the
 * copy's memory. */
void sim_ask(const struct sim *sim, struct sim_copy *copy, uint32_t from, uint32_t to);

/* Adds a copy that is ready to start. */
void sim_add(struct sim *sim, struct sim_copy *copy);

/* Runs until all copies have ended, or until the given virtual time. Returns whether all have
 * ended. */
int  sim_run(struct sim *sim, uint64_t until_ns);

/* Returns the statistics so far. */
struct sim_outcome sim_outcome(const struct sim *sim);

/* Returns a lower bound on the time of these copies; a leg counts as a copy. */
uint64_t sim_bound_ns(const struct sim *sim, const struct sim_copy *copies, uint32_t n);

#endif /* CEI_SIM_H */
