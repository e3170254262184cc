/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What a network gives up: processes, and rails to a process that are lost alone.
 *
 * A rail is lost alone if it is not the last one to the process. Notes that it may not have
 * delivered are said again over another rail. Both processes close their connection on it, and tell
 * each other when that is done, by a note over a rail that is left. When both have, nothing of it
 * lands at either side any more: only then its lanes break, and launches with bytes on it fail.
 * Afterwards nothing uses the rail to that process.
 *
 *   lost        the connection broke here, or the other side says so
 *   closed      it has closed here, and the other side was told
 *   heard       the other side has told that it has closed there
 *   ended       both: lanes have broken
 *
 * A process that is lost itself is silent on the other rails, too, which are watched at the same
 * time; the loss of the last one is its loss. A rail that nothing has used has no connection to
 * watch, so the first loss connects all that are left: else each of them would be tried only when
 * the one before is lost, and take its own timeout.
 */

#include <pthread.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "net/far_peer.h"
#include "net/network_private.h"
#include "ipc/group/spread.h"

/* What is_parting[process] is while the process is given up and not quiet yet: whether others have
 * to be told. */
enum {
	UNTOLD = 1,
	NODE_KNOWS,                     /* a process of this node has told it */
	TOLD,
};

/* The other side has so many timeouts to close its connection. */
#define TIMEOUTS 2u

/* --- processes that are given up ------------------------------------------------------- */

/* Marks the process as given up. The rails are not told here, because the caller holds the lock and
 * their threads may be waiting for it; cei_network_end_parted() tells them later, without it. */
void cei_network_part(struct cei_network *network, uint32_t process, const char *why)
{
	if (network->has_gone[process] || network->is_parting[process])
		return;
	network->is_parting[process] = UNTOLD;
	network->n_parting++;
	cei_network_barrier_lost(network, process);
	cei_log(network->site->report, CEI_LOG_INFO, "network: process %u is given up: %s", process,
		why);
	pthread_cond_signal(&network->work);
}

static int is_there(const struct cei_network *network, uint32_t process)
{
	return !network->has_gone[process] && !network->is_parting[process] &&
		!network->has_closed[process];
}

/* The process that tells and hears of losses for a node: the one with the lowest rank of those that
 * are there. The leader is returned if none is. */
static uint32_t speaker_of(const struct cei_network *network, uint32_t node)
{
	uint32_t n = cei_book_n_ranks(network->book), rank, process;
	struct cei_book_node found;

	cei_book_node(network->book, node, &found);
	for (rank = found.leader; rank < n; rank++) {
		process = cei_network_process(network, rank);
		if (cei_book_node_of(network->book, process) == node && is_there(network, process))
			return process;
	}
	return cei_network_process(network, found.leader);
}

static int is_lost(const struct cei_network *network, uint32_t process)
{
	return network->is_parting[process] == TOLD ||
		(network->has_gone[process] && !network->departed_ns[process]);
}

/* Tells one node that the process is lost. */
static void tell_node(struct cei_network *network, uint32_t node, uint32_t process)
{
	struct cei_note note = { .type = CEI_NOTE_GONE };
	uint32_t n_ranks;

	note.gone.rank = cei_book_ranks_of(network->book, process, &n_ranks)[0];
	cei_network_note(network, speaker_of(network, node), &note);
}

/* Whether this process tells that node of losses. */
static int speaks_to(const struct cei_network *network, uint32_t node)
{
	uint32_t own = cei_book_own_process(network->book), told[CEI_SPREAD_MAX], i, n;
	uint32_t own_node = cei_book_node_of(network->book, own);
	int is_told = 0;

	n = cei_spread(own_node, cei_book_n_nodes(network->book), told);
	for (i = 0; i < n; i++)
		is_told |= told[i] == node;
	return is_told && speaker_of(network, own_node) == own;
}

/* Passes the loss on to other nodes. Each node does so once, so this ends; in the end all know,
 * even if some of them have gone: see cei_spread(). One process of each node speaks for it, which
 * is connected with others already if it is the leader and there was a barrier. For UCX 1.13 may
 * end a process by an assertion when a connection to it is made and the other side ends. */
static void tell_nodes(struct cei_network *network, uint32_t process)
{
	uint32_t own = cei_book_own_process(network->book), told[CEI_SPREAD_MAX], i, n;
	uint32_t node = cei_book_node_of(network->book, own);

	if (speaker_of(network, node) != own)
		return;
	n = cei_spread(node, cei_book_n_nodes(network->book), told);
	for (i = 0; i < n; i++)
		tell_node(network, told[i], process);
}

/* The process may have ended before it passed on the losses that it was told: they are told again,
 * to who speaks for its node now; or by who does, if it is this process. */
