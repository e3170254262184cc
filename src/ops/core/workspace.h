/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORKSPACE_H
#define CEI_WORKSPACE_H

/*
 * What one rank's ops move through, and the sequence of their runs. Why no run waits
 * for "target free" stands at the top of workspace.c.
 *
 * HALVES     Run e (from 1) uses half e % 2 of every rank's scratch, and that half's
 *            `arrived` and `here`.
 * COUNTERS   All rise to e in run e.
 *   arrived  [half], of each rank: source rank * pieces + piece; the all-reduce's
 *            second stage: n_ranks * CEI_OP_PIECES_MAX on from there
 *   here     of each rank, on the host: half * n_ranks + a rank that has begun the run
 *            and sends no bytes that would show it
 *   ready    own: target rank * pieces + piece, or piece; last counter: raised when the
 *            stream reaches this run (cei_workspace_start())
 *   sent     own: the assignment of counters is op-specific
 *   done     of each rank, in capturable workspaces: number of runs that rank r finished
 * Those of `allreduce` count rounds: see host_allreduce.h.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/site.h"
#include "ce_engine/object.h"
#include "ops/compute/executor.h"
#include "ops/core/host_allreduce.h"

#define CEI_OP_HALVES         2u
#define CEI_OP_STAGES_MAX     2u
#define CEI_OP_RUNS_MAX       16u       /* runs whose launches may be in flight */
#define CEI_OP_SENT_MAX       (CEI_OP_STAGES_MAX + CEI_RANKS_MAX)

#define CEI_WORKSPACE_NAME_BYTES 41u    /* with its zero */

struct cei_capture;                     /* capture_cuda.h */

struct cei_inflight {                   /* the launches of one run */
	ceov_ticket tickets[CEI_OP_STAGES_MAX];
	uint32_t    n;
};

extern const struct cei_object_type cei_workspace_type;

struct ceov_workspace {
	struct cei_object   object;
	char                name[CEI_WORKSPACE_NAME_BYTES];
	uint32_t            rank;
	uint32_t            n_ranks;
	int                 is_host;
	int                 is_capturable;
	int                 shares_sms;
	uint64_t            half_bytes;
	uint64_t            deadline_ns;
	struct cei_executor executor;
	ceov_buffer        *scratch[CEI_RANKS_MAX];     /* own and peers', by rank ... */
	ceov_signal        *arrived[CEI_OP_HALVES][CEI_RANKS_MAX];
	ceov_signal        *here[CEI_RANKS_MAX];        /* ... by rank */
	ceov_signal        *done[CEI_RANKS_MAX];        /* in capturable workspaces */
	ceov_signal        *ready;
	ceov_signal        *sent;
	struct cei_allreduce allreduce; /* exchange of numbers between ranks for tuning */
	uint64_t            least[CEI_ALLREDUCE_FACTS]; /* least fact over all ranks, set when
							 * connected */
	struct cei_capture *capture;    /* NULL: the engine launches runs */
	_Atomic int         is_connected;
	_Atomic int         error;      /* the first error that ended a run */

	pthread_mutex_t     lock;       /* one run at a time; guards the rest */
	int                 is_leaving; /* its release has begun */
	uint64_t            find_by_ns; /* while connecting: when peers must have answered */
	uint64_t            n_runs;
	struct cei_inflight inflights[CEI_OP_RUNS_MAX]; /* a ring buffer */
	uint32_t            first_flight;
	uint32_t            n_flights;
};

/* --- shared.c: what ranks share -------------------------------------------- */

/* What ranks share: each rank creates its scratch and signals, exports them under names
 * that begin with the workspace's, and finds its peers'. */

#define CEI_SHARED_SIGNALS_MAX ((CEI_OP_HALVES + 3) * CEI_RANKS_MAX)

/* Creates this rank's. place: the rank's. */
int  cei_shared_create(ceov_workspace *workspace, const struct ceov_place *place);

/* Exports them to peers. */
int  cei_shared_offer(ceov_workspace *workspace);

/* Finds what is still missing of a peer, by find_by_ns. CEOV_NONE: it has not exported
 * everything. */
int  cei_shared_find(ceov_workspace *workspace, uint32_t rank);

/* Whether all of a peer has been found. */
int  cei_shared_is_found(const ceov_workspace *workspace, uint32_t rank);

/* Releases peers' parts first, because peers may wait for us to drop theirs. Also cleans up
 * partly created or released parts. CEOV_PENDING: a peer still uses something of ours; call
 * again. */
int  cei_shared_release(ceov_workspace *workspace);

/* Lists the existing signals for an abort, at most CEI_SHARED_SIGNALS_MAX. Returns how
 * many. */
uint32_t cei_shared_signals(const ceov_workspace *workspace, ceov_signal **ret_signals);

/* --- the workspace itself -------------------------------------------------- */

/* 0: valid and, for ops, connected; else raised. call: name of the public function. */
int  cei_workspace_check(const ceov_workspace *workspace, const char *call);
int  cei_workspace_check_connected(const ceov_workspace *workspace, const char *call);

/* Checks launches and executor without blocking, and returns the error that ended a run;
 * does not raise it again. With its lock held. */
int  cei_workspace_look(ceov_workspace *workspace);

/* Makes room for one more run's launches, waiting if necessary. With its lock held. */
int  cei_workspace_make_room(ceov_workspace *workspace);
void cei_workspace_add_flight(ceov_workspace *workspace, const struct cei_inflight *inflight);

/* Waits until all launches have ended, bounded by their deadlines; returns their first
 * error. With its lock held. */
int  cei_workspace_land(ceov_workspace *workspace);

/* Waits until launches and jobs have ended, bounded by deadlines. CEOV_PENDING: jobs have
 * not; else 0, or the error that ended a run. With its lock held. */
int  cei_workspace_finish(ceov_workspace *workspace);

/* Called by ceov_close() while engines still run: aborts runs in flight at all ranks, waits
 * for them with a bound, and logs an error. */
void cei_workspace_end(ceov_workspace *workspace);

/* Ends the workspace after a run failed with error (< 0): stores the first error, and
 * aborts every signal of the workspace, so that runs of all ranks end. Any thread; returns
 * error. */
int  cei_workspace_fail(ceov_workspace *workspace, int error);

/* The counter of `ready` that says that the run's stream has reached it. */
uint32_t cei_workspace_start(const ceov_workspace *workspace);

/* The begin of one half of this rank's scratch. */
char *cei_workspace_half(const ceov_workspace *workspace, uint32_t half);

#endif /* CEI_WORKSPACE_H */
