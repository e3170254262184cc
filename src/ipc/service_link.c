/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Connects to a daemon, asks it, and notices that it has gone. */

#include "ipc/service_link_private.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* The watcher looks at the end of the link so often. */
#define WATCH_NS UINT64_C(50000000)

/* Who waits for a daemon to come, or to be gone, looks so often. */
#define LISTEN_US 2000u

#define NS_PER_MS  UINT64_C(1000000)
#define POLL_MAX_MS 1000

#define FDS_MAX (2u + CEI_MEMBERS_MAX)  /* that come with WELCOME */

int cei_service_raise_lost(const struct cei_service_link *link)
{
	return cei_raise(link->config.report, CEOV_ERR_DAEMON_LOST, 0,
			 "the daemon at %s has gone; all processes of the group call "
			 "ceov_reopen() to go on",
			 link->config.path);
}

/* --- loss ------------------------------------------------------------------- */

/* Ends what waits for the daemon, once. */
static void lose(struct cei_service_link *link)
{
	if (atomic_load(&link->must_end) || atomic_exchange(&link->is_lost, 1))
		return;
	cei_service_launcher_lose(link->config.launcher);
	pthread_mutex_lock(&link->lock);
	link->has_end = 1;
	pthread_cond_broadcast(&link->answered);
	pthread_mutex_unlock(&link->lock);
	link->config.lost(link->config.arg);
}

static void *watch(void *arg)
{
	struct cei_service_link *link = arg;

	pthread_setname_np(pthread_self(), "ceov-watch");
	while (!atomic_load(&link->must_end)) {
		if (cei_alive_wait(cei_alive_word(&link->up), WATCH_NS) == CEI_ALIVE)
			continue;
		lose(link);
		break;
	}
	return NULL;
}

/* --- receiving -------------------------------------------------------------- */

/* Whether the message answers the request that waits. With the link's lock held. */
static int is_answer(const struct cei_service_link *link, const struct cei_service_message *message)
{
	const int is_end = message->type == CEI_SERVICE_REFUSED && !message->number;

	return link->wants && !link->has_answer && (is_end || message->number == link->number);
}

static void keep_answer(struct cei_service_link *link, const struct cei_service_message *message,
			struct cei_datagram *datagram)
{
	pthread_mutex_lock(&link->lock);
	if (!is_answer(link, message)) {
		if (message->type == CEI_SERVICE_COMMITTED && link->n_late < CEI_SERVICE_LATE_MAX)
			link->late[link->n_late++] = (struct cei_service_late){
				message->number, message->handle };
	} else {
		link->answer = *message;
		link->has_answer = 1;
		if (datagram->n_fds) {
			link->answer_fd = datagram->fds[0];
			datagram->fds[0] = datagram->fds[--datagram->n_fds];
		}
		pthread_cond_broadcast(&link->answered);
	}
	pthread_mutex_unlock(&link->lock);
}

/* Returns 0 when nothing more will come. */
static int receive(struct cei_service_link *link, uint8_t *bytes)
{
	int fds[FDS_MAX];
	struct cei_datagram datagram = { bytes, CEI_SERVICE_BYTES_MAX, fds, FDS_MAX };
	struct cei_service_message message;
	int r = cei_datagram_receive(link->fd, &datagram);

	if (r)
		return r == CEOV_NONE || r == CEOV_ERR_INVALID;
	if (!cei_decode(&cei_service_protocol, bytes, datagram.n_bytes, &message)) {
		if (message.type == CEI_SERVICE_FAILURE)
			link->config.failed(link->config.arg, &message.failure);
		else
			keep_answer(link, &message, &datagram);
	}
	cei_datagram_close_fds(&datagram);
	return 1;
}

static void *receive_all(void *arg)
{
	struct cei_service_link *link = arg;
	struct pollfd polled[2] = { { .fd = link->fd, .events = POLLIN },
				    { .fd = link->stop, .events = POLLIN } };
	uint8_t *bytes = malloc(CEI_SERVICE_BYTES_MAX);
	int has_bytes = bytes != NULL, goes_on = has_bytes;

	pthread_setname_np(pthread_self(), "ceov-daemon");
	while (goes_on) {
		if (poll(polled, 2, -1) < 0 && errno != EINTR)
			break;
		if (polled[1].revents)
			break;
		if (polled[0].revents)
			goes_on = receive(link, bytes);
	}
	free(bytes);
	pthread_mutex_lock(&link->lock);
	link->has_end = 1;
	link->is_closed = has_bytes && !goes_on;        /* the daemon's end has closed it */
	pthread_cond_broadcast(&link->answered);
	pthread_mutex_unlock(&link->lock);
	if (!goes_on)
		lose(link);
	return NULL;
}