static void tell_again(struct cei_network *network, uint32_t process)
{
	uint32_t own = cei_book_own_process(network->book), earlier;
	uint32_t node = cei_book_node_of(network->book, process);
	int is_here = node == cei_book_node_of(network->book, own);

	for (earlier = 0; earlier < cei_book_n_processes(network->book); earlier++) {
		if (earlier == process || !is_lost(network, earlier))
			continue;
		if (is_here)
			tell_nodes(network, earlier);
		else if (speaks_to(network, node))
			tell_node(network, node, earlier);
	}
}

void cei_network_mate_lost(struct cei_network *network, uint32_t rank)
{
	uint32_t process = cei_network_process(network, rank);

	pthread_mutex_lock(&network->lock);
	cei_network_part(network, process, "another process of this node says that it is lost");
	if (network->is_parting[process] == UNTOLD)
		network->is_parting[process] = NODE_KNOWS;
	pthread_mutex_unlock(&network->lock);
}

/* Returns whether the processes of this node have to be told, too: not of one of theirs. */
static int tell_loss(struct cei_network *network, uint32_t process)
{
	uint32_t own = cei_book_own_process(network->book);
	int is_known;

	is_known = network->is_parting[process] == NODE_KNOWS ||
		cei_book_node_of(network->book, process) == cei_book_node_of(network->book, own);
	network->is_parting[process] = TOLD;
	tell_nodes(network, process);
	tell_again(network, process);
	return !is_known;
}

void cei_network_tell_losses(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), process, n_ranks;
	int must_tell;

	for (process = 0; process < n; process++) {
		pthread_mutex_lock(&network->lock);
		must_tell = network->is_parting[process] && network->is_parting[process] != TOLD &&
			tell_loss(network, process);
		pthread_mutex_unlock(&network->lock);
		if (must_tell)
			network->events->tell_mates(network->events_arg,
						    cei_book_ranks_of(network->book, process,
								      &n_ranks)[0]);
	}
}

static int is_connected(struct cei_rail *rail, uint32_t process)
{
	struct cei_rail_status status;

	if (cei_rail_look(rail, process, &status))
		return 0;
	return status.connection == CEI_FAR_OPENING || status.connection == CEI_FAR_UP ||
	       status.connection == CEI_FAR_CLOSING || status.connection == CEI_FAR_LEAVING;
}

/* Gives the process up on all rails. Returns whether none of them has a connection to it any more,
 * so that nothing of it lands. */
static int has_parted(struct cei_network *network, uint32_t process)
{
	uint32_t i, n_connected = 0;

	for (i = 0; i < network->n_rails; i++) {
		if (!is_connected(network->rails[i].rail, process))
			continue;
		(void)cei_rail_give_up(network->rails[i].rail, process,
				       "it is lost on another rail, or another process says so");
		n_connected += (uint32_t)is_connected(network->rails[i].rail, process);
	}
	return !n_connected;
}

int cei_network_end_parted(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), process;
	int is_parting, has_ended = 0;

	cei_network_tell_losses(network);
	for (process = 0; process < n; process++) {
		pthread_mutex_lock(&network->lock);
		is_parting = network->is_parting[process];
		pthread_mutex_unlock(&network->lock);
		if (!is_parting || !has_parted(network, process))
			continue;
		cei_network_process_gone(network, process, 0);
		has_ended = 1;
	}
	return has_ended;
}

/* --- rails that are lost alone ------------------------------------------------------------ */

static uint32_t bit_of(uint32_t rail)
{
	return UINT32_C(1) << rail;
}

int cei_network_has_lost(const struct cei_network *network, uint32_t process, uint32_t rail)
{
	return network->losses && (network->losses[process].lost & bit_of(rail));
}

static uint32_t n_left(const struct cei_network *network, uint32_t process)
{
	uint32_t n = cei_network_n_rails_to(network, process), i, left = 0;

	for (i = 0; i < n; i++)
		left += !cei_network_has_lost(network, process, i);
	return left;
}

/* Notes the loss; once for each rail. */
static void lose(struct cei_network *network, uint32_t process, uint32_t rail, const char *why)
{
	struct cei_network_loss *loss = &network->losses[process];
	uint32_t n_ranks;

	if (loss->lost & bit_of(rail))
		return;
	if (loss->lost == loss->ended)
		network->n_settling++;
	loss->lost |= bit_of(rail);
	loss->since_ns = cei_now_ns();
	cei_log(network->site->report, CEI_LOG_WARN, "network: rail %u to process %u, which holds "
		"rank %u, is lost: %s; what is under way on it fails, and %u rails are left", rail,
		process, cei_book_ranks_of(network->book, process, &n_ranks)[0], why,
		n_left(network, process));
	cei_network_notes_reroute(network, process);
	pthread_cond_signal(&network->work);
}

static int is_out(const struct cei_network *network, uint32_t process)
{
	return network->has_gone[process] || network->is_parting[process];
}

static int is_last(const struct cei_network *network, uint32_t process, uint32_t rail)
{
	return !cei_network_has_lost(network, process, rail) && n_left(network, process) == 1;
}

