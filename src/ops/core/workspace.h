/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORKSPACE_H
#define CEI_WORKSPACE_H

/*
 * The scratch memory and signals that one rank's ops use, and the order of their runs. The
 * top of workspace.c explains why no run waits until a target is free.
 *
 * HALVES: run e (from 1) uses half e % 2 of every rank's scratch, and that half's `arrived`
 * and `here`.
 *
 * COUNTERS: in run e they rise to e, except for `done`, and for `ready` in captured runs
 * (capture_cuda.h). Their indices are:
 *
 *   arrived  a signal for each half, at each rank: source rank * pieces + piece; in the
 *            all-reduce's second stage n_ranks * CEI_OP_PIECES_MAX more than that
 *   here     at each rank, in host memory: half * n_ranks + r, raised by a rank r that
 *            has begun the run and sends no bytes, which would show that
 *   ready    own rank only: target rank * pieces + piece, or piece; the last counter is
 *            raised when the stream reaches the run (cei_workspace_start())
 *   sent     own rank only: each operator assigns its counters
 *   done     at each rank, in capturable workspaces: counter r is the number of runs
 *            that rank r has finished
 *
 * The counters of `allreduce` count rounds: see host_allreduce.h.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/site.h"
#include "ce_engine/objects/object.h"
#include "ops/compute/executor.h"
#include "ops/core/host_allreduce.h"
#include "ops/shape.h"

#define CEI_OP_HALVES         2u
#define CEI_OP_STAGES_MAX     2u
#define CEI_OP_RUNS_MAX       16u       /* runs whose launches may be in flight */
#define CEI_OP_SENT_MAX       (CEI_OP_STAGES_MAX + CEI_OP_RANKS_MAX)

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
	ceov_buffer        *scratch[CEI_OP_RANKS_MAX];     /* by rank; peers' when found */
	ceov_signal        *arrived[CEI_OP_HALVES][CEI_OP_RANKS_MAX];
	ceov_signal        *here[CEI_OP_RANKS_MAX];        /* by rank */
	ceov_signal        *done[CEI_OP_RANKS_MAX];        /* by rank; in capturable workspaces */
	ceov_signal        *ready;
	ceov_signal        *sent;
	struct cei_allreduce allreduce; /* exchange of numbers between ranks for tuning */
	uint64_t            least[CEI_ALLREDUCE_FACTS]; /* least fact over all ranks, set when
							 * connected */
	struct cei_capture *capture;    /* NULL: the engine launches runs */
	_Atomic int         is_connected;
	_Atomic int         error;      /* the first error that ended a run */

	pthread_mutex_t     lock;       /* held while a run is made; guards the fields below */
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

#define CEI_SHARED_SIGNALS_MAX ((CEI_OP_HALVES + 3) * CEI_OP_RANKS_MAX)

/* Creates this rank's scratch and signals, these at its place or in host memory. */
int  cei_shared_create(ceov_workspace *workspace, const struct ceov_place *place);

/* Exports this rank's scratch and signals to peers. */
int  cei_shared_offer(ceov_workspace *workspace);

/* Finds the scratch and signals of a peer that were not found before, by find_by_ns.
 * CEOV_NONE: the peer has not exported all of them. */
int  cei_shared_find(ceov_workspace *workspace, uint32_t rank);

/* Returns whether the peer's scratch and all its signals were found. */
int  cei_shared_is_found(const ceov_workspace *workspace, uint32_t rank);

/* Releases what was found of peers, first because peers may be waiting for that, then what
 * this rank created. Also cleans up after a failed creation or an incomplete release.
 * CEOV_PENDING: a peer still uses something of this rank; call again. */
int  cei_shared_release(ceov_workspace *workspace);

/* Lists the signals that exist, own and peers', to abort them: at most
 * CEI_SHARED_SIGNALS_MAX. Returns how many. */
uint32_t cei_shared_signals(const ceov_workspace *workspace, ceov_signal **ret_signals);

/* --- the workspace itself -------------------------------------------------- */

/* Raise an error if the workspace is not valid or, the second function, not connected.
 * call: name of the public function, for the message. */
int  cei_workspace_check(const ceov_workspace *workspace, const char *call);
int  cei_workspace_check_connected(const ceov_workspace *workspace, const char *call);

/* Checks without blocking whether launches or jobs have failed. Returns the error that
 * ended a run, without raising it again, or 0. The caller holds the workspace's lock. */
int  cei_workspace_look(ceov_workspace *workspace);

/* The first function waits, if necessary, until one more run may have launches in flight;
 * the second one adds them. The caller holds the workspace's lock. */
int  cei_workspace_make_room(ceov_workspace *workspace);
void cei_workspace_add_flight(ceov_workspace *workspace, const struct cei_inflight *inflight);

/* Waits until all launches have ended, bounded by their deadlines. Returns the error that
 * ended a run, or 0. The caller holds the workspace's lock. */
int  cei_workspace_land(ceov_workspace *workspace);

/* Waits until launches and jobs have ended, bounded by deadlines. CEOV_PENDING: jobs have
 * not ended; else 0, or the error that ended a run. The caller holds the workspace's
 * lock. */
int  cei_workspace_finish(ceov_workspace *workspace);

/* Called by ceov_close() while engines still run: aborts runs in flight at all ranks, waits
 * for them with a bound, and logs an error. */
void cei_workspace_end(ceov_workspace *workspace);

/* Ends the workspace after a run failed with error (< 0): stores the first error, and
 * aborts every signal of the workspace, so that runs of all ranks end. Any thread; returns
 * error. */
int  cei_workspace_fail(ceov_workspace *workspace, int error);

/* Returns the counter of `ready` that is raised when the stream reaches a run: the start mark. */
uint32_t cei_workspace_start(const ceov_workspace *workspace);

/* Returns the address of one half of this rank's scratch. */
char *cei_workspace_half(const ceov_workspace *workspace, uint32_t half);

#endif /* CEI_WORKSPACE_H */
