/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/store_server_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"

#define HELLO_WAIT_NS UINT64_C(1000000000)
#define BIND_WAIT_NS  UINT64_C(2000000000)
#define OTHER_FDS     64u               /* descriptors that the application may have open */
#define EVENTS_MAX    64
#define TOLD_MAX      8u                /* refused processes that get a log line */

/* --- connections ------------------------------------------------------------------- */

static int is_stranger(const struct cei_store_guest *guest)
{
	return !guest->party.n_ranks;
}

void cei_store_close_guest(struct cei_store_server *server, struct cei_store_guest *guest)
{
	uint32_t i, number;

	server->n_strangers -= (uint32_t)is_stranger(guest);
	for (i = 0; i < guest->party.n_ranks; i++) {
		number = guest->party.ranks[i];
		server->guests[number] = NULL;
		server->n_has -= server->has[number];
		server->has[number] = 0;
	}
	close(guest->fd);
	guest->fd = -1;
	cei_store_inbox_clear(&guest->inbox);
	cei_list_remove(&guest->link);
	cei_list_append(&server->gone, &guest->link);
}

static void free_gone(struct cei_store_server *server)
{
	struct cei_list *node;

	while ((node = cei_list_take(&server->gone)))
		free(CEI_OWNER(node, struct cei_store_guest, link));
}

/* Sends a refusal, if the socket takes it at once. */
static void refuse(const struct cei_store_guest *guest, int error, const char *text)
{
	struct cei_store_message message = { .type = CEI_STORE_REFUSE, .refuse.error = error };
	uint8_t bytes[CEI_STORE_SMALL_BYTES];

	snprintf(message.refuse.text, sizeof(message.refuse.text), "%s", text);
	(void)cei_store_send(guest->fd, bytes, cei_encode(&cei_store_protocol, &message, bytes),
			     0);
}

/* Refuses a process, logs it, because the group then waits for it in vain, and closes. */
static void __attribute__((format(printf, 4, 5)))
turn_away(struct cei_store_server *server, struct cei_store_guest *guest, int error,
	  const char *format, ...)
{
	char text[CEI_STORE_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	refuse(guest, error, text);
	if (server->n_refused++ < TOLD_MAX)
		cei_log(server->report, CEI_LOG_WARN, "%s %s: a process was refused: %s",
			server->words->at, server->exchange->where, text);
	cei_store_close_guest(server, guest);
}

/* At a path no other user may come, which the socket's mode sees to unless that one is root. */
static void check_user(struct cei_store_server *server, struct cei_store_guest *guest)
{
	uint32_t uid;

	if (!server->exchange->site ||
	    (!cei_peer_uid(guest->fd, &uid) && uid == (uint32_t)geteuid()))
		return;
	turn_away(server, guest, CEOV_ERR_STATE, "it is of another user than rank %u's process, "
		  "user %u", server->exchange->first, (unsigned)geteuid());
}

/* Returns an errno. */
static int accept_guest(struct cei_store_server *server)
{
	int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct epoll_event event = { .events = EPOLLIN };
	struct cei_store_guest *guest;
	int error = errno;

	if (fd < 0)
		return error;
	guest = calloc(1, sizeof(*guest));
	if (!guest) {
		close(fd);
		return ENOMEM;
	}
	guest->fd = fd;
	guest->hello_by_ns = cei_deadline(HELLO_WAIT_NS);
	event.data.ptr = guest;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		error = errno;
		close(fd);
		free(guest);
		return error;
	}
	cei_list_append(&server->strangers, &guest->link);
	server->n_strangers++;
	check_user(server, guest);
	return 0;
}

/* NULL: there is none. */
static struct cei_store_guest *first_of(const struct cei_list *guests)
{
	return cei_list_is_empty(guests) ? NULL :
		CEI_OWNER(guests->next, struct cei_store_guest, link);
}

static struct cei_store_guest *oldest_stranger(const struct cei_store_server *server)
{
	return first_of(&server->strangers);
}

