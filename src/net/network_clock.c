/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Asks rank 0's process for the time, answers such questions there, and waits at its close for
 * processes that want to ask once more. */

#include "net/network_clock.h"

#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "net/network_private.h"

#define QUESTIONS  16u                          /* in a row; the fastest answer counts */
#define MEASURE_NS UINT64_C(2000000000)         /* for all of them */
#define AGAIN_NS   UINT64_C(250000000)          /* without an answer: a rail had no room */
#define LEAVE_NS   UINT64_C(2000000000)         /* that the reference waits for the last ones */

static const struct cei_roster *roster_of(const struct cei_network *network)
{
	return cei_book_roster(network->book);
}

static uint32_t reference_of(const struct cei_network *network)
{
	return roster_of(network)->process_of[0];
}

static uint32_t own_node(const struct cei_network *network)
{
	const struct cei_roster *roster = roster_of(network);

	return roster->node_of[roster->own];
}

/* Of this node: the one with its lowest rank. */
static uint32_t measurer_of(const struct cei_network *network)
{
	const struct cei_roster *roster = roster_of(network);

	return roster->in_node[roster->node_at[own_node(network)]];
}

/* Whether this process measures for its node; rank 0's node needs no offset. */
static int is_measurer(const struct cei_network *network)
{
	return own_node(network) && measurer_of(network) == roster_of(network)->own;
}

/* --- waiting, with the lock held ------------------------------------------------------- */

/* Waits for a change, until the deadline. CEOV_NONE: it has passed. With progress_by_caller it
 * turns the rail instead, because the peers may have left. */
static int wait_until(struct cei_network *network, uint64_t deadline_ns)
{
	if (cei_now_ns() >= deadline_ns)
		return CEOV_NONE;
	if (!network->site->progress_by_caller) {
		cei_condition_wait(&network->changed, &network->lock, deadline_ns);
		return 0;
	}
	pthread_mutex_unlock(&network->lock);
	if (cei_rail_turn(network->rail, cei_now_ns()) != CEOV_PENDING)
		cei_relax();
	pthread_mutex_lock(&network->lock);
	return 0;
}

/* --- asking, with the lock held ------------------------------------------------------- */

static void say(struct cei_network *network, uint32_t process, const struct cei_far_clock *clock)
{
	struct cei_far_message message = { .type = CEI_FAR_CLOCK };

	message.clock = *clock;
	(void)cei_rail_say(network->rail, process, &message);   /* it is asked again */
}

static void ask(struct cei_network *network)
{
	struct cei_network_clock *clock = &network->clock;
	struct cei_far_clock question = { .what = CEI_FAR_CLOCK_ASK };

	clock->number = question.number = ++clock->last_number;
	clock->asked_ns = cei_now_ns();
	say(network, reference_of(network), &question);
}

/* Takes an answer. The next question is said here, in the rail's thread, so that question and
 * answer go the same way and no other thread has to wake up between them. */
static void take(struct cei_network *network, const struct cei_far_clock *told, uint64_t now)
{
	struct cei_network_clock *clock = &network->clock;
	struct cei_clock_stamps stamps = {
		clock->asked_ns, told->heard_ns, told->told_ns, now
	};
	struct cei_clock_offset offset;

	clock->number = 0;
	clock->n_left--;
	if (cei_clock_offset_of(&stamps, &offset) ||
	    (clock->n_taken && !cei_clock_offsets_agree(&clock->best, &offset))) {
		clock->is_contradicted = 1;
		clock->n_left = 0;
	} else if (!clock->n_taken++ || offset.within_ns < clock->best.within_ns) {
		clock->best = offset;
	}
	if (clock->n_left)
		ask(network);
	else
		pthread_cond_broadcast(&network->changed);
}

/* 0; CEOV_NONE: the time has passed. */
static int await_answers(struct cei_network *network)
{
	struct cei_network_clock *clock = &network->clock;
	uint64_t deadline_ns = cei_deadline(MEASURE_NS), again_ns;

	while (clock->n_left && !clock->has_lost_reference) {
		again_ns = clock->asked_ns + AGAIN_NS;
		if (!wait_until(network, again_ns < deadline_ns ? again_ns : deadline_ns))
			continue;
		if (cei_now_ns() >= deadline_ns)
			return CEOV_NONE;
		ask(network);
	}
	return 0;
}

/* Returns why nothing was measured, or NULL. */
static const char *ask_all(struct cei_network *network)
{
	struct cei_network_clock *clock = &network->clock;
	int r;

	clock->n_left = QUESTIONS;
	clock->n_taken = 0;
	clock->is_contradicted = 0;
	ask(network);
	r = await_answers(network);
	clock->number = 0;
	clock->n_left = 0;
	if (clock->is_contradicted)
		return "the times that it tells contradict each other";
	if (clock->n_taken)
		return NULL;
	return r ? "it does not answer" : "it is lost or has closed";
}

