/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * How a process that does not hold the node's first rank joins the group. It connects as soon as
 * the first rank's process listens, sends a hello, and then receives its links one by one until the
 * welcome.
 *
 * Until the first rank's process says that this process has joined, a closed connection only means
 * that the attempt failed, because a group just became complete or a process died; it tries again
 * until the deadline. After that a closed connection means that the first rank's process is lost.
 */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"
#include "base/report.h"

#define RETRY_MIN_NS UINT64_C(1000000)
#define RETRY_MAX_NS UINT64_C(32000000)
#define TWIN_NS      UINT64_C(1000000000)

void cei_party_add(const struct cei_party *party, struct cei_rank_set *set)
{
	uint32_t i;

	for (i = 0; i < party->n_ranks; i++)
		cei_rank_set_add(set, party->ranks[i]);
}

void cei_ranks_elsewhere_add(const struct cei_site *site, struct cei_rank_set *set)
{
	uint32_t rank;

	for (rank = 0; rank < site->n_ranks; rank++)
		if (!cei_site_is_local(site, rank))
			cei_rank_set_add(set, rank);
}

static int raise_first(struct cei_meeting *meeting, int error, const char *what)
{
	struct ceov_failure failure = cei_failure(error, 0);

	failure.rank = meeting->first;
	return cei_raise_failure(meeting->site->report, &failure,
				 "bootstrap at %s: the process of rank %u, which listens "
				 "there, %s", meeting->path, meeting->first, what);
}

/* --- connecting ---------------------------------------------------------- */

/* Returns the errno of socket() or connect(), or 0. */
static int try_connect(const char *path, int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int error;
	int fd;

	memcpy(address.sun_path, path, strlen(path));
	/* non-blocking, so that a full queue of the listener is an error and not a wait */
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return errno;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		error = errno;
		close(fd);
		return error;
	}
	*ret_fd = fd;
	return 0;
}

static int is_worth_a_retry(int error)
{
	return error == ENOENT || error == ECONNREFUSED || error == EAGAIN ||
	       error == EINTR || error == ECONNRESET;
}

static int check_user(struct cei_meeting *meeting, int fd)
{
	uint32_t uid = 0;
	int error = cei_peer_uid(fd, &uid);

	if (error)
		return cei_raise(meeting->site->report, CEOV_ERR_SYSTEM, error,
				 "bootstrap at %s: its user is unknown: %s",
				 meeting->path, strerror(error));
	if (uid != (uint32_t)geteuid())
		return cei_raise(meeting->site->report, CEOV_ERR_STATE, 0,
				 "bootstrap at %s: user %u listens there, and this "
				 "process is of user %u", meeting->path, uid,
				 (unsigned)geteuid());
	return 0;
}

/* --- hello --------------------------------------------------------------- */

static int raise_refusal(struct cei_meeting *meeting, const struct cei_message *message)
{
	int error = message->refuse.error;

	/* An error below the last one known here was defined by a later version. */
	if (error < CEI_ERROR_LOWEST)
		error = CEOV_ERR_VERSION;
	return cei_raise(meeting->site->report, error, 0, "bootstrap at %s: refused: %s",
			 meeting->path, message->refuse.text);
}

/* Receives one message. CEOV_NONE: the connection ended. Other errors are raised. */
static int hear(struct cei_meeting *meeting, int fd, uint64_t deadline_ns,
		struct cei_received *ret_received)
{
	const struct cei_message *message = &ret_received->message;
	int r;

	do {
		if (cei_socket_wait(fd, POLLIN, deadline_ns))
			return raise_first(meeting, CEOV_ERR_TIMEOUT,
					    "has not answered in time");
		r = cei_socket_receive(fd, ret_received);
	} while (r == CEOV_NONE);
	if (r == CEOV_ERR_PEER_LOST)
		return CEOV_NONE;
	if (r == CEOV_ERR_VERSION)
		return cei_raise(meeting->site->report, r, 0,
				 "bootstrap at %s: rank %u speaks protocol 0x%08x version "
				 "%u, this process 0x%08x version %u",
				 meeting->path, meeting->first, message->magic,
				 message->version, CEI_WIRE_MAGIC, CEI_WIRE_VERSION);
	if (r)
		return raise_first(meeting, r, "sends messages that are none of a bootstrap");
	if (message->type != CEI_MESSAGE_REFUSE)
		return 0;
	cei_received_close_fds(ret_received);
	return raise_refusal(meeting, message);
}

