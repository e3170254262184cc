/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes the transport of each rail that CEOVERLAP_NICS asks for. */

#include "tools/info/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx.h"

static void keep_line(void *log_arg, const char *line)
{
	struct info_rail *rail = log_arg;

	if (!rail->text[0])
		snprintf(rail->text, sizeof(rail->text), "%s", line);
}

/* Nobody connects to a transport that is only tried. */
static void nothing_is_heard(void *arg, struct cei_transport_peer *from, const void *message,
			     uint32_t n_bytes)
{
	(void)arg;
	(void)from;
	(void)message;
	(void)n_bytes;
}

static void try_rail(struct info_rail *rail, const char *device)
{
	const struct cei_transport_events events = { .heard = nothing_is_heard };
	struct cei_transport transport = { .ops = &cei_transport_ucx };
	struct cei_report report;
	const char *why = "";
	int r;

	snprintf(rail->name, sizeof(rail->name), "%s", device ? device : "any");
	cei_report_init(&report, keep_line, rail);
	transport.config.report = &report;
	transport.config.device = device;
	transport.config.kinds = secure_getenv("CEOVERLAP_TRANSPORTS");
	transport.config.n_peers = 1;
	transport.config.events = &events;
	r = transport.ops->open(&transport, &why);
	if (!r) {
		rail->is_usable = 1;
		snprintf(rail->text, sizeof(rail->text), "%s",
			 transport.ops->describe(&transport));
		transport.ops->close(&transport);
	} else if (r == CEOV_NONE) {
		snprintf(rail->text, sizeof(rail->text), "%s", why);
	}
	cei_report_fini(&report);
}

void info_rails_try(struct info_rails *ret_rails)
{
	const char *nics = secure_getenv("CEOVERLAP_NICS");
	char names[512], *rest = names, *name;
	struct info_rail *rail;

	memset(ret_rails, 0, sizeof(*ret_rails));
	snprintf(names, sizeof(names), "%s", nics ? nics : "");
	while (ret_rails->n < CEI_NETWORK_RAILS_MAX && (name = strsep(&rest, ","))) {
		rail = &ret_rails->rails[ret_rails->n++];
		try_rail(rail, *name ? name : NULL);
		ret_rails->n_usable += (uint32_t)rail->is_usable;
	}
}
