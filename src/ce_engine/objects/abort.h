/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ABORT_H
#define CEI_ABORT_H

/*
 * An abort of signals, and of what hangs together with them. An abort poisons counters, and
 * poison opens gates, behind which lanes copy bytes that nobody made and raise marks for them.
 * Whoever sees such a mark must find its signal aborted. So an abort first sets the abort words of
 * all signals that plans in flight may raise behind the gates that it opens, and only then poisons
 * any counter.
 *
 * Plans in flight here are those of the signals' context. A plan of another process, or of another
 * client of a daemon, ends when its engine finds the abort word: a mark that its lane raises before
 * that means nothing (ceov_abort()).
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_abort {
	int      error;                 /* enum ceov_error */
	uint32_t rank;                  /* the rank to blame, or CEOV_NOBODY */
};

/* Sets the abort words of the plan's signals; those of signals that were aborted before stay. The
 * caller then calls cei_abort_end(), without releasing the context's lock in between. */
void cei_abort_plan(ceov_plan *plan, const struct cei_abort *abort);

/* Sets the abort words of all signals of plans in flight that name an aborted signal, with its
 * error, until there is none left. Then poisons the signals of all these plans and of those given
 * to cei_abort_plan(), and tells other nodes of signals that were not aborted before, unless
 * is_everywhere says that all nodes abort the same by themselves. Any thread, with the context's
 * lock held and log lines held back. */
void cei_abort_end(ceov_context *context, int is_everywhere);

/* Does both for signals, which need not be those of a plan, and poisons them. With the same
 * locks. */
void cei_abort_signals(ceov_context *context, ceov_signal *const *signals, uint32_t n,
		       const struct cei_abort *abort);

/* Does so for a thread that holds no lock. It waits for the context's lock 100 ms at most, since
 * its holder may be held up in the driver by a gate that the abort opens: then it aborts these
 * signals alone. For the same reason all of these calls wait 100 ms at most for the locks of plans,
 * and pass over a plan whose lock they do not get. */
void cei_abort_unlocked(ceov_signal *const *signals, uint32_t n, int error, uint32_t rank);

/* Aborts these signals, and no plans, without any lock: what repeats an abort, because lanes and
 * raisers may have written over the poison. Any thread. */
void cei_abort_alone(ceov_signal *const *signals, uint32_t n, int error, uint32_t rank);

#endif /* CEI_ABORT_H */
