/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counters of simulated processes: raised here and from other nodes, asked for, and renewed. */

#include "group_sim.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);        /* one thread */
}

static void note_raise(struct sim_export *export, uint32_t index, uint64_t value)
{
	if (export->raised[index] < value)
		export->raised[index] = value;
}

void sim_watch(struct sim *sim, uint32_t who, struct sim_held *held)
{
	if (sim->node_of[sim->process_of[held->rank]] == sim->node_of[who])
		return;                 /* memory is shared */
	held->image = calloc(1, sizeof(*held->image));
	if (!held->image || cei_group_watch(sim->processes[who].group, held->rank, held->use,
					    held->image->words, SIM_WORDS))
		abort();
}

void sim_forget(struct sim_process *p, struct sim_held *held)
{
	if (held->image)
		cei_group_forget(p->group, held->rank, held->use);
	free(held->image);
	held->image = NULL;
}

void sim_zero(_Atomic uint64_t *words)
{
	uint32_t i;

	for (i = 0; i < SIM_WORDS; i++)
		atomic_store_explicit(&words[i], 0, memory_order_relaxed);      /* one thread */
}

/* --- calls ------------------------------------------------------------------------------- */

static void raise_own(struct sim *sim, struct sim_process *p)
{
	uint32_t index = sim_draw(sim, SIM_WORDS);
	uint64_t value = 1 + sim_draw(sim, 1000);
	struct sim_export *export;

	if (!p->n_exports)
		return;
	export = &p->exports[sim_draw(sim, p->n_exports)];
	note_raise(export, index, value);
	if (load(&export->words[index]) < value)        /* one thread */
		atomic_store_explicit(&export->words[index], value, memory_order_relaxed);
}

void sim_raise_all(struct sim_process *p)
{
	uint32_t i, k;

	for (i = 0; i < p->n_exports; i++)
		for (k = 0; k < SIM_WORDS; k++) {
			note_raise(&p->exports[i], k, SIM_HIGHEST);     /* one thread */
			atomic_store_explicit(&p->exports[i].words[k], SIM_HIGHEST,
					      memory_order_relaxed);
		}
	p->has_raised_all = 1;
}

static void raise_far(struct sim *sim, struct sim_process *p, const struct sim_held *held)
{
	struct sim_export *export = sim_export_of(sim, held);
	uint32_t index = sim_draw(sim, SIM_WORDS);
	uint64_t value = 1 + sim_draw(sim, 1000);

	if (!cei_group_raise(p->group, held->rank, held->use, index, value) &&
	    held->generation == export->generation)
		note_raise(export, index, value);
}

static void ask(struct sim *sim, struct sim_process *p, struct sim_held *held)
{
	uint32_t index = sim_draw(sim, SIM_WORDS);
	uint64_t value = load(&held->image->words[index]) + 1 + sim_draw(sim, 200);

	cei_group_ask(p->group, held->rank, held->use, index, value);
	if (held->image->asked[index] < value)
		held->image->asked[index] = value;
}

/* All of other nodes that have it are to hear of it. */
static void abort_own(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	struct sim_export *export = p->n_exports ? &p->exports[sim_draw(sim, p->n_exports)] : NULL;
	struct cei_group_abort abort = { .error = CEOV_ERR_ABORTED, .blame = CEOV_NOBODY, .n = 1 };
	struct sim_held *held;
	uint32_t i, k;

	if (!export)
		return;
	abort.signals[0] = (struct cei_group_signal){ export->rank, export->id, 0 };
	export->aborts |= UINT32_C(1) << export->generation;
	(void)cei_group_abort(p->group, &abort);
	for (i = 0; i < sim->n; i++)
		for (k = 0; k < sim->processes[i].n_held; k++) {
			held = &sim->processes[i].held[k];
			if (held->image && sim_export_of(sim, held) == export &&
			    held->generation == export->generation)
				held->aborted = export->generation;
		}
}

