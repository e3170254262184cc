/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * One lock guards the state of all links. It is taken behind the lock of the peers, so no event is
 * called with it. Nothing is logged with it, either: the log's function is the application's.
 */

#include "ipc/carrier_unix.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/datagram.h"

/* How many messages of one link are handled before other links get their turn. */
#define TURN_MESSAGES 64u

enum state {
	AWAITED,                        /* it has no socket yet */
	OPEN,
	REFUSED,                        /* given up: nothing more is read, and it is still to be
					 * told so */
	ENDED,
};

struct mate {                           /* another process of the node, and the link to it */
	uint32_t   process;
	enum state state;
	int        fd;
	int        pidfd;               /* -1: unknown. The socket alone would stay open as long as
					 * a forked child of a dead process lives */
	int        is_full;             /* the socket had no room */
	int        is_mute;             /* a send failed. Nothing more is sent, and the link ends at
					 * its end of file, so what was said before is heard */
	int        error;               /* errno of the send that failed; 0: the other end is
					 * closed */
};

struct cei_unix {
	struct cei_report       *report;
	const struct cei_roster *roster;
	struct cei_carrier       carrier;
	struct cei_peers        *peers;
	pthread_mutex_t          lock;
	uint32_t                 n_mates;
	struct mate              mates[CEI_LINKS_MAX];
};

struct said {                           /* a message that came, with what came beside it */
	struct cei_group_message message;
	struct cei_group_fds     fds;
};

static struct mate *mate_of(struct cei_unix *carrier, uint32_t process)
{
	uint32_t i;

	for (i = 0; i < carrier->n_mates; i++)
		if (carrier->mates[i].process == process)
			return &carrier->mates[i];
	return NULL;
}

/* --- one link, with the lock -------------------------------------------------- */

static int put(struct mate *mate, const struct cei_group_message *message,
	       const struct cei_group_fds *fds)
{
	uint8_t bytes[CEI_GROUP_MESSAGE_BYTES];
	struct cei_datagram datagram = {
		.bytes = bytes,
		.n_bytes = cei_encode(&cei_group_protocol, message, bytes),
		.fds = fds ? (int *)(uintptr_t)fds->fds : NULL,
		.n_fds = fds ? fds->n : 0,
	};

	return cei_datagram_send(mate->fd, &datagram);
}

/* The shutdown reaches the other end even if a forked child of this process keeps the socket. */
static void end(struct mate *mate)
{
	if (mate->fd >= 0) {
		shutdown(mate->fd, SHUT_RDWR);
		close(mate->fd);
	}
	if (mate->pidfd >= 0)
		close(mate->pidfd);
	mate->fd = -1;
	mate->pidfd = -1;
	mate->state = ENDED;
}

/* Tells the process that it is given up, as soon as its socket has room, and ends the link. */
static void refuse(struct mate *mate)
{
	struct cei_group_message message = { .type = CEI_GROUP_GONE };

	message.gone.n = 1;
	message.gone.processes[0] = mate->process;
	mate->state = REFUSED;
	mate->is_full = !mate->is_mute && put(mate, &message, NULL) == CEOV_FULL;
	if (!mate->is_full)
		end(mate);
}

static int send_to(struct mate *mate, const struct cei_group_message *message,
		   const struct cei_group_fds *fds, int *ret_native_code)
{
	int r;

	if (mate->state == AWAITED)
		return CEOV_FULL;
	if (mate->state != OPEN || mate->is_mute)
		return CEOV_ERR_PEER_LOST;
	r = put(mate, message, fds);
	mate->is_full = r == CEOV_FULL;
	if (r >= 0)
		return r;
	if (r == CEOV_ERR_SYSTEM && fds && fds->n) {
		*ret_native_code = errno;
		return r;
	}
	mate->is_mute = 1;
	if (r == CEOV_ERR_SYSTEM) {
		mate->error = errno;
		shutdown(mate->fd, SHUT_RDWR);
	}
	return CEOV_ERR_PEER_LOST;
}