/* Accepts who waits. Where there is no room, the oldest stranger makes some. */
static void accept_guests(struct cei_store_server *server)
{
	uint32_t i;
	int error;

	for (i = 0; i < CEI_STORE_STRANGERS_MAX; i++) {
		if (server->n_strangers == CEI_STORE_STRANGERS_MAX)
			cei_store_close_guest(server, oldest_stranger(server));
		error = accept_guest(server);
		if (!error || error == EINTR || error == ECONNABORTED)
			continue;
		if (error == EAGAIN)
			return;
		if (oldest_stranger(server)) {
			cei_store_close_guest(server, oldest_stranger(server));
			continue;
		}
		server->error = cei_raise(server->report, CEOV_ERR_SYSTEM, error,
					  "%s %s: cannot accept another process: %s (are there "
					  "free descriptors? ulimit -n)", server->words->at,
					  server->exchange->where, strerror(error));
		return;
	}
}

/* --- what processes say ------------------------------------------------------------ */

/* Writes who is missing, and which number came twice. Returns how many are missing. */
static uint32_t say_missing(const struct cei_store_server *server, char *ret_text, size_t n_bytes)
{
	char missing[CEI_MISSING_TEXT_BYTES];
	uint32_t n = cei_missing_text(server->words, server->has, server->exchange->n_processes,
				      missing);
	int at = snprintf(ret_text, n_bytes, "%s missing", missing);

	if (server->twin != CEOV_NOBODY)
		snprintf(ret_text + at, n_bytes - (size_t)at,
			 ", and two processes say that they %s %u", server->words->are,
			 server->twin);
	return n;
}

/* Checks a number that a process says. Returns whether it fits; else the process was turned
 * away. */
static int check_number(struct cei_store_server *server, struct cei_store_guest *guest,
			uint32_t number)
{
	const struct cei_gathered_words *words = server->words;
	const struct cei_exchange *own = server->exchange;

	if (number >= own->n_processes)
		turn_away(server, guest, CEOV_ERR_INVALID, "%s %u is out of range: the group has "
			  "%u %s", words->one, number, own->n_processes, words->many);
	else if (own->site && !cei_site_is_local(own->site, number))
		turn_away(server, guest, CEOV_ERR_INVALID, "rank %u is of another node", number);
	else if (!server->guests[number] && !server->has[number])
		return 1;
	else {
		server->twin = number;
		turn_away(server, guest, CEOV_ERR_STATE, "two processes say that they %s %u of "
			  "%u: check how they are numbered, or choose %s", words->are, number,
			  own->n_processes, words->other);
	}
	return 0;
}

/* Returns whether the HELLO fits; else the process was turned away. */
static int check_hello(struct cei_store_server *server, struct cei_store_guest *guest,
		       const struct cei_store_hello *hello)
{
	const struct cei_gathered_words *words = server->words;
	const struct cei_exchange *own = server->exchange;
	const struct cei_party *party = &hello->party;
	uint32_t i;

	if (hello->n_job != strlen(own->job) || memcmp(hello->job, own->job, hello->n_job)) {
		/* without the job's name, which a stranger could use */
		turn_away(server, guest, CEOV_ERR_INVALID, "process %u is of another job than "
			  "process 0: is the job's name the same (CEOVERLAP_JOB)?",
			  party->ranks[0]);
		return 0;
	}
	if (hello->n_processes != own->n_processes) {
		turn_away(server, guest, CEOV_ERR_INVALID, "%s %u says the group has %u %s, %s %u "
			  "says %u", words->one, party->ranks[0], hello->n_processes, words->many,
			  words->one, own->first, own->n_processes);
		return 0;
	}
	if (cei_party_has_twice(party) || (party->n_ranks > 1 && !own->site)) {
		cei_store_close_guest(server, guest);
		return 0;
	}
	for (i = 0; i < party->n_ranks; i++)
		if (!check_number(server, guest, party->ranks[i]))
			return 0;
	return 1;
}

static void take_part_of(struct cei_store_server *server, struct cei_store_guest *guest)
{
	uint32_t i;

	guest->has_part = 1;
	for (i = 0; i < guest->party.n_ranks; i++)
		server->has[guest->party.ranks[i]] = 1;
	server->n_has += guest->party.n_ranks;
}

