/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counters of signals across nodes. */

#include "base/clock.h"
#include "ipc/peers/peers_private.h"

int cei_peers_watch(struct cei_peers *peers, uint32_t rank, uint64_t use,
		    _Atomic uint64_t *words, uint32_t n_words)
{
	int r;

	cei_peers_enter(peers);
	r = cei_group_watch(peers->machine, rank, use, words, n_words);
	cei_peers_exit(peers, 0);
	return r ? cei_raise(peers->config.report, r, 0,
			     "find: no memory for %u counters of rank %u", n_words, rank) : 0;
}

void cei_peers_forget(struct cei_peers *peers, uint32_t rank, uint64_t use)
{
	cei_peers_enter(peers);
	cei_group_forget(peers->machine, rank, use);
	cei_peers_exit(peers, 0);
}

int cei_peers_raise(struct cei_peers *peers, uint32_t rank, uint64_t use, uint32_t index,
		    uint64_t value)
{
	int r;

	cei_peers_enter(peers);
	r = cei_group_raise(peers->machine, rank, use, index, value);
	cei_peers_exit(peers, 0);
	if (!r)
		return 0;
	return cei_raise(peers->config.report, r, 0, "a counter of rank %u cannot be raised: %s",
			 rank, r == CEOV_ERR_NO_MEMORY ? "no memory" : "the rank has gone");
}

void cei_peers_ask(struct cei_peers *peers, uint32_t rank, uint64_t use, uint32_t index,
		   uint64_t value)
{
	cei_peers_enter(peers);
	cei_group_ask(peers->machine, rank, use, index, value);
	cei_peers_exit(peers, 0);
}

void cei_peers_await_users(struct cei_peers *peers, int by)
{
	/* relaxed: see cei_peers_tick() */
	atomic_fetch_add_explicit(&peers->n_waits, by, memory_order_relaxed);
}

int cei_peers_renew(struct cei_peers *peers, uint32_t id, uint64_t deadline_ns)
{
	struct cei_group_call call = { .deadline_ns = deadline_ns };

	cei_peers_enter(peers);
	cei_group_renew(peers->machine, &call, id);
	cei_peers_await(peers, &call);
	if (!call.result)
		return 0;
	return cei_raise(peers->config.report, call.result, 0,
			 "ceov_signal_renew: a process that uses the signal %s",
			 call.result == CEOV_ERR_TIMEOUT ? "has not answered in time" :
			 "may be lost");
}

void cei_peers_abort(struct cei_peers *peers, struct cei_group_abort *abort)
{
	int r;

	cei_peers_enter(peers);
	r = cei_group_abort(peers->machine, abort);
	cei_peers_exit(peers, 0);
	if (r)
		(void)cei_raise(peers->config.report, r, 0,
				"abort: no memory to tell all other nodes of %u signals", abort->n);
}

uint32_t cei_peers_still_aborted(struct cei_peers *peers, const struct cei_group_abort *abort,
				 struct cei_group_signal *ret_signals)
{
	uint32_t n;

	cei_peers_enter(peers);
	n = cei_group_still_aborted(peers->machine, abort, ret_signals);
	cei_peers_exit(peers, 0);
	return n;
}
