/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Offers, as application threads make, withdraw, find and drop them. Who asks and
 * who answers meet in meeting_link.c; what an offer's bytes mean is not known here.
 */

#include "ipc/meeting_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NS_PER_MS UINT64_C(1000000)

/* --- ours ---------------------------------------------------------------- */

static int is_member(const struct cei_site *site, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].rank == rank)
			return 1;
	return 0;
}

static int is_name(const char *name)
{
	size_t n_bytes = strnlen(name, CEI_NAME_BYTES);

	return n_bytes && n_bytes < CEI_NAME_BYTES;
}

/* A copy whose descriptors are its own. Returns an errno. */
static int copy_offer(const struct cei_offer *offer, struct cei_offer *ret_offer)
{
	uint32_t i;

	*ret_offer = *offer;
	for (i = 0; i < CEI_OFFER_FDS_MAX; i++)
		ret_offer->fds[i] = -1;
	for (i = 0; i < offer->n_fds; i++) {
		ret_offer->fds[i] = fcntl(offer->fds[i], F_DUPFD_CLOEXEC, 0);
		if (ret_offer->fds[i] < 0)
			return errno;
	}
	return 0;
}

/* 0, CEOV_ERR_STATE: the name is taken, CEOV_FULL: no room in the table. */
static int enter_offering(struct cei_meeting *meeting, struct cei_offering *offering,
			  uint64_t *ret_id)
{
	int r = 0;

	pthread_mutex_lock(&meeting->lock);
	if (cei_offering_find(meeting, offering->offer.rank, offering->offer.name)) {
		r = CEOV_ERR_STATE;
	} else if (meeting->n_offerings == CEI_OFFERS_MAX) {
		r = CEOV_FULL;
	} else {
		offering->id = ++meeting->n_ids;
		*ret_id = offering->id;
		meeting->offerings[meeting->n_offerings++] = offering;
	}
	pthread_mutex_unlock(&meeting->lock);
	return r;
}

static void discard_offering(struct cei_offering *offering)
{
	uint32_t i;

	for (i = 0; i < CEI_OFFER_FDS_MAX; i++)
		cei_fd_close(offering->offer.fds[i]);
	free(offering);
}

static int check_offer(struct cei_meeting *meeting, const struct cei_offer *offer)
{
	struct cei_report *report = meeting->site->report;

	if (!is_member(meeting->site, offer->rank))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "offer: rank %u is not held by this process",
				 offer->rank);
	if (!is_name(offer->name))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "offer of rank %u: a name has 1 to %u bytes",
				 offer->rank, CEI_NAME_BYTES - 1);
	if (offer->n_bytes > CEI_OFFER_BYTES_MAX || offer->n_fds > CEI_OFFER_FDS_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "offer '%s' of rank %u: %u bytes and %u descriptors; "
				 "%u and %u are the most", offer->name, offer->rank,
				 offer->n_bytes, offer->n_fds, CEI_OFFER_BYTES_MAX,
				 CEI_OFFER_FDS_MAX);
	return 0;
}

int cei_meeting_offer(struct cei_meeting *meeting, const struct cei_offer *offer,
		      uint64_t *ret_id)
{
	struct cei_report *report = meeting->site->report;
	struct cei_offering *offering;
	int error;
	int r;

	r = check_offer(meeting, offer);
	if (r)
		return r;
	offering = calloc(1, sizeof(*offering));
	if (!offering)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "offer '%s' of rank %u: no memory", offer->name,
				 offer->rank);
	error = copy_offer(offer, &offering->offer);
	if (error) {
		discard_offering(offering);
		return cei_raise(report, CEOV_ERR_SYSTEM, error,
				 "offer '%s' of rank %u: its descriptor cannot be "
				 "duplicated: %s", offer->name, offer->rank,
				 strerror(error));
	}
	r = enter_offering(meeting, offering, ret_id);
	if (!r)
		return 0;
	discard_offering(offering);
	if (r == CEOV_FULL)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "offer '%s' of rank %u: this process offers %u things "
				 "already, which is the most; release some", offer->name,
				 offer->rank, CEI_OFFERS_MAX);
	return cei_raise(report, r, 0,
			 "offer '%s': rank %u offers something under that name already",
			 offer->name, offer->rank);
}

int cei_meeting_withdraw(struct cei_meeting *meeting, uint64_t id)
{
	struct cei_offering *offering;
	int r = 0;
	uint32_t i;

	pthread_mutex_lock(&meeting->lock);
	if (!id || id > meeting->n_ids)
		r = CEOV_ERR_INVALID;
	for (i = 0; !r && i < meeting->n_offerings; i++) {
		offering = meeting->offerings[i];
		if (offering->id != id)
			continue;
		offering->is_withdrawn = 1;
		if (offering->n_users)
			r = CEOV_PENDING;
		else
			cei_offering_free(meeting, i);
		break;
	}
	pthread_mutex_unlock(&meeting->lock);
	if (r < 0)
		return cei_raise(meeting->site->report, r, 0,
				 "withdraw: there never was an offer %llu",
				 (unsigned long long)id);
	return r;
}

/* --- find and drop ------------------------------------------------------- */

