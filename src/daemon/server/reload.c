/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads the configuration file again while clients are served. */

#include "daemon/server/reload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/sched/flows.h"
#include "ce_engine/sched/tally.h"
#include "daemon/server/client.h"
#include "daemon/server/porter.h"
#include "daemon/server/server.h"
#include "daemon/server/settings.h"

struct cei_reload {
	struct cei_server        *server;
	struct sd_event_source   *source;
	uint64_t                  n_begun;      /* readings */
	uint64_t                  n_done;
	uint64_t                  began_ns;     /* the last of them */
	int                       is_running;
	int                       wants_more;   /* somebody has asked since it began */
	int                       result;       /* of the last that is done */
	struct cei_settings_fault fault;        /* likewise */

	/* what the thread uses */
	struct cei_porter         porter;
	struct cei_task           task;
	const char               *file;         /* NULL: there is none */
	int                       read_result;
	struct cei_settings       of_file;
	struct cei_settings_fault read_fault;
};

/* --- taking over --------------------------------------------------------------- */

/* What the command line said over the file stays. */
static void take_over(struct cei_server *server, const struct cei_settings *of_file)
{
	struct cei_settings *settings = &server->config.settings;

	if (!server->config.has_drain)
		settings->drain_ns = of_file->drain_ns;
	memcpy(settings->textfile, of_file->textfile, sizeof(settings->textfile));
	settings->textfile_ns = of_file->textfile_ns;
	memcpy(settings->slo_ns, of_file->slo_ns, sizeof(settings->slo_ns));
	settings->classes = of_file->classes;
	settings->limits = of_file->limits;
}

void cei_server_set_aims(struct cei_server *server)
{
	uint32_t i, k;

	for (i = 0; i < server->site.n_members; i++)
		for (k = 0; k < CEI_FLOWS_URGENCIES; k++)
			cei_tally_aim(server->works.tallies[i], k,
				      server->config.settings.slo_ns[k]);
}

static void apply(struct cei_server *server)
{
	struct cei_list *node;

	cei_accounts_limit(&server->accounts, &server->config.settings.limits);
	(void)cei_flows_tune(server->works.flows, &server->config.settings.classes);
	cei_server_set_aims(server);
	for (node = server->clients.next; node != &server->clients; node = node->next)
		cei_client_set_share(CEI_OWNER(node, struct cei_client, link));
}

/* --- the reading --------------------------------------------------------------- */

/* The thread's: it looks at nothing of the server, which may have gone before it ends. */
static int run(struct cei_task *task)
{
	struct cei_reload *reload = CEI_OWNER(task, struct cei_reload, task);

	reload->read_result = cei_settings_read(reload->file, &reload->of_file,
						&reload->read_fault);
	return 0;
}

/* systemd wants to know when a reload began (Type=notify-reload), and that it has ended. A daemon
 * that drains has said already that it ends. */
static void tell_begin(const struct cei_server *server)
{
	char text[64];

	if (server->is_draining)
		return;
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(cei_now_ns() / 1000));
	(void)sd_notify(0, text);
}

static void note_fault(struct cei_reload *reload, int error)
{
	reload->result = cei_raise(&reload->server->report, error, 0,
				   "%s; all settings stay as they were", reload->fault.text);
}

static void take_what_was_read(struct cei_reload *reload)
{
	struct cei_server *server = reload->server;
	const char *name = cei_settings_at_start(&server->config.of_file, &reload->of_file);

	if (name)
		cei_log(&server->report, CEI_LOG_WARN, "%s: '%s' is not what it was when the "
			"daemon was started, and takes effect when it is started anew",
			server->config.file, name);
	server->n_reloads++;
	take_over(server, &reload->of_file);
	apply(server);
	reload->result = 0;
	cei_log(&server->report, CEI_LOG_INFO, "%s was read again", server->config.file);
}

static void start(struct cei_reload *reload)
{
	tell_begin(reload->server);
	reload->is_running = 1;
	reload->wants_more = 0;
	reload->began_ns = cei_now_ns();
	reload->n_begun++;
	reload->read_fault.text[0] = 0;
	cei_porter_give(&reload->porter, &reload->task);
}

static void done(struct cei_task *task)
{
	struct cei_reload *reload = CEI_OWNER(task, struct cei_reload, task);
	struct cei_server *server = reload->server;

	if (!server->is_draining)
		(void)sd_notify(0, "READY=1");
	reload->is_running = 0;
	reload->n_done = reload->n_begun;
	reload->fault = server->fault = reload->read_fault;
	if (reload->read_result)
		note_fault(reload, reload->read_result);
	else
		take_what_was_read(reload);
	if (server->hooks.look)         /* who asked is answered at once */
		server->hooks.look(server->hooks.arg, cei_now_ns());
	if (reload->wants_more)
		start(reload);
}

uint64_t cei_reload_begin(struct cei_reload *reload)
{
	if (!reload->file) {
		snprintf(reload->fault.text, sizeof(reload->fault.text),
			 "the daemon was started without a configuration file (--config)");
		note_fault(reload, CEOV_ERR_STATE);
		return reload->n_done = ++reload->n_begun;
	}
	if (!reload->is_running) {
		start(reload);
		return reload->n_begun;
	}
	reload->wants_more = 1;         /* what is read now may be older */
	return reload->n_begun + 1;
}

int cei_reload_result(const struct cei_reload *reload, uint64_t number, const char **ret_fault)
{
	*ret_fault = reload->fault.text;
	if (reload->n_done >= number)
		return reload->result;
	if (cei_now_ns() < reload->began_ns + CEI_RELOAD_PATIENCE_NS)
		return CEOV_PENDING;
	*ret_fault = "the configuration file, or names of users and groups in it, could not be "
		"read yet; when they are, the settings are taken over";
	return CEOV_ERR_TIMEOUT;
}

/* --- life ---------------------------------------------------------------------- */

static int on_finished(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct cei_reload *reload = arg;
	uint64_t n;

	(void)source;
	(void)events;
	while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
	cei_porter_finish(&reload->porter);
	return 0;
}

int cei_reload_open(struct cei_server *server, struct cei_reload **ret_reload)
{
	struct cei_reload *reload = calloc(1, sizeof(*reload));
	int r;

	if (!reload)
		return cei_raise(&server->report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to read settings again");
	reload->server = server;
	reload->file = server->config.file;
	reload->task.run = run;
	reload->task.done = done;
	r = cei_porter_init(&reload->porter, &server->report);
	*ret_reload = reload;
	if (r)
		return r;
	r = sd_event_add_io(server->event, &reload->source, reload->porter.bell, EPOLLIN,
			    on_finished, reload);
	return r < 0 ? cei_raise(&server->report, CEOV_ERR_SYSTEM, -r, "events: %s", strerror(-r))
		: 0;
}

void cei_reload_close(struct cei_reload *reload)
{
	if (!reload)
		return;
	sd_event_source_disable_unref(reload->source);
	reload->wants_more = 0;
	if (reload->porter.has_thread)
		cei_porter_finish(&reload->porter);
	if (reload->is_running) {
		cei_log(&reload->server->report, CEI_LOG_WARN, "%s is still being read, which "
			"nobody waits for any more", reload->file);
		return;
	}
	cei_porter_fini(&reload->porter);
	free(reload);
}