static void welcome(struct cei_store_server *server, struct cei_store_guest *guest)
{
	static const struct cei_store_message joined = { .type = CEI_STORE_JOINED };
	struct cei_store_hello hello = guest->inbox.message.hello;
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	uint32_t i;

	if (!check_hello(server, guest, &hello))
		return;
	cei_store_inbox_clear(&guest->inbox);
	if (cei_store_send(guest->fd, bytes, cei_encode(&cei_store_protocol, &joined, bytes), 0)) {
		cei_store_close_guest(server, guest);
		return;
	}
	guest->party = hello.party;
	for (i = 0; i < hello.party.n_ranks; i++)
		server->guests[hello.party.ranks[i]] = guest;
	server->n_strangers--;
	cei_list_remove(&guest->link);
	cei_list_append(&server->joined, &guest->link);
	if (server->exchange->site)             /* it has nothing more to say */
		take_part_of(server, guest);
}

static void take_part(struct cei_store_server *server, struct cei_store_guest *guest)
{
	if (guest->inbox.message.part.round != server->exchange->n_rounds) {
		turn_away(server, guest, CEOV_ERR_INVALID, "process %u is in another exchange "
			  "than process 0", guest->party.ranks[0]);
		return;
	}
	take_part_of(server, guest);
}

/* A connection has ended, or sends what it must not. Before all have come, the process may
 * connect again. */
static void lose(struct cei_store_server *server, struct cei_store_guest *guest)
{
	const char *at = server->words->at, *where = server->exchange->where;
	uint32_t number = guest->party.ranks[0];
	int was_stranger = is_stranger(guest);

	cei_store_close_guest(server, guest);
	if (was_stranger)
		return;
	if (server->listen_fd < 0 && !server->error)
		server->error = cei_raise(server->report, CEOV_ERR_PEER_LOST, 0,
					  "%s %s: %s %u has ended", at, where, server->words->one,
					  number);
	else if (server->n_refused++ < TOLD_MAX)
		cei_log(server->report, CEI_LOG_WARN, "%s %s: %s %u left again before all had "
			"come", at, where, server->words->one, number);
}

static void hear(struct cei_store_server *server, struct cei_store_guest *guest)
{
	const struct cei_store_expected expected = {
		.n_processes = server->exchange->n_processes,
		.types = 1u << (is_stranger(guest) ? CEI_STORE_HELLO : CEI_STORE_PART),
	};
	int r;

	/* A process that has sent its part says nothing until it is answered. So an event means
	 * that it has disconnected, or that it does not keep to the protocol. */
	if (guest->has_part) {
		lose(server, guest);
		return;
	}
	r = cei_store_receive(guest->fd, &expected, &guest->inbox);
	if (r == CEOV_NONE)
		return;
	if (r == CEOV_ERR_VERSION)
		turn_away(server, guest, r, "a process has version %u of the store's protocol, "
			  "%s %u has version %u: install one version of ceoverlap",
			  guest->inbox.message.version, server->words->one,
			  server->exchange->first, CEI_STORE_VERSION);
	else if (r)
		lose(server, guest);
	else if (is_stranger(guest))
		welcome(server, guest);
	else
		take_part(server, guest);
}

/* --- gathering --------------------------------------------------------------------- */

/* Closes connections that have not said hello in time. Returns when to look again. */
static uint64_t close_silent(struct cei_store_server *server, uint64_t deadline_ns)
{
	uint64_t now_ns = cei_now_ns();
	struct cei_store_guest *guest;

	while ((guest = oldest_stranger(server)) && guest->hello_by_ns <= now_ns)
		cei_store_close_guest(server, guest);
	return guest && guest->hello_by_ns < deadline_ns ? guest->hello_by_ns : deadline_ns;
}

static int ms_until(uint64_t deadline_ns)
{
	uint64_t now_ns = cei_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

	return left_ns > UINT64_C(1000000000) ? 1000 : (int)((left_ns + 999999) / 1000000);
}

void cei_store_turn(struct cei_store_server *server, uint64_t deadline_ns,
		    void (*handle)(struct cei_store_server *, struct cei_store_guest *))
{
	struct epoll_event events[EVENTS_MAX];
	struct cei_store_guest *guest;
	int n, i;

	n = epoll_wait(server->epoll_fd, events, EVENTS_MAX, ms_until(deadline_ns));
	if (n < 0 && errno != EINTR)
		server->error = cei_raise(server->report, CEOV_ERR_SYSTEM, errno,
					  "%s %s: epoll_wait: %s", server->words->at,
					  server->exchange->where, strerror(errno));
	for (i = 0; i < n && !server->error; i++) {
		guest = events[i].data.ptr;
		if (!guest)
			accept_guests(server);
		else if (guest->fd >= 0)        /* not closed by an event before */
			handle(server, guest);
	}
	free_gone(server);
}

