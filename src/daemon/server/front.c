/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens the daemon's engines and its socket, and turns the front thread's loop. */

#include "daemon/server/server.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "backend/place.h"
#include "base/clock.h"
#include "base/cuda_driver.h"
#include "ce_engine/engine/clients.h"
#include "ce_engine/engine/works_open.h"
#include "ce_engine/plan/plan_release.h"
#include "ce_engine/sched/tally.h"
#include "daemon/server/client.h"
#include "daemon/server/gpus.h"
#include "daemon/server/journal.h"
#include "daemon/server/listener.h"

/* All clients are looked at so often: at who says nothing in time, and who did not read. */
#define LOOK_US UINT64_C(100000)

/* Engines that are to end have so long. */
#define STOP_NS UINT64_C(10000000000)

/* Descriptors that this process opens for a moment: of who connects, asks, and reads metrics. */
#define OWN_FDS UINT64_C(64)
#define FDS_MAX (UINT64_C(1) << 20)

/* The loop takes these. */
static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 };

/* --- engines ------------------------------------------------------------------ */

static int open_works(struct cei_server *server)
{
	struct cei_site *site = &server->site;
	uint32_t i, n = server->config.settings.n_host_engines;
	int r;

	if (!n || n > CEI_MEMBERS_MAX)
		return cei_raise(&server->report, CEOV_ERR_INVALID, 0,
				 "host_engines is %u, must be 1 to %u", n, CEI_MEMBERS_MAX);
	site->report = &server->report;
	site->n_ranks = site->n_members = n;
	site->movers = cei_backends;
	site->has_clients = 1;
	if (getrandom(site->instance, sizeof(site->instance), 0) != sizeof(site->instance))
		return cei_raise(&server->report, CEOV_ERR_SYSTEM, errno, "getrandom");
	memcpy(server->instance, site->instance, sizeof(server->instance));
	for (i = 0; i < n; i++) {
		site->members[i].rank = i;
		site->members[i].place.kind = CEOV_PLACE_HOST;
	}
	r = cei_gpus_add(site, server->config.settings.gpus);
	for (i = 0; !r && i < site->n_members; i++) {
		r = cei_intake_init(&server->intakes[i], &server->report);
		server->works.sources[i] = &server->intakes[i].source;
		server->works.tallies[i] = cei_tally_create();
		if (!r && !server->works.tallies[i])
			r = cei_raise(&server->report, CEOV_ERR_NO_MEMORY, 0,
				      "no memory to count what engines move");
	}
	if (!r)
		r = cei_works_open(&server->works, site);
	if (!r)
		r = cei_clients_share(&server->works);
	if (!r)
		r = cei_flows_tune(server->works.flows, &server->config.settings.classes);
	return r ? r : cei_works_start(&server->works, 1);
}

/* --- the socket --------------------------------------------------------------- */

static int open_socket(struct cei_server *server)
{
	const struct cei_settings *settings = &server->config.settings;
	const struct cei_listener_path ask = { settings->socket, SOCK_SEQPACKET, settings->mode,
					       settings->group };
	int r;

	if (!*settings->socket)
		return cei_listener_take_passed(&server->report, &server->listener);
	r = cei_listener_bind(&server->report, &ask, &server->listener);
	server->made_path = !r;
	return r;
}

/* Counts this process's descriptors. */
static uint64_t count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint64_t n = 0;

	while (folder && readdir(folder))
		n++;
	if (folder)
		closedir(folder);
	return n;
}

/* Lets this process have as many descriptors as the system does, and gives clients those that it
 * does not need itself. */
static void share_fds(struct cei_server *server)
{
	struct rlimit limit = { .rlim_cur = 1024, .rlim_max = 1024 };
	uint64_t n_own = count_fds() + OWN_FDS, n;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
		(void)getrlimit(RLIMIT_NOFILE, &limit);
	}
	n = limit.rlim_cur < FDS_MAX ? limit.rlim_cur : FDS_MAX;
	cei_accounts_limit_fds(&server->accounts, n > n_own ? n - n_own : 0);
}

/* --- events ------------------------------------------------------------------- */

static void drain(int fd)
{
	uint64_t n;
	ssize_t r;

	do
		r = read(fd, &n, sizeof(n));
	while (r < 0 && errno == EINTR);
}

static void look_at_fences(struct cei_server *server)
{
	uint32_t found = cei_fences_look(&server->fences), i;
	struct cei_list *node;

	for (i = 0; found >> i; i++)
		for (node = server->clients.next; found >> i & 1 && node != &server->clients;
		     node = node->next)
			cei_client_tell_fence(CEI_OWNER(node, struct cei_client, link), i);
}