static struct cei_link *check_find(struct cei_meeting *meeting, uint32_t rank,
				   const char *name)
{
	struct cei_link *link = cei_link_of(meeting, rank);

	if (!is_name(name))
		cei_raise(meeting->site->report, CEOV_ERR_INVALID, 0,
			  "find at rank %u: a name has 1 to %u bytes", rank,
			  CEI_NAME_BYTES - 1);
	else if (!link)
		cei_raise(meeting->site->report, CEOV_ERR_INVALID, 0,
			  "find '%s': rank %u is no rank of another process of this "
			  "group of %u", name, rank, meeting->site->n_ranks);
	else
		return link;
	return NULL;
}

/* 0: ask->answer is there. CEOV_NONE: the deadline has passed. CEOV_ERR_PEER_LOST.
 * With the lock. */
static int ask_link(struct cei_meeting *meeting, struct cei_link *link,
		    struct cei_ask *ask, uint64_t deadline_ns)
{
	int is_late = 0;

	while (link->ask && link->state == CEI_LINK_UP && !is_late)
		is_late = cei_meeting_wait(meeting, deadline_ns) != 0;
	if (link->state != CEI_LINK_UP)
		return CEOV_ERR_PEER_LOST;
	if (link->ask)
		return CEOV_NONE;
	ask->state = CEI_ASK_OWED;
	ask->find.number = ++link->n_finds;
	link->ask = ask;
	cei_meeting_send_owed(meeting, link);
	is_late = 0;
	while (ask->state != CEI_ASK_ANSWERED && link->state == CEI_LINK_UP && !is_late)
		is_late = cei_meeting_wait(meeting, deadline_ns) != 0;
	link->ask = NULL;
	pthread_cond_broadcast(&meeting->changed);      /* the next one may ask */
	if (ask->state == CEI_ASK_ANSWERED)
		return 0;
	return link->state == CEI_LINK_UP ? CEOV_NONE : CEOV_ERR_PEER_LOST;
}

/* Takes the answer's descriptors. */
static int take_answer(struct cei_meeting *meeting, struct cei_received *answer,
		       const struct cei_wire_find *find, struct cei_offer *ret_offer)
{
	const struct cei_wire_reply *reply = &answer->message.reply;
	struct ceov_failure failure = cei_failure(CEOV_ERR_SYSTEM, EMFILE);

	failure.rank = find->rank;
	if (reply->result < 0) {
		failure.error = reply->result;
		failure.native_code = reply->native_code;
		cei_received_close_fds(answer);
		return cei_raise_failure(meeting->site->report, &failure,
					 "find '%s': rank %u could not send it: %s",
					 find->name, find->rank,
					 strerror(reply->native_code));
	}
	if (reply->result || answer->n_fds == reply->offer.n_fds) {
		if (!reply->result) {
			*ret_offer = reply->offer;
			memcpy(ret_offer->fds, answer->fds,
			       answer->n_fds * sizeof(answer->fds[0]));
		}
		return reply->result;
	}
	cei_received_close_fds(answer);
	cei_meeting_drop(meeting, find->rank, reply->id);
	return cei_raise_failure(meeting->site->report, &failure,
				 "find '%s' at rank %u: its descriptors did not arrive; "
				 "has this process any free? (ulimit -n)", find->name,
				 find->rank);
}

static int raise_silence(struct cei_meeting *meeting, const struct cei_question *question,
			 uint64_t waited_ns)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);

	failure.rank = question->rank;
	return cei_raise_failure(meeting->site->report, &failure,
				 "find '%s': rank %u did not answer within %llu ms; is its "
				 "process stopped?", question->name, question->rank,
				 (unsigned long long)(waited_ns / NS_PER_MS));
}

int cei_meeting_find(struct cei_meeting *meeting, const struct cei_question *question,
		     struct cei_offer *ret_offer, uint64_t *ret_id)
{
	uint32_t rank = question->rank;
	struct cei_link *link = check_find(meeting, rank, question->name);
	struct cei_ask ask = { .find.rank = rank };
	uint64_t begun_ns = cei_now_ns();
	enum cei_link_state state;
	int r;

	if (!link)
		return CEOV_ERR_INVALID;
	memcpy(ask.find.name, question->name, strlen(question->name));
	ask.use = malloc(sizeof(*ask.use));
	if (!ask.use)
		return cei_raise(meeting->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "find '%s' at rank %u: no memory", question->name, rank);
	pthread_mutex_lock(&meeting->lock);
	r = ask_link(meeting, link, &ask, question->deadline_ns);
	state = link->state;
	pthread_mutex_unlock(&meeting->lock);
	free(ask.use);  /* NULL where it became the link's */
	if (r < 0)
		return cei_meeting_raise_gone(meeting, rank, state, "find");
	if (r)
		return raise_silence(meeting, question, cei_now_ns() - begun_ns);
	r = take_answer(meeting, &ask.answer, &ask.find, ret_offer);
	if (!r)
		*ret_id = ask.answer.message.reply.id;
	return r;
}

void cei_meeting_drop(struct cei_meeting *meeting, uint32_t rank, uint64_t id)
{
	struct cei_link *link = cei_link_of(meeting, rank);
	struct cei_list *node;

	if (!link)
		return;
	pthread_mutex_lock(&meeting->lock);
	for (node = link->uses.next; node != &link->uses; node = node->next) {
		if (CEI_OWNER(node, struct cei_use, link)->id != id)
			continue;
		cei_list_remove(node);
		cei_list_append(&link->drops_owed, node);
		cei_meeting_send_owed(meeting, link);
		break;
	}
	pthread_mutex_unlock(&meeting->lock);
}