/* --- opening ---------------------------------------------------------------- */

static int take_path(struct cei_report *report, const char *path, struct sockaddr_un *ret_address)
{
	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(ret_address->sun_path))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceoverlapd: the socket's path has %zu bytes, at most %zu: %s",
				 strlen(path), sizeof(ret_address->sun_path) - 1, path);
	strcpy(ret_address->sun_path, path);
	return 0;
}

/* Returns a connection, or -1 with errno set. */
static int connect_by(const struct sockaddr_un *address)
{
	int error, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || !connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

static int connect_to(struct cei_service_link *link)
{
	struct sockaddr_un address;
	int r = take_path(link->config.report, link->config.path, &address);

	if (r)
		return r;
	link->fd = connect_by(&address);
	if (link->fd >= 0)
		return 0;
	return cei_raise(link->config.report, CEOV_ERR_SYSTEM, errno,
			 "ceoverlapd: cannot connect to the daemon at %s: %s; start ceoverlapd, or "
			 "unset CEOVERLAP_DAEMON", link->config.path, strerror(errno));
}

int cei_service_link_await_daemon(struct cei_report *report, const char *path,
				  uint64_t deadline_ns)
{
	struct sockaddr_un address;
	int fd, r = take_path(report, path, &address);

	while (!r) {
		fd = connect_by(&address);
		if (fd >= 0)
			return close(fd);
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(report, CEOV_ERR_TIMEOUT, errno,
					 "ceoverlapd: no daemon listens at %s: %s; start "
					 "ceoverlapd", path, strerror(errno));
		usleep(LISTEN_US);
	}
	return r;
}

/* Waits for an event of the socket. Raises CEOV_ERR_TIMEOUT. */
static int await_socket(struct cei_service_link *link, short events, uint64_t deadline_ns)
{
	struct pollfd polled = { .fd = link->fd, .events = events };
	uint64_t now;

	for (;;) {
		now = cei_now_ns();
		if (now >= deadline_ns)
			return cei_raise(link->config.report, CEOV_ERR_TIMEOUT, 0,
					 "ceoverlapd: the daemon at %s does not answer in time",
					 link->config.path);
		now = (deadline_ns - now) / NS_PER_MS + 1;
		if (poll(&polled, 1, now < POLL_MAX_MS ? (int)now : POLL_MAX_MS) > 0)
			return 0;
	}
}

int cei_service_send_by(struct cei_service_link *link, const struct cei_datagram *datagram,
		   uint64_t deadline_ns)
{
	int r;

	for (;;) {
		r = cei_datagram_send(link->fd, datagram);
		if (r == CEOV_ERR_PEER_LOST)
			return cei_service_raise_lost(link);
		if (r == CEOV_ERR_SYSTEM)
			return cei_raise(link->config.report, r, errno,
					 "ceoverlapd: sending to the daemon: %s", strerror(errno));
		if (r != CEOV_FULL)
			return r;
		r = await_socket(link, POLLOUT, deadline_ns);
		if (r)
			return r;
	}
}

int cei_service_say(struct cei_service_link *link, const struct cei_service_message *message,
		    uint64_t deadline_ns)
{
	uint8_t *bytes = malloc(CEI_SERVICE_BYTES_MAX);
	struct cei_datagram datagram = { .bytes = bytes };
	int r;

	if (!bytes)
		return cei_raise(link->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "ceoverlapd: no memory for a message");
	datagram.n_bytes = cei_encode(&cei_service_protocol, message, bytes);
	r = cei_service_send_by(link, &datagram, deadline_ns);
	free(bytes);
	return r;
}

int cei_service_raise_refused(struct cei_service_link *link, const struct ceov_failure *refused)
{
	struct ceov_failure failure = *refused;

	return cei_raise_failure(link->config.report, &failure, "%s", refused->text);
}

static int map_areas(struct cei_service_link *link, const struct cei_datagram *datagram)
{
	struct cei_report *report = link->config.report;
	uint32_t i;
	int r;

	if (datagram->n_fds != 2 + link->welcome.n_rings ||
	    link->welcome.serves >> link->config.hello.n_members)
		return cei_raise(report, CEOV_ERR_VERSION, 0,
				 "ceoverlapd: the daemon's welcome has %u files for %u ranks; if "
				 "no more can be opened here, raise the limit (ulimit -n)",
				 datagram->n_fds, link->welcome.n_rings);
	r = cei_alive_map(report, datagram->fds[0],
			  cei_service_down_bytes(link->welcome.n_rings),
			  PROT_READ | PROT_WRITE, &link->down);
	if (!r)
		r = cei_alive_map(report, datagram->fds[1], sizeof(struct cei_service_up),
				  PROT_READ, &link->up);
	for (i = 0; !r && i < link->welcome.n_rings; i++)
		link->bells[i] = datagram->fds[2 + i];
	link->n_bells = r ? 0 : link->welcome.n_rings;
	close(datagram->fds[0]);
	close(datagram->fds[1]);
	for (i = 2; r && i < datagram->n_fds; i++)
		close(datagram->fds[i]);
	return r;
}

static int take_welcome(struct cei_service_link *link, uint8_t *bytes)
{
	int fds[FDS_MAX];
	struct cei_datagram datagram = { bytes, CEI_SERVICE_BYTES_MAX, fds, FDS_MAX };
	struct cei_service_message message;
	int r = cei_datagram_receive(link->fd, &datagram);

	if (r)
		return cei_raise(link->config.report, CEOV_ERR_SYSTEM, 0,
				 "ceoverlapd: the daemon at %s closed the connection",
				 link->config.path);
	r = cei_decode(&cei_service_protocol, bytes, datagram.n_bytes, &message);
	if (!r && message.type == CEI_SERVICE_WELCOME) {
		link->welcome = message.welcome;
		return map_areas(link, &datagram);
	}
	cei_datagram_close_fds(&datagram);
	if (!r && message.type == CEI_SERVICE_REFUSED)
		return cei_service_raise_refused(link, &message.failure);
	return cei_raise(link->config.report, CEOV_ERR_VERSION, 0,
			 "ceoverlapd: what listens at %s is no ceoverlapd of this version (magic "
			 "%x, version %u; ours %x, %u)", link->config.path, message.magic,
			 message.version, CEI_SERVICE_MAGIC, CEI_SERVICE_VERSION);
}

/* A daemon may refuse a connection before it is greeted, and close it: the refusal can be read
 * then, while nothing can be sent any more. */
static int say_hello(struct cei_service_link *link, uint8_t *bytes)
{
	struct cei_service_message message = { .type = CEI_SERVICE_HELLO,
					       .hello = link->config.hello };
	struct cei_datagram datagram = { .bytes = bytes };
	int r;

	datagram.n_bytes = cei_encode(&cei_service_protocol, &message, bytes);
	r = cei_datagram_send(link->fd, &datagram);
	return r == CEOV_FULL ? cei_service_send_by(link, &datagram, link->config.deadline_ns) : 0;
}

static int greet(struct cei_service_link *link)
{
	uint8_t *bytes = malloc(CEI_SERVICE_BYTES_MAX);
	int r;

	if (!bytes)
		return cei_raise(link->config.report, CEOV_ERR_NO_MEMORY, 0,
				 "ceoverlapd: no memory for a message");
	r = say_hello(link, bytes);
	if (!r)
		r = await_socket(link, POLLIN, link->config.deadline_ns);
	if (!r)
		r = take_welcome(link, bytes);
	free(bytes);
	return r;
}

static int start_thread(struct cei_service_link *link, void *(*run)(void *), pthread_t *thread)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);               /* signals are for the application's threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, NULL, run, link);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return 0;
	return cei_raise(link->config.report, CEOV_ERR_SYSTEM, error,
			 "ceoverlapd: cannot start a thread: %s", strerror(error));
}

static int start(struct cei_service_link *link)
{
	const struct cei_service_areas areas = { link->down.memory, link->up.memory,
						 link->welcome.n_rings, link->bells };
	const struct cei_service_message ready = { .type = CEI_SERVICE_READY };
	int r;

	link->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (link->stop < 0)
		return cei_raise(link->config.report, CEOV_ERR_SYSTEM, errno,
				 "ceoverlapd: eventfd: %s", strerror(errno));
	r = cei_alive_open(link->config.report, &link->alive);
	if (!r)
		r = cei_alive_hold(link->alive, &link->down);
	if (!r)                 /* from now on the daemon watches the word */
		r = cei_service_say(link, &ready, link->config.deadline_ns);
	if (r)
		return r;
	cei_service_launcher_attach(link->config.launcher, &areas);
	r = start_thread(link, receive_all, &link->receiver);
	link->has_receiver = !r;
	if (!r)
		r = start_thread(link, watch, &link->watcher);
	link->has_watcher = !r;
	return r;
}

