/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Links in operation. The bootstrap thread handles the messages that arrive, and ends links. Any
 * thread that holds the lock sends queued messages. The bootstrap thread sleeps in poll() without a
 * timeout, since messages, deaths of peers and this process's own wake-ups all arrive at
 * descriptors.
 */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct cei_link *cei_link_of(struct cei_bootstrap *bootstrap, uint32_t rank)
{
	uint32_t i;

	if (rank >= bootstrap->site->n_ranks)
		return NULL;
	for (i = 0; i < bootstrap->n_links; i++)
		if (cei_party_has(&bootstrap->links[i].party, rank))
			return &bootstrap->links[i];
	return NULL;
}

static uint32_t link_index(const struct cei_bootstrap *bootstrap, const struct cei_link *link)
{
	return (uint32_t)(link - bootstrap->links);
}

/* Ends n_users uses of an entry by the process at the other end of the link. Returns 1 if that
 * freed the entry. */
static int unuse(struct cei_bootstrap *bootstrap, uint32_t index, struct cei_link *link,
		 uint32_t n_users)
{
	struct cei_export_entry *entry = bootstrap->exports[index];

	entry->users[link_index(bootstrap, link)] -= n_users;
	entry->n_users -= n_users;
	if (entry->n_users || !entry->is_withdrawn)
		return 0;
	cei_export_entry_free(bootstrap, index);
	return 1;
}

static void free_uses(struct cei_list *uses)
{
	struct cei_list *node;

	while ((node = cei_list_take(uses)))
		free(CEI_OWNER(node, struct cei_use, link));
}

void cei_link_end(struct cei_bootstrap *bootstrap, struct cei_link *link,
		  enum cei_link_state state)
{
	uint32_t index = 0;

	if (link->n_finds_dropped)
		cei_log(bootstrap->site->report, CEI_LOG_WARN,
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
	while (index < bootstrap->n_exports) {
		uint32_t n = bootstrap->exports[index]->users[link_index(bootstrap, link)];

		if (!unuse(bootstrap, index, link, n))
			index++;
	}
	pthread_cond_broadcast(&bootstrap->changed);
}

/* --- sending queued messages --------------------------------------------- */

static int send_refusal_to_find(struct cei_link *link, const struct cei_wire_find *find,
				int result, int native_code)
{
	struct cei_message message = { .type = CEI_MESSAGE_REPLY };

	message.reply.number = find->number;
	message.reply.result = result;
	message.reply.native_code = native_code;
	return cei_socket_send(link->fd, &message, NULL, 0);
}

static int send_reply(struct cei_bootstrap *bootstrap, struct cei_link *link,
		      const struct cei_wire_find *find)
{
	struct cei_export_entry *entry = cei_export_entry_find(bootstrap, find->rank,
							   find->name);
	struct cei_message message = { .type = CEI_MESSAGE_REPLY };
	int r;

	if (!entry)
		return send_refusal_to_find(link, find, CEOV_NONE, 0);
	message.reply.number = find->number;
	message.reply.id = entry->id;
	message.reply.export = entry->export;
	r = cei_socket_send(link->fd, &message, entry->export.fds,
			    entry->export.n_fds);
	if (!r) {
		entry->users[link_index(bootstrap, link)]++;
		entry->n_users++;
	}
	/* If the descriptors could not be sent (too many are open), send the reason instead. */
	if (r == CEOV_ERR_SYSTEM && entry->export.n_fds)
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

static int flush_replies(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	int r;

	while (link->n_asked) {
		r = send_reply(bootstrap, link, &link->asked[link->asked_first]);
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

	if (!link->request || link->request->state != CEI_REQUEST_OWED)
		return 0;
	message.find = link->request->find;
	r = cei_socket_send(link->fd, &message, NULL, 0);
	if (!r)
		link->request->state = CEI_REQUEST_SENT;
	return r;
}

static int flush_barrier(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_BARRIER };
	int r = 0;

	/* Send one message for each call of the barrier, because the peer checks that none is
	 * missing. */
	while (!r && link->n_calls_told < bootstrap->n_calls) {
		message.n_calls = link->n_calls_told + 1;
		r = cei_socket_send(link->fd, &message, NULL, 0);
		if (!r)
			link->n_calls_told++;
	}
	return r;
}

static int flush_lost(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_LOST };
	int r = 0;

	while (!r && link->n_lost_told < bootstrap->n_lost) {
		message.rank = bootstrap->lost[link->n_lost_told];
		r = cei_socket_send(link->fd, &message, NULL, 0);
		link->n_lost_told += !r;
	}
	return r;
}

static int flush_missing(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_MISSING };
	int r;

