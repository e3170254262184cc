/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * An exchange by a TCP server in process 0, which torchrun's variables name: the port after
 * MASTER_PORT, where PyTorch's own store is; or at a path, where processes of a node get links to
 * each other. This file reads the variables, and does what the other processes do: connect, say who
 * they are, send their bytes, and wait for those of all, or for links.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"
#include "base/variables.h"
#include "net/exchange_numbers.h"
#include "net/means.h"
#include "net/store_server.h"
#include "net/store_socket.h"

#define PAUSE_MIN_NS   UINT64_C(1000000)
#define PAUSE_MAX_NS   UINT64_C(100000000)
#define CONNECT_MAX_NS UINT64_C(2000000000)     /* of one try, whose packets may get lost */

/* One of the two, by whether this is process 0. */
struct store {
	struct cei_store_server   *server;
	struct cei_store_addresses addresses;
	int                        fd;          /* connected to process 0 and told JOINED; or -1 */
	struct cei_store_inbox     inbox;
};

/* --- the environment --------------------------------------------------------------- */

/* Fills where from MASTER_ADDR and MASTER_PORT. Returns 1; 0: they are not set. */
static int where_of_torchrun(struct cei_exchange *exchange)
{
	const char *host = secure_getenv("MASTER_ADDR"), *port = secure_getenv("MASTER_PORT");
	char where[CEI_WHERE_BYTES];
	uint64_t number = 0;
	int is_six, n, r;

	if (!host || !*host || !port || !*port)
		return 0;
	r = cei_variable_number(exchange->config.report, "MASTER_PORT", 65534, &number);
	if (r)
		return r;
	is_six = strchr(host, ':') != NULL;
	n = snprintf(where, sizeof(where), "%s%s%s:%u", is_six ? "[" : "", host,
		     is_six ? "]" : "", (unsigned)number + 1);
	if (n < 0 || (size_t)n >= sizeof(where))
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				 "MASTER_ADDR is longer than any host's name");
	r = cei_exchange_where(exchange, where);
	return r ? r : 1;
}

/* torchrun starts the processes of a job anew when one has failed; then the count rises. */
static int job_of_torchrun(struct cei_exchange *exchange)
{
	const char *id = secure_getenv("TORCHELASTIC_RUN_ID");
	const char *count = secure_getenv("TORCHELASTIC_RESTART_COUNT");
	char job[CEI_JOB_BYTES];
	int n;

	if (!id)
		return cei_exchange_job(exchange, NULL);
	n = snprintf(job, sizeof(job), "%s.%s", id, count ? count : "0");
	if (n < 0 || (size_t)n >= sizeof(job))
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				 "TORCHELASTIC_RUN_ID is too long: name the job (CEOVERLAP_JOB)");
	return cei_exchange_job(exchange, job);
}

/* The address is given by config, by CEOVERLAP_STORE, or by torchrun. */
static int detect(struct cei_exchange *exchange)
{
	const char *where = exchange->config.where;
	int r;

	if (!where)
		where = secure_getenv("CEOVERLAP_STORE");
	if (where && *where)
		r = cei_exchange_where(exchange, where) ? CEOV_ERR_INVALID : 1;
	else
		r = where_of_torchrun(exchange);
	if (r > 0)
		r = cei_exchange_numbers(exchange);
	if (r <= 0)
		return r;
	r = job_of_torchrun(exchange);
	return r ? r : 1;
}

/* --- the connection to process 0 --------------------------------------------------- */

static int raise_store(const struct cei_exchange *exchange, int error, int native_code,
		       const char *what)
{
	struct ceov_failure failure = cei_exchange_failure(exchange, exchange->first, error,
							   native_code);
	const struct cei_gathered_words *words = cei_exchange_words(exchange);

	return cei_raise_failure(exchange->config.report, &failure, "%s %u's %s %s: %s",
				 words->one, exchange->first, words->at, exchange->where, what);
}

/* Waits for a message of one of these types. CEOV_NONE: the deadline passed. CEOV_ERR_PEER_LOST:
 * the connection has ended. Neither is raised; other errors are. */
