/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SEND_STAGE_H
#define CEI_SEND_STAGE_H

/*
 * What one launch of an op sends, as two plans: one for each half of scratch. Launch e has
 * base e - 1, so every mark's value in the plans is 1. A group of one rank has no plans.
 */

#include <stdint.h>

#include "ops/core/workspace.h"

struct cei_send_stage {
	ceov_workspace *workspace;
	ceov_plan      *plan[CEI_OP_HALVES];    /* NULL: nothing to launch */
	ceov_buffer    *floating;       /* stands for the operand that is sent; NULL: own scratch
					 * is sent */
	int             names_floating; /* some transfer reads it, so launches must name its
					 * address */
	int             awaits_job;     /* some transfer waits for a ready mark of the job */
	int             follows;        /* launches follow the stream's work; 0: ready marks are
					 * enough */
	int             awaits_start;   /* set before the first transfer is added: transfers
					 * without a ready mark wait for the run's start mark, so
					 * that they can be polled. Not in captured runs */
};

struct cei_send {                       /* one transfer of the launch */
	uint32_t target;                /* rank */
	uint64_t source_bytes;          /* offset in the floating buffer, or in the half of own
					 * scratch */
	uint64_t target_bytes;          /* offset in the target's half */
	uint64_t n_bytes;
	uint32_t ready;                 /* counter of `ready` that it awaits, or CEOV_NOBODY */
	uint32_t arrives;               /* counter of the target's `arrived`, or CEOV_NOBODY: a
					 * later transfer's mark covers it */
};

/* floating_bytes 0: the source is own scratch. All fields of stage but the two before this
 * are zeroed. */
int  cei_send_stage_open(struct cei_send_stage *stage, ceov_workspace *workspace,
			 uint64_t floating_bytes);

/* Adds a transfer, unless it has no bytes. */
int  cei_send_stage_add(struct cei_send_stage *stage, const struct cei_send *leg);

/* For a peer that gets no bytes in a run: raises `here` at it. The peer awaits that and
 * raises its own counter of `sent`, for which its job waits as for the end of its copies:
 * in one wait with one deadline. Call it first, because it goes behind all that was added
 * before. */
int  cei_send_stage_say_present(struct cei_send_stage *stage, uint32_t target);
int  cei_send_stage_await_here(struct cei_send_stage *stage, uint32_t source, uint32_t sent);

/* Raises counter `sent` behind the bytes of all transfers added before. */
int  cei_send_stage_say_sent(struct cei_send_stage *stage, uint32_t sent);

int  cei_send_stage_close(struct cei_send_stage *stage);

/* Also cleans up a partly built one. Its launches must have ended. */
void cei_send_stage_fini(struct cei_send_stage *stage);

#endif /* CEI_SEND_STAGE_H */