/* An error of cei_datagram_receive() or cei_decode(), with which nothing is left to close. */
static int receive(struct mate *mate, struct said *ret_said)
{
	uint8_t bytes[CEI_GROUP_MESSAGE_BYTES];
	struct cei_datagram datagram = { .bytes = bytes, .n_bytes = sizeof(bytes),
					 .fds = ret_said->fds.fds,
					 .n_fds = CEI_GROUP_FDS_MAX };
	int r = cei_datagram_receive(mate->fd, &datagram);

	if (!r)
		r = cei_decode(&cei_group_protocol, bytes, datagram.n_bytes, &ret_said->message);
	if (r)
		cei_datagram_close_fds(&datagram);
	ret_said->fds.n = datagram.n_fds;
	return r;
}

/* --- the carrier's operations --------------------------------------------------- */

static int unix_send(void *state, uint32_t process, const struct cei_group_message *message,
		     const struct cei_group_fds *fds, int *ret_native_code)
{
	struct cei_unix *carrier = state;
	struct mate *mate = mate_of(carrier, process);
	int r, must_wake;

	if (!mate)
		return CEOV_ERR_PEER_LOST;
	pthread_mutex_lock(&carrier->lock);
	r = send_to(mate, message, fds, ret_native_code);
	must_wake = r == CEOV_FULL && mate->state == OPEN;
	pthread_mutex_unlock(&carrier->lock);
	if (must_wake)
		cei_peers_wake(carrier->peers);         /* to poll for room */
	return r;
}

static void unix_give_up(void *state, uint32_t process, const char *why)
{
	struct cei_unix *carrier = state;
	struct mate *mate = mate_of(carrier, process);
	struct cei_peers *peers;

	(void)why;
	if (!mate)
		return;
	pthread_mutex_lock(&carrier->lock);
	if (mate->state == OPEN)
		refuse(mate);
	else if (mate->state == AWAITED)
		mate->state = REFUSED;          /* see cei_unix_attach() */
	peers = carrier->peers;
	pthread_mutex_unlock(&carrier->lock);
	if (!peers)
		return;
	cei_peers_quiet(peers, process);
	cei_peers_wake(peers);
}

/* Two entries for each link, whatever its state; poll() skips those that are negative. */
static uint32_t unix_list_fds(void *state, struct pollfd *ret_fds)
{
	struct cei_unix *carrier = state;
	const struct mate *mate;
	short events;
	uint32_t i;

	pthread_mutex_lock(&carrier->lock);
	for (i = 0; i < carrier->n_mates; i++) {
		mate = &carrier->mates[i];
		events = mate->is_full ? POLLOUT : 0;
		if (mate->state == OPEN)
			events |= POLLIN;
		ret_fds[2 * i] = (struct pollfd){ .fd = mate->fd, .events = events };
		ret_fds[2 * i + 1] = (struct pollfd){ .fd = mate->pidfd, .events = POLLIN };
	}
	pthread_mutex_unlock(&carrier->lock);
	return 2 * carrier->n_mates;
}

/* Ends a link on which nothing more comes. r: why not, as of receive(). */
static void lose(struct cei_unix *carrier, struct mate *mate, int r)
{
	uint32_t rank = carrier->roster->first_rank[mate->process];
	const char *why = "its process has ended";
	int error;

	pthread_mutex_lock(&carrier->lock);
	error = mate->error;
	if (mate->state == OPEN && r == CEOV_ERR_PEER_LOST)
		end(mate);
	else if (mate->state == OPEN)
		refuse(mate);
	pthread_mutex_unlock(&carrier->lock);
	if (r != CEOV_ERR_PEER_LOST) {
		why = "it has sent a message that makes no sense";
		cei_log(carrier->report, CEI_LOG_ERROR,
			"link to rank %u: an invalid message came; the link is closed", rank);
	} else if (error) {
		why = "a message to it could not be sent";
		cei_log(carrier->report, CEI_LOG_ERROR,
			"link to rank %u: sending failed (%s); the link is closed", rank,
			strerror(error));
	}
	cei_peers_down(carrier->peers, mate->process, why, 0);
}

