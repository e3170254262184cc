/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "daemon/fences.h"

#include <stdio.h>

#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "daemon/client.h"
#include "daemon/server.h"

static int read_fence(struct cei_server *server, uint32_t engine, char ret_why[CEI_LOST_BYTES])
{
	return server->works.engines
		? cei_fence_read(&server->works.engines[engine].fence, ret_why) : 0;
}

int cei_fences_refuse(struct cei_server *server, uint32_t engine,
		      char ret_text[CEOV_FAILURE_TEXT_BYTES])
{
	char why[CEI_LOST_BYTES];
	int error = read_fence(server, engine, why);

	if (error)
		snprintf(ret_text, CEOV_FAILURE_TEXT_BYTES, "ceoverlapd: %s; the daemon has fenced "
			 "it, and carries out nothing there until it is started anew", why);
	return error;
}

static void notice(struct cei_server *server, uint32_t engine, const char *why)
{
	struct cei_list *node;

	server->fenced_ns[engine] = cei_now_ns();
	snprintf(server->fenced_why[engine], sizeof(server->fenced_why[engine]), "%s", why);
	cei_log(&server->report, CEI_LOG_ERROR, "fenced: %s; its launches have ended, and it gets "
		"no more until the daemon is started anew; all else is served as before", why);
	(void)sd_notifyf(0, "STATUS=serves, but has fenced: %s", why);
	for (node = server->clients.next; node != &server->clients; node = node->next)
		cei_client_tell_fence(CEI_OWNER(node, struct cei_client, link), engine);
}

void cei_fences_look(struct cei_server *server)
{
	char why[CEI_LOST_BYTES];
	uint32_t i;

	for (i = 0; i < server->site.n_members; i++)
		if (!server->fenced_ns[i] && read_fence(server, i, why))
			notice(server, i, why);
}
