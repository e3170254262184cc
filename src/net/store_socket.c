/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/store_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"

#define BACKLOG     4096                /* the kernel cuts it to its own limit */
#define POLL_MAX_NS UINT64_C(1000000000)

/* --- addresses --------------------------------------------------------------------- */

int cei_store_place(const char *text, struct cei_store_place *ret_place)
{
	const char *colon = strrchr(text, ':'), *begin = text, *end = colon;
	unsigned long port;
	char *rest;

	if (!colon || colon[1] < '0' || colon[1] > '9')
		return CEOV_ERR_INVALID;
	errno = 0;
	port = strtoul(colon + 1, &rest, 10);
	if (errno || *rest || !port || port > 65535)
		return CEOV_ERR_INVALID;
	if (*text == '[' && colon > text && colon[-1] == ']') {
		begin++;
		end--;
	}
	if (end <= begin || (size_t)(end - begin) >= sizeof(ret_place->host))
		return CEOV_ERR_INVALID;
	memcpy(ret_place->host, begin, (size_t)(end - begin));
	ret_place->host[end - begin] = '\0';
	ret_place->port = (uint16_t)port;
	return 0;
}

static void take_addresses(const struct addrinfo *found,
			   struct cei_store_addresses *ret_addresses)
{
	ret_addresses->n = 0;
	for (; found && ret_addresses->n < CEI_STORE_ADDRESSES_MAX; found = found->ai_next) {
		if (found->ai_addrlen > sizeof(ret_addresses->all[0]))
			continue;
		memcpy(&ret_addresses->all[ret_addresses->n], found->ai_addr,
		       found->ai_addrlen);
		ret_addresses->n_bytes[ret_addresses->n++] = found->ai_addrlen;
	}
}

/* Takes an address in figures, which needs no name server and so no thread of the C library.
 * Returns 0, or getaddrinfo()'s result. */
static int take_figures(const struct cei_store_place *place,
			struct cei_store_addresses *ret_addresses)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char port[8];
	int r;

	snprintf(port, sizeof(port), "%u", place->port);
	r = getaddrinfo(place->host, port, &hints, &found);
	if (r)
		return r;
	take_addresses(found, ret_addresses);
	freeaddrinfo(found);
	return 0;
}

/* A query of the C library, which may go on when nobody waits for it any more. */
struct query {
	struct gaicb    query;
	struct addrinfo hints;
	char            host[CEI_STORE_HOST_BYTES];
	char            port[8];
};

static struct query *query_of(const struct cei_store_place *place)
{
	struct query *query = calloc(1, sizeof(*query));

	if (!query)
		return NULL;
	snprintf(query->host, sizeof(query->host), "%s", place->host);
	snprintf(query->port, sizeof(query->port), "%u", place->port);
	query->hints.ai_family = AF_UNSPEC;
	query->hints.ai_socktype = SOCK_STREAM;
	query->query.ar_name = query->host;
	query->query.ar_service = query->port;
	query->query.ar_request = &query->hints;
	return query;
}

/* Returns getaddrinfo()'s result; EAI_INPROGRESS: the deadline has passed. */
static int await_query(struct query *query, uint64_t deadline_ns)
{
	const struct gaicb *list[1] = { &query->query };
	uint64_t now_ns, left_ns;
	struct timespec time;
	int r;

	while ((r = gai_error(&query->query)) == EAI_INPROGRESS) {
		now_ns = cei_now_ns();
		if (now_ns >= deadline_ns)
			break;
		left_ns = deadline_ns - now_ns < POLL_MAX_NS ? deadline_ns - now_ns : POLL_MAX_NS;
		time.tv_sec = (time_t)(left_ns / UINT64_C(1000000000));
		time.tv_nsec = (long)(left_ns % UINT64_C(1000000000));
		(void)gai_suspend(list, 1, &time);
	}
	return r;
}

