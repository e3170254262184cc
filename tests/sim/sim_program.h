/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIM_PROGRAM_H
#define CEI_SIM_PROGRAM_H

/*
 * Plays a program, and nothing else that a plan has: its chunks become copies on the engines
 * of the places that its movers and routes name. A transfer begins when those have ended
 * whose marks it waits for; marks that are raised outside are there from the start.
 * One that moves nothing waits for its own marks alone, not for all that stand before it.
 */

#include "ce_engine/program_order.h"
#include "ce_engine/program.h"
#include "sim/sim.h"

struct sim_play_copy {
	struct sim_copy  copy;
	struct sim_play *play;
	uint32_t         transfer;
};

struct sim_play {
	const struct cei_program *program;      /* routed and counted */
	struct cei_report         report;
	struct cei_order          order;
	struct sim               *sim;
	struct cei_cut           *cuts;
	struct sim_play_copy     *copies;       /* two per chunk: a second leg */
	uint32_t                 *n_left;       /* per transfer: copies that have not ended */
	uint32_t                 *n_waits;      /* per transfer: marks that it waits for */
	uint64_t                 *ended_ns;     /* per transfer: when; 0: it has not */
};

/* The program is one that the checks of a commit accept. */
void sim_play_init(struct sim_play *play, struct sim *sim, struct cei_program *program);
void sim_play_fini(struct sim_play *play);

/* Until all has ended, which must be in SIM_PATIENCE_NS of virtual time. */
void sim_play_run(struct sim_play *play);

#endif /* CEI_SIM_PROGRAM_H */
