/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Links once they stand: what comes in is handled here, on the meeting's thread;
 * what we owe goes out here, from any thread that holds the lock; and here a link
 * ends. The thread sleeps in poll() without a timeout: peers, their deaths and our
 * own wake-ups are all descriptors.
 */

#include "ipc/meeting_private.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Messages of one link that are handled before the others get their turn. */
#define TURN_MESSAGES 64u

struct cei_link *cei_link_of(struct cei_meeting *meeting, uint32_t rank)
{
	uint32_t i;

	if (rank >= meeting->site->n_ranks)
		return NULL;
	for (i = 0; i < meeting->n_links; i++)
		if (cei_party_has(&meeting->links[i].party, rank))
			return &meeting->links[i];
	return NULL;
}

void cei_link_add(struct cei_meeting *meeting, const struct cei_wire_party *party,
		  int fd, int pidfd)
{
	struct cei_link *link = &meeting->links[meeting->n_links++];

	link->party = *party;
	link->fd = fd;
	link->pidfd = pidfd;
	cei_list_init(&link->uses);
	cei_list_init(&link->drops_owed);
}

void cei_offering_free(struct cei_meeting *meeting, uint32_t index)
{
	struct cei_offering *offering = meeting->offerings[index];
	uint32_t i;

	for (i = 0; i < offering->offer.n_fds; i++)
		cei_fd_close(offering->offer.fds[i]);
	free(offering);
	meeting->offerings[index] = meeting->offerings[--meeting->n_offerings];
}

static uint32_t link_index(const struct cei_meeting *meeting, const struct cei_link *link)
{
	return (uint32_t)(link - meeting->links);
}

/* n_users of this link's uses have ended. Returns 1 where the offering is gone. */
static int unuse(struct cei_meeting *meeting, uint32_t index, struct cei_link *link,
		 uint32_t n_users)
{
	struct cei_offering *offering = meeting->offerings[index];

	offering->users[link_index(meeting, link)] -= n_users;
	offering->n_users -= n_users;
	if (offering->n_users || !offering->is_withdrawn)
		return 0;
	cei_offering_free(meeting, index);
	return 1;
}

static void free_uses(struct cei_list *uses)
{
	struct cei_list *node;

	while ((node = cei_list_take(uses)))
		free(CEI_OWNER(node, struct cei_use, link));
}

void cei_link_end(struct cei_meeting *meeting, struct cei_link *link,
		  enum cei_link_state state)
{
	uint32_t index = 0;

	if (link->n_finds_dropped)
		cei_log(meeting->site->report, CEI_LOG_WARN,
			"%llu questions of rank %u were dropped",
			(unsigned long long)link->n_finds_dropped, link->party.ranks[0]);
	link->n_finds_dropped = 0;
	link->state = state;
	cei_fd_close(link->fd);
	cei_fd_close(link->pidfd);
	link->fd = -1;
	link->pidfd = -1;
	link->n_asked = 0;
	free_uses(&link->uses);
	free_uses(&link->drops_owed);
	while (index < meeting->n_offerings) {
		uint32_t n = meeting->offerings[index]->users[link_index(meeting, link)];

		if (!unuse(meeting, index, link, n))
			index++;
	}
	pthread_cond_broadcast(&meeting->changed);
}

/* --- what we owe --------------------------------------------------------- */

struct cei_offering *cei_offering_find(struct cei_meeting *meeting, uint32_t rank,
				       const char *name)
{
	struct cei_offering *offering;
	uint32_t i;

	for (i = 0; i < meeting->n_offerings; i++) {
		offering = meeting->offerings[i];
		if (!offering->is_withdrawn && offering->offer.rank == rank &&
		    !strcmp(offering->offer.name, name))
			return offering;
	}
	return NULL;
}

static int send_refusal_to_find(struct cei_link *link, const struct cei_wire_find *find,
				int result, int native_code)
{
	struct cei_message message = { .type = CEI_MESSAGE_REPLY };

	message.reply.number = find->number;
	message.reply.result = result;
	message.reply.native_code = native_code;
	return cei_socket_send(link->fd, &message, NULL, 0);
}

static int send_reply(struct cei_meeting *meeting, struct cei_link *link,
		      const struct cei_wire_find *find)
{
	struct cei_offering *offering = cei_offering_find(meeting, find->rank,
							   find->name);
	struct cei_message message = { .type = CEI_MESSAGE_REPLY };
	int r;

	if (!offering)
		return send_refusal_to_find(link, find, CEOV_NONE, 0);
	message.reply.number = find->number;
	message.reply.id = offering->id;
	message.reply.offer = offering->offer;
	r = cei_socket_send(link->fd, &message, offering->offer.fds,
			    offering->offer.n_fds);
	if (!r) {
		offering->users[link_index(meeting, link)]++;
		offering->n_users++;
	}
	/* The descriptors could not travel, but the reason can. */
	if (r == CEOV_ERR_SYSTEM && offering->offer.n_fds)
		r = send_refusal_to_find(link, find, r, errno);
	return r;
}

