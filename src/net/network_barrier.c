/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The barrier of the nodes. */

#include <pthread.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network_private.h"

static int raise_barrier(struct cei_network *network, int error, uint32_t leader)
{
	struct ceov_failure failure = cei_failure(error, 0);

	failure.rank = leader;
	return cei_raise_failure(network->site->report, &failure, "barrier %llu: rank %u %s",
				 (unsigned long long)network->n_calls, leader,
				 error == CEOV_ERR_TIMEOUT ? "has not come in time" :
				 "is lost or has closed");
}

/* Tells the node that is 2^round further, and waits for the one that is as much before. With the
 * lock held. */
static int pass_round(struct cei_network *network, uint32_t own, uint32_t step,
		      uint64_t deadline_ns)
{
	uint32_t n = cei_book_n_nodes(network->book), round = network->round;
	struct cei_note note = { .type = CEI_NOTE_BARRIER };
	struct cei_book_node to, from;
	uint32_t source;
	int r = 0;

	cei_book_node(network->book, (own + step) % n, &to);
	cei_book_node(network->book, (own + n - step) % n, &from);
	source = cei_network_process(network, from.leader);
	note.barrier.call = network->n_calls;
	note.barrier.round = round;
	cei_network_note(network, cei_network_process(network, to.leader), &note);
	cei_network_expect(network, source, 1);
	while (!r && network->seen[round] < network->n_calls && !network->has_gone[source])
		r = cei_network_wait(network, deadline_ns);
	cei_network_expect(network, source, -1);
	if (network->seen[round] >= network->n_calls) {
		network->round++;
		return 0;
	}
	pthread_mutex_unlock(&network->lock);
	r = raise_barrier(network, r ? CEOV_ERR_TIMEOUT : CEOV_ERR_PEER_LOST, from.leader);
	pthread_mutex_lock(&network->lock);
	return r;
}

/* A dissemination barrier: after round i each node has heard, directly or not, of 2^(i+1) nodes. */
int cei_network_barrier(struct cei_network *network, uint64_t deadline_ns)
{
	uint32_t n = cei_book_n_nodes(network->book);
	uint32_t own = cei_book_node_of(network->book, cei_book_own_process(network->book));
	int r = 0;

	pthread_mutex_lock(&network->lock);
	if (!network->in_barrier) {
		network->n_calls++;
		network->round = 0;
	}
	network->in_barrier = 1;
	while (!r && (UINT32_C(1) << network->round) < n)
		r = pass_round(network, own, UINT32_C(1) << network->round, deadline_ns);
	network->in_barrier = r != 0;
	pthread_mutex_unlock(&network->lock);
	return r;
}

void cei_network_heard_barrier(struct cei_network *network,
			       const struct cei_note_barrier *barrier)
{
	if (network->seen[barrier->round] < barrier->call)
		network->seen[barrier->round] = barrier->call;
	pthread_cond_broadcast(&network->changed);
}