/* Reads and hands on what has come. is_dead: the process has ended, so no more will come. */
static void hear(struct cei_unix *carrier, struct mate *mate, int is_dead)
{
	struct said said;
	uint32_t n;
	int r;

	for (n = 0; n < TURN_MESSAGES; n++) {
		pthread_mutex_lock(&carrier->lock);
		r = mate->state == OPEN ? receive(mate, &said) : CEOV_PENDING;
		pthread_mutex_unlock(&carrier->lock);
		if (r == CEOV_PENDING || (r == CEOV_NONE && !is_dead))
			return;
		if (r) {
			lose(carrier, mate, r == CEOV_NONE ? CEOV_ERR_PEER_LOST : r);
			return;
		}
		cei_peers_received(carrier->peers, mate->process, &said.message, &said.fds);
		if (said.message.type != CEI_GROUP_BYE)
			continue;
		pthread_mutex_lock(&carrier->lock);
		if (mate->state == OPEN)
			end(mate);
		pthread_mutex_unlock(&carrier->lock);
		return;
	}
}

static void serve(struct cei_unix *carrier, struct mate *mate, short events, int is_dead)
{
	int is_ready;

	pthread_mutex_lock(&carrier->lock);
	if (mate->state == REFUSED && mate->fd >= 0)
		refuse(mate);
	if (mate->state == REFUSED && is_dead)
		end(mate);
	is_ready = mate->state == OPEN && mate->is_full && (events & POLLOUT);
	if (is_ready)
		mate->is_full = 0;
	pthread_mutex_unlock(&carrier->lock);
	if (is_ready)
		cei_peers_ready(carrier->peers, mate->process);
	if (is_dead || (events & ~POLLOUT))
		hear(carrier, mate, is_dead);
}

static int unix_turn(void *state, const struct pollfd *fds)
{
	struct cei_unix *carrier = state;
	struct pollfd own[2 * CEI_LINKS_MAX];
	int did = 0;
	uint32_t i;

	if (!fds) {
		if (poll(own, unix_list_fds(carrier, own), 0) <= 0)
			return 0;
		fds = own;
	}
	for (i = 0; i < carrier->n_mates; i++) {
		if (!fds[2 * i].revents && !fds[2 * i + 1].revents)
			continue;
		did = 1;
		serve(carrier, &carrier->mates[i], fds[2 * i].revents,
		      fds[2 * i + 1].revents != 0);
	}
	return did;
}

static uint64_t unix_due(void *state)
{
	(void)state;
	return CEI_FOREVER;             /* messages, room and deaths all arrive at descriptors */
}

static const struct cei_carrier_ops ops = {
	.send = unix_send,
	.give_up = unix_give_up,
	.list_fds = unix_list_fds,
	.turn = unix_turn,
	.due = unix_due,
};

/* --- opening and closing ------------------------------------------------------------ */

static void fill(struct cei_unix *carrier)
{
	const struct cei_roster *roster = carrier->roster;
	uint32_t node = roster->node_of[roster->own], i;

	for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++)
		if (roster->in_node[i] != roster->own)
			carrier->mates[carrier->n_mates++] = (struct mate){
				.process = roster->in_node[i], .fd = -1, .pidfd = -1,
			};
	carrier->carrier = (struct cei_carrier){
		.ops = &ops,
		.state = carrier,
		.promises = { .has_fds = 1, .tells_death = 1, .is_sure = 1 },
		.n_fds_max = 2 * carrier->n_mates,
	};
}

