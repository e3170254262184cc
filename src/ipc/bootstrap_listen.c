/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * How the process that holds the node's first rank gathers the group. It listens at the path,
 * accepts one process after another until all ranks of the node have come, then sends a socket pair
 * to every pair of the other processes. A process that does not fit is refused with a reason, and a
 * connection that sends nothing is closed; neither disturbs the other processes.
 *
 * If a process ends before the group is complete, another one may take its ranks. If it ends later,
 * links to it are sent out all the same: they are at their end of file, so the threads of its peers
 * notice at once.
 */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"
#include "net/store_path.h"

/* Connections that have not sent a hello yet. Further ones wait in the listener's queue. */
#define STRANGERS_MAX 32u
#define KNOCKS_MAX    (CEI_LINKS_MAX + STRANGERS_MAX)
/* How many refused processes get a log line. Further ones are only counted. */
#define TOLD_MAX      8u

struct knock {
	int                   fd;
	int                   pidfd;
	int                   has_joined;
	uint64_t              hello_by_ns;
	struct cei_party party;            /* its ranks; valid once it has joined */
};

struct gathering {
	struct cei_meeting *meeting;
	struct cei_report  *report;
	const char         *path;
	uint64_t            deadline_ns;
	struct cei_store_path listener;
	struct cei_rank_set present;            /* ranks that have joined, or need not */
	uint32_t            n_knocks;
	uint32_t            n_joined;
	uint64_t            n_in_vain;          /* processes that were refused or ended again */
	uint32_t            twin;               /* the last rank that came twice; CEOV_NOBODY */
	struct knock        knocks[KNOCKS_MAX];
};

/* --- connections of processes that want to join -------------------------- */

static void close_knock(struct gathering *gathering, uint32_t index)
{
	struct knock *knock = &gathering->knocks[index];
	uint32_t i;

	if (knock->has_joined) {
		for (i = 0; i < knock->party.n_ranks; i++)
			cei_rank_set_remove(&gathering->present, knock->party.ranks[i]);
		gathering->n_joined--;
	}
	cei_fd_close(knock->fd);
	cei_fd_close(knock->pidfd);
	*knock = gathering->knocks[--gathering->n_knocks];
}

/* Sends a refusal if the socket can take it. If not, the process only sees the connection end. */
static void refuse(int fd, int error, const char *text)
{
	struct cei_message message = { .type = CEI_MESSAGE_REFUSE };

	message.refuse.error = error;
	snprintf(message.refuse.text, sizeof(message.refuse.text), "%s", text);
	cei_socket_send(fd, &message, NULL, 0);
}

/* Counts a refused process, and returns whether it gets a log line. */
static int is_told(struct gathering *gathering)
{
	return gathering->n_in_vain++ < TOLD_MAX;
}

static void tell_rest(struct gathering *gathering)
{
	if (gathering->n_in_vain > TOLD_MAX)
		cei_log(gathering->report, CEI_LOG_WARN,
			"bootstrap at %s: %llu more processes were refused or left again",
			gathering->path,
			(unsigned long long)(gathering->n_in_vain - TOLD_MAX));
}

