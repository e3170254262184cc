/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SEND_STAGE_H
#define CEI_SEND_STAGE_H

/*
 * The transfers that one launch of an op makes, as two plans: one for each half of scratch.
 * Run e launches its plan with base e - 1, so every mark's value in the plans is 1. In a
 * group of one rank there are no plans.
 */

#include <stdint.h>

#include "ops/core/workspace.h"

struct cei_send_stage {
	ceov_workspace *workspace;
	ceov_plan      *plan[CEI_OP_HALVES];    /* NULL: nothing to launch */
	ceov_buffer    *floating;       /* stands for the caller's operand, which is sent; NULL:
					 * own scratch is sent */
	int             names_floating; /* 1: some transfer reads floating, so launches must give
					 * its address */
	int             awaits_job;     /* 1: some transfer awaits a mark of `ready` that the job
					 * raises */
	int             follows;        /* 1: launches wait for the work that is on the stream; 0:
					 * they need not, because their transfers await marks of
					 * `ready` */
	int             awaits_start;   /* 1: transfers without a ready mark of their own await the
					 * run's start mark, so that the engine can poll for them.
					 * Set before the first transfer is added; not in captured
					 * runs */
};

struct cei_send {                       /* one transfer of the launch */
	uint32_t target;                /* the rank that receives */
	uint64_t source_bytes;          /* offset in the floating buffer, or in the half of own
					 * scratch */
	uint64_t target_bytes;          /* offset in the target's half */
	uint64_t n_bytes;
	uint32_t ready;                 /* counter of `ready` that it awaits, or CEOV_NOBODY */
	uint32_t arrives;               /* counter of the target's `arrived`, or CEOV_NOBODY: a
					 * later transfer's mark covers it */
};

/* Creates the plans of a zeroed stage, and a floating buffer of floating_bytes; 0: the
 * source is own scratch. */
int  cei_send_stage_open(struct cei_send_stage *stage, ceov_workspace *workspace,
			 uint64_t floating_bytes);

/* Adds a transfer, unless it has no bytes. */
int  cei_send_stage_add(struct cei_send_stage *stage, const struct cei_send *leg);

/* For a peer that gets no bytes in a run: cei_send_stage_say_present() adds a transfer that
 * raises `here` at the peer, to say that this rank has begun the run. Call it before other
 * transfers are added, because the mark is raised behind them. At the peer,
 * cei_send_stage_await_here() adds a transfer that awaits this mark and raises counter
 * `sent`: the peer's job waits for it as for the end of its own copies, in one wait with
 * one deadline. */
int  cei_send_stage_say_present(struct cei_send_stage *stage, uint32_t target);
int  cei_send_stage_await_here(struct cei_send_stage *stage, uint32_t source, uint32_t sent);

/* Adds a transfer that raises counter `sent` behind the bytes of all transfers added before. */
int  cei_send_stage_say_sent(struct cei_send_stage *stage, uint32_t sent);

int  cei_send_stage_close(struct cei_send_stage *stage);

/* Releases the stage, also a partly built one. Its launches must have ended. */
void cei_send_stage_fini(struct cei_send_stage *stage);

#endif /* CEI_SEND_STAGE_H */
