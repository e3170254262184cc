/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The barrier of the nodes, and why one cannot complete. A barrier needs all processes of the
 * group: none completes after the loss of one, and a process that has closed in order takes part in
 * no more barriers than it has passed.
 *
 * Losses are told to all processes as soon as they are known (network_loss.c). That a process has
 * closed is told only when a barrier waits for it, because all processes of a group close at its
 * end, and nobody needs to hear of it then:
 *
 *   - The processes of its node hear of it from the bootstrap. When a leader says that it has begun
 *     a barrier that the process has not passed, it is told so in return.
 *   - A leader that closes tells the leaders with which it has exchanged notes: if it has passed a
 *     barrier, or others have begun the first one.
 *   - A leader that hears of it from a third process, or whose own barrier cannot complete, tells
 *     other leaders (see cei_spread()); once for each lower number.
 *   - A process whose barrier cannot complete tells those of its node, by the bootstrap.
 */

#include <pthread.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network_private.h"
#include "ipc/group/spread.h"

/* --- what cannot complete --------------------------------------------------------------- */

void cei_network_barrier_init(struct cei_network_barrier *barrier)
{
	barrier->n_possible = UINT64_MAX;
	barrier->n_told = UINT64_MAX;
	barrier->missing = CEOV_NOBODY;
}

static uint32_t first_rank(const struct cei_network *network, uint32_t process)
{
	uint32_t n_ranks;

	return cei_book_ranks_of(network->book, process, &n_ranks)[0];
}

static uint32_t leader_of(const struct cei_network *network, uint32_t node)
{
	struct cei_book_node found;

	cei_book_node(network->book, node, &found);
	return cei_network_process(network, found.leader);
}

static uint32_t own_node(const struct cei_network *network)
{
	return cei_book_node_of(network->book, cei_book_own_process(network->book));
}

static int is_leader(const struct cei_network *network)
{
	return leader_of(network, own_node(network)) == cei_book_own_process(network->book);
}

/* All processes of a node have begun the last step of a barrier when one of them has passed it. So
 * this is at least the number of barriers that any process of this node has passed. */
static uint64_t n_passed_here(const struct cei_network *network)
{
	return network->barrier.n_passed + (uint64_t)network->barrier.has_met;
}

/* No more than n barriers complete, because of the rank. */
static void limit(struct cei_network *network, uint32_t rank, uint64_t n)
{
	struct cei_network_barrier *barrier = &network->barrier;

	if (n >= barrier->n_possible)
		return;
	barrier->n_possible = n;
	barrier->missing = rank;
	pthread_cond_broadcast(&network->changed);
}

void cei_network_barrier_lost(struct cei_network *network, uint32_t process)
{
	limit(network, first_rank(network, process), 0);
	network->barrier.n_told = 0;    /* all processes are told of losses */
}

static void tell_leaders(struct cei_network *network, const struct cei_note *note)
{
	uint32_t told[CEI_SPREAD_MAX], i, n;

	n = cei_spread(own_node(network), cei_book_n_nodes(network->book), told);
	for (i = 0; i < n; i++)
		cei_network_note(network, leader_of(network, told[i]), note);
}

static void tell(struct cei_network *network)
{
	struct cei_network_barrier *barrier = &network->barrier;
	struct cei_note note = { .type = CEI_NOTE_GONE };

	if (barrier->n_told <= barrier->n_possible || !is_leader(network))
		return;
	barrier->n_told = barrier->n_possible;
	note.gone = (struct cei_note_gone){ barrier->missing, 1, barrier->n_possible };
	tell_leaders(network, &note);
}

/* Tells it to the leaders that have begun a barrier which cannot complete. */
static void tell_who_waits(struct cei_network *network)
{
	uint32_t i;

	for (i = 0; i < CEI_NOTE_ROUNDS; i++)
		if (network->barrier.seen[i] > network->barrier.n_possible)
			tell(network);
}

void cei_network_mate_gone(struct cei_network *network, uint32_t rank, int departed)
{
	pthread_mutex_lock(&network->lock);
	if (departed) {
		network->has_closed[cei_network_process(network, rank)] = 1;
		limit(network, rank, n_passed_here(network));
		tell_who_waits(network);
	} else {
		cei_network_part(network, cei_network_process(network, rank),
				 "it has ended on this node");
	}
	pthread_mutex_unlock(&network->lock);
}

void cei_network_mate_missed(struct cei_network *network, uint32_t rank)
{
	pthread_mutex_lock(&network->lock);
	limit(network, rank, n_passed_here(network));
	tell_who_waits(network);
	pthread_mutex_unlock(&network->lock);
}

void cei_network_heard_departed(struct cei_network *network, uint32_t process,
				const struct cei_note_gone *gone)
{
	if (cei_network_process(network, gone->rank) == cei_book_own_process(network->book))
		return;
	limit(network, gone->rank, gone->n_barriers);
	if (cei_network_process(network, gone->rank) != process)
		tell(network);
}