static void measure(struct cei_network *network)
{
	struct cei_network_clock *clock = &network->clock;
	const char *why;

	pthread_mutex_lock(&network->lock);
	why = ask_all(network);
	if (!why)
		clock->offsets[clock->n_offsets++] = clock->best;
	pthread_mutex_unlock(&network->lock);
	if (why)
		cei_log(network->site->report, CEI_LOG_WARN,
			"trace: the process of rank 0 cannot be asked for its time: %s; %s", why,
			clock->n_offsets ? "how this node's clock drifts is not known" :
			"how far this node's clock is from its clock is not known");
}

void cei_network_clock_begin(struct cei_network *network)
{
	if (!is_measurer(network))
		return;
	network->clock.has_begun = 1;
	measure(network);
}

void cei_network_clock_end(struct cei_network *network)
{
	struct cei_far_clock end = { .what = CEI_FAR_CLOCK_END, .number = 1 };

	if (!network->clock.has_begun)
		return;
	network->clock.has_begun = 0;
	measure(network);
	pthread_mutex_lock(&network->lock);
	say(network, reference_of(network), &end);
	pthread_mutex_unlock(&network->lock);
}

/* --- answering, with the lock held ---------------------------------------------------- */

static void answer(struct cei_network *network, uint32_t process, uint64_t number, uint64_t now)
{
	struct cei_far_clock told = {
		.what = CEI_FAR_CLOCK_TELL, .number = number, .heard_ns = now
	};

	told.told_ns = cei_now_ns();
	say(network, process, &told);
}

/* Notes that a process asks, and will want to ask again. Without memory for that the reference does
 * not wait at its close. */
static void note_asker(struct cei_network *network, uint32_t process, int asks)
{
	struct cei_network_clock *clock = &network->clock;

	if (!clock->askers)
		clock->askers = calloc(roster_of(network)->n_processes, 1);
	if (clock->askers)
		clock->askers[process] = (uint8_t)asks;
	if (!asks)
		pthread_cond_broadcast(&network->changed);
}

void cei_network_heard_clock(struct cei_network *network, uint32_t process,
			     const struct cei_far_clock *message)
{
	uint64_t now = cei_now_ns();
	int is_reference = reference_of(network) == roster_of(network)->own;

	if (message->what == CEI_FAR_CLOCK_TELL) {
		if (process == reference_of(network) && network->clock.number &&
		    message->number == network->clock.number)
			take(network, message, now);
	} else if (is_reference && message->what == CEI_FAR_CLOCK_ASK) {
		answer(network, process, message->number, now);
		note_asker(network, process, 1);
	} else if (is_reference) {
		note_asker(network, process, 0);
	}
}

void cei_network_clock_gone(struct cei_network *network, uint32_t process)
{
	network->clock.has_lost_reference |= process == reference_of(network);
	if (network->clock.askers)
		network->clock.askers[process] = 0;
	pthread_cond_broadcast(&network->changed);
}

static uint32_t n_askers(const struct cei_network *network)
{
	uint32_t process, n = 0;

	for (process = 0; process < roster_of(network)->n_processes; process++)
		n += network->clock.askers[process];
	return n;
}

void cei_network_clock_leave(struct cei_network *network)
{
	uint64_t deadline_ns = cei_deadline(LEAVE_NS);
	uint32_t n = 0;
	int r = 0;

	pthread_mutex_lock(&network->lock);
	while (!r && network->clock.askers && (n = n_askers(network)))
		r = wait_until(network, deadline_ns);
	pthread_mutex_unlock(&network->lock);
	if (r && n)
		cei_log(network->site->report, CEI_LOG_INFO,
			"trace: %u nodes have not asked for the time again before this process "
			"closes; how their clocks drift will not be known", n);
}

/* --- looking ---------------------------------------------------------------------------- */

void cei_network_clock_look(struct cei_network *network, struct cei_network_clock_view *ret_view)
{
	const struct cei_roster *roster = roster_of(network);

	memset(ret_view, 0, sizeof(*ret_view));
	ret_view->group = cei_book_instance(network->book);
	ret_view->process = roster->own;
	ret_view->n_processes = roster->n_processes;
	ret_view->node = own_node(network);
	ret_view->n_nodes = roster->n_nodes;
	ret_view->measurer = roster->first_rank[measurer_of(network)];
	_Static_assert(sizeof(ret_view->node_name) == sizeof(network->node_name), "names fit");
	memcpy(ret_view->node_name, network->node_name, sizeof(ret_view->node_name));
	pthread_mutex_lock(&network->lock);
	ret_view->n_offsets = network->clock.n_offsets;
	memcpy(ret_view->offsets, network->clock.offsets, sizeof(ret_view->offsets));
	pthread_mutex_unlock(&network->lock);
}
