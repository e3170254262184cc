/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Aborts and renews signals as peers' processes do or cause it. */

#include "ce_engine/peer_events.h"

#include <stdatomic.h>

#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/far.h"
#include "ce_engine/objects/signal.h"

/* Signals that are aborted together. */
#define TOGETHER 64u

/* --- ranks that have gone -------------------------------------------------------- */

static int is_shared(const struct ceov_signal *signal)
{
	return signal->export_id || signal->found_use || signal->far;
}

/* Aborts all shared and found signals, and those of plans in flight that name one of them. Sets all
 * abort words before the first poison: see objects/abort.h. Every process does this by itself. */
static void abort_shared(ceov_context *context, uint32_t rank)
{
	struct cei_report_hold hold;
	struct ceov_signal *signal;
	struct cei_list *node;

	cei_report_hold_begin(&context->report, &hold);
	pthread_mutex_lock(&context->lock);
	for (node = context->signals.next; node != &context->signals; node = node->next) {
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		if (is_shared(signal))
			(void)cei_signal_raise_abort(signal, CEOV_ERR_PEER_LOST, rank);
	}
	cei_abort_end(context, 1);
	for (node = context->signals.next; node != &context->signals; node = node->next) {
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		if (is_shared(signal))
			cei_signal_poison(signal);
	}
	pthread_mutex_unlock(&context->lock);
	cei_report_hold_end(&context->report, &hold);
}

void cei_peer_gone(void *arg, uint32_t rank, int departed)
{
	ceov_context *context = arg;
	struct ceov_failure failure = cei_failure(CEOV_ERR_PEER_LOST, 0);

	/* release: pairs with cei_context_is_lost() */
	atomic_store_explicit(&context->is_lost[rank], 1, memory_order_release);
	if (departed) {
		cei_log(&context->report, CEI_LOG_INFO, "rank %u has closed", rank);
		return;
	}
	failure.rank = rank;
	(void)cei_raise_failure(&context->report, &failure,
				"rank %u was lost; what waits for it ends", rank);
	abort_shared(context, rank);
}

/* --- signals of other nodes -------------------------------------------------------- */

static int is_named(const struct ceov_signal *signal, const struct cei_group_signal *named)
{
	return signal->rank == named->rank &&
		(signal->far ? signal->far->region.far_id : signal->export_id) == named->id;
}

/* Returns how many of the context's signals are among those named: several handles may stand for
 * one of another node. With the context's lock held. */
static uint32_t collect(ceov_context *context, const struct cei_group_signal *named, uint32_t n,
			struct ceov_signal **ret_signals)
{
	struct ceov_signal *signal;
	struct cei_list *node;
	uint32_t i, n_found = 0;

	for (node = context->signals.next; node != &context->signals; node = node->next) {
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		for (i = 0; i < n && n_found < TOGETHER; i++)
			if (is_named(signal, &named[i]))
				ret_signals[n_found++] = signal;
	}
	return n_found;
}

/* Renewals zero signals under the same lock, behind their new generation: what is of today's
 * generation here is aborted before it is zeroed, and what is older is left alone. */
static void aborted(void *arg, const struct cei_group_abort *abort)
{
	struct cei_group_signal named[CEI_GROUP_SIGNALS_MAX];
	struct ceov_signal *signals[TOGETHER];
	const struct cei_abort all = { abort->error, abort->blame };
	struct cei_report_hold hold;
	ceov_context *context = arg;
	uint32_t n;

	cei_report_hold_begin(&context->report, &hold);
	pthread_mutex_lock(&context->lock);
	n = cei_peers_still_aborted(context->peers, abort, named);
	n = collect(context, named, n, signals);
	if (n)
		cei_abort_signals(context, signals, n, &all);
	pthread_mutex_unlock(&context->lock);
	cei_report_hold_end(&context->report, &hold);
}

/* All handles of a signal have one image, which has no GPU memory whose zeroing may fail. */
static void renewed(void *arg, uint32_t process, uint32_t id, uint64_t use)
{
	const struct cei_roster *roster;
	struct ceov_signal *signal;
	ceov_context *context = arg;
	struct cei_list *node;

	pthread_mutex_lock(&context->lock);
	roster = cei_peers_roster(context->peers);
	for (node = context->signals.next; node != &context->signals; node = node->next) {
		signal = CEI_OWNER(node, struct ceov_signal, object.link);
		if (!signal->far || signal->far->use != use ||
		    signal->far->region.far_id != id ||
		    roster->process_of[signal->rank] != process)
			continue;
		(void)cei_signal_clear(signal);
		break;
	}
	pthread_mutex_unlock(&context->lock);
}

const struct cei_peers_events cei_peer_events = {
	.gone = cei_peer_gone,
	.aborted = aborted,
	.renewed = renewed,
};
