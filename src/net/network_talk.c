/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What networks of two processes hear of each other, and what the network's thread does: it says
 * what found no room in the rail, tells listeners of counters that have changed, and ends processes
 * that are given up.
 */

#include "net/network_private.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "base/condition.h"

/* --- waiting for answers ------------------------------------------------------------ */

void cei_network_enter(struct cei_network *network, struct cei_network_request *request)
{
	request->number = ++network->last_request;
	cei_list_append(&network->requests, &request->link);
}

struct cei_network_request *cei_network_request(struct cei_network *network, uint64_t number,
						uint32_t process)
{
	struct cei_network_request *request;
	struct cei_list *node;

	for (node = network->requests.next; node != &network->requests; node = node->next) {
		request = CEI_OWNER(node, struct cei_network_request, link);
		if (request->number == number &&
		    (request->process == process || request->process == CEOV_NOBODY))
			return request;
	}
	return NULL;
}

int cei_network_wait(struct cei_network *network, uint64_t deadline_ns)
{
	if (cei_now_ns() >= deadline_ns)
		return CEOV_NONE;
	if (!network->site->progress_by_caller) {
		cei_condition_wait(&network->changed, &network->lock, deadline_ns);
		return 0;
	}
	pthread_mutex_unlock(&network->lock);
	if (!cei_network_turn(network))
		cei_relax();
	pthread_mutex_lock(&network->lock);
	return 0;
}

int cei_network_await(struct cei_network *network, struct cei_network_request *request,
		      uint64_t deadline_ns)
{
	int r = 0;

	while (!r && request->n_awaited && !request->is_lost)
		r = cei_network_wait(network, deadline_ns);
	cei_list_remove(&request->link);
	if (request->is_lost)
		return CEOV_ERR_PEER_LOST;
	return request->n_awaited ? CEOV_NONE : 0;
}

/* --- the thread ----------------------------------------------------------------------- */

int cei_network_turn(struct cei_network *network)
{
	int is_parting, has_worked = 0;

	if (network->rail)
		has_worked = cei_rail_turn(network->rail, cei_now_ns()) == CEOV_PENDING;
	pthread_mutex_lock(&network->lock);
	has_worked |= cei_network_notes_flush(network);
	has_worked |= cei_network_look_at_counters(network);
	is_parting = network->n_parting != 0;
	pthread_mutex_unlock(&network->lock);
	return has_worked | (is_parting && cei_network_end_parted(network));
}

static int is_idle(const struct cei_network *network)
{
	return !network->n_waiting && !network->n_listeners && !network->n_parting;
}

static void *run(void *arg)
{
	struct cei_network *network = arg;
	struct cei_backoff backoff;
	int has_worked, is_parting;

	cei_backoff_reset(&backoff);
	pthread_mutex_lock(&network->lock);
	while (!network->must_stop) {
		has_worked = cei_network_notes_flush(network);
		has_worked |= cei_network_look_at_counters(network);
		if (has_worked)
			cei_backoff_reset(&backoff);
		if (is_idle(network)) {
			pthread_cond_wait(&network->work, &network->lock);
			cei_backoff_reset(&backoff);
			continue;
		}
		is_parting = network->n_parting != 0;
		pthread_mutex_unlock(&network->lock);
		if (is_parting)
			(void)cei_network_end_parted(network);
		cei_backoff_step(&backoff);
		pthread_mutex_lock(&network->lock);
	}
	pthread_mutex_unlock(&network->lock);
	return NULL;
}

int cei_network_start(struct cei_network *network)
{
	sigset_t all, before;
	int error;

	if (network->site->progress_by_caller)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&network->thread, NULL, run, network);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	network->has_thread = !error;
	if (!error)
		return 0;
	return cei_raise(network->site->report, CEOV_ERR_SYSTEM, error,
			 "network: no thread: %s", strerror(error));
}

void cei_network_stop(struct cei_network *network)
{
	pthread_mutex_lock(&network->lock);
	network->must_stop = 1;
	pthread_cond_signal(&network->work);
	pthread_cond_broadcast(&network->changed);
	pthread_mutex_unlock(&network->lock);
	if (network->has_thread)
		pthread_join(network->thread, NULL);
	network->has_thread = 0;
}

