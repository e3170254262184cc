/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * An exchange by a TCP server in process 0, which torchrun's variables name: the port after
 * MASTER_PORT, where PyTorch's own store is. This file reads the variables, and does what the
 * other processes do: connect, say who they are, send their bytes, and wait for those of all.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
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
	return cei_raise(exchange->config.report, error, native_code, "process 0's store at %s: "
			 "%s", exchange->where, what);
}

/* Waits for a message of one of these types. CEOV_NONE: the deadline passed. CEOV_ERR_PEER_LOST:
 * the connection has ended. Neither is raised; other errors are. */
static int await(struct cei_exchange *exchange, int fd, uint32_t types, uint64_t deadline_ns)
{
	const struct cei_store_expected expected = { exchange->n_processes,
						     types | 1u << CEI_STORE_REFUSE };
	struct store *store = exchange->private;
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
		return cei_raise(exchange->config.report, r, 0, "process 0's store at %s has "
				 "version %u of the protocol, process %u has version %u: install "
				 "one version of ceoverlap", exchange->where,
				 message->version, exchange->process, CEI_STORE_VERSION);
	if (r == CEOV_ERR_NO_MEMORY)
		return raise_store(exchange, r, 0, "no memory for its message");
	if (r)
		return raise_store(exchange, CEOV_ERR_INVALID, 0, "who listens there is no store "
				   "of ceoverlap; choose another port (CEOVERLAP_STORE)");
	if (message->type != CEI_STORE_REFUSE)
		return 0;
	return cei_raise(exchange->config.report, message->refuse.error, 0,
			 "process 0 says: %s", message->refuse.text);
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

/* Connects and says hello. 0; CEOV_NONE: try again, *ret_error says why; other errors are
 * raised. */
static int try_join(struct cei_exchange *exchange, uint64_t deadline_ns, int *ret_error)
{
	struct cei_store_message hello = {
		.type = CEI_STORE_HELLO,
		.hello = { exchange->n_processes, { 1, { exchange->process } },
			   (uint32_t)strlen(exchange->job), "" },
	};
	struct store *store = exchange->private;
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	int fd = -1, r;

	memcpy(hello.hello.job, exchange->job, hello.hello.n_job);
	*ret_error = connect_any(store, deadline_ns, &fd);
	if (*ret_error)
		return CEOV_NONE;
	cei_store_inbox_clear(&store->inbox);
	*ret_error = cei_store_send(fd, bytes, cei_encode(&cei_store_protocol, &hello, bytes),
				    deadline_ns);
	r = *ret_error ? CEOV_NONE : await(exchange, fd, 1u << CEI_STORE_JOINED, deadline_ns);
	cei_store_inbox_clear(&store->inbox);
	if (r == CEOV_NONE && !*ret_error)
		*ret_error = ETIMEDOUT;
	if (r == CEOV_ERR_PEER_LOST) {
		*ret_error = ECONNRESET;
		r = CEOV_NONE;
	}
	if (r)
		close(fd);
	else
		store->fd = fd;
	return r;
}

static int join(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	uint64_t pause_ns = PAUSE_MIN_NS;
	struct timespec pause = { .tv_sec = 0 };
	int error, r;

	while ((r = try_join(exchange, deadline_ns, &error)) == CEOV_NONE) {
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(exchange->config.report, CEOV_ERR_TIMEOUT, error,
					 "process 0 has not come to the store at %s in time (the "
					 "last try to connect: %s)", exchange->where,
					 strerror(error));
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

/* The wait is a little longer than the deadline, because process 0 knows who is missing. */
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
	if (deadline_ns < CEI_FOREVER - CEI_EXCHANGE_GRACE_NS)
		deadline_ns += CEI_EXCHANGE_GRACE_NS;
	r = await(exchange, store->fd, 1u << CEI_STORE_ALL, deadline_ns);
	if (r == CEOV_NONE)
		r = raise_store(exchange, CEOV_ERR_TIMEOUT, 0, "process 0 has not answered in "
				"time");
	else if (r == CEOV_ERR_PEER_LOST)
		r = raise_store(exchange, r, 0, "process 0 has ended before all had come");
	else if (!r)
		r = take_all(exchange, ret_gathered);
	cei_store_inbox_clear(&store->inbox);
	return r;
}

/* --- both -------------------------------------------------------------------------- */

static int resolve(struct cei_exchange *exchange, uint64_t deadline_ns)
{
	struct store *store = exchange->private;
	struct cei_store_place place;

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
	return raise_store(exchange, CEOV_ERR_SYSTEM, EADDRINUSE, "process 0 cannot listen there, "
			   "because another program does; choose another port "
			   "(CEOVERLAP_STORE)");
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
	r = exchange->process ? resolve(exchange, deadline_ns)
			      : cei_store_server_open(exchange, deadline_ns, &store->server);
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