static void look_at_all(struct cei_server *server)
{
	struct cei_list *node, *next;
	uint64_t now_ns = cei_now_ns();

	look_at_fences(server);
	for (node = server->clients.next; node != &server->clients; node = next) {
		next = node->next;
		cei_client_look(CEI_OWNER(node, struct cei_client, link), now_ns);
	}
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	int connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct cei_server *server = arg;

	(void)events;
	if (connection >= 0)
		(void)cei_client_new(server, connection);
	else if (errno == EMFILE || errno == ENFILE) {
		/* on_time() listens again: else the loop would turn without a pause */
		(void)sd_event_source_set_enabled(source, SD_EVENT_OFF);
		server->listening = source;
		cei_log(&server->report, CEI_LOG_WARN, "a connection has to wait: too many files "
			"are open (LimitNOFILE=)");
	}
	return 0;
}

static int on_finished(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct cei_server *server = arg;

	(void)source;
	(void)events;
	drain(fd);
	cei_porter_finish(&server->porter);
	return 0;
}

static int on_news(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	(void)source;
	(void)events;
	drain(fd);
	look_at_all(arg);
	return 0;
}

static void end_all(struct cei_server *server)
{
	struct cei_list *node, *next;

	for (node = server->clients.next; node != &server->clients; node = next) {
		next = node->next;
		cei_client_end(CEI_OWNER(node, struct cei_client, link), CEOV_ERR_DAEMON_LOST);
	}
}

/* Whether a launch of any client is in flight. */
static int is_working(const struct cei_server *server)
{
	const struct cei_client *client;
	const struct cei_list *node;

	for (node = server->clients.next; node != &server->clients; node = node->next) {
		client = CEI_OWNER(node, const struct cei_client, link);
		/* while a task is under way, the context is the porter's */
		if (client->state == CEI_CLIENT_OPEN && !client->has_task && client->context &&
		    cei_plans_are_moving(client->context))
			return 1;
	}
	return 0;
}

/* While the daemon drains: ends the clients when nothing is in flight any more, and the loop when
 * they have ended. */
static void go_on_draining(struct cei_server *server)
{
	if (cei_now_ns() >= server->drain_by_ns || !is_working(server))
		end_all(server);
	if (cei_list_is_empty(&server->clients))
		(void)sd_event_exit(server->event, 0);
}

static int on_time(sd_event_source *source, uint64_t now_us, void *arg)
{
	struct cei_server *server = arg;

	if (server->listening)
		(void)sd_event_source_set_enabled(server->listening, SD_EVENT_ON);
	server->listening = NULL;
	look_at_all(server);
	if (server->hooks.look)
		server->hooks.look(server->hooks.arg, cei_now_ns());
	if (server->is_draining)
		go_on_draining(server);
	(void)sd_event_source_set_time(source, now_us +
				       (server->is_draining ? LOOK_US / 10 : LOOK_US));
	return sd_event_source_set_enabled(source, SD_EVENT_ON);
}

void cei_server_drain(struct cei_server *server)
{
	if (server->is_draining) {
		server->drain_by_ns = 0;        /* asked twice: now */
		return;
	}
	cei_log(&server->report, CEI_LOG_INFO, "takes no new clients and plans, and ends when all "
		"launches have");
	/* Launches may have longer than systemd gives a service by itself. */
	(void)sd_notifyf(0, "STOPPING=1\nSTATUS=ends when all launches have\n"
			 "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)
			 ((server->config.settings.drain_ns + 2 * STOP_NS) / 1000));
	server->is_draining = 1;
	server->drain_by_ns = cei_deadline(server->config.settings.drain_ns);
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
	struct cei_server *server = arg;

	(void)source;
	if (info->ssi_signo == SIGTERM || info->ssi_signo == SIGINT)
		cei_server_drain(server);
	else if (server->hooks.signal)
		server->hooks.signal(server->hooks.arg, info->ssi_signo);
	return 0;
}

static int add_signals(struct cei_server *server)
{
	size_t i;
	int r = 0;

	for (i = 0; r >= 0 && i < sizeof(signals) / sizeof(signals[0]); i++)
		r = sd_event_add_signal(server->event, NULL, signals[i], on_signal, server);
	return r;
}