static struct cei_service_link *new_link(const struct cei_service_link_config *config)
{
	struct cei_service_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->config = *config;
	link->config.path = strdup(config->path);
	link->fd = link->stop = link->answer_fd = -1;
	pthread_mutex_init(&link->asking, NULL);
	pthread_mutex_init(&link->lock, NULL);
	(void)cei_condition_init(&link->answered);      /* on Linux it cannot fail */
	return link;
}

int cei_service_link_open(const struct cei_service_link_config *config,
			  struct cei_service_link **ret_link)
{
	struct cei_service_link *link = new_link(config);
	int r;

	if (!link || !link->config.path) {
		free(link);
		return cei_raise(config->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceoverlapd: no memory for a connection");
	}
	r = connect_to(link);
	if (!r)
		r = greet(link);
	if (!r)
		r = start(link);
	if (r)
		cei_service_link_close(link, 0);
	else
		*ret_link = link;
	return r;
}

/* --- closing ---------------------------------------------------------------- */

/* The daemon closes the socket when it does not touch the client's memory any more. */
static void await_end(struct cei_service_link *link, uint64_t deadline_ns)
{
	pthread_mutex_lock(&link->lock);
	while (!link->has_end &&
	       !cei_condition_wait(&link->answered, &link->lock, deadline_ns))
		;
	if (!link->has_end)
		cei_log(link->config.report, CEI_LOG_WARN,
			"ceoverlapd: the daemon has not ended this client in time, and may still "
			"move its data");
	pthread_mutex_unlock(&link->lock);
}

static void stop_threads(struct cei_service_link *link)
{
	uint64_t one = 1;

	if (link->stop >= 0 && write(link->stop, &one, sizeof(one)) < 0)
		cei_log(link->config.report, CEI_LOG_WARN, "ceoverlapd: write to an eventfd: %s",
			strerror(errno));
	if (link->has_receiver)
		pthread_join(link->receiver, NULL);
	if (link->has_watcher)
		pthread_join(link->watcher, NULL);
}

void cei_service_link_close(struct cei_service_link *link, uint64_t deadline_ns)
{
	const struct cei_service_message bye = { .type = CEI_SERVICE_BYE };
	uint32_t i;

	if (!link)
		return;
	atomic_store(&link->must_end, 1);
	if (link->has_receiver && !atomic_load(&link->is_lost) &&
	    !cei_service_say(link, &bye, deadline_ns))
		await_end(link, deadline_ns);
	stop_threads(link);
	cei_service_launcher_detach(link->config.launcher);
	cei_alive_close(link->alive);
	cei_alive_unmap(&link->down);
	cei_alive_unmap(&link->up);
	for (i = 0; i < link->n_bells; i++)
		close(link->bells[i]);
	if (link->answer_fd >= 0)
		close(link->answer_fd);
	if (link->stop >= 0)
		close(link->stop);
	if (link->fd >= 0)
		close(link->fd);
	pthread_cond_destroy(&link->answered);
	pthread_mutex_destroy(&link->asking);
	pthread_mutex_destroy(&link->lock);
	free((char *)(uintptr_t)link->config.path);
	free(link);
}

int cei_service_link_is_lost(const struct cei_service_link *link)
{
	return (int)atomic_load(&link->is_lost);
}

int cei_service_link_await_loss(struct cei_service_link *link, uint64_t deadline_ns)
{
	int is_closed;

	if (!atomic_load(&link->is_lost) && cei_alive_state(cei_alive_word(&link->up)) == CEI_ALIVE)
		return CEOV_NONE;
	for (;;) {
		pthread_mutex_lock(&link->lock);
		is_closed = link->is_closed;    /* the kernel closes a dead process's socket when
						 * none of its threads runs any more */
		pthread_mutex_unlock(&link->lock);
		if (is_closed && atomic_load(&link->is_lost))
			return 0;
		if (cei_now_ns() >= deadline_ns)
			return CEOV_PENDING;
		usleep(LISTEN_US);
	}
}

const struct cei_service_welcome *cei_service_link_welcome(const struct cei_service_link *link)
{
	return &link->welcome;
}