/* Sends a hello and receives the answer. 0: this process has joined. CEOV_NONE: the connection
 * ended, and the caller should try again. Other errors are raised. */
static int say_hello(struct cei_meeting *meeting, int fd)
{
	struct cei_message hello = { .type = CEI_MESSAGE_HELLO };
	struct cei_received received;
	int r;

	hello.hello.n_ranks = meeting->site->n_ranks;
	cei_party_of_site(meeting->site, &hello.hello.party);
	/* The result is ignored: the listener may have refused without reading the hello, and its
	 * refusal can still be received. */
	cei_socket_send(fd, &hello, NULL, 0);
	r = hear(meeting, fd, meeting->deadline_ns, &received);
	if (r)
		return r;
	cei_received_close_fds(&received);
	if (received.message.type == CEI_MESSAGE_JOINED)
		return 0;
	return raise_first(meeting, CEOV_ERR_INVALID,
			    "does not answer a hello");
}

int cei_meeting_find_twin(struct cei_meeting *meeting)
{
	struct cei_message hello = { .type = CEI_MESSAGE_HELLO };
	uint64_t by_ns = cei_deadline(TWIN_NS);
	struct cei_received received;
	int fd = -1, r = CEOV_NONE;

	hello.hello.n_ranks = meeting->site->n_ranks;
	cei_party_of_site(meeting->site, &hello.hello.party);
	if (!try_connect(meeting->path, &fd)) {
		cei_socket_send(fd, &hello, NULL, 0);
		r = cei_socket_wait(fd, POLLIN, by_ns) ? CEOV_NONE
			: cei_socket_receive(fd, &received);
		close(fd);
	}
	if (!r) {
		cei_received_close_fds(&received);
		if (received.message.type == CEI_MESSAGE_REFUSE &&
		    received.message.refuse.error == CEOV_ERR_STATE)
			return cei_raise(meeting->site->report, CEOV_ERR_STATE, EADDRINUSE,
					 "two processes have rank %u at %s, or another group uses "
					 "this path", meeting->first, meeting->path);
	}
	return cei_raise(meeting->site->report, CEOV_ERR_STATE, EADDRINUSE,
			 "another group uses %s; choose another path", meeting->path);
}

/* Connects and joins. CEOV_NONE: the caller should try again; *ret_error says why. Other errors are
 * raised. */
static int try_join(struct cei_meeting *meeting, int *ret_fd, int *ret_error)
{
	int error;
	int fd = -1;
	int r;

	error = try_connect(meeting->path, &fd);
	*ret_error = error;
	if (error && is_worth_a_retry(error))
		return CEOV_NONE;
	if (error)
		return cei_raise(meeting->site->report, CEOV_ERR_SYSTEM, error,
				 "bootstrap at %s: cannot connect: %s",
				 meeting->path, strerror(error));
	*ret_error = ECONNRESET;
	r = check_user(meeting, fd);
	if (!r)
		r = say_hello(meeting, fd);
	if (r)
		close(fd);
	else
		*ret_fd = fd;
	return r;
}

static int join(struct cei_meeting *meeting, int *ret_fd)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	uint64_t pause_ns = RETRY_MIN_NS;
	struct timespec pause;
	int error;
	int r;

	while ((r = try_join(meeting, ret_fd, &error)) == CEOV_NONE) {
		if (cei_now_ns() >= meeting->deadline_ns)
			break;
		pause = (struct timespec){ .tv_nsec = (long)pause_ns };
		nanosleep(&pause, NULL);
		if (pause_ns < RETRY_MAX_NS)
			pause_ns *= 2;
	}
	if (r != CEOV_NONE)
		return r;
	failure.rank = meeting->first;
	failure.native_code = error;
	return cei_raise_failure(meeting->site->report, &failure,
				 "rank %u's process has not come to %s in time (the last "
				 "try to connect: %s)", meeting->first,
				 meeting->path, strerror(error));
}

/* --- links --------------------------------------------------------------- */

