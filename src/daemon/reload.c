/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads the configuration file again while clients are served. */

#include "daemon/reload.h"

#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "ce_engine/sched/flows.h"
#include "ce_engine/sched/tally.h"
#include "daemon/client.h"
#include "daemon/server.h"

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

static int fail(struct cei_server *server, int error, const struct cei_settings_fault *fault)
{
	return cei_raise(&server->report, error, 0, "%s; all settings stay as they were",
			 fault->text);
}

/* systemd wants to know when a reload began (Type=notify-reload), and that it has ended. */
static void tell_begin(const struct cei_server *server)
{
	char text[64];

	if (server->is_draining)        /* it knows that the daemon ends, and would wait for more */
		return;
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		 (unsigned long long)(cei_now_ns() / 1000));
	(void)sd_notify(0, text);
}

int cei_server_reload(struct cei_server *server, struct cei_settings_fault *ret_fault)
{
	struct cei_settings of_file;
	const char *name;
	int r;

	if (!server->config.file) {
		snprintf(ret_fault->text, sizeof(ret_fault->text),
			 "the daemon was started without a configuration file (--config)");
		return fail(server, CEOV_ERR_STATE, ret_fault);
	}
	tell_begin(server);
	server->fault.text[0] = 0;
	r = cei_settings_read(server->config.file, &of_file, &server->fault);
	if (!server->is_draining)
		(void)sd_notify(0, "READY=1");
	if (r) {
		*ret_fault = server->fault;
		return fail(server, r, ret_fault);
	}
	name = cei_settings_at_start(&server->config.of_file, &of_file);
	if (name)
		cei_log(&server->report, CEI_LOG_WARN, "%s: '%s' is not what it was when the "
			"daemon was started, and takes effect when it is started anew",
			server->config.file, name);
	server->n_reloads++;
	take_over(server, &of_file);
	apply(server);
	cei_log(&server->report, CEI_LOG_INFO, "%s was read again", server->config.file);
	return 0;
}
