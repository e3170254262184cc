/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PHASE_H
#define CEI_PHASE_H

/*
 * What one launch of an op sends, as two plans: one per half of scratch. Launch e has
 * base e - 1, so every mark's value in the plans is 1. A group of one has no plans.
 */

#include <stdint.h>

#include "ops/core/workspace.h"

struct cei_phase {
	ceov_workspace *workspace;
	ceov_plan      *plan[CEI_OP_HALVES];    /* NULL: nothing to launch */
	ceov_buffer    *floating;       /* what is sent when it is an operand; NULL: own
					 * scratch is */
	int             names_floating; /* some transfer has bytes of it: launches must
					 * name its address */
	int             awaits_job;     /* some leg waits for a ready mark */
	int             follows;        /* launches come after the stream's work so far;
					 * 0: ready marks say it all */
	int             awaits_start;   /* set before the first leg: what has no ready mark
					 * of its own waits for the run's start mark, so
					 * that it can be polled. Not in captured runs */
};

struct cei_leg {                        /* one transfer */
	uint32_t target;                /* rank */
	uint64_t source_bytes;          /* offset: in the floating buffer or the half */
	uint64_t target_bytes;          /* offset in the target's half */
	uint64_t n_bytes;
	uint32_t ready;                 /* counter of ready that it awaits, or CEOV_NOBODY */
	uint32_t arrives;               /* counter of the target's arrived, or
					 * CEOV_NOBODY: a later leg's mark says it, too */
};

/* floating_bytes 0: the source is own scratch. phase is zeroed, but for these two. */
int  cei_phase_open(struct cei_phase *phase, ceov_workspace *workspace,
		    uint64_t floating_bytes);

/* A leg of no bytes is left out. */
int  cei_phase_send(struct cei_phase *phase, const struct cei_leg *leg);

/* Absent peers: where the own rank has no bytes for a peer in a run, it says `here` to
 * it; the peer awaits it and then raises its own counter of sent, which its job awaits
 * as it awaits the end of its copies: by one wait, with its deadline. Say it first: it
 * goes behind all that was added before. */
int  cei_phase_say_here(struct cei_phase *phase, uint32_t target);
int  cei_phase_await_here(struct cei_phase *phase, uint32_t source, uint32_t sent);

/* Counter `sent` rises behind the bytes of all that was added before. */
int  cei_phase_say_sent(struct cei_phase *phase, uint32_t sent);

int  cei_phase_close(struct cei_phase *phase);

/* Accepts what is half done. Launches have ended. */
void cei_phase_fini(struct cei_phase *phase);

#endif /* CEI_PHASE_H */