/* since_ns: since when they were awaited. Who was refused was told in a line of its own. */
static int raise_missing(const struct cei_store_server *server, uint64_t since_ns)
{
	const struct cei_exchange *exchange = server->exchange;
	char missing[CEI_STORE_TEXT_BYTES];
	struct ceov_failure failure;
	uint32_t first = 0;

	while (server->has[first])              /* somebody is missing */
		first++;
	failure = cei_exchange_failure(exchange, first, CEOV_ERR_TIMEOUT, 0);
	(void)say_missing(server, missing, sizeof(missing));
	return cei_raise_failure(server->report, &failure, "not all %s have come to the %s %s in "
				 "%.1f s: %s", server->words->many, server->words->at,
				 exchange->where, (double)(cei_now_ns() - since_ns) / 1e9, missing);
}

static int gather(struct cei_store_server *server, uint64_t deadline_ns)
{
	uint64_t since_ns = cei_now_ns();

	while (server->n_has < server->exchange->n_processes && !server->error) {
		if (cei_now_ns() >= deadline_ns)
			return raise_missing(server, since_ns);
		cei_store_turn(server, close_silent(server, deadline_ns), hear);
	}
	return server->error;
}

/* --- ending ------------------------------------------------------------------------ */

static void stop_listening(struct cei_store_server *server)
{
	while (oldest_stranger(server))
		cei_store_close_guest(server, oldest_stranger(server));
	free_gone(server);
	if (server->exchange->site)
		cei_store_path_close(&server->path, server->report);
	else if (server->listen_fd >= 0)
		close(server->listen_fd);
	server->listen_fd = -1;
	if (server->n_refused > TOLD_MAX)
		cei_log(server->report, CEI_LOG_WARN, "%s %s: %llu more were refused or left again",
			server->words->at, server->exchange->where,
			(unsigned long long)(server->n_refused - TOLD_MAX));
	server->n_refused = 0;
}

/* Tells all that have come that they wait in vain, and why. Returns the error. */
static int send_away(struct cei_store_server *server, int error)
{
	char text[CEI_STORE_TEXT_BYTES], missing[CEI_STORE_TEXT_BYTES - 40];
	struct cei_store_guest *guest;

	if (error == CEOV_ERR_TIMEOUT && say_missing(server, missing, sizeof(missing)))
		snprintf(text, sizeof(text), "not all %s have come in time: %s",
			 server->words->many, missing);
	else
		snprintf(text, sizeof(text), "it could not gather the group: %s; its log says more",
			 ceov_strerror(error));
	while ((guest = first_of(&server->joined))) {
		refuse(guest, error, text);
		cei_store_close_guest(server, guest);
	}
	free_gone(server);
	return error;
}

int cei_store_server_gather(struct cei_store_server *server, const void *own, uint32_t n_bytes,
			    uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	int r = gather(server, deadline_ns);

	stop_listening(server);
	if (!r)
		r = cei_store_put_together(server, own, n_bytes, ret_gathered);
	if (!r)
		r = cei_store_answer(server, ret_gathered, deadline_ns);
	if (!r)
		return 0;
	cei_gathered_fini(ret_gathered);
	return send_away(server, r);
}

int cei_store_server_link(struct cei_store_server *server, uint64_t deadline_ns,
			  struct cei_links *ret_links)
{
	int r = gather(server, deadline_ns);

	stop_listening(server);
	if (!r)
		r = cei_store_hand_out(server, deadline_ns, ret_links);
	return r ? send_away(server, r) : 0;
}

/* --- opening ----------------------------------------------------------------------- */

static int check_descriptors(const struct cei_exchange *exchange)
{
	uint64_t wanted = (uint64_t)exchange->n_processes + OTHER_FDS;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
		return 0;
	return cei_raise(exchange->config.report, CEOV_ERR_SYSTEM, EMFILE, "process 0 needs %llu "
			 "descriptors for %u processes and may have %llu: raise the limit "
			 "(ulimit -n)", (unsigned long long)wanted, exchange->n_processes,
			 (unsigned long long)limit.rlim_cur);
}

