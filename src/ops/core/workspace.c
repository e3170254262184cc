/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Creates workspaces, connects them with those of peers, and releases them. inflight.c keeps the
 * launches of runs, and ends all runs when one fails.
 *
 * WHY NO RUN WAITS UNTIL A TARGET IS FREE
 * A sender writes into a peer's scratch without asking whether the peer still reads there. This is
 * safe because each run of a rank depends on all ranks (runs of local kinds, which use no scratch,
 * are not counted here: kind.h):
 *
 *   1. A rank finishes run e only after every peer has begun run e: it has waited for something
 *      that each peer sent in run e, or that could only be sent after each peer had sent. Where
 *      a peer has no bytes for the rank, it raises the rank's signal `here`, and the rank waits
 *      for that (send_stage.c).
 *   2. A peer begins run e only after it has finished run e - 1. The reason is that the launches
 *      of a run come after the work on its stream, and the runs of one workspace follow each
 *      other on streams (on the host, in the calling thread). "Begins" means this order on
 *      the GPU, not the moment of the call: a run sends nothing before the stream reaches it.
 *
 * So when a rank begins run e, it has finished run e - 1. By 1, all peers have begun run e - 1;
 * by 2, all peers have finished run e - 2, which is the last run that used the half of scratch
 * that run e uses. The memory from which a rank sends is free for the same reason: its partial
 * sums of run e - 2 have arrived at all peers, since these have finished that run.
 *
 * In a gather over several nodes a rank also reads its scratch to pass on what came from another
 * node. What it passes on in run e arrives before the receiver finishes run e, so these reads have
 * ended, too, when all ranks have finished run e.
 *
 * Counters are safe for the same reason, which is why `arrived` and `here` exist once for each
 * half. Ops of one workspace may cut rows into different numbers of pieces, so a counter may be
 * raised by one rank in one run and by another rank, or from another lane, in the next run. If
 * both runs used the same counter, a mark of run e - 1 could be stored after a mark of run e, and
 * the counter would fall. With one set for each half this cannot happen: all marks that are raised
 * in run e - 2 are awaited in it, and so have been seen before run e begins.
 */

#include "config.h"

#include "ops/core/workspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sized.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/core/capture_cuda.h"
#include "ops/core/find_peers.h"
#include "ops/kind.h"
#include "ops/tuning/selector.h"

#define SCRATCH_ALIGN_BYTES UINT64_C(4096)
#define SCRATCH_MAX_BYTES   (UINT64_C(1) << 50)

/* --- creation -------------------------------------------------------------- */

static const struct cei_executor_ops *executor_for(enum ceov_place_kind kind)
{
	switch (kind) {
	case CEOV_PLACE_HOST:
		return &cei_executor_host;
	case CEOV_PLACE_GPU:
#if HAVE_CUDA
		return &cei_executor_cuda;
#else
		return NULL;
#endif
	}
	return NULL;
}

static int has_nodes(const ceov_context *context)
{
	return cei_site_n_local(&context->site) != context->site.n_ranks;
}

static const char *fault_of(const ceov_context *context,
			    const struct ceov_workspace_config *config, int is_host)
{
	size_t length = config->name ? strnlen(config->name, CEI_WORKSPACE_NAME_BYTES) : 0;

	if (!length || length == CEI_WORKSPACE_NAME_BYTES)
		return "the name must have 1 to 40 bytes";
	if (!config->scratch_bytes || config->scratch_bytes > SCRATCH_MAX_BYTES)
		return "scratch_bytes is 0 or not a size";
	if (context->site.n_ranks > CEI_OP_RANKS_MAX)
		return "operators work on groups of at most 64 ranks";
	if (context->site.progress_by_caller)
		return "operators need the context's own threads: open it without "
			"progress_by_caller";
	if (config->is_capturable && has_nodes(context))
		return "is_capturable: a graph cannot hold transfers to other nodes";
	if (config->is_capturable && is_host)
		return "is_capturable: graphs are a GPU's, the rank is on the host";
	if (config->is_capturable != 0 && config->is_capturable != 1)
		return "is_capturable must be 0 or 1";
	if (config->shares_sms != 0 && config->shares_sms != 1)
		return "shares_sms must be 0 or 1";
	if (config->n_sms == 1)
		return "n_sms must be 0 or at least 2, because products run on pairs of SMs";
	return NULL;
}