/* It closes maybe because of a barrier that could not complete. Then the rank that was missing in
 * that is to blame when others miss this process. */
void cei_network_barrier_leave(struct cei_network *network)
{
	struct cei_network_barrier *barrier = &network->barrier;
	struct cei_note note = { .type = CEI_NOTE_GONE, .gone.has_departed = 1 };
	uint64_t n_passed;

	pthread_mutex_lock(&network->lock);
	n_passed = n_passed_here(network);
	limit(network, first_rank(network, cei_book_own_process(network->book)), n_passed);
	note.gone.rank = barrier->missing;
	note.gone.n_barriers = barrier->n_possible;
	if (n_passed && is_leader(network))
		tell_leaders(network, &note);
	else
		tell_who_waits(network);
	pthread_mutex_unlock(&network->lock);
}

uint32_t cei_network_missing(struct cei_network *network)
{
	struct cei_network_barrier *barrier = &network->barrier;
	uint32_t missing;

	if (!network->has_thread)
		(void)cei_network_turn(network);
	pthread_mutex_lock(&network->lock);
	missing = barrier->n_passed < barrier->n_possible ? CEOV_NOBODY : barrier->missing;
	pthread_mutex_unlock(&network->lock);
	return missing;
}

/* --- the barrier -------------------------------------------------------------------------- */

static int raise_barrier(struct cei_network *network, int error, uint32_t rank)
{
	struct ceov_failure failure = cei_failure(error, 0);

	failure.rank = rank;
	return cei_raise_failure(network->site->report, &failure, "barrier %llu: rank %u %s",
				 (unsigned long long)network->barrier.n_passed + 1, rank,
				 error == CEOV_ERR_TIMEOUT ? "has not come in time" :
				 "is lost or has closed");
}

/* Waits for the leader's note of the round. 0, CEOV_ERR_TIMEOUT or CEOV_ERR_PEER_LOST, and the rank
 * to blame. With the lock held. */
static int await_round(struct cei_network *network, uint32_t leader, uint64_t deadline_ns,
		       uint32_t *ret_blame)
{
	struct cei_network_barrier *barrier = &network->barrier;
	uint32_t source = cei_network_process(network, leader);
	uint64_t call = barrier->n_passed + 1;
	int r = 0;

	*ret_blame = leader;
	cei_rail_expect(network->rail, source, 1);
	while (!r && barrier->seen[barrier->round] < call && call <= barrier->n_possible &&
	       !network->has_gone[source])
		r = cei_network_wait(network, deadline_ns);
	cei_rail_expect(network->rail, source, -1);
	if (barrier->seen[barrier->round] >= call)
		return 0;
	if (network->has_gone[source])
		limit(network, leader, barrier->n_passed);
	if (call <= barrier->n_possible)
		return CEOV_ERR_TIMEOUT;
	*ret_blame = barrier->missing;
	tell(network);
	return CEOV_ERR_PEER_LOST;
}

/* Tells the node that is 2^round further, and waits for the one that is as much before. With the
 * lock held. */
static int pass_round(struct cei_network *network, uint32_t step, uint64_t deadline_ns)
{
	uint32_t n = cei_book_n_nodes(network->book), own = own_node(network), blame;
	struct cei_network_barrier *barrier = &network->barrier;
	struct cei_note note = { .type = CEI_NOTE_BARRIER };
	struct cei_book_node from;
	int r;

	cei_book_node(network->book, (own + n - step) % n, &from);
	note.barrier.call = barrier->n_passed + 1;
	note.barrier.round = barrier->round;
	cei_network_note(network, leader_of(network, (own + step) % n), &note);
	r = await_round(network, from.leader, deadline_ns, &blame);
	if (!r) {
		barrier->round++;
		return 0;
	}
	pthread_mutex_unlock(&network->lock);
	r = raise_barrier(network, r, blame);
	pthread_mutex_lock(&network->lock);
	return r;
}

/* A dissemination barrier: after round i each node has heard, directly or not, of 2^(i+1) nodes. */
int cei_network_barrier(struct cei_network *network, uint64_t deadline_ns)
{
	uint32_t n = cei_book_n_nodes(network->book);
	int r = 0;

	pthread_mutex_lock(&network->lock);
	while (!r && is_leader(network) && (UINT32_C(1) << network->barrier.round) < n)
		r = pass_round(network, UINT32_C(1) << network->barrier.round, deadline_ns);
	network->barrier.has_met = !r;
	pthread_mutex_unlock(&network->lock);
	return r;
}

void cei_network_barrier_passed(struct cei_network *network)
{
	pthread_mutex_lock(&network->lock);
	network->barrier.n_passed++;
	network->barrier.has_met = 0;
	network->barrier.round = 0;
	pthread_mutex_unlock(&network->lock);
}

void cei_network_heard_barrier(struct cei_network *network, const struct cei_note_barrier *note)
{
	if (network->barrier.seen[note->round] < note->call)
		network->barrier.seen[note->round] = note->call;
	tell_who_waits(network);
	pthread_cond_broadcast(&network->changed);
}
