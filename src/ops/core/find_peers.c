/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "ops/core/find_peers.h"

#include <time.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"

/* How long a search for peers' exports pauses before it looks again. */
#define PAUSE_NS UINT64_C(1000000)

/* A peer gets at least this long to answer, even if the caller does not want to wait. */
#define FIND_LEAST_NS UINT64_C(1000000000)

/* Raises CEOV_ERR_PEER_LOST if a rank whose parts were found is gone now. */
static int check_peer(const struct cei_find_peers *find, uint32_t rank)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_PEER_LOST, 0);

	if (!cei_context_is_lost(find->context, rank))
		return 0;
	failure.rank = rank;
	return cei_raise_failure(&find->context->report, &failure, "%s: '%s': rank %u has gone",
				 find->call, find->name, rank);
}

/* Looks for all peers, even after one was not found, so that a lost peer is noticed while another
 * one is only late. */
static int find_all(const struct cei_find_peers *find, uint64_t by_ns)
{
	uint32_t n = find->context->site.n_ranks, i, rank;
	int r, result = 0;

	for (i = 1; i < n; i++) {
		rank = (find->rank + i) % n;
		r = find->find(find->arg, rank, by_ns);
		if (!r)
			r = check_peer(find, rank);
		if (r < 0)
			return r;
		if (r)
			result = r;
	}
	return result;
}

int cei_find_peers(const struct cei_find_peers *find, uint64_t deadline_ns)
{
	struct timespec pause = { 0, PAUSE_NS };
	uint64_t least_ns;
	int r;

	for (;;) {
		least_ns = cei_deadline(FIND_LEAST_NS);
		r = find_all(find, least_ns > deadline_ns ? least_ns : deadline_ns);
		if (r != CEOV_NONE || cei_now_ns() >= deadline_ns)
			return r;
		nanosleep(&pause, NULL);
	}
}