/* Copies the caller's struct. Fields that the struct of an older caller lacks become 0. */
static int take_config(ceov_context *context, const struct ceov_workspace_config *from,
		       struct ceov_workspace_config *ret_config)
{
	int r = cei_context_check(context, "ceov_workspace_create");

	if (!r)
		r = cei_sized_check(&context->report, from,
				    offsetof(struct ceov_workspace_config, n_sms),
				    sizeof(*from), "ceov_workspace_create: config");
	if (!r)
		cei_sized_take(ret_config, from, sizeof(*ret_config));
	return r;
}

/* Checks the workspace that another one will follow, if there is one. */
static int check_follows(ceov_context *context, const struct ceov_workspace_config *config,
			 const char *call)
{
	const ceov_workspace *leader = config->follows;
	int r = leader ? cei_object_check(leader, &cei_workspace_type, call) : 0;

	if (r || !leader || (leader->object.context == context && leader->rank == config->rank))
		return r;
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
			 "%s: rank %u: follows: workspace '%s' is another context's or another "
			 "rank's", call, config->rank, leader->name);
}

static int check_create(ceov_context *context, const struct ceov_workspace_config *config,
			int has_ret, uint32_t *ret_member)
{
	static const char call[] = "ceov_workspace_create";
	const char *fault;
	int r;

	if (!has_ret)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "%s: no ret_workspace", call);
	r = cei_context_own_rank(context, config->rank, call, ret_member);
	if (r)
		return r;
	fault = fault_of(context, config, context->site.members[*ret_member].place.kind ==
			 CEOV_PLACE_HOST);
	if (!fault)
		return check_follows(context, config, call);
	return cei_raise(&context->report, CEOV_ERR_INVALID, 0, "%s: rank %u: %s", call,
			 config->rank, fault);
}

/* Marks behind bytes to other nodes are raised by the network, which reaches host memory only. */
static int create_signals(ceov_workspace *workspace, struct ceov_place place)
{
	static const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	ceov_context *context = workspace->object.context;
	uint32_t rank = workspace->rank;
	int r = cei_shared_create(workspace, &place);

	if (!r)
		r = ceov_signal_create(context, rank, place,
				       cei_workspace_start(workspace) + 1,
				       CEOV_SIGNAL_HOST_VISIBLE, &workspace->ready);
	if (!r)
		r = ceov_signal_create(context, rank, has_nodes(context) ? host : place,
				       CEI_OP_SENT_MAX, 0, &workspace->sent);
	return r;
}

static int open_executor(ceov_workspace *workspace, enum ceov_place_kind kind)
{
	struct cei_executor *executor = &workspace->executor;

	executor->context = workspace->object.context;
	executor->rank = workspace->rank;
	if (workspace->leader != workspace)
		executor->leader = &workspace->leader->executor;
	executor->ops = executor_for(kind);
	if (!executor->ops)
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
				 "ceov_workspace_create: rank %u is on a GPU, but this build "
				 "is without CUDA", workspace->rank);
	return executor->ops->open(executor);
}

/* Returns whether SMs are sure to come free for kernels that wait for those of peers. */
static int has_own_sms(const ceov_workspace *workspace, const struct ceov_place *place, int is_told)
{
	const struct cei_site *site = &workspace->object.context->site;

	return !workspace->shares_sms && (is_told || cei_site_n_on_gpu(site, place->index) < 2);
}

/* Returns whether stores of 16 bytes to all peers on this node arrive whole. A process that sees
 * one GPU alone does not know how it is linked to those of other processes. */
static int keeps_packets(const ceov_workspace *workspace, const struct ceov_place *place)
{
	const struct cei_machine *machine = workspace->object.context->works.topology->machine;
	const struct cei_site *site = &workspace->object.context->site;

	return cei_site_n_on_gpu(site, place->index) == cei_site_n_local(site) ||
	       (machine && cei_machine_nvlinks_all(machine, place->index));
}

/* Finds the facts about this rank's GPU that the cost model of all ranks needs. is_told: the caller
 * has said how many SMs the workspace may use. */
