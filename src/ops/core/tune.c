/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * ceov_op_tune(): builds an op for each candidate, times its runs, and gives the caller's
 * op what was built for the fastest one.
 *
 * All ranks take the same steps, because every decision is made from numbers that all ranks
 * exchanged (host_allreduce.h). Each exchange is also a barrier. Memory is allocated and freed only
 * while no rank has a run in flight: a driver may make an allocation wait for kernels, and these
 * may wait for a peer that is itself in an allocation.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ops/core/run.h"
#include "ops/tuning/candidates.h"

#define WARM_RUNS  (2u * CEI_OP_HALVES)   /* untimed; graphs are made in the last of them:
					   * graph_cache.h */
#define TIMED_RUNS 10u

struct tune {
	ceov_op                     *op;
	const struct cei_candidates *candidates;
	struct cei_trial_operands    operands;
	ceov_op                     *best;      /* fastest op so far; NULL: none measured yet */
	struct ceov_op_tuning        best_tuning;
	uint64_t                     best_ns;
	uint64_t                     model_ns;  /* measured time of the first candidate, which is
						 * the model's choice; 0: not measured */
};

/* --- agreeing with peers --------------------------------------------------- */

/* Aborts the workspace's signals. After an error ranks may be at different steps, and the abort
 * keeps peers from waiting for this rank. */
static int fail(const struct tune *tune, int r)
{
	return cei_workspace_fail(tune->op->workspace, r);
}

static int agree(const struct tune *tune, uint64_t value, struct cei_allreduce_range *ret_range)
{
	ceov_workspace *workspace = tune->op->workspace;
	int r = cei_allreduce_range(&workspace->allreduce, value, workspace->deadline_ns,
				    ret_range);

	return r ? fail(tune, r) : 0;
}

static int meet(const struct tune *tune)
{
	struct cei_allreduce_range range;

	return agree(tune, 0, &range);
}

/* Tells all ranks whether a step succeeded that each rank makes by itself, and returns in
 * *ret_is_done whether it succeeded at all of them. r is the step's result at this rank. */
static int agree_done(const struct tune *tune, int r, int *ret_is_done)
{
	struct cei_allreduce_range range;
	int met = agree(tune, r != 0, &range);

	if (!met)
		*ret_is_done = !range.max;
	return met;
}

/* --- operands -------------------------------------------------------------- */

static int take(const struct tune *tune, uint64_t n, void **ret_memory)
{
	struct cei_executor *executor = &tune->op->workspace->executor;

	return executor->ops->take(executor, tune->operands.stream, tune->op->shape.dtype, n,
				   ret_memory);
}

static int take_operands(struct tune *tune)
{
	struct cei_trial_operands *operands = &tune->operands;
	struct cei_trial_sizes sizes;
	uint32_t i;
	int r;

	tune->op->kind->trial->sizes(tune->op, &sizes);
	r = take(tune, sizes.a, &operands->a);
	for (i = 0; !r && i < sizes.n; i++) {
		r = take(tune, sizes.b[i], &operands->b[i]);
		if (!r)
			r = take(tune, sizes.c[i], &operands->c[i]);
	}
	return r;
}

/* Frees the operands, of which some may be missing after a failed allocation. */
static void give_operands(struct tune *tune)
{
	struct cei_executor *executor = &tune->op->workspace->executor;
	uint32_t i;

	for (i = 0; i < CEOV_OP_GEMMS_MAX; i++) {
		executor->ops->give(executor, tune->operands.c[i]);
		executor->ops->give(executor, tune->operands.b[i]);
	}
	executor->ops->give(executor, tune->operands.a);
}

/* --- runs ------------------------------------------------------------------ */

/* Waits until no run of the workspace is in flight. */
static int quiesce(const struct tune *tune)
{
	ceov_workspace *workspace = tune->op->workspace;
	int r;

	pthread_mutex_lock(&workspace->lock);
	r = cei_workspace_finish(workspace);
	pthread_mutex_unlock(&workspace->lock);
	if (r == CEOV_PENDING)
		r = CEOV_ERR_TIMEOUT;
	return r ? cei_raise(cei_object_report(&tune->op->object), r, 0,
			     "ceov_op_tune: rank %u: a run of workspace '%s' has failed or is "
			     "not done within its deadline (%s); release the workspace",
			     workspace->rank, workspace->name, ceov_strerror(r)) : 0;
}

/* Ends the timing. Each of the n runs may take up to the deadline, so the wait may last n times as
 * long as the deadline. */