int cei_network_begin_talk(struct cei_network *network)
{
	network->is_ready = 1;
	return network->rail ? cei_rail_begin(network->rail, cei_book_instance(network->book)) : 0;
}

/* --- hearing ---------------------------------------------------------------------------- */

static void answered(struct cei_network *network, struct cei_network_request *request)
{
	request->n_awaited -= request->n_awaited > 0;
	pthread_cond_broadcast(&network->changed);
}

static void heard_reply(struct cei_network *network, uint32_t process,
			const struct cei_note_reply *reply)
{
	struct cei_network_request *request = cei_network_request(network, reply->number, process);
	struct cei_note drop = { .type = CEI_NOTE_DROP };

	if (request) {
		request->result = reply->result;
		request->found = reply->found;
		answered(network, request);
	} else if (!reply->result) {    /* it came too late: nobody uses what was found */
		drop.drop = reply->found.region;
		cei_network_note(network, process, &drop);
	}
}

static void heard_renewed(struct cei_network *network, uint32_t process,
			  const struct cei_note_renew *renewed)
{
	struct cei_network_request *request = cei_network_request(network, renewed->number,
								  process);

	if (request)
		answered(network, request);
}

/* With the lock held. */
static void heard_gone(struct cei_network *network, uint32_t process,
		       const struct cei_note_gone *gone)
{
	uint32_t who;

	if (gone->rank >= cei_book_n_ranks(network->book))
		return;
	who = cei_network_process(network, gone->rank);
	if (gone->has_departed)
		cei_network_heard_departed(network, process, gone);
	else if (who != cei_book_own_process(network->book))
		cei_network_part(network, who, "another process says that it is lost");
}

/* Notes that are handled within this layer. With the lock held. */
static void heard_inside(struct cei_network *network, uint32_t process,
			 const struct cei_note *note)
{
	switch (note->type) {
	case CEI_NOTE_FIND:
		cei_network_heard_find(network, process, &note->find);
		break;
	case CEI_NOTE_REPLY:
		heard_reply(network, process, &note->reply);
		break;
	case CEI_NOTE_DROP:
		cei_network_heard_drop(network, process, note->drop);
		break;
	case CEI_NOTE_RAISE:
		cei_network_heard_raise(network, &note->counter);
		break;
	case CEI_NOTE_ASK:
		cei_network_heard_ask(network, process, &note->counter);
		break;
	case CEI_NOTE_VALUE:
		cei_network_heard_value(network, process, &note->counter);
		break;
	case CEI_NOTE_RENEWED:
		heard_renewed(network, process, &note->renew);
		break;
	case CEI_NOTE_BARRIER:
		cei_network_heard_barrier(network, &note->barrier);
		break;
	case CEI_NOTE_GONE:
		heard_gone(network, process, &note->gone);
		break;
	}
}

/* Has the layer above zero the image, and says so. */
static void heard_renew(struct cei_network *network, uint32_t process,
			const struct cei_note_renew *renew)
{
	const struct cei_network_signal *named = &renew->signal.named;
	struct cei_note note = { .type = CEI_NOTE_RENEWED };

	if (named->rank >= cei_book_n_ranks(network->book) ||
	    cei_network_process(network, named->rank) != process)
		return;
	pthread_mutex_lock(&network->lock);
	cei_network_image_renewed(network, &renew->signal);
	pthread_mutex_unlock(&network->lock);
	network->events->renewed(network->events_arg, named->rank, named->region);
	note.renew = *renew;
	pthread_mutex_lock(&network->lock);
	cei_network_note(network, process, &note);
	pthread_mutex_unlock(&network->lock);
}

static void handle(struct cei_network *network, uint32_t process, const struct cei_note *note)
{
	if (note->type == CEI_NOTE_ABORT) {
		network->events->aborted(network->events_arg, &note->abort);
	} else if (note->type == CEI_NOTE_RENEW) {
		heard_renew(network, process, &note->renew);
	} else {
		pthread_mutex_lock(&network->lock);
		heard_inside(network, process, note);
		pthread_mutex_unlock(&network->lock);
	}
}