int cei_unix_open(struct cei_report *report, const struct cei_roster *roster,
		  struct cei_unix **ret_carrier)
{
	uint32_t node = roster->node_of[roster->own];
	uint32_t n = roster->node_at[node + 1] - roster->node_at[node];
	struct cei_unix *carrier;
	int error;

	if (n > CEI_LINKS_MAX + 1)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "the node has %u processes of the group, which are more than %u",
				 n, CEI_LINKS_MAX + 1);
	carrier = calloc(1, sizeof(*carrier));
	if (!carrier)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for links to processes of this node");
	error = pthread_mutex_init(&carrier->lock, NULL);
	if (error) {
		free(carrier);
		return cei_raise(report, CEOV_ERR_SYSTEM, error,
				 "no lock for links to processes of this node: %s",
				 strerror(error));
	}
	carrier->report = report;
	carrier->roster = roster;
	fill(carrier);
	*ret_carrier = carrier;
	return 0;
}

const struct cei_carrier *cei_unix_carrier(const struct cei_unix *carrier)
{
	return &carrier->carrier;
}

/* The process whose ranks these are; NULL: there is none such at this node, but maybe some of the
 * ranks are of several. */
static struct mate *mate_with(struct cei_unix *carrier, const struct cei_party *party)
{
	const struct cei_roster *roster = carrier->roster;
	uint32_t i;

	for (i = 0; i < party->n_ranks; i++)
		if (party->ranks[i] >= roster->n_ranks ||
		    roster->process_of[party->ranks[i]] != roster->process_of[party->ranks[0]])
			return NULL;
	return mate_of(carrier, roster->process_of[party->ranks[0]]);
}

/* Finds the process of each link. -1: they do not fit the roster. */
static int match(struct cei_unix *carrier, const struct cei_links *links,
		 struct mate **ret_mates)
{
	int is_taken[CEI_LINKS_MAX] = { 0 };
	struct mate *mate;
	uint32_t i;

	if (links->n_links != carrier->n_mates)
		return -1;
	for (i = 0; i < links->n_links; i++) {
		mate = mate_with(carrier, &links->links[i].party);
		if (!mate || is_taken[mate - carrier->mates])
			return -1;
		is_taken[mate - carrier->mates] = 1;
		ret_mates[i] = mate;
	}
	return 0;
}

/* Takes a link over. Returns whether its process was given up before. */
static int begin(struct mate *mate, const struct cei_node_link *link)
{
	int is_refused = mate->state == REFUSED;

	mate->fd = link->fd;
	mate->pidfd = link->pidfd;
	mate->state = OPEN;
	if (is_refused)
		refuse(mate);
	return is_refused;
}

int cei_unix_attach(struct cei_unix *carrier, struct cei_peers *peers,
		    struct cei_links *links)
{
	struct mate *mates[CEI_LINKS_MAX];
	int is_refused[CEI_LINKS_MAX];
	uint32_t i;

	if (match(carrier, links, mates)) {
		cei_links_close(links);
		return cei_raise(carrier->report, CEOV_ERR_INVALID, 0,
				 "the processes of this node hold other ranks than the group was "
				 "told; give each process the same ranks at its exchange and here");
	}
	pthread_mutex_lock(&carrier->lock);
	carrier->peers = peers;
	for (i = 0; i < links->n_links; i++)
		is_refused[i] = begin(mates[i], &links->links[i]);
	pthread_mutex_unlock(&carrier->lock);
	links->n_links = 0;
	cei_peers_wake(peers);
	for (i = 0; i < carrier->n_mates; i++)
		if (is_refused[i])
			cei_peers_quiet(peers, mates[i]->process);
		else
			cei_peers_ready(peers, mates[i]->process);
	return 0;
}

void cei_unix_close(struct cei_unix *carrier)
{
	uint32_t i;

	if (!carrier)
		return;
	for (i = 0; i < carrier->n_mates; i++)
		end(&carrier->mates[i]);
	pthread_mutex_destroy(&carrier->lock);
	free(carrier);
}