static int end_timing(const struct tune *tune, uint64_t *ret_ns)
{
	ceov_workspace *workspace = tune->op->workspace;
	uint64_t n = WARM_RUNS + TIMED_RUNS;
	uint64_t timeout = workspace->deadline_ns < CEI_FOREVER / n
		? workspace->deadline_ns * n : CEI_FOREVER;
	int r = workspace->executor.ops->time_end(&workspace->executor,
						  tune->operands.stream, timeout, ret_ns);

	return r != CEOV_PENDING ? r
		: cei_raise(cei_object_report(&tune->op->object), CEOV_ERR_TIMEOUT, 0,
			    "ceov_op_tune: rank %u: measured runs are not done within their "
			    "deadline", workspace->rank);
}

/* Measures the mean time of a run on this rank. All ranks begin at the same time, because make()
 * ends with a barrier. */
static int measure(const struct tune *tune, ceov_op *op, uint64_t *ret_ns)
{
	struct cei_executor *executor = &tune->op->workspace->executor;
	uint64_t ns = 0;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < WARM_RUNS; i++)
		r = op->kind->trial->run(op, &tune->operands);
	if (!r)
		r = executor->ops->time_begin(executor, tune->operands.stream);
	for (i = 0; !r && i < TIMED_RUNS; i++)
		r = op->kind->trial->run(op, &tune->operands);
	if (!r)
		r = end_timing(tune, &ns);
	if (!r)
		r = quiesce(tune);
	if (r)
		return fail(tune, r);
	ns /= TIMED_RUNS;
	*ret_ns = ns < CEI_ALLREDUCE_VALUE_MAX ? ns : CEI_ALLREDUCE_VALUE_MAX;
	return 0;
}

/* --- candidates ------------------------------------------------------------ */

/* Creates an op with this tuning at all ranks. If some rank cannot create it, *ret_op is NULL at
 * all ranks. */
static int make(const struct tune *tune, const struct ceov_op_tuning *tuning,
		ceov_op **ret_op)
{
	ceov_op *op = NULL;
	int is_done = 0;
	int made = cei_op_create(tune->op->workspace, &tune->op->shape, tuning, &op);
	int r = agree_done(tune, made, &is_done);

	if (r || !is_done) {
		ceov_op_release(op);
		op = NULL;
	}
	if (!r)
		*ret_op = op;
	return r;
}

/* Measures a candidate. Its time is that of the slowest rank. */
static int try_candidate(struct tune *tune, uint32_t i)
{
	struct cei_allreduce_range range;
	ceov_op *op = NULL, *worse;
	uint64_t ns = 0;
	int r = make(tune, &tune->candidates->tuning[i], &op);

	if (r || !op)
		return r;
	r = measure(tune, op, &ns);
	if (!r)
		r = agree(tune, ns, &range);
	if (r) {
		ceov_op_release(op);
		return r;
	}
	if (!i)
		tune->model_ns = range.max;
	worse = op;
	if (!tune->best || range.max < tune->best_ns) {
		worse = tune->best;
		tune->best = op;
		tune->best_ns = range.max;
		tune->best_tuning = tune->candidates->tuning[i];
	}
	ceov_op_release(worse);
	return 0;
}

static void adopt(struct tune *tune, ceov_op *winner)
{
	ceov_workspace *workspace = tune->op->workspace;

	pthread_mutex_lock(&workspace->lock);
	cei_op_swap(tune->op, winner);
	tune->op->is_tuned = 1;
	pthread_mutex_unlock(&workspace->lock);
	ceov_op_release(winner);
}

/* --- stored tunings -------------------------------------------------------- */

/* Uses the stored tuning and does not measure, if all ranks have stored the same one. */
static int adopt_remembered(struct tune *tune, int *ret_is_done)
{
	struct cei_allreduce_range range;
	struct ceov_op_tuning tuning;
	ceov_op *op = NULL;
	uint64_t hash = 0;
	int r;

	if (cei_op_says_nothing(&tune->op->given) &&
	    !cei_op_recall(tune->op->workspace, &tune->op->shape, &tuning))
		hash = cei_candidates_hash(&tuning, 1);
	r = agree(tune, hash, &range);
	if (r || !range.min || range.min != range.max)
		return r;
	r = make(tune, &tuning, &op);
	if (r || !op)
		return r;
	adopt(tune, op);
	*ret_is_done = 1;
	return 0;
}

/* Rank 0 stores the result, before a barrier, so that each rank's next tuning finds it. If it
 * cannot be stored, a message says so, and the op keeps its tuning all the same. */