/* Returns the ranks that need no link any more: those of this process, of all links, and of other
 * nodes. */
static struct cei_rank_set known_ranks(const struct cei_meeting *meeting)
{
	struct cei_rank_set known = { { 0 } };
	struct cei_party own;
	uint32_t i;

	cei_ranks_elsewhere_add(meeting->site, &known);
	cei_party_of_site(meeting->site, &own);
	cei_party_add(&own, &known);
	for (i = 0; i < meeting->links->n_links; i++)
		cei_party_add(&meeting->links->links[i].party, &known);
	return known;
}

/* Returns whether the party's ranks are valid, distinct, and not among the known ranks. */
static int is_new_party(const struct cei_meeting *meeting,
			const struct cei_party *party)
{
	struct cei_rank_set known = known_ranks(meeting);
	uint32_t i;

	for (i = 0; i < party->n_ranks; i++) {
		if (party->ranks[i] >= meeting->site->n_ranks ||
		    cei_rank_set_has(&known, party->ranks[i]))
			return 0;
		cei_rank_set_add(&known, party->ranks[i]);
	}
	return meeting->links->n_links < CEI_LINKS_MAX;
}

/* Adds the link that a message brings. Takes ownership of the message's descriptors. */
static int take_link(struct cei_meeting *meeting, struct cei_received *received)
{
	if (!received->n_fds)
		return cei_raise(meeting->site->report, CEOV_ERR_SYSTEM, EMFILE,
				 "bootstrap at %s: the link to rank %u did not arrive; "
				 "has this process free descriptors? (ulimit -n)",
				 meeting->path, received->message.link.ranks[0]);
	if (received->n_fds > 2 || !is_new_party(meeting, &received->message.link)) {
		cei_received_close_fds(received);
		return raise_first(meeting, CEOV_ERR_INVALID,
				    "sent an invalid link");
	}
	cei_meeting_add(meeting, &received->message.link, received->fds[0],
		     received->n_fds > 1 ? received->fds[1] : -1);
	return 0;
}

/* Receives links until the welcome, which it returns in *ret_received. Errors are raised. */
static int collect_links(struct cei_meeting *meeting, int fd,
			 struct cei_received *ret_received)
{
	uint64_t deadline_ns = meeting->deadline_ns;
	int r;

	if (deadline_ns < CEI_FOREVER - CEI_GRACE_NS)
		deadline_ns += CEI_GRACE_NS;
	for (;;) {
		r = hear(meeting, fd, deadline_ns, ret_received);
		if (r == CEOV_NONE)
			return raise_first(meeting, CEOV_ERR_PEER_LOST,
					    "has ended before the group was complete");
		if (r)
			return r;
		if (ret_received->message.type != CEI_MESSAGE_LINK)
			break;
		r = take_link(meeting, ret_received);
		if (r)
			return r;
	}
	cei_received_close_fds(ret_received);
	if (ret_received->message.type != CEI_MESSAGE_WELCOME)
		return raise_first(meeting, CEOV_ERR_INVALID,
				    "sent something else than a link");
	return 0;
}

/* Adds the link to the first rank's process. Takes ownership of fd. */
static int finish(struct cei_meeting *meeting, int fd,
		  const struct cei_wire_welcome *welcome)
{
	uint32_t n_ranks = meeting->site->n_ranks;
	struct cei_rank_set known;

	if (welcome->n_links != meeting->links->n_links ||
	    !is_new_party(meeting, &welcome->party)) {
		close(fd);
		return raise_first(meeting, CEOV_ERR_INVALID,
				    "sent an invalid welcome");
	}
	cei_meeting_add(meeting, &welcome->party, fd, cei_peer_pidfd(fd));
	known = known_ranks(meeting);
	if (cei_rank_set_missing(&known, 0, n_ranks) == n_ranks)
		return 0;
	return raise_first(meeting, CEOV_ERR_INVALID,
			    "left ranks out");
}

int cei_meeting_join(struct cei_meeting *meeting)
{
	struct cei_received received;
	int fd = -1;
	int r;

	r = join(meeting, &fd);
	if (r)
		return r;
	r = collect_links(meeting, fd, &received);
	if (r) {
		close(fd);
		return r;
	}
	return finish(meeting, fd, &received.message.welcome);
}
