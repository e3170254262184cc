/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WORKSPACE_H
#define CEI_WORKSPACE_H

/*
 * The scratch memory and signals that the ops of one rank use, and the order of their runs. The
 * comment at the top of workspace.c explains why no run waits until a target is free.
 *
 * HALVES: run e (from 1) uses half e % 2 of every rank's scratch, and the counters of that half in
 * `arrived` and `here`. Behind both halves GPUs have mail (kernels/direct_ll.h), in halves, too.
 *
 * COUNTERS: in run e a counter rises to e. The exceptions are `met`, and `ready` in captured runs
 * (capture_cuda.h). The signals and the indices of their counters are:
 *
 *   arrived  at each rank, one signal for each half: source rank * pieces + piece, or, in an
 *            all-to-all + GEMM whose columns are divided, piece * n_ranks + source rank. Where an
 *            all-reduce sends sums: n_ranks * CEI_OP_PIECES_MAX more than that. The sums of nodes
 *            have counters of their own (reduce/by_node.c), and on one node the same counters are
 *            those of sums in steps, where they rise to other values (kernels/direct.h)
 *   here     at each rank, in host memory: half * n_ranks + r. Rank r raises it when it has
 *            begun a run in which it sends this rank no bytes
 *   ready    used by its own rank only: target rank * pieces + piece, or piece. The last
 *            counter is raised when the stream reaches the run (cei_workspace_start())
 *   sent     used by its own rank only: each operator assigns its counters
 *   met      at each rank, if all are on one node: counter r says how far rank r is. Where calling
 *            threads queue runs it is the number of runs that rank r has finished; else that of
 *            the last run that rank r has come to whose ranks begin together (op.h)
 *
 * The counters of `allreduce` count rounds: see host_allreduce.h.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/site.h"
#include "ce_engine/objects/object.h"
#include "collective/levels.h"
#include "ops/compute/executor.h"
#include "ops/core/agreed.h"
#include "ops/core/host_allreduce.h"
#include "ops/shape.h"

#define CEI_OP_HALVES         2u
#define CEI_OP_RUNS_MAX       16u       /* runs whose launches may be in flight */
/* For each stage one of this node and one for each rank of another; for each rank its `here`. */
#define CEI_OP_SENT_MAX       (CEI_OP_STAGES_MAX * CEI_OP_RANKS_MAX + CEI_OP_RANKS_MAX)

#define CEI_WORKSPACE_NAME_BYTES 41u    /* including the NUL */

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
	struct cei_levels   levels;     /* which ranks gathers join directly */
	int                 is_host;
	int                 shares_sms; /* as in struct ceov_workspace_config */
	ceov_workspace     *leader;     /* whose runs and this one's follow each other on GPUs;
					 * itself if it follows none */
	uint64_t            half_bytes; /* size of one half of scratch */
	uint64_t            deadline_ns;
	struct cei_executor executor;
	ceov_buffer        *scratch[CEI_OP_RANKS_MAX];     /* [rank]; a peer's is NULL until it
							    * is found */
	ceov_signal        *arrived[CEI_OP_HALVES][CEI_OP_RANKS_MAX];
	ceov_signal        *here[CEI_OP_RANKS_MAX];        /* [rank] */
	ceov_signal        *met[CEI_OP_RANKS_MAX];         /* [rank], a counter for each rank; NULL
							    * in a group of several nodes */
	ceov_signal        *ready;
	ceov_signal        *sent;
	struct cei_agree    agree;
	struct cei_allreduce allreduce; /* exchange of numbers between ranks for tuning */
	uint64_t            least[CEI_ALLREDUCE_FACTS]; /* [fact]: its lowest value over all
							 * ranks; set when connected */
	struct cei_capture *capture;    /* by which the calling thread queues runs; NULL: the engine
					 * launches them, or no op has needed one of the two yet.
					 * Set under `lock` before the first op that needs it */
	_Atomic int         is_connected;
	_Atomic int         error;      /* the first error that ended a run */

	pthread_mutex_t     lock;       /* held while a run is made; guards the fields below */
	int                 is_leaving; /* 1: the release of the workspace has begun */
	int                 is_counted; /* 1: it has had ops of kinds that are (kind.h), so the
					 * engine launches its runs */
	uint64_t            n_runs;
	/* Held, behind `lock`, while a run on a GPU is queued: the leader's, by all that follow
	 * it. */
	pthread_mutex_t     turn;
	struct cei_inflight inflights[CEI_OP_RUNS_MAX]; /* ring of the runs whose launches are
							 * in flight */
	uint32_t            first_flight;
	uint32_t            n_flights;
};