static int await(struct cei_exchange *exchange, int fd, uint32_t types, uint64_t deadline_ns)
{
	const struct cei_store_expected expected = { exchange->n_processes,
						     types | 1u << CEI_STORE_REFUSE };
	struct store *store = exchange->private;
	const struct cei_gathered_words *words = cei_exchange_words(exchange);
	const struct cei_store_message *message = &store->inbox.message;
	int r;

	for (;;) {
		r = cei_store_receive(fd, &expected, &store->inbox);
		if (r != CEOV_NONE)
			break;
		if (cei_store_wait(fd, POLLIN, deadline_ns))
			return CEOV_NONE;
	}
	if (r == CEOV_ERR_PEER_LOST)
		return r;
	if (r == CEOV_ERR_VERSION)
		return cei_raise(exchange->config.report, r, 0, "%s %u's %s %s has version %u of "
				 "the protocol, %s %u has version %u: install one version of "
				 "ceoverlap", words->one, exchange->first, words->at,
				 exchange->where, message->version, words->one, exchange->process,
				 CEI_STORE_VERSION);
	if (r == CEOV_ERR_NO_MEMORY)
		return raise_store(exchange, r, 0, "no memory for its message");
	if (r)
		return raise_store(exchange, CEOV_ERR_INVALID, 0, "who listens there is no store "
				   "of ceoverlap; choose another address (CEOVERLAP_STORE, "
				   "CEOVERLAP_GROUP)");
	if (message->type != CEI_STORE_REFUSE)
		return 0;
	return cei_raise(exchange->config.report, message->refuse.error, 0, "%s %u at %s says: %s",
			 words->one, exchange->first, exchange->where, message->refuse.text);
}

/* Connects to one of the addresses. Returns 0 or the errno of the last one. */
static int connect_any(struct store *store, uint64_t deadline_ns, int *ret_fd)
{
	uint64_t try_by_ns;
	uint32_t i;
	int error = ETIMEDOUT;

	for (i = 0; i < store->addresses.n; i++) {
		try_by_ns = cei_deadline(CONNECT_MAX_NS);
		error = cei_store_connect(&store->addresses, i,
					  try_by_ns < deadline_ns ? try_by_ns : deadline_ns,
					  ret_fd);
		if (!error)
			break;
	}
	return error;
}

/* Who listens at a path has to be of this user, and there is nothing to wait for if it cannot be
 * connected to. 0; CEOV_NONE: try again; other errors are raised. */
static int check_path(const struct cei_exchange *exchange, int error, int fd)
{
	uint32_t uid = 0;

	if (!exchange->site)
		return error ? CEOV_NONE : 0;
	if (error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == ECONNRESET)
		return CEOV_NONE;
	if (!error)
		error = cei_peer_uid(fd, &uid);
	if (error)
		return cei_raise(exchange->config.report, CEOV_ERR_SYSTEM, error, "group at %s: "
				 "cannot connect: %s", exchange->where, strerror(error));
	if (uid == (uint32_t)geteuid())
		return 0;
	return cei_raise(exchange->config.report, CEOV_ERR_STATE, 0, "group at %s: user %u listens "
			 "there, and this process is of user %u", exchange->where, uid,
			 (unsigned)geteuid());
}

static struct cei_store_message hello_of(const struct cei_exchange *exchange)
{
	struct cei_store_message hello = {
		.type = CEI_STORE_HELLO,
		.hello = { .n_processes = exchange->n_processes,
			   .party = { 1, { exchange->process } },
			   .n_job = (uint32_t)strlen(exchange->job) },
	};

	memcpy(hello.hello.job, exchange->job, hello.hello.n_job);
	if (exchange->site)
		cei_party_of_site(exchange->site, &hello.hello.party);
	return hello;
}

/* Says hello. CEOV_NONE and other errors as below. */
static int say_hello(struct cei_exchange *exchange, int fd, uint64_t deadline_ns, int *ret_error)
{
	const struct cei_store_message hello = hello_of(exchange);
	struct store *store = exchange->private;
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	int r;

	cei_store_inbox_clear(&store->inbox);
	*ret_error = cei_store_send(fd, bytes, cei_encode(&cei_store_protocol, &hello, bytes),
				    deadline_ns);
	/* who was refused before it said anything still hears why */
	if (*ret_error && *ret_error != EPIPE && *ret_error != ECONNRESET)
		return CEOV_NONE;
	r = await(exchange, fd, 1u << CEI_STORE_JOINED, deadline_ns);
	cei_store_inbox_clear(&store->inbox);
	*ret_error = r == CEOV_ERR_PEER_LOST ? ECONNRESET : ETIMEDOUT;
	return r == CEOV_ERR_PEER_LOST ? CEOV_NONE : r;
}

/* Connects and says hello. 0; CEOV_NONE: try again, *ret_error says why; other errors are
 * raised. */
static int try_join(struct cei_exchange *exchange, uint64_t deadline_ns, int *ret_error)
{
	struct store *store = exchange->private;
	int fd = -1, r;

	*ret_error = connect_any(store, deadline_ns, &fd);
	r = check_path(exchange, *ret_error, fd);
	if (!r)
		r = say_hello(exchange, fd, deadline_ns, ret_error);
	if (!r)
		store->fd = fd;
	else if (fd >= 0)
		close(fd);
	return r;
}

