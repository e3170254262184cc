/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SEND_STAGE_H
#define CEI_SEND_STAGE_H

/*
 * The transfers that one launch of an op makes. They are built as two plans, one for each half of
 * scratch. Run e launches one of them with base e - 1, so all marks in the plans have value 1. In a
 * group of one rank there are no plans.
 */

#include <stdint.h>

#include "ops/core/workspace.h"

struct cei_send_stage {
	ceov_workspace *workspace;
	ceov_plan      *plan[CEI_OP_HALVES];    /* NULL: nothing to launch */
	ceov_buffer    *floating;       /* stands for the caller's operand that is sent; NULL:
					 * this rank's scratch is sent instead */
	int             names_floating; /* 1: some transfer reads floating, so a launch must
					 * give its address */
	int             awaits_job;     /* 1: some transfer awaits a mark of `ready` that the job
					 * raises */
	int             follows;        /* 1: launches wait for the work that is on the stream; 0:
					 * they need not, because all transfers await marks of
					 * `ready` */
	int             awaits_start;   /* 1: transfers for which the job raises no mark await
					 * the run's start mark, so that the engine can poll it.
					 * To be set before the first transfer is added; 0 in
					 * captured runs. In groups of several nodes it is set
					 * from the beginning, since what leaves the node is
					 * polled */
	int             says_sent;      /* 1: a run has to know when the bytes were sent, since they
					 * are in the caller's memory; set by the kind, used by
					 * cei_op_send_all() */
	uint32_t        n_added;        /* transfers with bytes in each of the plans */
	const char     *label;          /* of its plans (ceov_plan.label). To be set before it is
					 * opened */
	uint64_t        chunk_bytes;    /* the largest chunk of its copies; 0: the context's limit,
					 * which also bounds it. To be set before it is opened */
};

struct cei_send {                       /* one transfer */
	uint32_t target;                /* the rank that receives */
	uint64_t source_bytes;          /* offset in the floating buffer, or in the half of this
					 * rank's scratch */
	uint64_t target_bytes;          /* offset in the half of the target's scratch */
	uint64_t n_bytes;               /* of one row, if there are several */
	uint64_t n_rows;                /* 0: one */
	uint64_t source_pitch_bytes;    /* of several rows: from one to the next */
	uint64_t target_pitch_bytes;
	ceov_buffer *counts;            /* NULL: all rows are sent. Else host memory with a set of
					 * n_ranks numbers (uint64_t) for each half, ... */
	uint32_t count;                 /* ... and which of them says how many rows a run sends */
	uint32_t ready;                 /* counter of `ready` that the transfer awaits, or
					 * CEOV_NOBODY */
	uint32_t arrives;               /* counter of the target's `arrived` that it raises;
					 * CEOV_NOBODY: none, because a later transfer's mark
					 * covers it */
	int      passes_on;             /* 1: the bytes have come from another rank, to the same
					 * place in this rank's scratch, and are sent when the
					 * same counter of its own `arrived` has been raised;
					 * source_bytes and ready are not used */
};

/* Creates the plans of a stage that is zeroed but for chunk_bytes and label, and a floating
 * buffer of floating_bytes. floating_bytes 0: the stage sends this rank's scratch. */
int  cei_send_stage_open(struct cei_send_stage *stage, ceov_workspace *workspace,
			 uint64_t floating_bytes);

/* Makes the stage's launches wait for the work that is on the stream, unless its transfers await
 * the start mark, which the stream raises. */
void cei_send_stage_follow(struct cei_send_stage *stage);

/* Adds a transfer, unless it has no bytes. */
int  cei_send_stage_add(struct cei_send_stage *stage, const struct cei_send *leg);

/* For peers to which a rank sends no bytes, which would show that it has begun the run. On the
 * sending rank, cei_send_stage_say_present() adds a transfer that raises the peer's `here`; call it
 * before other transfers are added, because the mark is raised behind earlier ones. At the peer,
 * cei_send_stage_await_here() adds a transfer that awaits that mark and raises counter `sent`. The
 * peer's job then waits for both this and the end of its own copies in one wait with one
 * deadline. */
int  cei_send_stage_say_present(struct cei_send_stage *stage, uint32_t target);
int  cei_send_stage_await_here(struct cei_send_stage *stage, uint32_t source, uint32_t sent);

/* Adds a transfer that raises counter `sent` behind the bytes of earlier transfers: of all to the
 * same rank if the last one went to another node, since a lane of its own leads there, and
 * otherwise of all to ranks of this node. */
int  cei_send_stage_say_sent(struct cei_send_stage *stage, uint32_t sent);

/* Commits the plans; no transfer may be added after that. */
int  cei_send_stage_close(struct cei_send_stage *stage);

/* Releases the stage, also if it is partly built. Its launches must have ended. */
void cei_send_stage_fini(struct cei_send_stage *stage);

#endif /* CEI_SEND_STAGE_H */
