/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIM_PROGRAM_H
#define CEI_SIM_PROGRAM_H

/*
 * Simulates a program without a plan: its chunks become copies by the engines of the places that
 * its movers and routes name. A transfer begins when the transfers that raise its marks have
 * ended; marks that no transfer raises count as raised from the start. A transfer without bytes
 * waits for its own marks only, not for all transfers before it.
 */

#include "ce_engine/program/program.h"
#include "ce_engine/program/program_order.h"
#include "sim/sim.h"

struct sim_play_copy {
	struct sim_copy  copy;
	struct sim_play *play;
	uint32_t         transfer;
};

struct sim_play {
	const struct cei_program *program;      /* with routes and chunks already determined */
	struct cei_report         report;
	struct cei_order          order;
	struct sim               *sim;
	struct cei_cut           *cuts;
	struct sim_play_copy     *copies;       /* two per chunk, because a staged chunk has a
						 * second leg */
	uint32_t                 *n_left;       /* for each transfer: copies that have not ended */
	uint32_t                 *n_waits;      /* for each transfer: marks that it still waits
						 * for */
	uint64_t                 *ended_ns;     /* for each transfer: when it ended; 0: it has
						 * not */
};

/* Starts the program. It must have passed the checks of a commit. */
void sim_play_init(struct sim_play *play, struct sim *sim, struct cei_program *program);
void sim_play_fini(struct sim_play *play);

/* Runs until all transfers have ended; asserts that this takes less than SIM_PATIENCE_NS of virtual
 * time. */
void sim_play_run(struct sim_play *play);

#endif /* CEI_SIM_PROGRAM_H */