static int flush_drops(struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_DROP };
	struct cei_use *use;
	int r;

	while (!cei_list_is_empty(&link->drops_owed)) {
		use = CEI_OWNER(link->drops_owed.next, struct cei_use, link);
		message.id = use->id;
		r = cei_socket_send(link->fd, &message, NULL, 0);
		if (r)
			return r;
		cei_list_remove(&use->link);
		free(use);
	}
	return 0;
}

static int flush_replies(struct cei_meeting *meeting, struct cei_link *link)
{
	int r;

	while (link->n_asked) {
		r = send_reply(meeting, link, &link->asked[link->asked_first]);
		if (r)
			return r;
		link->asked_first = (link->asked_first + 1) % CEI_FINDS_QUEUED_MAX;
		link->n_asked--;
	}
	return 0;
}

static int flush_ask(struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_FIND };
	int r;

	if (!link->ask || link->ask->state != CEI_ASK_OWED)
		return 0;
	message.find = link->ask->find;
	r = cei_socket_send(link->fd, &message, NULL, 0);
	if (!r)
		link->ask->state = CEI_ASK_SENT;
	return r;
}

static int flush_barrier(struct cei_meeting *meeting, struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_BARRIER };
	int r = 0;

	/* One message per call, because the peer checks that none is left out. */
	while (!r && link->n_calls_told < meeting->n_calls) {
		message.n_calls = link->n_calls_told + 1;
		r = cei_socket_send(link->fd, &message, NULL, 0);
		if (!r)
			link->n_calls_told++;
	}
	return r;
}

static int flush_bye(struct cei_meeting *meeting, struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_BYE };
	int r;

	if (!link->bye_owed || link->bye_told)
		return 0;
	r = cei_socket_send(link->fd, &message, NULL, 0);
	if (r)
		return r;
	link->bye_told = 1;
	pthread_cond_broadcast(&meeting->changed);
	return 0;
}

/* Drops go first: an owner who passed a barrier after we dropped must find its
 * users counted down. The farewell goes last. */
void cei_link_flush(struct cei_meeting *meeting, struct cei_link *link)
{
	int r = 0;

	if (link->state != CEI_LINK_UP || link->is_mute)
		return;
	r = flush_drops(link);
	if (!r)
		r = flush_replies(meeting, link);
	if (!r)
		r = flush_ask(link);
	if (!r)
		r = flush_barrier(meeting, link);
	if (!r)
		r = flush_bye(meeting, link);
	if (r >= 0)
		return;
	/* What the peer sent before it went is still to be read, so the link ends
	 * by its end of file; shutdown() brings that about on both sides. */
	link->is_mute = 1;
	if (r == CEOV_ERR_PEER_LOST)
		return;
	cei_log(meeting->site->report, CEI_LOG_ERROR,
		"link to rank %u: sending failed (%s); the link is closed",
		link->party.ranks[0], strerror(errno));
	shutdown(link->fd, SHUT_RDWR);
}

int cei_link_owes(const struct cei_meeting *meeting, const struct cei_link *link)
{
	if (link->state != CEI_LINK_UP || link->is_mute)
		return 0;
	return !cei_list_is_empty(&link->drops_owed) || link->n_asked ||
	       (link->ask && link->ask->state == CEI_ASK_OWED) ||
	       link->n_calls_told < meeting->n_calls ||
	       (link->bye_owed && !link->bye_told);
}

/* --- what comes ---------------------------------------------------------- */

static int take_find(struct cei_meeting *meeting, struct cei_link *link,
		     const struct cei_wire_find *find)
{
	uint32_t at;

	if (link->n_asked == CEI_FINDS_QUEUED_MAX) {
		if (!link->n_finds_dropped++)
			cei_log(meeting->site->report, CEI_LOG_WARN,
				"rank %u asks faster than it reads answers; questions are "
				"dropped", link->party.ranks[0]);
		return 0;
	}
	at = (link->asked_first + link->n_asked) % CEI_FINDS_QUEUED_MAX;
	link->asked[at] = *find;
	link->n_asked++;
	return 0;
}