int cei_store_resolve(struct cei_report *report, const struct cei_store_place *place,
		      uint64_t deadline_ns, struct cei_store_addresses *ret_addresses)
{
	struct gaicb *list[1];
	struct query *query;
	int r;

	if (!take_figures(place, ret_addresses))
		return 0;
	query = query_of(place);
	if (!query)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0, "no memory to look up %s",
				 place->host);
	list[0] = &query->query;
	r = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
	if (!r)
		r = await_query(query, deadline_ns);
	if (r == EAI_INPROGRESS && gai_cancel(&query->query) != EAI_CANCELED) {
		r = gai_error(&query->query);
		if (r == EAI_INPROGRESS)        /* the C library still uses the query */
			query = NULL;
	}
	if (r == EAI_INPROGRESS || r == EAI_CANCELED) {
		free(query);
		return cei_raise(report, CEOV_ERR_TIMEOUT, 0, "the address of %s, where process "
				 "0 is, was not found in time: does the name server answer?",
				 place->host);
	}
	if (!r) {
		take_addresses(query->query.ar_result, ret_addresses);
		freeaddrinfo(query->query.ar_result);
	}
	free(query);
	if (!r && ret_addresses->n)
		return 0;
	return cei_raise(report, CEOV_ERR_SYSTEM, r == EAI_SYSTEM ? errno : 0,
			 "the address of %s, where process 0 is, cannot be found: %s",
			 place->host, r ? gai_strerror(r) : "it has none");
}

void cei_store_address_of(const char *path, struct cei_store_addresses *ret_addresses)
{
	struct sockaddr_un *address = (void *)&ret_addresses->all[0];

	ret_addresses->n = 1;
	ret_addresses->n_bytes[0] = sizeof(*address);
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path, path, strlen(path));
}

/* --- connections ------------------------------------------------------------------- */

static int is_loopback(const char *host)
{
	return !strcmp(host, "localhost") || !strcmp(host, "127.0.0.1") || !strcmp(host, "::1");
}

/* Returns 0 or an errno. */
static int listen_at(const struct sockaddr *address, socklen_t n_bytes, int *ret_fd)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1, off = 0;
	int error;

	if (fd < 0)
		return errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->sa_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(fd, address, n_bytes) && !listen(fd, BACKLOG)) {
		*ret_fd = fd;
		return 0;
	}
	error = errno;
	close(fd);
	return error;
}

int cei_store_listen(const struct cei_store_place *place, int *ret_fd)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(place->port),
				    .sin6_addr = IN6ADDR_ANY_INIT };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(place->port) };
	int error = EAFNOSUPPORT;

	if (!strcmp(place->host, "::1"))
		six.sin6_addr = in6addr_loopback;
	four.sin_addr.s_addr = htonl(is_loopback(place->host) ? INADDR_LOOPBACK : INADDR_ANY);
	if (!is_loopback(place->host) || !strcmp(place->host, "::1"))
		error = listen_at((const void *)&six, sizeof(six), ret_fd);
	if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL)    /* there is no IPv6 here */
		error = listen_at((const void *)&four, sizeof(four), ret_fd);
	return error;
}

int cei_store_wait(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	uint64_t now_ns, left_ns;
	int n;

	for (;;) {
		now_ns = cei_now_ns();
		left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
		if (left_ns > POLL_MAX_NS)
			left_ns = POLL_MAX_NS;
		n = poll(&poll_fd, 1, (int)((left_ns + 999999) / 1000000));
		if (n > 0)
			return 0;
		if (!left_ns)
			return CEOV_NONE;
	}
}

static int connect_by(int fd, const struct sockaddr *address, socklen_t n_bytes,
		      uint64_t deadline_ns)
{
	socklen_t n_error = sizeof(int);
	int error = 0;

	if (!connect(fd, address, n_bytes))
		return 0;
	if (errno != EINPROGRESS && errno != EINTR)
		return errno;
	if (cei_store_wait(fd, POLLOUT, deadline_ns))
		return ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n_error))
		return errno;
	return error;
}

