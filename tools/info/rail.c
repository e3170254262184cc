/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes the transport of the rail that a process would open. */

#include "tools/info/rail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/ucx.h"
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

/* device NULL: any. */
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

/* --- the choice ------------------------------------------------------------------------ */

static void list_left(struct info_rail *rail, const struct cei_machine *machine,
		      const struct cei_nic_request *request, const struct cei_nic_choice *choice)
{
	struct info_left *left;
	uint32_t i;

	for (i = 0; machine && i < machine->n_nics; i++) {
		left = &rail->left[rail->n_left];
		if (!cei_nic_explain_left(machine, request, choice, i, left->why))
			continue;
		snprintf(left->name, sizeof(left->name), "%s", machine->nics[i].name);
		rail->n_left++;
	}
}

static void choose(struct info_rail *rail, const struct cei_machine *machine, const char *named,
		   struct cei_nic_choice *ret_choice)
{
	struct cei_transport_devices devices = { .n = 0 };
	uint32_t gpus[CEI_MACHINE_GPUS_MAX], i;
	struct cei_nic_request request = {
		.gpus = gpus,
		.n_gpus = machine ? machine->n_gpus : 0,
		.devices = devices.names,
		.named = named,
	};
	struct cei_report report;

	for (i = 0; i < request.n_gpus; i++)
		gpus[i] = i;
	cei_report_init(&report, drop_line, NULL);
	if (cei_transport_ucx.devices &&
	    cei_transport_ucx.devices(&report, secure_getenv("CEOVERLAP_TRANSPORTS"), &devices))
		devices.n = 0;
	cei_report_fini(&report);
	request.n_devices = devices.n;
	cei_nic_choose(machine, &request, ret_choice);
	if (!named || strchr(named, ','))
		list_left(rail, machine, &request, ret_choice);
}

void info_rail_try(const struct cei_machine *machine, struct info_rail *ret_rail)
{
	const char *named = secure_getenv("CEOVERLAP_NICS");
	struct cei_machine *read = NULL;
	struct cei_nic_choice choice;
	struct cei_report report;

	memset(ret_rail, 0, sizeof(*ret_rail));
	cei_report_init(&report, drop_line, NULL);
	if (!machine && !cei_machine_open_unmeasured(&report, &read))
		machine = read;
	cei_report_fini(&report);
	choose(ret_rail, machine, named && *named ? named : NULL, &choice);
	snprintf(ret_rail->why, sizeof(ret_rail->why), "%s", choice.why);
	try_rail(ret_rail, choice.device[0] ? choice.device : NULL);
	cei_machine_destroy(read);
}