	if (bootstrap->missing == CEOV_NOBODY || link->missing_told)
		return 0;
	message.rank = bootstrap->missing;
	r = cei_socket_send(link->fd, &message, NULL, 0);
	link->missing_told = !r;
	return r;
}

static int flush_bye(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	struct cei_message message = { .type = CEI_MESSAGE_BYE };
	int r;

	if (!link->bye_owed || link->bye_told)
		return 0;
	r = cei_socket_send(link->fd, &message, NULL, 0);
	if (r)
		return r;
	link->bye_told = 1;
	pthread_cond_broadcast(&bootstrap->changed);
	return 0;
}

/* Sends queued messages. Drops come first: an owner that passes a barrier after a drop must have
 * counted that use as ended. The farewell comes last. */
void cei_link_flush(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	int r = 0;

	if (link->state != CEI_LINK_UP || link->is_mute)
		return;
	r = flush_drops(link);
	if (!r)
		r = flush_replies(bootstrap, link);
	if (!r)
		r = flush_ask(link);
	if (!r)
		r = flush_barrier(bootstrap, link);
	if (!r)
		r = flush_lost(bootstrap, link);
	if (!r)
		r = flush_missing(bootstrap, link);
	if (!r)
		r = flush_bye(bootstrap, link);
	if (r >= 0)
		return;
	/* Messages that the peer sent before it died must still be read. So the link does not
	 * end now, but when its end of file is read, which shutdown() causes on both sides. */
	link->is_mute = 1;
	if (r == CEOV_ERR_PEER_LOST)
		return;
	cei_log(bootstrap->site->report, CEI_LOG_ERROR,
		"link to rank %u: sending failed (%s); the link is closed",
		link->party.ranks[0], strerror(errno));
	shutdown(link->fd, SHUT_RDWR);
}

int cei_link_owes(const struct cei_bootstrap *bootstrap, const struct cei_link *link)
{
	if (link->state != CEI_LINK_UP || link->is_mute)
		return 0;
	return !cei_list_is_empty(&link->drops_owed) || link->n_asked ||
	       (link->request && link->request->state == CEI_REQUEST_OWED) ||
	       link->n_calls_told < bootstrap->n_calls ||
	       link->n_lost_told < bootstrap->n_lost ||
	       (bootstrap->missing != CEOV_NOBODY && !link->missing_told) ||
	       (link->bye_owed && !link->bye_told);
}

/* --- handling received messages ------------------------------------------ */

static int take_find(struct cei_bootstrap *bootstrap, struct cei_link *link,
		     const struct cei_wire_find *find)
{
	uint32_t at;

	if (link->n_asked == CEI_FINDS_QUEUED_MAX) {
		if (!link->n_finds_dropped++)
			cei_log(bootstrap->site->report, CEI_LOG_WARN,
				"rank %u asks faster than it reads answers; questions are "
				"dropped", link->party.ranks[0]);
		return 0;
	}
	at = (link->asked_first + link->n_asked) % CEI_FINDS_QUEUED_MAX;
	link->asked[at] = *find;
	link->n_asked++;
	return 0;
}

/* Queues a drop for the export that a reply brought, if no thread waits for that reply any more. */
static void return_use(struct cei_bootstrap *bootstrap, struct cei_link *link, uint64_t id)
{
	struct cei_use *use = malloc(sizeof(*use));

	if (!use) {
		cei_log(bootstrap->site->report, CEI_LOG_ERROR,
			"no memory to return an export of rank %u; it stays in use",
			link->party.ranks[0]);
		return;
	}
	use->id = id;
	cei_list_append(&link->drops_owed, &use->link);
}

/* Returns whether the reply belongs to a request that was sent and is still unanswered. Replies
 * come in the order of the requests, but some requests are never answered. */
static int is_awaited(const struct cei_link *link, const struct cei_wire_reply *reply)
{
	if (reply->number <= link->n_finds_answered || reply->number > link->n_finds)
		return 0;
	return reply->number != link->n_finds || !link->request ||
	       link->request->state == CEI_REQUEST_SENT;
}

static int is_answer(const struct cei_request *request, const struct cei_wire_reply *reply)
{
	return reply->result || (reply->export.rank == request->find.rank &&
				 !strcmp(reply->export.name, request->find.name));
}

/* Handles a reply. Takes ownership of its descriptors. */
static int take_reply(struct cei_bootstrap *bootstrap, struct cei_link *link,
		      struct cei_received *received)
{
	const struct cei_wire_reply *reply = &received->message.reply;
	struct cei_request *request = link->request;