/* --- shared.c: what ranks share -------------------------------------------- */

/* Each rank creates its own scratch and signals, exports them under names that begin with the
 * workspace's name, and finds those of its peers. */

#define CEI_SHARED_SIGNALS_MAX ((CEI_OP_HALVES + 4) * CEI_OP_RANKS_MAX)

/* Creates this rank's scratch, and its signals at the rank's place or in host memory. */
int  cei_shared_create(ceov_workspace *workspace, const struct ceov_place *place);

/* Exports this rank's scratch and signals to peers. */
int  cei_shared_offer(ceov_workspace *workspace);

/* Looks until by_ns for the parts of a peer (scratch and signals) that were not found before.
 * CEOV_NONE: the peer has not exported all of them. */
int  cei_shared_find(ceov_workspace *workspace, uint32_t rank, uint64_t by_ns);

/* Returns whether the peer's scratch and all its signals were found. */
int  cei_shared_is_found(const ceov_workspace *workspace, uint32_t rank);

/* Releases scratch and signals: first those found at peers, because peers may be waiting for that,
 * then those that this rank created. Also cleans up after a creation that failed or a release that
 * was incomplete. CEOV_PENDING: a peer still uses something of this rank; call again. */
int  cei_shared_release(ceov_workspace *workspace);

/* Lists the signals that exist, this rank's and those found at peers, so that they can be aborted:
 * at most CEI_SHARED_SIGNALS_MAX. Returns how many there are. */
uint32_t cei_shared_signals(const ceov_workspace *workspace, ceov_signal **ret_signals);

/* --- the workspace itself -------------------------------------------------- */

/* cei_workspace_check() raises an error if the workspace is not valid;
 * cei_workspace_check_connected() also if it is not connected. call: name of the public function,
 * for the message. */
int  cei_workspace_check(const ceov_workspace *workspace, const char *call);
int  cei_workspace_check_connected(const ceov_workspace *workspace, const char *call);

/* Returns whether runs may be captured: calling threads of all ranks can queue what runs transfer,
 * and the engine launches nothing for the workspace. The workspace is connected, and the caller
 * holds its lock or is about to create an op. */
int  cei_workspace_is_capturable(const ceov_workspace *workspace);

/* Sees to it that runs of this kind can be made: the first op that is not local decides whether the
 * calling thread queues the workspace's runs or the engine launches them. The workspace is
 * connected. CEOV_ERR_INVALID: ops of the workspace need the other one of the two. */
int  cei_workspace_take_kind(ceov_workspace *workspace, const struct cei_op_kind *kind);

/* Checks without blocking whether launches or jobs have failed. Returns the error that
 * ended a run, without raising it again, or 0. The caller holds the workspace's lock. */
int  cei_workspace_look(ceov_workspace *workspace);

/* cei_workspace_make_room() waits, if necessary, until one more run may have launches in flight;
 * cei_workspace_add_flight() adds the launches of a run. The caller holds the workspace's lock. */
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

/* Ends all runs of the workspace after one failed with `error` (< 0): keeps the first such error,
 * and aborts every signal of the workspace, so that the runs of all ranks end. Any thread. Returns
 * error. */
int  cei_workspace_fail(ceov_workspace *workspace, int error);

/* The same, with the error of the abort, if a signal of the workspace was aborted. */
void cei_workspace_fail_if_aborted(ceov_workspace *workspace);

/* Returns the counter of `ready` that is raised when the stream reaches a run: the start mark. */
uint32_t cei_workspace_start(const ceov_workspace *workspace);

/* Returns whether all ranks are on one node, and either all on GPUs or none, so that they may store
 * to each other's scratch. The same at all ranks. The workspace is connected. */
int cei_workspace_is_alike(const ceov_workspace *workspace);

/* Returns whether the group has ranks on other nodes. */
int cei_workspace_has_nodes(const ceov_workspace *workspace);

/* Returns the address of one half of this rank's scratch. */
char *cei_workspace_half(const ceov_workspace *workspace, uint32_t half);

#endif /* CEI_WORKSPACE_H */