static int add_events(struct cei_server *server)
{
	sd_event *event = server->event;
	uint64_t now_us;
	int r;

	r = add_signals(server);
	if (r >= 0)
		r = sd_event_add_io(event, NULL, server->listener, EPOLLIN, on_connection, server);
	if (r >= 0)
		r = sd_event_add_io(event, NULL, server->porter.bell, EPOLLIN, on_finished, server);
	if (r >= 0)
		r = sd_event_add_io(event, NULL, server->news, EPOLLIN, on_news, server);
	if (r >= 0)
		r = sd_event_now(event, CLOCK_MONOTONIC, &now_us);
	if (r >= 0)
		r = sd_event_add_time(event, NULL, CLOCK_MONOTONIC, now_us + LOOK_US, 0, on_time,
				      server);
	return r < 0 ? cei_raise(&server->report, CEOV_ERR_SYSTEM, -r, "events: %s", strerror(-r))
		: 0;
}

/* --- life --------------------------------------------------------------------- */

static int open_loop(struct cei_server *server)
{
	int r = sd_event_new(&server->event);

	if (r < 0)
		return cei_raise(&server->report, CEOV_ERR_SYSTEM, -r, "sd_event_new: %s",
				 strerror(-r));
	server->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->news < 0)
		return cei_raise(&server->report, CEOV_ERR_SYSTEM, errno, "eventfd: %s",
				 strerror(errno));
	return add_events(server);
}

/* Before any thread begins, which all inherit it: the loop alone takes these signals. */
static void block_signals(void)
{
	sigset_t mask;
	size_t i;

	sigemptyset(&mask);
	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&mask, signals[i]);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
}

int cei_server_open(struct cei_server *server, const struct cei_server_config *config)
{
	int r;

	block_signals();
	server->config = *config;
	server->began_ns = cei_now_ns();
	server->fairness = 1;
	server->listener = server->news = -1;
	cei_report_init(&server->report, cei_journal_line, NULL);
	cei_list_init(&server->clients);
	cei_accounts_init(&server->accounts, &config->settings.limits);
	pthread_mutex_init(&server->shares_lock, NULL);
	r = open_works(server);
	server->fences.works = &server->works;
	server->fences.report = &server->report;
	server->fences.n = server->site.n_members;
	if (!r)
		r = cei_porter_init(&server->porter, &server->report);
	if (!r)
		r = cei_alive_open(&server->report, &server->alive);
	if (!r)
		r = cei_alive_watch_open(&server->report, &server->watch);
	if (!r)
		r = open_socket(server);
	if (!r)
		r = open_loop(server);
	share_fds(server);
	return r;
}

/* So that who starts it in a terminal sees that it waits for clients, and where. */
static void tell_begin(struct cei_server *server)
{
	const struct cei_settings *settings = &server->config.settings;
	uint32_t n_host = settings->n_host_engines;

	cei_journal_write(CEI_LOG_INFO, "ceoverlapd: serves at %s, engines: %u for host memory "
			  "and %u for GPUs", *settings->socket ? settings->socket
			  : "the socket of systemd", n_host, server->site.n_members - n_host);
}

int cei_server_run(struct cei_server *server)
{
	int r;

	tell_begin(server);
	(void)sd_notify(0, "READY=1\nSTATUS=serves");
	r = sd_event_loop(server->event);
	if (r >= 0)
		return 0;
	return cei_raise(&server->report, CEOV_ERR_SYSTEM, -r, "sd_event_loop: %s", strerror(-r));
}

void cei_server_close(struct cei_server *server)
{
	uint32_t i;

	cei_porter_fini(&server->porter);
	if (cei_works_stop(&server->works, STOP_NS))
		cei_log(&server->report, CEI_LOG_WARN, "copies are still under way that cannot be "
			"stopped");
	cei_works_close_engines(&server->works);
	cei_works_close(&server->works);
	for (i = 0; i < CEI_MEMBERS_MAX; i++) {
		cei_intake_fini(&server->intakes[i]);
		cei_tally_destroy(server->works.tallies[i]);
	}
	if (server->site.cuda)
		cei_cuda_close(server->site.cuda);
	cei_alive_watch_close(server->watch);
	cei_alive_close(server->alive);
	sd_event_unref(server->event);
	/* first the file, which may be the next daemon's as soon as nobody listens */
	if (server->made_path)
		(void)unlink(server->config.settings.socket);
	if (server->listener >= 0)
		close(server->listener);
	if (server->news >= 0)
		close(server->news);
	cei_accounts_fini(&server->accounts);
	pthread_mutex_destroy(&server->shares_lock);
	cei_report_fini(&server->report);
}