static void turn_away(struct gathering *gathering, int fd, int error,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Refuses a process, and logs that, because the group will then wait for that process in vain. */
static void turn_away(struct gathering *gathering, int fd, int error,
		      const char *format, ...)
{
	char text[CEI_WIRE_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	refuse(fd, error, text);
	if (is_told(gathering))
		cei_log(gathering->report, CEI_LOG_WARN, "a process was refused: %s", text);
}

/* Checks a hello. 0: the process fits. Else it was sent the reason why it is refused. */
static int check_hello(struct gathering *gathering, int fd,
		       const struct cei_wire_hello *hello)
{
	const struct cei_site *site = gathering->meeting->site;
	struct cei_rank_set taken = gathering->present;
	uint32_t i, rank;

	if (hello->n_ranks != site->n_ranks) {
		turn_away(gathering, fd, CEOV_ERR_INVALID,
			  "rank %u says the group has %u ranks, rank %u says %u",
			  hello->party.ranks[0], hello->n_ranks,
			  gathering->meeting->first, site->n_ranks);
		return -1;
	}
	for (i = 0; i < hello->party.n_ranks; i++) {
		rank = hello->party.ranks[i];
		if (rank >= site->n_ranks) {
			turn_away(gathering, fd, CEOV_ERR_INVALID,
				  "rank %u is out of range: the group has %u ranks",
				  rank, site->n_ranks);
			return -1;
		}
		if (!cei_site_is_local(site, rank)) {
			turn_away(gathering, fd, CEOV_ERR_INVALID,
				  "rank %u is of another node", rank);
			return -1;
		}
		if (cei_rank_set_has(&taken, rank)) {
			gathering->twin = rank;
			turn_away(gathering, fd, CEOV_ERR_STATE,
				  "rank %u is taken by another process of the group",
				  rank);
			return -1;
		}
		cei_rank_set_add(&taken, rank);
	}
	return 0;
}

/* Handles a hello. 0: the process has joined. Else the caller closes the connection. */
static int welcome_hello(struct gathering *gathering, struct knock *knock)
{
	const struct cei_message joined = { .type = CEI_MESSAGE_JOINED };
	struct cei_received received;
	const struct cei_message *message = &received.message;
	int r;

	r = cei_socket_receive(knock->fd, &received);
	if (!r)
		cei_received_close_fds(&received);
	if (r == CEOV_ERR_VERSION) {
		turn_away(gathering, knock->fd, CEOV_ERR_VERSION,
			  "it speaks protocol 0x%08x version %u, rank %u speaks 0x%08x "
			  "version %u", message->magic, message->version,
			  gathering->meeting->first, CEI_WIRE_MAGIC, CEI_WIRE_VERSION);
		return -1;
	}
	if (r || message->type != CEI_MESSAGE_HELLO ||
	    check_hello(gathering, knock->fd, &message->hello))
		return -1;
	if (cei_socket_send(knock->fd, &joined, NULL, 0))
		return -1;
	knock->has_joined = 1;
	knock->party = message->hello.party;
	knock->pidfd = cei_peer_pidfd(knock->fd);
	cei_party_add(&knock->party, &gathering->present);
	gathering->n_joined++;
	cei_log(gathering->report, CEI_LOG_DEBUG, "rank %u has joined",
		knock->party.ranks[0]);
	return 0;
}

/* Handles a message or an end of file. A process that has joined sends nothing at this stage, so if
 * anything comes from it, it has ended or misbehaves. */
static void hear_knock(struct gathering *gathering, uint32_t index)
{
	struct knock *knock = &gathering->knocks[index];

	if (!knock->has_joined) {
		if (welcome_hello(gathering, knock))
			close_knock(gathering, index);
		return;
	}
	if (is_told(gathering))
		cei_log(gathering->report, CEI_LOG_WARN,
			"rank %u left again before the group was complete",
			knock->party.ranks[0]);
	close_knock(gathering, index);
}

static uint32_t n_strangers(const struct gathering *gathering)
{
	return gathering->n_knocks - gathering->n_joined;
}

/* Accepts waiting connections. Returns an errno. */
static int accept_knocks(struct gathering *gathering)
{
	struct knock *knock;
	uint32_t uid;
	int fd;

	while (n_strangers(gathering) < STRANGERS_MAX) {
		fd = accept4(gathering->listener.fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 && (errno == EAGAIN || errno == EINTR ||
			       errno == ECONNABORTED))
			return 0;       /* no connection is waiting, or it has ended again */
		if (fd < 0)
			return errno;
		if (cei_peer_uid(fd, &uid) || uid != (uint32_t)geteuid()) {
			turn_away(gathering, fd, CEOV_ERR_STATE,
				  "it is of another user than rank %u's process, user %u",
				  gathering->meeting->first, (unsigned)geteuid());
			close(fd);
			continue;
		}
		knock = &gathering->knocks[gathering->n_knocks++];
		memset(knock, 0, sizeof(*knock));
		knock->fd = fd;
		knock->pidfd = -1;
		knock->hello_by_ns = cei_deadline(CEI_HELLO_WAIT_NS);
	}
	return 0;
}

/* Closes connections that have sent no hello in time. Returns when to check again. */
static uint64_t close_silent(struct gathering *gathering)
{
	uint64_t next_ns = gathering->deadline_ns;
	uint64_t now_ns = cei_now_ns();
	uint32_t i = 0;

	while (i < gathering->n_knocks) {
		const struct knock *knock = &gathering->knocks[i];

		if (!knock->has_joined && knock->hello_by_ns <= now_ns) {
			close_knock(gathering, i);
			continue;
		}
		if (!knock->has_joined && knock->hello_by_ns < next_ns)
			next_ns = knock->hello_by_ns;
		i++;
	}
	return next_ns;
}

/* Polls all connections once and handles what has arrived. Returns an errno. */
static int gather_turn(struct gathering *gathering)
{
	struct pollfd poll_fds[1 + KNOCKS_MAX];
	uint64_t next_ns = close_silent(gathering);
	uint32_t n_knocks = gathering->n_knocks;
	uint32_t i;

	poll_fds[0].fd = n_strangers(gathering) < STRANGERS_MAX ?
			 gathering->listener.fd : -1;
	poll_fds[0].events = POLLIN;
	poll_fds[0].revents = 0;
	for (i = 0; i < n_knocks; i++)
		poll_fds[1 + i] = (struct pollfd){ .fd = gathering->knocks[i].fd,
						   .events = POLLIN };
	if (poll(poll_fds, 1 + n_knocks, cei_poll_ms(next_ns)) < 0)
		return errno == EINTR ? 0 : errno;
	/* Count down, because closing a connection moves the last one into its place. */
	for (i = n_knocks; i-- > 0;)
		if (poll_fds[1 + i].revents)
			hear_knock(gathering, i);
	return poll_fds[0].revents ? accept_knocks(gathering) : 0;
}

static uint32_t missing_from(const struct gathering *gathering, uint32_t rank)
{
	return cei_rank_set_missing(&gathering->present, rank,
				    gathering->meeting->site->n_ranks);
}

/* Lists the missing ranks as text, such as "1, 2, 5", and a rank that two processes have; "": none
 * is missing. */
static void list_missing(const struct gathering *gathering, char *ret_text, size_t n_bytes)
{
	uint32_t n_ranks = gathering->meeting->site->n_ranks, rank = missing_from(gathering, 0);
	size_t at = 0;

	ret_text[0] = 0;
	for (; rank < n_ranks && at < n_bytes; rank = missing_from(gathering, rank + 1))
		at += (size_t)snprintf(ret_text + at, n_bytes - at, "%s%u", at ? ", " : "",
				       rank);
	if (at && at < n_bytes && gathering->twin != CEOV_NOBODY)
		snprintf(ret_text + at, n_bytes - at, "; two processes have rank %u",
			 gathering->twin);
}

static int raise_missing(struct gathering *gathering)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	char ranks[CEI_WIRE_TEXT_BYTES / 2];

	list_missing(gathering, ranks, sizeof(ranks));
	failure.rank = missing_from(gathering, 0);
	return cei_raise_failure(gathering->report, &failure,
				 "these ranks have not come to %s in time: %s",
				 gathering->path, ranks);
}

static int gather(struct gathering *gathering)
{
	int error;

	while (missing_from(gathering, 0) < gathering->meeting->site->n_ranks) {
		if (cei_now_ns() >= gathering->deadline_ns)
			return raise_missing(gathering);
		error = gather_turn(gathering);
		if (error)
			return cei_raise(gathering->report, CEOV_ERR_SYSTEM, error,
					 "waiting at %s: %s", gathering->path,
					 strerror(error));
	}
	return 0;
}

/* --- sending out links --------------------------------------------------- */

/* Sends a message to a process. Returns 0 even if that process has died: its peers will notice. */
static int hand(struct gathering *gathering, const struct knock *to,
		const struct cei_message *message, const int *fds, uint32_t n_fds)
{
	struct ceov_failure failure;
	int r = cei_socket_send_by(to->fd, message, fds, n_fds, gathering->deadline_ns);

	if (!r || r == CEOV_ERR_PEER_LOST)
		return 0;
	failure = cei_failure(r, r == CEOV_ERR_SYSTEM ? errno : 0);
	failure.rank = to->party.ranks[0];
	return cei_raise_failure(gathering->report, &failure,
				 "bootstrap at %s: rank %u could not be sent its links: %s",
				 gathering->path, failure.rank, r == CEOV_ERR_SYSTEM ?
				 strerror(failure.native_code) : "it reads nothing");
}

/* Sends a process one end of a socket pair, with the pidfd and the ranks of the process at the
 * other end. */
static int hand_end(struct gathering *gathering, const struct knock *to, int end,
		    const struct knock *peer)
{
	struct cei_message message = { .type = CEI_MESSAGE_LINK };
	const int fds[2] = { end, peer->pidfd };

	message.link = peer->party;
	return hand(gathering, to, &message, fds, peer->pidfd < 0 ? 1 : 2);
}

static int link_pair(struct gathering *gathering, const struct knock *one,
		     const struct knock *other)
{
	int ends[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return cei_raise(gathering->report, CEOV_ERR_SYSTEM, errno,
				 "no socket pair for ranks %u and %u: %s",
				 one->party.ranks[0], other->party.ranks[0],
				 strerror(errno));
	r = hand_end(gathering, one, ends[0], other);
	if (!r)
		r = hand_end(gathering, other, ends[1], one);
	close(ends[0]);
	close(ends[1]);
	return r;
}

static int hand_out(struct gathering *gathering)
{
	struct cei_message message = { .type = CEI_MESSAGE_WELCOME };
	uint32_t i, j;
	int r = 0;

	for (i = 0; i < gathering->n_knocks; i++)
		for (j = i + 1; !r && j < gathering->n_knocks; j++)
			r = link_pair(gathering, &gathering->knocks[i],
				      &gathering->knocks[j]);
	message.welcome.n_links = gathering->n_joined - 1;
	cei_party_of_site(gathering->meeting->site, &message.welcome.party);
	for (i = 0; !r && i < gathering->n_knocks; i++)
		r = hand(gathering, &gathering->knocks[i], &message, NULL, 0);
	return r;
}

/* --- the whole rendezvous ------------------------------------------------ */

static void close_strangers(struct gathering *gathering)
{
	uint32_t i = 0;

	while (i < gathering->n_knocks)
		if (gathering->knocks[i].has_joined)
			i++;
		else
			close_knock(gathering, i);
}

/* Refuses all processes that have connected, so that they do not wait any longer. */
static void send_away(struct gathering *gathering, int error)
{
	char text[CEI_WIRE_TEXT_BYTES];
	char ranks[CEI_WIRE_TEXT_BYTES / 2];

	list_missing(gathering, ranks, sizeof(ranks));
	if (ranks[0] && error == CEOV_ERR_TIMEOUT)
		snprintf(text, sizeof(text), "these ranks have not come in time: %s",
			 ranks);
	else
		snprintf(text, sizeof(text), "rank %u's process could not gather the "
			 "group: %s", gathering->meeting->first, ceov_strerror(error));
	while (gathering->n_knocks) {
		refuse(gathering->knocks[0].fd, error, text);
		close_knock(gathering, 0);
	}
}

static int listen_and_gather(struct gathering *gathering)
{
	int r;

	r = cei_store_path_open(&gathering->listener, gathering->report, gathering->path,
			      gathering->deadline_ns);
	if (r == CEOV_NONE)
		return cei_meeting_find_twin(gathering->meeting);
	if (!r)
		r = gather(gathering);
	cei_store_path_close(&gathering->listener, gathering->report);
	tell_rest(gathering);
	if (r)
		return r;
	close_strangers(gathering);
	return hand_out(gathering);
}

int cei_meeting_listen(struct cei_meeting *meeting)
{
	struct cei_report *report = meeting->site->report;
	struct gathering *gathering;
	struct cei_party own;
	uint32_t i;
	int r;

	gathering = calloc(1, sizeof(*gathering));
	if (!gathering)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "bootstrap: no memory to gather the group");
	cei_party_of_site(meeting->site, &own);
	gathering->meeting = meeting;
	gathering->report = report;
	gathering->path = meeting->path;
	gathering->deadline_ns = meeting->deadline_ns;
	gathering->twin = CEOV_NOBODY;
	cei_ranks_elsewhere_add(meeting->site, &gathering->present);
	cei_party_add(&own, &gathering->present);
	r = listen_and_gather(gathering);
	if (r)
		send_away(gathering, r);
	for (i = 0; i < gathering->n_knocks; i++)
		cei_meeting_add(meeting, &gathering->knocks[i].party,
				gathering->knocks[i].fd, gathering->knocks[i].pidfd);
	free(gathering);
	return r;
}