static int join(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	const struct cei_gathered_words *words = cei_exchange_words(exchange);
	uint64_t pause_ns = PAUSE_MIN_NS;
	struct timespec pause = { .tv_sec = 0 };
	struct ceov_failure failure;
	int error, r;

	while ((r = try_join(exchange, deadline_ns, &error)) == CEOV_NONE) {
		if (cei_now_ns() >= deadline_ns) {
			failure = cei_exchange_failure(exchange, exchange->first,
						       CEOV_ERR_TIMEOUT, error);
			return cei_raise_failure(exchange->config.report, &failure, "%s %u has not "
						 "come to the %s %s in time (the last try to "
						 "connect: %s)", words->one, exchange->first,
						 words->at, exchange->where, strerror(error));
		}
		pause.tv_nsec = (long)pause_ns;
		nanosleep(&pause, NULL);
		if (pause_ns < PAUSE_MAX_NS)
			pause_ns *= 2;
	}
	return r;
}

static int send_part(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		     uint64_t deadline_ns)
{
	struct store *store = exchange->private;
	const struct cei_store_message part = {
		.type = CEI_STORE_PART, .part = { exchange->n_rounds, n_bytes, own },
	};
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	int error = cei_store_send(store->fd, bytes,
				   cei_encode(&cei_store_protocol, &part, bytes), deadline_ns);

	if (!error && n_bytes)
		error = cei_store_send(store->fd, own, n_bytes, deadline_ns);
	if (!error || error == EPIPE || error == ECONNRESET)
		return 0;               /* process 0 may have said why before it closed */
	return raise_store(exchange, error == ETIMEDOUT ? CEOV_ERR_TIMEOUT : CEOV_ERR_SYSTEM,
			   error, strerror(error));
}

static int take_all(struct cei_exchange *exchange, struct cei_gathered *ret_gathered)
{
	struct store *store = exchange->private;
	int r = cei_store_get_all(&store->inbox.message.all, exchange->n_rounds,
				  exchange->n_processes, ret_gathered);

	if (!r)
		return 0;
	return raise_store(exchange, r, 0, "what it sent as the bytes of all cannot be taken");
}

/* Waits for an answer, a little longer than the deadline, because process 0 knows who is missing.
 * Errors are raised. */
static int await_answer(struct cei_exchange *exchange, uint32_t types, uint64_t deadline_ns)
{
	struct store *store = exchange->private;
	char what[80];
	int r;

	if (deadline_ns < CEI_FOREVER - CEI_EXCHANGE_GRACE_NS)
		deadline_ns += CEI_EXCHANGE_GRACE_NS;
	r = await(exchange, store->fd, types, deadline_ns);
	if (r != CEOV_NONE && r != CEOV_ERR_PEER_LOST)
		return r;
	snprintf(what, sizeof(what), "%s %u has %s", cei_exchange_words(exchange)->one,
		 exchange->first, r == CEOV_NONE ? "not answered in time" :
		 "ended before all had come");
	return raise_store(exchange, r == CEOV_NONE ? CEOV_ERR_TIMEOUT : r, 0, what);
}

static int ask(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
	       uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	struct store *store = exchange->private;
	int r = 0;

	if (store->fd < 0)
		r = join(exchange, deadline_ns);
	if (!r)
		r = send_part(exchange, own, n_bytes, deadline_ns);
	if (r)
		return r;
	r = await_answer(exchange, 1u << CEI_STORE_ALL, deadline_ns);
	if (!r)
		r = take_all(exchange, ret_gathered);
	cei_store_inbox_clear(&store->inbox);
	return r;
}

/* --- links ------------------------------------------------------------------------- */

/* Returns whether nobody is awaited for a rank: it is of another node, of this process, or of one
 * to which there is a link. */
static int is_settled(const struct cei_site *site, const struct cei_links *links, uint32_t rank)
{
	struct cei_party own;
	uint32_t i;

	if (!cei_site_is_local(site, rank))
		return 1;
	cei_party_of_site(site, &own);
	if (cei_party_has(&own, rank))
		return 1;
	for (i = 0; i < links->n_links; i++)
		if (cei_party_has(&links->links[i].party, rank))
			return 1;
	return 0;
}

/* Takes the link that has come. */
static int take_link(struct cei_exchange *exchange, struct cei_links *links)
{
	struct store *store = exchange->private;
	struct cei_store_inbox *inbox = &store->inbox;
	const struct cei_party *party = &inbox->message.link;
	uint32_t i;

	if (!inbox->n_fds)
		return raise_store(exchange, CEOV_ERR_SYSTEM, EMFILE, "a link to another rank did "
				   "not arrive; has this process free descriptors? (ulimit -n)");
	for (i = 0; i < party->n_ranks; i++)
		if (is_settled(exchange->site, links, party->ranks[i]))
			break;
	if (i < party->n_ranks || inbox->n_fds > 2 || cei_party_has_twice(party))
		return raise_store(exchange, CEOV_ERR_INVALID, 0, "it sent a link that makes no "
				   "sense");
	links->links[links->n_links++] = (struct cei_node_link){
		*party, inbox->fds[0], inbox->n_fds > 1 ? inbox->fds[1] : -1
	};
	inbox->n_fds = 0;
	return 0;
}