	/* A reply without an export should bring no descriptors. If it does, close them. */
	if (reply->result)
		cei_received_close_fds(received);
	if (!is_awaited(link, reply)) {
		cei_received_close_fds(received);
		return CEOV_ERR_INVALID;
	}
	link->n_finds_answered = reply->number;
	if (!request || request->find.number != reply->number) {
		/* The find to which this replies has timed out meanwhile. */
		if (!reply->result)
			return_use(bootstrap, link, reply->id);
		cei_received_close_fds(received);
		return 0;
	}
	if (!is_answer(request, reply)) {
		cei_received_close_fds(received);
		return CEOV_ERR_INVALID;
	}
	if (!reply->result) {
		request->use->id = reply->id;
		cei_list_append(&link->uses, &request->use->link);
		request->use = NULL;
	}
	request->answer = *received;
	request->state = CEI_REQUEST_ANSWERED;
	pthread_cond_broadcast(&bootstrap->changed);
	return 0;
}

static int take_drop(struct cei_bootstrap *bootstrap, struct cei_link *link, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < bootstrap->n_exports; i++) {
		if (bootstrap->exports[i]->id != id)
			continue;
		if (!bootstrap->exports[i]->users[link_index(bootstrap, link)])
			return CEOV_ERR_INVALID;
		unuse(bootstrap, i, link, 1);
		return 0;
	}
	return CEOV_ERR_INVALID;        /* the peer dropped an export that it does not use */
}

static int take_barrier(struct cei_bootstrap *bootstrap, struct cei_link *link,
			uint64_t n_calls)
{
	if (n_calls != link->n_calls_seen + 1)
		return CEOV_ERR_INVALID;
	link->n_calls_seen = n_calls;
	pthread_cond_broadcast(&bootstrap->changed);
	return 0;
}

static int take_lost(struct cei_bootstrap *bootstrap, uint32_t rank)
{
	if (rank >= bootstrap->site->n_ranks || cei_site_is_local(bootstrap->site, rank))
		return CEOV_ERR_INVALID;
	bootstrap->heard[bootstrap->n_heard++] = rank;
	return 0;
}

static int take_missing(struct cei_bootstrap *bootstrap, struct cei_link *link, uint32_t rank)
{
	if (rank >= bootstrap->site->n_ranks)
		return CEOV_ERR_INVALID;
	link->missing = rank;
	pthread_cond_broadcast(&bootstrap->changed);
	return 0;
}

/* Handles one message. Returns 0; CEOV_NONE if the peer has said farewell; CEOV_ERR_INVALID if the
 * message breaks the protocol. */
static int take_message(struct cei_bootstrap *bootstrap, struct cei_link *link,
			struct cei_received *received)
{
	const struct cei_message *message = &received->message;

