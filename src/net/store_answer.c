/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Puts the bytes of all processes together, and sends them to each. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "net/store_server_private.h"

int cei_store_put_together(struct cei_store_server *server, const void *own, uint32_t n_bytes,
			struct cei_gathered *ret_gathered)
{
	uint32_t n = server->exchange->n_processes, i, length;
	uint32_t *lengths = calloc(n, sizeof(*lengths));
	int r = CEOV_ERR_NO_MEMORY;
	uint8_t *part;

	if (lengths) {
		lengths[0] = n_bytes;
		for (i = 1; i < n; i++)
			lengths[i] = (uint32_t)server->guests[i]->inbox.message.part.n_bytes;
		r = cei_gathered_init(ret_gathered, n, lengths);
		free(lengths);
	}
	if (r)
		return cei_raise(server->report, r, 0, "no memory for the bytes of %u processes",
				 n);
	if (n_bytes)
		memcpy(cei_gathered_part(ret_gathered, 0, &length), own, n_bytes);
	for (i = 1; i < n; i++) {
		part = cei_gathered_part(ret_gathered, i, &length);
		memcpy(part, server->guests[i]->inbox.message.part.bytes, length);
	}
	return 0;
}

/* Sends more of the answer. A process that has gone is left out: the others notice that later. */
static void send_more(struct cei_store_server *server, struct cei_store_guest *guest)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = guest };
	ssize_t n = send(guest->fd, server->answer + guest->n_sent,
			 (size_t)(server->n_answer - guest->n_sent),
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	guest->n_sent += n > 0 ? (uint64_t)n : 0;
	if (n > 0 && guest->n_sent < server->n_answer)
		return;
	server->n_unsent--;
	if (n >= 0 && !epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, guest->fd, &event))
		return;
	cei_log(server->report, CEI_LOG_WARN, "store at %s: process %u has ended before it got "
		"the bytes of all", server->exchange->where, guest->party.ranks[0]);
	cei_store_close_guest(server, guest);
}

/* Prepares all joined processes for the answer. */
static void begin_answer(struct cei_store_server *server)
{
	struct epoll_event event = { .events = EPOLLOUT };
	struct cei_list *node, *next;
	struct cei_store_guest *guest;

	server->n_unsent = 0;
	for (node = server->joined.next; node != &server->joined; node = next) {
		next = node->next;
		guest = CEI_OWNER(node, struct cei_store_guest, link);
		cei_store_inbox_clear(&guest->inbox);
		guest->has_part = 0;
		guest->n_sent = 0;
		event.data.ptr = guest;
		if (epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, guest->fd, &event))
			cei_store_close_guest(server, guest);
		else
			server->n_unsent++;
	}
}

int cei_store_answer(struct cei_store_server *server, const struct cei_gathered *gathered,
		  uint64_t deadline_ns)
{
	uint64_t least_ns = cei_deadline(CEI_EXCHANGE_GRACE_NS);

	server->answer = cei_store_put_all(server->exchange->n_rounds, gathered,
					   &server->n_answer);
	if (!server->answer)
		return cei_raise(server->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for the bytes of %u processes",
				 server->exchange->n_processes);
	if (deadline_ns < least_ns)
		deadline_ns = least_ns;
	begin_answer(server);
	while (server->n_unsent && !server->error && cei_now_ns() < deadline_ns)
		cei_store_turn(server, deadline_ns, send_more);
	if (server->n_unsent && !server->error)
		server->error = cei_raise(server->report, CEOV_ERR_TIMEOUT, 0, "store at %s: %u "
					  "processes do not read what was gathered",
					  server->exchange->where, server->n_unsent);
	free(server->answer);
	server->answer = NULL;
	memset(server->has, 0, server->exchange->n_processes);
	server->has[0] = 1;
	server->n_has = 1;
	return server->error;
}