static void find_facts(ceov_workspace *workspace, const struct ceov_place *place, int is_told)
{
	const struct cei_machine *machine = workspace->object.context->works.topology->machine;
	const struct cei_executor *executor = &workspace->executor;
	const struct cei_rates usual = cei_rates_gpu();
	uint64_t *facts = workspace->allreduce.facts;

	if (place->kind != CEOV_PLACE_GPU)
		return;
	facts[CEI_ALLREDUCE_SMS] = executor->n_sms;
	facts[CEI_ALLREDUCE_REACH] = !machine || cei_machine_reaches_all(machine, place->index);
	facts[CEI_ALLREDUCE_KERNELS] = executor->ops->pair(executor, cei_selector_shape(
								   &usual, 0)) == usual.pair;
	facts[CEI_ALLREDUCE_PACKETS] = keeps_packets(workspace, place);
	facts[CEI_ALLREDUCE_OWN_SMS] = has_own_sms(workspace, place, is_told);
	if (!machine)
		return;
	facts[CEI_ALLREDUCE_COPY_RATE] = cei_machine_peer_rate(machine, place->index);
	facts[CEI_ALLREDUCE_COPY_T0] =
		cei_allreduce_turned(cei_machine_peer_t0(machine, place->index));
}

/* Returns whether the rank's calling thread can queue what runs transfer. Behind a daemon it does
 * only where the caller says so, because the daemon, which shares links among its clients, knows
 * nothing of such runs. */
static int can_queue(const ceov_context *context, const struct ceov_workspace_config *config,
		     const struct ceov_place *place)
{
	return place->kind == CEOV_PLACE_GPU && !has_nodes(context) &&
		(!context->remote || config->is_capturable);
}

static int build(ceov_workspace *workspace, const struct ceov_place *place)
{
	int is_told = workspace->executor.n_sms != 0;
	int r = cei_levels_make(workspace->object.context, workspace->n_ranks,
				&workspace->levels);

	if (!r)
		r = open_executor(workspace, place->kind);
	if (!r)
		find_facts(workspace, place, is_told);
	if (!r)
		r = create_signals(workspace, *place);
	if (!r)
		r = cei_allreduce_tell_facts(&workspace->allreduce);
	return r ? r : cei_shared_offer(workspace);
}

/* Frees everything but buffers and signals. Those were released, or belong to the context. */
static void quarantine_workspace(struct cei_object *object)
{
	ceov_workspace *workspace = CEI_OWNER(object, ceov_workspace, object);

	cei_object_end(object);
	pthread_mutex_lock(&workspace->leader->turn);
	cei_capture_close(workspace->capture);
	if (workspace->executor.ops)
		workspace->executor.ops->close(&workspace->executor);
	pthread_mutex_unlock(&workspace->leader->turn);
	if (workspace->leader != workspace)
		cei_object_unuse(&workspace->leader->object);
	pthread_mutex_destroy(&workspace->turn);
	pthread_mutex_destroy(&workspace->lock);
	pthread_mutex_destroy(&workspace->agree.lock);
	pthread_mutex_destroy(&workspace->agree.first);
	cei_levels_free(&workspace->levels);
	cei_object_quarantine(object);
}

static void stop(struct cei_object *object)
{
	cei_workspace_end(CEI_OWNER(object, ceov_workspace, object));
}

static void fail(struct cei_object *object)
{
	cei_workspace_fail_if_aborted(CEI_OWNER(object, ceov_workspace, object));
}

const struct cei_object_type cei_workspace_type = {
	"workspace", offsetof(ceov_context, uppers), stop, quarantine_workspace, fail
};

static int release_signal(ceov_signal **signal)
{
	int r = ceov_signal_release(*signal);

	if (!r)
		*signal = NULL;
	return r;
}

/* Releases the workspace's buffers and signals. May be called again after an error. */
static int release_parts(ceov_workspace *workspace)
{
	int r = cei_shared_release(workspace);

	if (!r)
		r = release_signal(&workspace->ready);
	return r ? r : release_signal(&workspace->sent);
}