/* The owner counts a user whom nobody waits for any more. */
static void return_use(struct cei_meeting *meeting, struct cei_link *link, uint64_t id)
{
	struct cei_use *use = malloc(sizeof(*use));

	if (!use) {
		cei_log(meeting->site->report, CEI_LOG_ERROR,
			"no memory to return an offer of rank %u; it stays in use",
			link->party.ranks[0]);
		return;
	}
	use->id = id;
	cei_list_append(&link->drops_owed, &use->link);
}

/* Whether it answers a question that we sent and have not had an answer to. Answers
 * come in the order of the questions, some of which are never answered. */
static int is_awaited(const struct cei_link *link, const struct cei_wire_reply *reply)
{
	if (reply->number <= link->n_finds_answered || reply->number > link->n_finds)
		return 0;
	return reply->number != link->n_finds || !link->ask ||
	       link->ask->state == CEI_ASK_SENT;
}

static int is_answer(const struct cei_ask *ask, const struct cei_wire_reply *reply)
{
	return reply->result || (reply->offer.rank == ask->find.rank &&
				 !strcmp(reply->offer.name, ask->find.name));
}

/* Takes received's descriptors. */
static int take_reply(struct cei_meeting *meeting, struct cei_link *link,
		      struct cei_received *received)
{
	const struct cei_wire_reply *reply = &received->message.reply;
	struct cei_ask *ask = link->ask;

	/* Only an offer has descriptors, whatever the peer sends. */
	if (reply->result)
		cei_received_close_fds(received);
	if (!is_awaited(link, reply)) {
		cei_received_close_fds(received);
		return CEOV_ERR_INVALID;
	}
	link->n_finds_answered = reply->number;
	if (!ask || ask->find.number != reply->number) {
		/* Of a find that timed out. */
		if (!reply->result)
			return_use(meeting, link, reply->id);
		cei_received_close_fds(received);
		return 0;
	}
	if (!is_answer(ask, reply)) {
		cei_received_close_fds(received);
		return CEOV_ERR_INVALID;
	}
	if (!reply->result) {
		ask->use->id = reply->id;
		cei_list_append(&link->uses, &ask->use->link);
		ask->use = NULL;
	}
	ask->answer = *received;
	ask->state = CEI_ASK_ANSWERED;
	pthread_cond_broadcast(&meeting->changed);
	return 0;
}

static int take_drop(struct cei_meeting *meeting, struct cei_link *link, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < meeting->n_offerings; i++) {
		if (meeting->offerings[i]->id != id)
			continue;
		if (!meeting->offerings[i]->users[link_index(meeting, link)])
			return CEOV_ERR_INVALID;
		unuse(meeting, i, link, 1);
		return 0;
	}
	return CEOV_ERR_INVALID;        /* what has users is not forgotten */
}

static int take_barrier(struct cei_meeting *meeting, struct cei_link *link,
			uint64_t n_calls)
{
	if (n_calls != link->n_calls_seen + 1)
		return CEOV_ERR_INVALID;
	link->n_calls_seen = n_calls;
	pthread_cond_broadcast(&meeting->changed);
	return 0;
}

/* 0; CEOV_NONE: the peer has said farewell; CEOV_ERR_INVALID: it talks nonsense. */
static int take_message(struct cei_meeting *meeting, struct cei_link *link,
			struct cei_received *received)
{
	const struct cei_message *message = &received->message;

	if (message->type == CEI_MESSAGE_REPLY)
		return take_reply(meeting, link, received);
	cei_received_close_fds(received);
	switch ((enum cei_message_type)message->type) {
	case CEI_MESSAGE_FIND:
		return take_find(meeting, link, &message->find);
	case CEI_MESSAGE_DROP:
		return take_drop(meeting, link, message->id);
	case CEI_MESSAGE_BARRIER:
		return take_barrier(meeting, link, message->n_calls);
	case CEI_MESSAGE_BYE:
		return CEOV_NONE;
	case CEI_MESSAGE_HELLO:
	case CEI_MESSAGE_REFUSE:
	case CEI_MESSAGE_JOINED:
	case CEI_MESSAGE_LINK:
	case CEI_MESSAGE_WELCOME:
	case CEI_MESSAGE_REPLY:
		break;
	}
	return CEOV_ERR_INVALID;
}

