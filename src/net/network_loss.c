/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Processes that a network gives up. */

#include <pthread.h>

#include <ceoverlap/ceoverlap.h>

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

/* Marks the process as given up. The rail is not told here, because the caller holds the lock and
 * the rail's thread may be waiting for it; cei_network_end_parted() tells it later, without the
 * lock. */
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
		(network->has_gone[process] && !network->has_departed[process]);
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

/* Gives the connection to the process up. Returns whether there is none any more, so that nothing
 * of it lands. */
static int has_parted(struct cei_network *network, uint32_t process)
{
	if (!network->rail || !is_connected(network->rail, process))
		return 1;
	(void)cei_rail_give_up(network->rail, process, "another process says that it is lost");
	return !is_connected(network->rail, process);
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