int cei_network_losing(struct cei_network *network, uint32_t process, uint32_t rail,
		       const char *why)
{
	if (!network->losses || network->must_stop || is_out(network, process) ||
	    is_last(network, process, rail))
		return 0;
	lose(network, process, rail, why);
	return 1;
}

void cei_network_heard_rail(struct cei_network *network, uint32_t process,
			    const struct cei_note_rail *note)
{
	if (is_out(network, process))
		return;
	if (!network->losses || note->number >= cei_network_n_rails_to(network, process) ||
	    is_last(network, process, note->number)) {
		cei_network_part(network, process, "it tells the loss of a rail that cannot be "
				 "lost alone");
		return;
	}
	lose(network, process, note->number, "the other side says so");
	network->losses[process].heard |= bit_of(note->number);
	pthread_cond_signal(&network->work);
}

void cei_network_lost_uncertain(struct cei_network *network, uint32_t process, uint32_t rail)
{
	if (cei_network_has_lost(network, process, rail))
		cei_network_part(network, process, "its connection on a lost rail does not close");
}

/* --- bringing it to its end; without the lock but where it is said --------------------------- */

static int is_closed(struct cei_rail *rail, uint32_t process)
{
	struct cei_rail_status status;

	if (cei_rail_look(rail, process, &status))
		return 0;
	return status.connection == CEI_FAR_IS_LOST || status.connection == CEI_FAR_DEPARTED;
}

/* Closes the connection here, and tells the other side when that is done. */
static int close_here(struct cei_network *network, uint32_t process, uint32_t rail)
{
	struct cei_note note = { .type = CEI_NOTE_RAIL };
	struct cei_rail *own = network->rails[rail].rail;

	(void)cei_rail_give_up(own, process, "the other side has lost it");
	if (!is_closed(own, process))
		return 0;
	note.rail.number = rail;
	pthread_mutex_lock(&network->lock);
	if (!is_out(network, process)) {    /* else it may not have closed in time */
		network->losses[process].closed |= bit_of(rail);
		cei_network_note(network, process, &note);
		cei_network_expect(network, process, 1);
	}
	pthread_mutex_unlock(&network->lock);
	return 1;
}

/* Breaks the lanes: both sides have closed, or the process is lost and hears no more that a launch
 * has failed. */
static void end(struct cei_network *network, uint32_t process, uint32_t rail)
{
	struct cei_network_loss *loss = &network->losses[process];

	(void)cei_rail_let_go(network->rails[rail].rail, process);
	pthread_mutex_lock(&network->lock);
	if (loss->closed & bit_of(rail))
		cei_network_expect(network, process, -1);
	loss->ended |= bit_of(rail);
	network->n_settling -= loss->ended == loss->lost;
	pthread_mutex_unlock(&network->lock);
}

/* Returns whether anything has changed. */
static int settle_rail(struct cei_network *network, uint32_t process, uint32_t rail)
{
	struct cei_network_loss loss;
	int has_gone, is_parting;

	pthread_mutex_lock(&network->lock);
	loss = network->losses[process];
	if (!is_out(network, process) &&
	    cei_now_ns() - loss.since_ns > TIMEOUTS * network->timeout_ns)
		cei_network_part(network, process, "it has not closed its side of a lost rail");
	is_parting = network->is_parting[process];
	has_gone = network->has_gone[process];
	pthread_mutex_unlock(&network->lock);
	if (has_gone || (!is_parting && (loss.closed & loss.heard & bit_of(rail)))) {
		end(network, process, rail);
		return 1;
	}
	return !is_parting && !(loss.closed & bit_of(rail)) && close_here(network, process, rail);
}

/* Connects the rails that are left, so that a process that is lost itself is missed on all of them
 * at the same time. */
static int connect_left(struct cei_network *network, uint32_t process)
{
	uint32_t n = cei_network_n_rails_to(network, process), rail, rails = 0;

	pthread_mutex_lock(&network->lock);
	if (!is_out(network, process))
		rails = (bit_of(n) - 1) & ~network->losses[process].lost &
			~network->losses[process].connected;
	network->losses[process].connected |= rails;
	pthread_mutex_unlock(&network->lock);
	for (rail = 0; rails >> rail; rail++)   /* a call that fails has raised it */
		if (rails >> rail & 1)
			(void)cei_rail_connect(network->rails[rail].rail, process);
	return rails != 0;
}

/* With the lock. */
static uint32_t unsettled(const struct cei_network *network, uint32_t process)
{
	return network->losses[process].lost & ~network->losses[process].ended;
}

int cei_network_settle(struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), process, rail, rails;
	int has_worked = 0;

	for (process = 0; process < n; process++) {
		pthread_mutex_lock(&network->lock);
		rails = unsettled(network, process);
		pthread_mutex_unlock(&network->lock);
		has_worked |= rails && connect_left(network, process);
		for (rail = 0; rails >> rail; rail++)
			if (rails >> rail & 1)
				has_worked |= settle_rail(network, process, rail);
	}
	return has_worked;
}
