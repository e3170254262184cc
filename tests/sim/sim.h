/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIM_H
#define CEI_SIM_H

/*
 * Simulates a machine's engines in virtual time: scheduling decisions are made by the
 * product's own code (ce_engine/queues.h, ports.h); copies, and the delay until engines see
 * them, are simulated.
 *
 * A lane runs its copies one after another: t0, then bytes at the rate of the link, or at
 * an equal share of each port on it even if the others cannot use theirs. That is as harsh
 * as measured: two copies into one receiver get half each.
 */

#include <stdint.h>

#include "ce_engine/ports.h"
#include "ce_engine/queues.h"
#include "topology/machine.h"

#define SIM_LANES 3u                    /* of an engine: peer, in, out */

#define SIM_PATIENCE_NS (60 * UINT64_C(1000000000))

struct sim;

struct sim_copy {
	struct cei_job  job;
	const struct cei_machine_link *link;    /* the copy's link; job.link may be unknown */
	uint32_t        engine;         /* the GPU whose engine makes it */
	uint64_t        arrives_ns;     /* when it reaches its lane */
	double          t0_ns;          /* what remains of the latency, ... */
	double          bytes;          /* ... and of the bytes */
	double          slowness;       /* 1 + noise */
	uint64_t        done_ns;        /* point in time; 0: not yet */
	struct sim_copy *behind;        /* the second leg, which waits for this copy, or NULL */
	void (*done)(struct sim *sim, struct sim_copy *copy);   /* called when the engine has seen
								 * the end, or NULL */
	struct sim_copy *next;          /* the next copy on its lane */
};

struct sim_lane {
	struct sim_copy *first;
	struct sim_copy **last;
	struct sim_copy *done;          /* ended copies that the engine sees in its next turn */
	uint64_t        idle_since_ns;  /* since when the lane is idle although it had work;
					 * UINT64_MAX: it is not */
};

struct sim_engine {
	struct cei_queues queues;
	struct sim_lane   lanes[SIM_LANES];
	uint64_t          turn_ns;      /* time of the engine's next turn */
	uint32_t          n_open;       /* copies that were added and have not ended */
};

struct sim_outcome {
	uint64_t makespan_ns;
	uint64_t longest_meeting_ns;    /* longest time with more copies at a port than it
					 * carries, ... */
	uint64_t meeting_ns;            /* ... and the total over all ports */
	uint64_t longest_idle_ns;       /* longest time in which a lane had no work although a
					 * ready copy would have used free ports only */
	uint64_t n_looks;
};

struct sim {
	const struct cei_machine *machine;
	struct cei_ports  *ports;       /* the product's port reservations */
	uint64_t           seed;        /* of noise */
	uint64_t           begin_ns;
	uint64_t           now_ns;
	struct sim_engine  engines[CEI_MACHINE_GPUS_MAX];
	uint32_t           active[CEI_MACHINE_PORTS_MAX];       /* copies at each port */
	uint64_t           met_ns[CEI_MACHINE_PORTS_MAX];       /* time with more copies than it
								 * carries */
	struct sim_outcome outcome;
};

/* A machine without hwloc: n GPUs on a switch, or pairs of them below PCIe switches,
 * or whatever the test makes of an empty one. */
struct cei_machine *sim_machine_empty(uint32_t n_gpus, uint32_t n_nodes, uint32_t n_ports);
struct cei_machine *sim_machine_switch(uint32_t n_gpus, uint64_t bytes_per_s, uint64_t t0_ns);

/* With the scheduler; or, without ports, first come first served. */
struct sim *sim_create(const struct cei_machine *machine, int has_scheduler, uint64_t seed);
void        sim_destroy(struct sim *sim);

/* Prepares a copy between two places by the engine of a GPU at one of them; its memory is
 * the caller's. */
void sim_ask(const struct sim *sim, struct sim_copy *copy, uint32_t from, uint32_t to);

/* Adds a copy that is ready. */
void sim_add(struct sim *sim, struct sim_copy *copy);

/* Runs until everything has ended, or until that virtual time. Returns whether everything
 * has ended. */
int  sim_run(struct sim *sim, uint64_t until_ns);

/* The statistics so far. */
struct sim_outcome sim_outcome(const struct sim *sim);

/* The lower bound for these copies; a leg counts as a copy. */
uint64_t sim_bound_ns(const struct sim *sim, const struct sim_copy *copies, uint32_t n);

#endif /* CEI_SIM_H */