	if (message->type == CEI_MESSAGE_REPLY)
		return take_reply(bootstrap, link, received);
	cei_received_close_fds(received);
	switch ((enum cei_message_type)message->type) {
	case CEI_MESSAGE_FIND:
		return take_find(bootstrap, link, &message->find);
	case CEI_MESSAGE_DROP:
		return take_drop(bootstrap, link, message->id);
	case CEI_MESSAGE_BARRIER:
		return take_barrier(bootstrap, link, message->n_calls);
	case CEI_MESSAGE_LOST:
		return take_lost(bootstrap, message->rank);
	case CEI_MESSAGE_MISSING:
		return take_missing(bootstrap, link, message->rank);
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

/* Reads and handles the messages that have arrived. is_dead: the peer's process has ended, so no
 * further message will come. */
static void read_link(struct cei_bootstrap *bootstrap, struct cei_link *link, int is_dead)
{
	struct cei_received received;
	uint32_t n;
	int r;

	for (n = 0; n < CEI_TURN_MESSAGES; n++) {
		r = cei_socket_receive(link->fd, &received);
		if (r == CEOV_NONE && !is_dead)
			return;
		if (r == CEOV_NONE)
			r = CEOV_ERR_PEER_LOST;
		if (!r)
			r = take_message(bootstrap, link, &received);
		if (!r)
			continue;
		if (r < 0 && r != CEOV_ERR_PEER_LOST)
			cei_log(bootstrap->site->report, CEI_LOG_ERROR,
				"link to rank %u: an invalid message came; the link is "
				"closed", link->party.ranks[0]);
		cei_link_end(bootstrap, link, r < 0 ? CEI_LINK_LOST : CEI_LINK_DEPARTED);
		return;
	}
}

/* Reports a process that was lost or has closed its context. The caller does not hold the lock,
 * because config.gone() may call the bootstrap. */
static void tell_gone(struct cei_bootstrap *bootstrap, const struct cei_link *link,
		      enum cei_link_state state)
{
	int departed = state == CEI_LINK_DEPARTED;
	uint32_t i;

	for (i = 0; i < link->party.n_ranks; i++) {
		cei_log(bootstrap->site->report, departed ? CEI_LOG_INFO : CEI_LOG_WARN,
			"rank %u %s", link->party.ranks[i], departed ?
			"has closed its context" : "is lost: its process has ended");
		if (bootstrap->config.gone)
			bootstrap->config.gone(bootstrap->config.arg,
					       link->party.ranks[i], departed);
	}
}

static void serve_link(struct cei_bootstrap *bootstrap, struct cei_link *link, int is_dead)
{
	struct cei_report_hold hold;
	enum cei_link_state state;
	uint32_t missing, i;
	int is_closing;

	cei_report_hold_begin(bootstrap->site->report, &hold);
	pthread_mutex_lock(&bootstrap->lock);
	missing = link->missing;
	bootstrap->n_heard = 0;
	read_link(bootstrap, link, is_dead);
	cei_link_flush(bootstrap, link);
	state = link->state;
	is_closing = bootstrap->is_closing;
	pthread_mutex_unlock(&bootstrap->lock);
	cei_report_hold_end(bootstrap->site->report, &hold);
	for (i = 0; i < bootstrap->n_heard && bootstrap->config.lost; i++)
		bootstrap->config.lost(bootstrap->config.arg, bootstrap->heard[i]);
	if (link->missing != missing && bootstrap->config.missed)
		bootstrap->config.missed(bootstrap->config.arg, link->missing);
	/* After this process's farewell its peers close their links, which is no loss. */
	if (state != CEI_LINK_UP && !is_closing)
		tell_gone(bootstrap, link, state);
}

/* --- the thread ---------------------------------------------------------- */

#define POLL_FDS_MAX  (1 + 2 * CEI_LINKS_MAX)
#define POLL_RETRY_NS 10000000L

void cei_bootstrap_wake(struct cei_bootstrap *bootstrap)
{
	const uint64_t one = 1;

	/* the write fails only if the eventfd's counter is full; then the thread wakes anyway */
	if (write(bootstrap->wake_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		return;
}

static void sleep_off_wakes(struct cei_bootstrap *bootstrap)
{
	uint64_t n;

	/* non-blocking; there may be nothing to read */
	if (read(bootstrap->wake_fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
		return;
}

/* Fills descriptor 0, which wakes the thread, and two descriptors for each link. poll() skips those
 * that are negative. */
static int fill_poll_fds(struct cei_bootstrap *bootstrap, struct pollfd *poll_fds)
{
	const struct cei_link *link;
	int must_stop;
	uint32_t i;

	poll_fds[0] = (struct pollfd){ .fd = bootstrap->wake_fd, .events = POLLIN };
	pthread_mutex_lock(&bootstrap->lock);
	must_stop = bootstrap->must_stop;
	for (i = 0; i < bootstrap->n_links; i++) {
		link = &bootstrap->links[i];
		poll_fds[1 + 2 * i].fd = link->fd;
		poll_fds[1 + 2 * i].events =
			(short)(POLLIN | (cei_link_owes(bootstrap, link) ? POLLOUT : 0));
		poll_fds[2 + 2 * i].fd = link->pidfd;
		poll_fds[2 + 2 * i].events = POLLIN;
	}
	pthread_mutex_unlock(&bootstrap->lock);
	return must_stop;
}

void *cei_bootstrap_run(void *arg)
{
	struct cei_bootstrap *bootstrap = arg;
	const struct timespec pause = { .tv_nsec = POLL_RETRY_NS };
	struct pollfd poll_fds[POLL_FDS_MAX];
	uint32_t i;

	pthread_setname_np(pthread_self(), "ceov-meet");
	while (!fill_poll_fds(bootstrap, poll_fds)) {
		/* poll() fails if there is no memory, or if the limit of descriptors was lowered.
		 * Sleep and try again. */
		if (poll(poll_fds, 1 + 2 * bootstrap->n_links, -1) < 0) {
			nanosleep(&pause, NULL);
			continue;
		}
		if (poll_fds[0].revents)
			sleep_off_wakes(bootstrap);
		for (i = 0; i < bootstrap->n_links; i++)
			if (poll_fds[1 + 2 * i].revents || poll_fds[2 + 2 * i].revents)
				serve_link(bootstrap, &bootstrap->links[i],
					   poll_fds[2 + 2 * i].revents != 0);
	}
	return NULL;
}