static int check_complete(const struct cei_exchange *exchange, const struct cei_links *links)
{
	uint32_t rank;

	for (rank = 0; rank < exchange->site->n_ranks; rank++)
		if (!is_settled(exchange->site, links, rank))
			return raise_store(exchange, CEOV_ERR_INVALID, 0, "it left ranks out");
	return 0;
}

/* Receives links until all have come. */
static int collect_links(struct cei_exchange *exchange, uint64_t deadline_ns,
			 struct cei_links *ret_links)
{
	const uint32_t types = 1u << CEI_STORE_LINK | 1u << CEI_STORE_JOINED;
	struct store *store = exchange->private;
	int r, is_done;

	do {
		r = await_answer(exchange, types, deadline_ns);
		is_done = store->inbox.message.type == CEI_STORE_JOINED;
		if (!r && !is_done)
			r = take_link(exchange, ret_links);
		cei_store_inbox_clear(&store->inbox);
	} while (!r && !is_done);
	return r ? r : check_complete(exchange, ret_links);
}

int cei_exchange_links(struct cei_exchange *exchange, uint64_t deadline_ns,
		       struct cei_links *ret_links)
{
	struct store *store = exchange->private;
	int r;

	ret_links->n_links = 0;
	if (store->server) {
		r = cei_store_server_link(store->server, deadline_ns, ret_links);
	} else {
		r = join(exchange, deadline_ns);
		if (!r)
			r = collect_links(exchange, deadline_ns, ret_links);
	}
	if (r)
		cei_links_close(ret_links);
	return r;
}

/* --- both -------------------------------------------------------------------------- */

static int resolve(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	struct store *store = exchange->private;
	struct cei_store_place place;

	if (exchange->site) {
		cei_store_address_of(exchange->where, &store->addresses);
		return 0;
	}
	if (cei_store_place(exchange->where, &place))
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0, "the store's "
				 "address is '%s', must be host:port or [address]:port",
				 exchange->where);
	return cei_store_resolve(exchange->config.report, &place, deadline_ns,
				 &store->addresses);
}

/* Somebody listens already where process 0 is to listen: if that is a process 0 as well, both hear
 * of each other. Returns an error, raised. */
static int meet_twin(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	uint64_t least_ns = cei_deadline(CEI_EXCHANGE_GRACE_NS);
	uint64_t by_ns = cei_deadline(CONNECT_MAX_NS);
	struct store *store = exchange->private;
	int error, r;

	if (by_ns > deadline_ns)
		by_ns = deadline_ns > least_ns ? deadline_ns : least_ns;
	r = resolve(exchange, by_ns);
	if (!r)
		r = try_join(exchange, by_ns, &error);
	if (r < 0)
		return r;
	if (!r)
		close(store->fd);
	return cei_raise(exchange->config.report, exchange->site ? CEOV_ERR_STATE : CEOV_ERR_SYSTEM,
			 EADDRINUSE, "process 0 cannot listen at %s, because another %s does; "
			 "choose %s", exchange->where, exchange->site ? "group" : "program",
			 cei_exchange_words(exchange)->other);
}

static int open_exchange(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	struct store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to connect to the store");
	store->fd = -1;
	exchange->private = store;
	if (exchange->process == exchange->first)
		r = cei_store_server_open(exchange, deadline_ns, &store->server);
	else
		r = resolve(exchange, deadline_ns);
	if (r == CEOV_NONE)
		r = meet_twin(exchange, deadline_ns);
	if (r)
		free(store);
	return r;
}

static int all_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		      uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	struct store *store = exchange->private;

	if (store->server)
		return cei_store_server_gather(store->server, own, n_bytes, deadline_ns,
					       ret_gathered);
	return ask(exchange, own, n_bytes, deadline_ns, ret_gathered);
}

static void close_exchange(struct cei_exchange *exchange)
{
	struct store *store = exchange->private;

	if (store->server)
		cei_store_server_close(store->server);
	if (store->fd >= 0)
		close(store->fd);
	cei_store_inbox_clear(&store->inbox);
	free(store);
}

const struct cei_exchange_ops cei_exchange_store = {
	.name = "store",
	.detect = detect,
	.open = open_exchange,
	.all_gather = all_gather,
	.close = close_exchange,
};