/* Its owner is to hear of it. */
static void abort_far(struct sim *sim, const struct sim_process *p, const struct sim_held *held)
{
	struct cei_group_abort abort = { .error = CEOV_ERR_ABORTED, .blame = CEOV_NOBODY, .n = 1 };
	struct sim_export *export = sim_export_of(sim, held);
	uint32_t k;

	abort.signals[0] = (struct cei_group_signal){ held->rank, held->id, 0 };
	for (k = 0; k < p->n_held; k++)         /* it may have found it more than once */
		if (sim_export_of(sim, &p->held[k]) == export)
			export->aborts |= UINT32_C(1) << p->held[k].generation;
	if (held->generation == export->generation)
		export->aborted = export->generation;
	(void)cei_group_abort(p->group, &abort);
}

void sim_aborted(struct sim *sim, uint32_t who, const struct cei_group_abort *abort)
{
	struct cei_group_signal signals[CEI_GROUP_SIGNALS_MAX];
	struct sim_process *p = &sim->processes[who];
	uint32_t n = cei_group_still_aborted(p->group, abort, signals), k;
	struct sim_held named = { 0 };
	struct sim_export *export;

	if (!n)
		return;
	named.rank = signals[0].rank;
	named.id = signals[0].id;
	export = sim_export_of(sim, &named);
	sim_expect(sim, export->aborts >> signals[0].generation & 1,
		   "a generation is said to be aborted that was not");
	if (sim->process_of[named.rank] == who)
		export->heard_aborted = signals[0].generation;
	for (k = 0; k < p->n_held; k++)
		if (sim_export_of(sim, &p->held[k]) == export)
			p->held[k].heard_aborted = signals[0].generation;
}

void sim_call_counters(struct sim *sim, uint32_t who)
{
	struct sim_process *p = &sim->processes[who];
	uint32_t kind = sim_draw(sim, 10);
	struct sim_held *held;

	if (kind == 9) {
		abort_own(sim, who);
		return;
	}
	if (kind < 3) {
		raise_own(sim, p);
		return;
	}
	held = p->n_held ? &p->held[sim_draw(sim, p->n_held)] : NULL;
	if (!held || !held->image)
		return;
	if (kind == 8)
		abort_far(sim, p, held);
	else if (kind < 6)
		raise_far(sim, p, held);
	else
		ask(sim, p, held);
}

/* --- checks ----------------------------------------------------------------------------- */

/* No image is ahead of its counter. */
void sim_check_images(struct sim *sim, uint32_t who)
{
	const struct sim_process *p = &sim->processes[who];
	const struct sim_export *export;
	uint32_t i, k;

	for (i = 0; i < p->n_held; i++) {
		if (!p->held[i].image)
			continue;
		export = sim_export_of(sim, &p->held[i]);
		for (k = 0; k < SIM_WORDS; k++)
			sim_expect(sim, p->held[i].generation != export->generation ||
				   load(&p->held[i].image->words[k]) <= export->raised[k],
				   "an image is ahead of its counter");
	}
}

/* Without faults all that was raised and asked for has arrived. */
void sim_check_counters(struct sim *sim, uint32_t who)
{
	const struct sim_process *p = &sim->processes[who];
	const struct sim_export *export;
	const struct sim_held *held;
	uint32_t i, k;

	for (i = 0; i < p->n_exports; i++) {
		export = &p->exports[i];
		for (k = 0; k < SIM_WORDS; k++)
			sim_expect(sim, load(&export->words[k]) == export->raised[k],
				   "a raise has not arrived");
		sim_expect(sim, export->aborted != export->generation || export->to != UINT32_MAX ||
			   export->heard_aborted == export->generation,
			   "an owner has not heard of an abort");
	}
	for (i = 0; i < p->n_held; i++) {
		held = &p->held[i];
		export = sim_export_of(sim, held);
		sim_expect(sim, held->aborted != held->generation ||
			   held->heard_aborted == held->generation,
			   "a finder has not heard of an abort");
		for (k = 0; held->image && k < SIM_WORDS; k++)
			sim_expect(sim, held->generation != export->generation ||
				   export->raised[k] < held->image->asked[k] ||
				   load(&held->image->words[k]) >= held->image->asked[k],
				   "a value that was asked for is not told");
	}
}