/* is_dead: the process has ended, so what is there to read now is all there is. */
static void read_link(struct cei_meeting *meeting, struct cei_link *link, int is_dead)
{
	struct cei_received received;
	uint32_t n;
	int r;

	for (n = 0; n < TURN_MESSAGES; n++) {
		r = cei_socket_receive(link->fd, &received);
		if (r == CEOV_NONE && !is_dead)
			return;
		if (r == CEOV_NONE)
			r = CEOV_ERR_PEER_LOST;
		if (!r)
			r = take_message(meeting, link, &received);
		if (!r)
			continue;
		if (r < 0 && r != CEOV_ERR_PEER_LOST)
			cei_log(meeting->site->report, CEI_LOG_ERROR,
				"link to rank %u: an invalid message came; the link is "
				"closed", link->party.ranks[0]);
		cei_link_end(meeting, link, r < 0 ? CEI_LINK_LOST : CEI_LINK_DEPARTED);
		return;
	}
}

/* Without the lock: who is told may call us. */
static void tell_gone(struct cei_meeting *meeting, const struct cei_link *link,
		      enum cei_link_state state)
{
	int departed = state == CEI_LINK_DEPARTED;
	uint32_t i;

	for (i = 0; i < link->party.n_ranks; i++) {
		cei_log(meeting->site->report, departed ? CEI_LOG_INFO : CEI_LOG_WARN,
			"rank %u %s", link->party.ranks[i], departed ?
			"has closed its context" : "is lost: its process has ended");
		if (meeting->config.gone)
			meeting->config.gone(meeting->config.gone_arg,
					     link->party.ranks[i], departed);
	}
}

static void serve_link(struct cei_meeting *meeting, struct cei_link *link, int is_dead)
{
	struct cei_report_hold hold;
	enum cei_link_state state;
	int is_closing;

	cei_report_hold_begin(meeting->site->report, &hold);
	pthread_mutex_lock(&meeting->lock);
	read_link(meeting, link, is_dead);
	cei_link_flush(meeting, link);
	state = link->state;
	is_closing = meeting->is_closing;
	pthread_mutex_unlock(&meeting->lock);
	cei_report_hold_end(meeting->site->report, &hold);
	/* After our own farewell peers hang up, and that is no loss. */
	if (state != CEI_LINK_UP && !is_closing)
		tell_gone(meeting, link, state);
}

/* --- the thread ---------------------------------------------------------- */

#define POLL_FDS_MAX  (1 + 2 * CEI_LINKS_MAX)
#define POLL_RETRY_NS 10000000L

void cei_meeting_wake(struct cei_meeting *meeting)
{
	const uint64_t one = 1;

	/* It only fails where the counter is full, and then the thread is awake. */
	if (write(meeting->wake_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		return;
}

static void sleep_off_wakes(struct cei_meeting *meeting)
{
	uint64_t n;

	/* Not blocking; nothing to read is fine. */
	if (read(meeting->wake_fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
		return;
}

/* Descriptor 0 wakes; then two for each link. poll() skips negative ones. */
static int fill_poll_fds(struct cei_meeting *meeting, struct pollfd *poll_fds)
{
	const struct cei_link *link;
	int must_stop;
	uint32_t i;

	poll_fds[0] = (struct pollfd){ .fd = meeting->wake_fd, .events = POLLIN };
	pthread_mutex_lock(&meeting->lock);
	must_stop = meeting->must_stop;
	for (i = 0; i < meeting->n_links; i++) {
		link = &meeting->links[i];
		poll_fds[1 + 2 * i].fd = link->fd;
		poll_fds[1 + 2 * i].events =
			(short)(POLLIN | (cei_link_owes(meeting, link) ? POLLOUT : 0));
		poll_fds[2 + 2 * i].fd = link->pidfd;
		poll_fds[2 + 2 * i].events = POLLIN;
	}
	pthread_mutex_unlock(&meeting->lock);
	return must_stop;
}

void *cei_meeting_run(void *arg)
{
	struct cei_meeting *meeting = arg;
	const struct timespec pause = { .tv_nsec = POLL_RETRY_NS };
	struct pollfd poll_fds[POLL_FDS_MAX];
	uint32_t i;

	pthread_setname_np(pthread_self(), "ceov-meet");
	while (!fill_poll_fds(meeting, poll_fds)) {
		/* No memory, or a process that allows itself fewer descriptors than it
		 * has: neither is ours to end, nor a reason to spin. */
		if (poll(poll_fds, 1 + 2 * meeting->n_links, -1) < 0) {
			nanosleep(&pause, NULL);
			continue;
		}
		if (poll_fds[0].revents)
			sleep_off_wakes(meeting);
		for (i = 0; i < meeting->n_links; i++)
			if (poll_fds[1 + 2 * i].revents || poll_fds[2 + 2 * i].revents)
				serve_link(meeting, &meeting->links[i],
					   poll_fds[2 + 2 * i].revents != 0);
	}
	return NULL;
}