int ceov_workspace_create(ceov_context *context,
			  const struct ceov_workspace_config *from,
			  ceov_workspace **ret_workspace)
{
	struct ceov_workspace_config config;
	ceov_workspace *workspace;
	uint32_t member;
	int r = take_config(context, from, &config);

	if (!r)
		r = check_create(context, &config, ret_workspace != NULL, &member);
	if (r)
		return r;
	workspace = calloc(1, sizeof(*workspace));
	if (!workspace)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_workspace_create: no memory for a handle");
	strcpy(workspace->name, config.name);  /* checked to fit */
	workspace->rank = config.rank;
	workspace->n_ranks = context->site.n_ranks;
	workspace->is_host = context->site.members[member].place.kind == CEOV_PLACE_HOST;
	workspace->shares_sms = config.shares_sms;
	workspace->half_bytes = (config.scratch_bytes + SCRATCH_ALIGN_BYTES - 1) /
		SCRATCH_ALIGN_BYTES * SCRATCH_ALIGN_BYTES;
	workspace->deadline_ns = config.deadline_ns ? config.deadline_ns
		: context->deadline_ns;
	workspace->executor.n_sms = config.n_sms;
	workspace->allreduce.context = context;
	workspace->allreduce.rank = workspace->rank;
	workspace->allreduce.n_ranks = workspace->n_ranks;
	workspace->allreduce.facts[CEI_ALLREDUCE_QUEUES] =
		(uint64_t)can_queue(context, &config, &context->site.members[member].place);
	workspace->leader = config.follows ? config.follows->leader : workspace;
	if (workspace->leader != workspace)
		cei_object_use(&workspace->leader->object);
	pthread_mutex_init(&workspace->lock, NULL);
	pthread_mutex_init(&workspace->turn, NULL);
	pthread_mutex_init(&workspace->agree.lock, NULL);
	pthread_mutex_init(&workspace->agree.first, NULL);
	cei_object_init(&workspace->object, context, &cei_workspace_type);
	r = build(workspace, &context->site.members[member].place);
	if (!r) {
		*ret_workspace = workspace;
		return 0;
	}
	(void)release_parts(workspace); /* if a peer has found a part already, the part stays
					 * until ceov_close() */
	quarantine_workspace(&workspace->object);
	return r;
}

/* --- connection ------------------------------------------------------------ */

/* The caller holds the workspace's lock. */
static int find(void *arg, uint32_t rank, uint64_t by_ns)
{
	ceov_workspace *workspace = arg;

	if (cei_shared_is_found(workspace, rank))
		return 0;
	return cei_shared_find(workspace, rank, by_ns);
}

/* CEOV_PENDING: not all ranks' facts have come by deadline_ns. */
static int take_facts(ceov_workspace *workspace, uint64_t deadline_ns)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < CEI_ALLREDUCE_FACTS; i++)
		r = cei_allreduce_least(&workspace->allreduce, (enum cei_allreduce_fact)i,
					deadline_ns, &workspace->least[i]);
	return r;
}

int ceov_workspace_connect(ceov_workspace *workspace, uint64_t timeout_ns)
{
	static const char call[] = "ceov_workspace_connect";
	uint64_t deadline = cei_deadline(timeout_ns);
	struct cei_find_peers peers = { .call = call, .arg = workspace, .find = find };
	int r = cei_workspace_check(workspace, call);

	if (r)
		return r;
	peers.context = workspace->object.context;
	peers.rank = workspace->rank;
	peers.name = workspace->name;
	pthread_mutex_lock(&workspace->lock);
	if (workspace->is_leaving)
		r = cei_raise(cei_object_report(&workspace->object), CEOV_ERR_STATE, 0,
			      "ceov_workspace_connect: '%s' of rank %u is being released",
			      workspace->name, workspace->rank);
	else
		r = cei_find_peers(&peers, deadline);
	if (!r)
		r = take_facts(workspace, deadline);
	pthread_mutex_unlock(&workspace->lock);
	if (r)
		return r == CEOV_NONE ? CEOV_PENDING : r;
	/* release: pairs with the acquire in cei_workspace_check_connected(), so that a thread
	 * that reads 1 sees the peers' handles and facts */
	atomic_store_explicit(&workspace->is_connected, 1, memory_order_release);
	return 0;
}

int cei_workspace_check(const ceov_workspace *workspace, const char *call)
{
	return cei_object_check(workspace, &cei_workspace_type, call);
}