static void heard(void *arg, uint32_t process, const struct cei_far_message *message)
{
	struct cei_network *network = arg;
	struct cei_note note;

	if (message->type == CEI_FAR_CLOCK) {
		pthread_mutex_lock(&network->lock);
		cei_network_heard_clock(network, process, &message->clock);
		pthread_mutex_unlock(&network->lock);
		return;
	}
	if (!cei_note_decode(message->note.bytes, message->note.n_bytes, &note)) {
		handle(network, process, &note);
		return;
	}
	pthread_mutex_lock(&network->lock);
	cei_network_part(network, process, "it has sent a note that makes no sense");
	pthread_mutex_unlock(&network->lock);
}

/* --- processes that have gone --------------------------------------------------------------- */

/* Ends what waits for an answer of the process. */
static void end_requests(struct cei_network *network, uint32_t process)
{
	struct cei_network_request *request;
	struct cei_list *node;

	for (node = network->requests.next; node != &network->requests; node = node->next) {
		request = CEI_OWNER(node, struct cei_network_request, link);
		request->is_lost |= request->process == process ||
			request->process == CEOV_NOBODY;
	}
	pthread_cond_broadcast(&network->changed);
}

void cei_network_process_gone(struct cei_network *network, uint32_t process, int departed)
{
	const uint32_t *ranks;
	uint32_t i, n_ranks;
	int is_known;

	pthread_mutex_lock(&network->lock);
	is_known = network->has_gone[process] ||
		process == cei_book_own_process(network->book);
	if (!is_known) {
		network->has_gone[process] = 1;
		cei_network_clock_gone(network, process);
		network->n_parting -= network->is_parting[process] != 0;
		network->is_parting[process] = 0;
		cei_network_forget_process(network, process);
		cei_network_notes_forget(network, process);
		end_requests(network, process);
	}
	pthread_mutex_unlock(&network->lock);
	if (is_known)
		return;
	ranks = cei_book_ranks_of(network->book, process, &n_ranks);
	for (i = 0; i < n_ranks; i++)
		network->events->gone(network->events_arg, ranks[i], departed);
}

/* Says it once for each process that is lost, by the rank that the caller knows it by. */
static void say_lost(const struct cei_network *network, uint32_t process, const char *why)
{
	uint32_t n_ranks;

	cei_log(network->site->report, CEI_LOG_WARN, "network: process %u, which holds rank %u on "
		"node %u, is lost: %s", process,
		cei_book_ranks_of(network->book, process, &n_ranks)[0],
		cei_book_node_of(network->book, process), why);
}

static void losing(void *arg, uint32_t process, const char *why, int is_refusal)
{
	struct cei_network *network = arg;
	int is_known;

	(void)is_refusal;
	pthread_mutex_lock(&network->lock);
	is_known = network->has_gone[process] || network->is_parting[process];
	cei_network_part(network, process, why);
	pthread_mutex_unlock(&network->lock);
	if (!is_known)
		say_lost(network, process, why);
}

static void lost(void *arg, uint32_t process, const char *why, int is_uncertain)
{
	struct cei_network *network = arg;

	(void)why;
	if (is_uncertain)
		cei_log(network->site->report, CEI_LOG_ERROR,
			"network: bytes of process %u may still land in memory that it was "
			"writing to; the contents of that are uncertain", process);
}

static void departed(void *arg, uint32_t process)
{
	struct cei_network *network = arg;

	pthread_mutex_lock(&network->lock);
	network->has_departed[process] = 1;
	pthread_mutex_unlock(&network->lock);
	cei_network_process_gone(network, process, 1);
}

static int find(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	struct cei_network *network = arg;
	const void *address = cei_book_address(network->book, process, ret_n_bytes);

	if (!*ret_n_bytes)
		return CEOV_NONE;
	memcpy(ret_address, address, *ret_n_bytes);
	return 0;
}

const struct cei_rail_events cei_network_rail_events = {
	.find = find,
	.losing = losing,
	.lost = lost,
	.departed = departed,
	.heard = heard,
};