/* Returns whether the socket is connected to itself, which happens where nobody listens and the
 * kernel gave the socket that very port. */
static int is_self(int fd)
{
	struct sockaddr_storage own = { 0 }, other = { 0 };
	socklen_t n_own = sizeof(own), n_other = sizeof(other);

	return !getsockname(fd, (void *)&own, &n_own) &&
	       !getpeername(fd, (void *)&other, &n_other) && n_own == n_other &&
	       !memcmp(&own, &other, n_own);
}

int cei_store_connect(const struct cei_store_addresses *addresses, uint32_t index,
		      uint64_t deadline_ns, int *ret_fd)
{
	const struct sockaddr *address = (const void *)&addresses->all[index];
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;
	int error;

	if (fd < 0)
		return errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	error = connect_by(fd, address, addresses->n_bytes[index], deadline_ns);
	if (!error && is_self(fd))
		error = ECONNREFUSED;
	if (error)
		close(fd);
	else
		*ret_fd = fd;
	return error;
}

/* --- messages ---------------------------------------------------------------------- */

int cei_store_send(int fd, const void *bytes, uint64_t n_bytes, uint64_t deadline_ns)
{
	const uint8_t *at = bytes;
	ssize_t n;

	while (n_bytes) {
		n = send(fd, at, (size_t)n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0) {
			at += n;
			n_bytes -= (uint64_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return errno;
		if (errno == EAGAIN && cei_store_wait(fd, POLLOUT, deadline_ns))
			return ETIMEDOUT;
	}
	return 0;
}

/* Receives up to n_bytes, and what comes beside them. Returns CEOV_NONE or CEOV_ERR_PEER_LOST where
 * there are none. */
static int receive_some(int fd, struct cei_store_inbox *inbox, uint8_t *bytes, uint64_t n_bytes)
{
	struct cei_datagram part = { bytes, (size_t)n_bytes, inbox->fds + inbox->n_fds,
				     CEI_STORE_FDS_MAX - inbox->n_fds };
	int r = cei_datagram_receive(fd, &part);

	if (r)
		return r;
	inbox->n_fds += part.n_fds;
	inbox->n_got += part.n_bytes;
	return 0;
}

/* Decodes the complete head and makes room for the body. */
static int open_body(const struct cei_store_expected *expected, struct cei_store_inbox *inbox)
{
	int r = cei_store_get_head(inbox->head_bytes, expected->n_processes, &inbox->message);

	if (r)
		return r;
	if (!(expected->types & 1u << inbox->message.type))
		return CEOV_ERR_INVALID;
	inbox->body = malloc(inbox->message.n_bytes ? (size_t)inbox->message.n_bytes : 1);
	return inbox->body ? 0 : CEOV_ERR_NO_MEMORY;
}

int cei_store_receive(int fd, const struct cei_store_expected *expected,
		      struct cei_store_inbox *inbox)
{
	uint64_t n_body;
	int r;

	while (inbox->n_got < CEI_STORE_HEAD_BYTES) {
		r = receive_some(fd, inbox, inbox->head_bytes + inbox->n_got,
				 CEI_STORE_HEAD_BYTES - inbox->n_got);
		if (r)
			return r;
	}
	if (!inbox->body) {
		r = open_body(expected, inbox);
		if (r)
			return r;
	}
	while ((n_body = inbox->n_got - CEI_STORE_HEAD_BYTES) < inbox->message.n_bytes) {
		r = receive_some(fd, inbox, inbox->body + n_body, inbox->message.n_bytes - n_body);
		if (r)
			return r;
	}
	return cei_store_get_body(inbox->body, &inbox->message);
}

void cei_store_inbox_clear(struct cei_store_inbox *inbox)
{
	while (inbox->n_fds)
		close(inbox->fds[--inbox->n_fds]);
	free(inbox->body);
	memset(inbox, 0, sizeof(*inbox));
}
