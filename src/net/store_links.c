/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Gives each two processes of a node a socket to each other. A process that has ended since it
 * came gets its links all the same: they are at their end of file, so its peers notice at once.
 */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"
#include "net/store_server_private.h"

#define RETRY_NS 1000000L

struct handing {
	struct cei_store_server *server;
	uint64_t                 deadline_ns;
	struct cei_links        *links;         /* of this process */
	struct cei_party         own;
};

void cei_links_close(struct cei_links *links)
{
	uint32_t i;

	for (i = 0; i < links->n_links; i++) {
		close(links->links[i].fd);
		if (links->links[i].pidfd >= 0)
			close(links->links[i].pidfd);
	}
	links->n_links = 0;
}

/* Sends until the deadline. If too many descriptors of this user are under way, their receivers
 * will take them. */
static int send_by(int fd, const struct cei_datagram *datagram, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = RETRY_NS };
	int r, is_crowded;

	for (;;) {
		r = cei_datagram_send(fd, datagram);
		is_crowded = r == CEOV_ERR_SYSTEM && errno == ETOOMANYREFS;
		if (r != CEOV_FULL && !is_crowded)
			return r;
		if (cei_now_ns() >= deadline_ns)
			return CEOV_ERR_TIMEOUT;
		if (is_crowded)
			nanosleep(&pause, NULL);
		else
			cei_store_wait(fd, POLLOUT, deadline_ns);
	}
}

static int hand(const struct handing *handing, const struct cei_store_guest *to,
		const struct cei_store_message *message, int *fds, uint32_t n_fds)
{
	const struct cei_exchange *exchange = handing->server->exchange;
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	struct cei_datagram datagram = { bytes, cei_encode(&cei_store_protocol, message, bytes),
					 fds, n_fds };
	int r = send_by(to->fd, &datagram, handing->deadline_ns);
	struct ceov_failure failure;

	if (!r || r == CEOV_ERR_PEER_LOST)
		return 0;
	failure = cei_exchange_failure(exchange, to->party.ranks[0], r,
				       r == CEOV_ERR_SYSTEM ? errno : 0);
	return cei_raise_failure(handing->server->report, &failure, "group at %s: rank %u could "
				 "not be sent its links: %s", exchange->where, failure.rank,
				 r == CEOV_ERR_SYSTEM ? strerror(failure.native_code) :
				 "it reads nothing");
}

/* Gives a process one end of a socket pair. is_of: a socket to the process at the other end. */
static int hand_end(const struct handing *handing, const struct cei_store_guest *to, int end,
		    const struct cei_party *party, int is_of)
{
	const struct cei_store_message message = { .type = CEI_STORE_LINK, .link = *party };
	int fds[2] = { end, cei_peer_pidfd(is_of) };
	int r = hand(handing, to, &message, fds, fds[1] < 0 ? 1 : 2);

	if (fds[1] >= 0)
		close(fds[1]);
	return r;
}

static void keep_end(const struct handing *handing, const struct cei_store_guest *peer, int end)
{
	handing->links->links[handing->links->n_links++] = (struct cei_node_link){
		peer->party, end, cei_peer_pidfd(peer->fd)
	};
}

/* other: NULL: this process. */
static int link_pair(const struct handing *handing, const struct cei_store_guest *one,
		     const struct cei_store_guest *other)
{
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return cei_raise(handing->server->report, CEOV_ERR_SYSTEM, errno,
				 "no socket pair for ranks %u and %u: %s", one->party.ranks[0],
				 (other ? &other->party : &handing->own)->ranks[0],
				 strerror(errno));
	/* the process at the other end of a pair is who made it */
	r = hand_end(handing, one, ends[0], other ? &other->party : &handing->own,
		     other ? other->fd : ends[0]);
	close(ends[0]);
	if (!other) {
		keep_end(handing, one, ends[1]);
		return r;
	}
	if (!r)
		r = hand_end(handing, other, ends[1], &one->party, one->fd);
	close(ends[1]);
	return r;
}

int cei_store_hand_out(struct cei_store_server *server, uint64_t deadline_ns,
		       struct cei_links *ret_links)
{
	static const struct cei_store_message done = { .type = CEI_STORE_JOINED };
	struct handing handing = { server, deadline_ns, ret_links, { 0, { 0 } } };
	const struct cei_list *node, *other, *end = &server->joined;
	int r = 0;

	cei_party_of_site(server->exchange->site, &handing.own);
	for (node = end->next; !r && node != end; node = node->next) {
		r = link_pair(&handing, CEI_OWNER(node, struct cei_store_guest, link), NULL);
		for (other = node->next; !r && other != end; other = other->next)
			r = link_pair(&handing, CEI_OWNER(node, struct cei_store_guest, link),
				      CEI_OWNER(other, struct cei_store_guest, link));
	}
	for (node = end->next; !r && node != end; node = node->next)
		r = hand(&handing, CEI_OWNER(node, struct cei_store_guest, link), &done, NULL, 0);
	return r;
}
