/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes the transport of each rail that a process would open: those that CEOVERLAP_NICS
 * asks for, else those that the machine's topology chooses. */

#include "tools/info/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx.h"
#include "topology/rails.h"
#include "topology/topology.h"

static void keep_line(void *log_arg, const char *line)
{
	struct info_rail *rail = log_arg;

	if (!rail->text[0])
		snprintf(rail->text, sizeof(rail->text), "%s", line);
}

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
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

/* Tries one more rail. device NULL: any. */
static void add(struct info_rails *rails, const char *device, const char *why)
{
	struct info_rail *rail = &rails->rails[rails->n++];

	snprintf(rail->why, sizeof(rail->why), "%s", why);
	try_rail(rail, device);
	rails->n_usable += (uint32_t)rail->is_usable;
}

static void try_named(struct info_rails *rails, const char *nics)
{
	char names[512], *rest = names, *name;

	snprintf(names, sizeof(names), "%s", nics);
	while (rails->n < CEI_NETWORK_RAILS_MAX && (name = strsep(&rest, ",")))
		add(rails, *name ? name : NULL, "named by CEOVERLAP_NICS");
}

/* --- chosen by the topology ------------------------------------------------------------- */

static void list_left(struct info_rails *rails, const struct cei_machine *machine,
		      const struct cei_rails_request *request,
		      const struct cei_rails_choice *choice)
{
	struct info_left *left;
	uint32_t i;

	for (i = 0; i < machine->n_nics; i++) {
		left = &rails->left[rails->n_left];
		if (!cei_rails_explain_left(machine, request, choice, i, left->why))
			continue;
		snprintf(left->name, sizeof(left->name), "%s", machine->nics[i].name);
		rails->n_left++;
	}
}

static void choose(struct info_rails *rails, const struct cei_machine *machine,
		   struct cei_rails_choice *ret_choice)
{
	struct cei_transport_devices devices = { .n = 0 };
	uint32_t gpus[CEI_MACHINE_GPUS_MAX], i;
	struct cei_rails_request request = {
		.gpus = gpus,
		.n_gpus = machine->n_gpus,
		.devices = devices.names,
	};
	struct cei_report report;

	for (i = 0; i < machine->n_gpus; i++)
		gpus[i] = i;
	cei_report_init(&report, drop_line, NULL);
	if (cei_transport_ucx.devices &&
	    cei_transport_ucx.devices(&report, secure_getenv("CEOVERLAP_TRANSPORTS"), &devices))
		devices.n = 0;
	cei_report_fini(&report);
	request.n_devices = devices.n;
	cei_rails_choose(machine, &request, ret_choice);
	list_left(rails, machine, &request, ret_choice);
}

static void try_chosen(struct info_rails *rails, const struct cei_machine *machine)
{
	struct cei_rails_choice choice;
	char why[CEI_RAIL_WHY_BYTES_MAX];
	uint32_t i;

	choose(rails, machine, &choice);
	for (i = 0; i < choice.n; i++) {
		cei_rails_explain(machine, &choice.rails[i], why);
		add(rails, choice.rails[i].device, why);
	}
	if (!choice.n)
		add(rails, NULL, choice.why);
}

void info_rails_try(const struct cei_machine *machine, struct info_rails *ret_rails)
{
	const char *nics = secure_getenv("CEOVERLAP_NICS");
	struct cei_machine *read = NULL;
	struct cei_report report;

	memset(ret_rails, 0, sizeof(*ret_rails));
	if (nics && *nics) {
		try_named(ret_rails, nics);
		return;
	}
	cei_report_init(&report, drop_line, NULL);
	if (!machine && !cei_machine_open_unmeasured(&report, &read))
		machine = read;
	cei_report_fini(&report);
	if (machine)
		try_chosen(ret_rails, machine);
	else
		add(ret_rails, NULL, "the machine's topology cannot be read");
	cei_machine_destroy(read);
}
