/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_signal_renew: resets a signal that no launch uses. It needs plans, of which the other files
 * of signals know nothing. */

#include "ce_engine/plan/signal_renew.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ce_engine/plan/plan_release.h"

/* Whether one of the list's plans uses the signal and is moving: it has launches in flight, or a
 * lane that was given up and may still raise its marks. With the context's lock held. */
static int is_in_list(const struct ceov_signal *signal, const struct cei_list *plans)
{
	const struct cei_list *node;
	struct ceov_plan *plan;
	uint32_t i, n = 0;

	for (node = plans->next; node != plans; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		if (!cei_plan_is_moving(plan))
			continue;
		pthread_mutex_lock(&plan->lock);
		for (i = 0; i < plan->program.n_signals; i++)
			n += plan->signals[i]->control == signal->control;
		pthread_mutex_unlock(&plan->lock);
	}
	return n != 0;
}

static int is_in_flight(ceov_signal *signal)
{
	ceov_context *context = signal->object.context;
	int is;

	pthread_mutex_lock(&context->lock);
	is = is_in_list(signal, &context->plans) || is_in_list(signal, &context->stuck);
	pthread_mutex_unlock(&context->lock);
	return is;
}

/* Lets plans that use the signal begin again at any base. Other plans are not accessed: a
 * plan's signals are fixed before its first launch, and a plan without a base may be in the
 * hands of a thread that commits it. */
static void forget_bases(ceov_signal *signal)
{
	ceov_context *context = signal->object.context;
	struct cei_list *node;
	struct ceov_plan *plan;
	uint32_t i;

	pthread_mutex_lock(&context->lock);
	for (node = context->plans.next; node != &context->plans; node = node->next) {
		plan = CEI_OWNER(node, struct ceov_plan, object.link);
		pthread_mutex_lock(&plan->lock);
		for (i = 0; plan->run.last_base && i < plan->program.n_signals; i++)
			if (plan->signals[i]->control == signal->control)
				plan->run.last_base = 0;
		pthread_mutex_unlock(&plan->lock);
	}
	pthread_mutex_unlock(&context->lock);
}

/* Aborts by other nodes hold the context's lock from the look at the signal's generation until they
 * are done, so none of them aborts what has been zeroed here. */
static int clear(ceov_signal *signal)
{
	ceov_context *context = signal->object.context;
	int r;

	if (!cei_signal_is_shared_afar(signal))
		return cei_signal_clear(signal);        /* other nodes do not know it */
	pthread_mutex_lock(&context->lock);
	r = cei_signal_clear(signal);
	pthread_mutex_unlock(&context->lock);
	return r;
}

int cei_signal_renew(ceov_signal *signal)
{
	struct cei_backend *backend;
	void *zeros;
	uint32_t i;
	int r = 0;

	if (is_in_flight(signal))
		return CEOV_PENDING;
	zeros = calloc(signal->n_counters, sizeof(uint32_t));
	if (!zeros)
		return cei_raise(&signal->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_signal_renew: no memory for zeros");
	for (i = 0; !r && i < CEI_MEMBERS_MAX; i++) {
		if (!signal->tallies[i].address[i])
			continue;
		backend = signal->object.context->backends[i];
		r = backend->ops->store(backend, signal->tallies[i].address[i], zeros,
					 signal->n_counters * sizeof(uint32_t));
	}
	free(zeros);
	/* Other nodes are told first, so that nothing which they said of the old counters has an
	 * effect on the new ones. */
	if (!r && cei_signal_is_shared_afar(signal))
		r = cei_peers_renew(signal->object.context->peers, signal->export_id,
				    cei_deadline(signal->object.context->deadline_ns));
	if (!r && signal->control == &signal->own_control)
		r = clear(signal);
	if (!r)
		forget_bases(signal);
	return r;
}

int ceov_signal_renew(ceov_signal *signal)
{
	int r = cei_object_check(signal, &cei_signal_type, "ceov_signal_renew");

	return r ? r : cei_signal_renew(signal);
}