/* Tries again for a while where the address is in use: a process that looks for the store may
 * have been given its port. */
static int listen_at_port(struct cei_store_server *server, uint64_t deadline_ns)
{
	const struct cei_exchange *exchange = server->exchange;
	const struct timespec pause = { .tv_nsec = 20000000 };
	uint64_t bind_by_ns = cei_deadline(BIND_WAIT_NS);
	struct cei_store_place place;
	int error;

	if (cei_store_place(exchange->where, &place))
		return cei_raise(server->report, CEOV_ERR_INVALID, 0, "the store's address is "
				 "'%s', must be host:port or [address]:port", exchange->where);
	while ((error = cei_store_listen(&place, &server->listen_fd)) == EADDRINUSE &&
	       cei_now_ns() < bind_by_ns && cei_now_ns() < deadline_ns)
		nanosleep(&pause, NULL);
	if (!error || error == EADDRINUSE)
		return error ? CEOV_NONE : 0;
	return cei_raise(server->report, CEOV_ERR_SYSTEM, error, "process 0 cannot listen at port "
			 "%u for %s: %s", place.port, exchange->where, strerror(error));
}

static int listen_at_path(struct cei_store_server *server, uint64_t deadline_ns)
{
	int r = cei_store_path_open(&server->path, server->report, server->exchange->where,
				    deadline_ns);

	server->listen_fd = server->path.fd;
	return r;
}

static int start_listening(struct cei_store_server *server, uint64_t deadline_ns)
{
	struct epoll_event event = { .events = EPOLLIN };
	int r = server->exchange->site ? listen_at_path(server, deadline_ns) :
		listen_at_port(server, deadline_ns);

	if (r || !epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event))
		return r;
	return cei_raise(server->report, CEOV_ERR_SYSTEM, errno, "%s %s: epoll_ctl: %s",
			 server->words->at, server->exchange->where, strerror(errno));
}

/* Marks those for whom nobody waits: this process, and at a path who is of another node. */
static void mark_others(struct cei_store_server *server)
{
	const struct cei_exchange *exchange = server->exchange;
	const struct cei_site *site = exchange->site;
	struct cei_party own = { 1, { 0 } };
	uint32_t i;

	if (site)
		cei_party_of_site(site, &own);
	for (i = 0; i < exchange->n_processes; i++) {
		server->has[i] = cei_party_has(&own, i) || (site && !cei_site_is_local(site, i));
		server->n_has += server->has[i];
	}
}

static int make(struct cei_store_server *server)
{
	const struct cei_exchange *exchange = server->exchange;

	server->report = exchange->config.report;
	server->words = cei_exchange_words(exchange);
	cei_list_init(&server->strangers);
	cei_list_init(&server->joined);
	cei_list_init(&server->gone);
	server->listen_fd = -1;
	server->path.fd = -1;
	server->twin = CEOV_NOBODY;
	server->guests = calloc(exchange->n_processes, sizeof(struct cei_store_guest *));
	server->has = calloc(exchange->n_processes, 1);
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll_fd < 0)
		return cei_raise(server->report, CEOV_ERR_SYSTEM, errno, "the store cannot be "
				 "made: %s", strerror(errno));
	if (!server->guests || !server->has)
		return cei_raise(server->report, CEOV_ERR_NO_MEMORY, 0, "no memory for the store");
	mark_others(server);
	return 0;
}

int cei_store_server_open(const struct cei_exchange *exchange, uint64_t deadline_ns,
			  struct cei_store_server **ret_server)
{
	struct cei_store_server *server;
	int r = exchange->site ? 0 : check_descriptors(exchange);

	if (r)
		return r;
	server = calloc(1, sizeof(*server));
	if (!server)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for the store");
	server->exchange = exchange;
	r = make(server);
	if (!r)
		r = start_listening(server, deadline_ns);
	if (r)
		cei_store_server_close(server);
	else
		*ret_server = server;
	return r;
}

void cei_store_server_close(struct cei_store_server *server)
{
	stop_listening(server);
	while (first_of(&server->joined))
		cei_store_close_guest(server, first_of(&server->joined));
	free_gone(server);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	free(server->guests);
	free(server->has);
	free(server);
}