static void remember(const struct tune *tune)
{
	const ceov_workspace *workspace = tune->op->workspace;
	char key[CEI_TUNING_KEY_BYTES];

	if (workspace->rank || !cei_op_says_nothing(&tune->op->given) ||
	    cei_op_key(workspace, &tune->op->shape, key))
		return;
	(void)cei_tunings_remember(cei_object_report(&tune->op->object), key, &tune->best_tuning);
}

/* --- tuning ---------------------------------------------------------------- */

static int agree_candidates(const struct tune *tune)
{
	const struct cei_candidates *candidates = tune->candidates;
	struct cei_allreduce_range range;
	int r = agree(tune, cei_candidates_hash(candidates->tuning, candidates->n), &range);

	if (r || range.min == range.max)
		return r;
	return cei_raise(cei_object_report(&tune->op->object), CEOV_ERR_INVALID, 0,
			 "ceov_op_tune: rank %u: ranks would measure different things: their "
			 "k, n, tunings or kinds of GPU differ; set ceov_op_tuning",
			 tune->op->workspace->rank);
}

static void tell(const struct tune *tune)
{
	struct cei_choice *choice = &tune->op->choice;
	size_t at = strlen(choice->text);

	if (tune->model_ns)
		snprintf(choice->text + at, sizeof(choice->text) - at,
			 "tuned: %.1f us, the model's choice %.1f us\n",
			 (double)tune->best_ns / 1e3, (double)tune->model_ns / 1e3);
	else
		snprintf(choice->text + at, sizeof(choice->text) - at, "tuned: %.1f us\n",
			 (double)tune->best_ns / 1e3);
}

/* Measures all candidates. The operands must have been allocated. */
static int measure_all(struct tune *tune)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < tune->candidates->n; i++)
		r = try_candidate(tune, i);
	if (r) {
		ceov_op_release(tune->best);
		return r;
	}
	if (!tune->best)
		return cei_raise(cei_object_report(&tune->op->object), CEOV_ERR_STATE, 0,
				 "ceov_op_tune: rank %u: no candidate could be made at all "
				 "ranks", tune->op->workspace->rank);
	adopt(tune, tune->best);
	tell(tune);
	remember(tune);
	return 0;
}

static int tune_anew(struct tune *tune)
{
	int is_done = 0, took, r = agree_candidates(tune);

	if (r)
		return r;
	took = take_operands(tune);
	r = agree_done(tune, took, &is_done);
	if (!r && took)
		r = took;
	else if (!r && !is_done)
		r = cei_raise(cei_object_report(&tune->op->object), CEOV_ERR_NO_MEMORY, 0,
			      "ceov_op_tune: rank %u: another rank has no memory for operands "
			      "to measure with", tune->op->workspace->rank);
	if (!r)
		r = measure_all(tune);
	give_operands(tune);
	return r;
}

int cei_op_tune(ceov_op *op, void *stream, const struct cei_candidates *candidates)
{
	struct tune tune = { .op = op, .operands.stream = stream,
			     .candidates = candidates };
	struct cei_executor *executor = &op->workspace->executor;
	int is_done = 0, met, r;

	/* Refuse a stream that is being captured now, before peers wait for this rank. */
	r = executor->ops->time_begin(executor, stream);
	if (r)
		return r;
	r = quiesce(&tune);
	if (r)
		return fail(&tune, r);
	r = adopt_remembered(&tune, &is_done);
	if (!r && !is_done)
		r = tune_anew(&tune);
	if (r < 0 && ceov_workspace_status(op->workspace))
		return r;
	met = meet(&tune);              /* so that no rank makes runs while a peer frees memory */
	return r ? r : met;
}

int ceov_op_tune(ceov_op *op, void *stream)
{
	static const struct ceov_op_tuning open = { .struct_bytes = sizeof(open) };
	struct cei_candidates candidates;
	struct cei_rates rates;
	int r = cei_object_check(op, &cei_op_type, "ceov_op_tune");

	if (r)
		return r;
	if (op->workspace->is_host)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
				 "ceov_op_tune: rank %u is on the host, where nothing is tuned",
				 op->workspace->rank);
	r = cei_op_check_stream(op, stream);
	if (r)
		return r;
	if (!op->kind->trial)
		return 0;               /* as ops.h promises: nothing is measured */
	rates = cei_op_rates(op->workspace);
	cei_candidates_list(&op->shape, &rates, &open, &candidates);
	if (candidates.n == 1)
		return 0;               /* the same at all ranks; it is what the op has */
	cei_candidates_list(&op->shape, &rates, &op->given, &candidates);
	return cei_op_tune(op, stream, &candidates);
}
