/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIM_H
#define CEI_SIM_H

/*
 * A machine's engines in virtual time: the scheduler's decisions are the product's own
 * (ce_engine/queues.h, ports.h); copies, and how late engines see them, are played.
 *
 * A lane runs its copies one after another: t0, then bytes at the rate of the link or at
 * an equal share of each port on it, whatever the others there can use. That is as harsh
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
	const struct cei_machine_link *link;    /* job.link may be unknown */
	uint32_t        engine;         /* place of the GPU that moves it */
	uint64_t        arrives_ns;     /* on its lane */
	double          t0_ns;          /* left of it, ... */
	double          bytes;          /* ... and of the bytes */
	double          slowness;       /* 1 + noise */
	uint64_t        done_ns;        /* point in time; 0: not yet */
	struct sim_copy *behind;        /* waits for this one, or NULL: a second leg */
	void (*done)(struct sim *sim, struct sim_copy *copy);   /* called when the engine has
					 * seen its end; NULL: nobody asks */
	struct sim_copy *next;          /* on its lane */
};

struct sim_lane {
	struct sim_copy *first;
	struct sim_copy **last;
	struct sim_copy *done;          /* seen by the engine in its next turn */
	uint64_t        idle_since_ns;  /* though it had what it could do; UINT64_MAX */
};

struct sim_engine {
	struct cei_queues queues;
	struct sim_lane   lanes[SIM_LANES];
	uint64_t          turn_ns;      /* its next */
	uint32_t          n_open;       /* jobs added, not left */
};

struct sim_outcome {
	uint64_t makespan_ns;
	uint64_t longest_meeting_ns;    /* more copies at a port than it carries, ... */
	uint64_t meeting_ns;            /* ... and in all, over all ports */
	uint64_t longest_idle_ns;       /* a lane without work beside ready work whose
					 * ports nobody used */
	uint64_t n_looks;
};

struct sim {
	const struct cei_machine *machine;
	struct cei_ports  *ports;       /* of the product */
	uint64_t           seed;        /* of noise */
	uint64_t           begin_ns;
	uint64_t           now_ns;
	struct sim_engine  engines[CEI_MACHINE_GPUS_MAX];
	uint32_t           active[CEI_MACHINE_PORTS_MAX];       /* copies at each port */
	uint64_t           met_ns[CEI_MACHINE_PORTS_MAX];       /* more than it carries */
	struct sim_outcome outcome;
};

/* A machine without hwloc: n GPUs on a switch, or pairs of them below PCIe switches,
 * or whatever the test makes of an empty one. */
struct cei_machine *sim_machine_empty(uint32_t n_gpus, uint32_t n_nodes, uint32_t n_ports);
struct cei_machine *sim_machine_switch(uint32_t n_gpus, uint64_t bytes_per_s, uint64_t t0_ns);

/* With the scheduler or, without ports, first come first served. */
struct sim *sim_create(const struct cei_machine *machine, int has_scheduler, uint64_t seed);
void        sim_destroy(struct sim *sim);

/* From a place to another by the engine of a GPU on it; the copy is the caller's. */
void sim_ask(const struct sim *sim, struct sim_copy *copy, uint32_t from, uint32_t to);

/* Ready at once. */
void sim_add(struct sim *sim, struct sim_copy *copy);

/* Until all is done, or until that point in virtual time. Returns whether all is done. */
int  sim_run(struct sim *sim, uint64_t until_ns);

/* So far. */
struct sim_outcome sim_outcome(const struct sim *sim);

/* The bound of such copies; legs count like copies. */
uint64_t sim_bound_ns(const struct sim *sim, const struct sim_copy *copies, uint32_t n);

#endif /* CEI_SIM_H */
