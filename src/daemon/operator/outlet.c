/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Short conversations: a request, an answer, the end. */

#include "daemon/operator/outlet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/clock.h"

/* From the connection to the last byte of the answer. */
#define PATIENCE_NS UINT64_C(5000000000)

/* And so long, where another one wants its place. Whoever asks and reads without a pause needs far
 * less. */
#define PATIENCE_FULL_NS UINT64_C(100000000)

struct connection {
	struct cei_list    link;
	struct cei_outlet *outlet;
	sd_event_source   *source;
	int                fd;
	uint64_t           begin_ns;
	uint32_t           n_request;
	char               request[CEI_OUTLET_REQUEST_BYTES + 1];
	int                is_waiting;  /* the request is complete, and has no answer yet */
	uint64_t           note;        /* of who answers */
	char              *answer;      /* NULL: there is none yet */
	size_t             n_answer;
	size_t             n_sent;
};

static void end(struct connection *connection)
{
	cei_list_remove(&connection->link);
	connection->outlet->n_connections--;
	sd_event_source_disable_unref(connection->source);
	close(connection->fd);
	free(connection->answer);
	free(connection);
}

/* Returns whether the connection goes on. */
static int go_on_sending(struct connection *connection)
{
	ssize_t n;

	while (connection->n_sent < connection->n_answer) {
		n = send(connection->fd, connection->answer + connection->n_sent,
			 connection->n_answer - connection->n_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		connection->n_sent += (size_t)n;
	}
	return 0;
}

/* Returns whether the connection goes on. */
static int answer(struct connection *connection)
{
	struct cei_outlet *outlet = connection->outlet;
	FILE *out = open_memstream(&connection->answer, &connection->n_answer);
	int r;

	if (!out)
		return 0;
	r = outlet->answer(outlet->arg, connection->request, &connection->note, out);
	if (fclose(out))
		return 0;
	connection->is_waiting = r == CEOV_PENDING;
	if (!connection->is_waiting)
		return sd_event_source_set_io_events(connection->source, EPOLLOUT) >= 0 &&
			go_on_sending(connection);
	free(connection->answer);
	connection->answer = NULL;
	/* only its end is heard of */
	return sd_event_source_set_io_events(connection->source, 0) >= 0;
}

/* Returns whether the connection goes on. */
static int go_on_receiving(struct connection *connection)
{
	size_t room = CEI_OUTLET_REQUEST_BYTES - connection->n_request;
	char *to = connection->request + connection->n_request, *at;
	ssize_t n;

	do
		n = recv(connection->fd, to, room, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN;
	connection->n_request += (uint32_t)n;
	connection->request[connection->n_request] = 0;
	at = strstr(connection->request, connection->outlet->end);
	if (!at)                        /* the end came before, or there is no room for it */
		return n && connection->n_request < CEI_OUTLET_REQUEST_BYTES;
	*at = 0;
	return answer(connection);
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct connection *connection = arg;

	(void)source;
	(void)fd;
	(void)events;
	if (connection->is_waiting ||
	    !(connection->answer ? go_on_sending(connection) : go_on_receiving(connection)))
		end(connection);
	return 0;
}

static int may_ask(const struct cei_outlet *outlet, int fd)
{
	struct ucred credentials;
	socklen_t n_bytes = sizeof(credentials);

	if (!outlet->is_private)
		return 1;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &n_bytes) &&
		(!credentials.uid || credentials.uid == geteuid());
}

static void add(struct cei_outlet *outlet, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		close(fd);
		return;
	}
	connection->outlet = outlet;
	connection->fd = fd;
	connection->begin_ns = cei_now_ns();
	cei_list_append(&outlet->connections, &connection->link);
	outlet->n_connections++;
	if (sd_event_add_io(outlet->event, &connection->source, fd, EPOLLIN, on_connection,
			    connection) < 0)
		end(connection);
}

/* Says why, as far as the socket takes it at once. */
static void refuse(struct cei_outlet *outlet, int fd, const char *why)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = outlet->refuse ? open_memstream(&text, &n) : NULL;

	cei_log(outlet->report, CEI_LOG_WARN, "%s: a connection was refused: %s", outlet->what,
		why);
	if (out) {
		outlet->refuse(why, out);
		if (!fclose(out))
			(void)send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		free(text);
	}
	close(fd);
}

/* Ends the connection that has lasted longest without having said what it wants, or without
 * reading its answer, unless that is not long. Returns whether there is room now. */
static int make_room(struct cei_outlet *outlet)
{
	uint64_t now_ns = cei_now_ns();
	struct connection *connection;
	struct cei_list *node;

	if (outlet->n_connections < CEI_OUTLET_CONNECTIONS)
		return 1;
	for (node = outlet->connections.next; node != &outlet->connections; node = node->next) {
		connection = CEI_OWNER(node, struct connection, link);
		if (connection->is_waiting || now_ns - connection->begin_ns < PATIENCE_FULL_NS)
			continue;
		end(connection);
		return 1;
	}
	return 0;
}

static int on_listener(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	int connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct cei_outlet *outlet = arg;

	(void)source;
	(void)events;
	if (connection < 0)
		return 0;
	if (!may_ask(outlet, connection))
		refuse(outlet, connection, "only root and the daemon's user may ask");
	else if (!make_room(outlet))
		refuse(outlet, connection, "16 ask already, which is the limit: try again");
	else
		add(outlet, connection);
	return 0;
}

int cei_outlet_open(struct cei_outlet *outlet, int fd)
{
	int r;

	outlet->fd = fd;
	cei_list_init(&outlet->connections);
	r = sd_event_add_io(outlet->event, &outlet->source, fd, EPOLLIN, on_listener, outlet);
	return r < 0 ? cei_raise(outlet->report, CEOV_ERR_SYSTEM, -r, "%s: %s", outlet->what,
				 strerror(-r)) : 0;
}

/* Ends connections whose time is over. */
static void end_late(struct cei_outlet *outlet, uint64_t now_ns)
{
	struct connection *connection;
	struct cei_list *node, *next;

	for (node = outlet->connections.next; node != &outlet->connections; node = next) {
		next = node->next;
		connection = CEI_OWNER(node, struct connection, link);
		if (connection->begin_ns + PATIENCE_NS <= now_ns)
			end(connection);
	}
}

static void answer_who_waits(struct cei_outlet *outlet)
{
	struct connection *connection;
	struct cei_list *node, *next;

	for (node = outlet->connections.next; node != &outlet->connections; node = next) {
		next = node->next;
		connection = CEI_OWNER(node, struct connection, link);
		if (connection->is_waiting && !answer(connection))
			end(connection);
	}
}

void cei_outlet_look(struct cei_outlet *outlet, uint64_t now_ns)
{
	if (!outlet->event)
		return;
	answer_who_waits(outlet);
	end_late(outlet, now_ns);
}

void cei_outlet_close(struct cei_outlet *outlet)
{
	if (!outlet->event)
		return;
	/* first the door: who is turned out may come again at once */
	sd_event_source_disable_unref(outlet->source);
	close(outlet->fd);
	end_late(outlet, CEI_FOREVER);
	outlet->event = NULL;
}