int cei_workspace_check_connected(const ceov_workspace *workspace, const char *call)
{
	int r = cei_workspace_check(workspace, call);

	/* acquire: pairs with ceov_workspace_connect() */
	if (r || atomic_load_explicit(&workspace->is_connected, memory_order_acquire))
		return r;
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_STATE, 0,
			 "%s: workspace '%s' of rank %u is not connected yet", call,
			 workspace->name, workspace->rank);
}

int cei_workspace_is_capturable(const ceov_workspace *workspace)
{
	return workspace->least[CEI_ALLREDUCE_QUEUES] == 1 && !workspace->is_counted;
}

/* The caller holds the lock. */
static int take_kind(ceov_workspace *workspace, const struct cei_op_kind *kind)
{
	if (kind->is_counted && workspace->capture)
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
				 "%s_create: rank %u: rows are counted by the engine, which has "
				 "no part in runs of the ops that workspace '%s' has had; create "
				 "a workspace of their own for operators of experts", kind->name,
				 workspace->rank, workspace->name);
	if (!kind->is_counted && workspace->is_counted)
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
				 "%s_create: rank %u: workspace '%s' has had operators of "
				 "experts, whose runs the engine launches; create another "
				 "workspace", kind->name, workspace->rank, workspace->name);
	workspace->is_counted = kind->is_counted;
	if (kind->is_counted || workspace->capture)
		return 0;
	return cei_capture_open(workspace, &workspace->capture);
}

int cei_workspace_take_kind(ceov_workspace *workspace, const struct cei_op_kind *kind)
{
	int r;

	if (kind->is_local || workspace->least[CEI_ALLREDUCE_QUEUES] != 1)
		return 0;
	pthread_mutex_lock(&workspace->lock);
	r = take_kind(workspace, kind);
	pthread_mutex_unlock(&workspace->lock);
	return r;
}

uint32_t cei_workspace_start(const ceov_workspace *workspace)
{
	return workspace->n_ranks * CEI_OP_PIECES_MAX;
}

int cei_workspace_is_alike(const ceov_workspace *workspace)
{
	const ceov_buffer *own = workspace->scratch[workspace->rank];
	uint32_t rank;

	if (workspace->levels.n_nodes > 1)
		return 0;
	for (rank = 0; rank < workspace->n_ranks; rank++)
		if (workspace->scratch[rank]->region->kind != own->region->kind)
			return 0;
	return 1;
}

int cei_workspace_has_nodes(const ceov_workspace *workspace)
{
	return has_nodes(workspace->object.context);
}

char *cei_workspace_half(const ceov_workspace *workspace, uint32_t half)
{
	char *base = ceov_buffer_base(workspace->scratch[workspace->rank],
				      workspace->rank);

	return base + half * workspace->half_bytes;
}

/* --- release --------------------------------------------------------------- */

/* Waits until all runs have ended, with or without an error. */
static int quiesce(ceov_workspace *workspace)
{
	int r;

	pthread_mutex_lock(&workspace->lock);
	(void)cei_workspace_land(workspace);
	r = workspace->executor.ops->idle(&workspace->executor, workspace->deadline_ns);
	pthread_mutex_unlock(&workspace->lock);
	if (r != CEOV_PENDING)          /* an error means that the runs have ended, too */
		return 0;
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_TIMEOUT, 0,
			 "ceov_workspace_release: '%s' of rank %u: its runs are not done "
			 "within their deadline", workspace->name, workspace->rank);
}

int ceov_workspace_release(ceov_workspace *workspace)
{
	int r;

	if (!workspace)
		return 0;
	r = cei_workspace_check(workspace, "ceov_workspace_release");
	if (r)
		return r;
	if (cei_object_n_users(&workspace->object))
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_STATE, 0,
				 "ceov_workspace_release: '%s' of rank %u still has ops, or "
				 "workspaces that follow it; release them first",
				 workspace->name, workspace->rank);
	r = quiesce(workspace);
	if (r)
		return r;
	/* A workspace that is partly released must not be connected again. release: pairs like
	 * the store in ceov_workspace_connect() */
	pthread_mutex_lock(&workspace->lock);
	workspace->is_leaving = 1;
	atomic_store_explicit(&workspace->is_connected, 0, memory_order_release);
	r = release_parts(workspace);
	pthread_mutex_unlock(&workspace->lock);
	if (!r)
		quarantine_workspace(&workspace->object);
	return r;
}
