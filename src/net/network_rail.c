/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The rail that a process opens, on one network interface: of those that somebody named, or of all,
 * the one that the machine's topology assigns to the GPU of its first member on a GPU. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network.h"
#include "net/network_private.h"

_Static_assert(CEI_NIC_DEVICE_BYTES == CEI_TRANSPORT_DEVICE_BYTES, "names fit");

/* --- what the rail tells ------------------------------------------------------------------- */

static int find(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	struct cei_network *network = arg;
	const void *address = cei_book_address(network->book, process, ret_n_bytes);

	if (!*ret_n_bytes)
		return CEOV_NONE;
	memcpy(ret_address, address, *ret_n_bytes);
	return 0;
}

static void heard(void *arg, uint32_t process, const struct cei_far_message *message)
{
	struct cei_network *network = arg;

	if (message->type == CEI_FAR_NOTE) {
		cei_carrier_rails_heard(network->carrier, process, &message->note);
		return;
	}
	pthread_mutex_lock(&network->lock);
	cei_network_heard_clock(network, process, &message->clock);
	pthread_mutex_unlock(&network->lock);
}

static void losing(void *arg, uint32_t process, const char *why, int is_refusal)
{
	cei_carrier_rails_losing(((struct cei_network *)arg)->carrier, process, why, is_refusal);
}

static void gone(struct cei_network *network, uint32_t process)
{
	pthread_mutex_lock(&network->lock);
	cei_network_clock_gone(network, process);
	pthread_mutex_unlock(&network->lock);
}

static void lost(void *arg, uint32_t process, const char *why, int is_uncertain)
{
	struct cei_network *network = arg;

	(void)why;
	if (is_uncertain)
		cei_log(network->site->report, CEI_LOG_ERROR,
			"network: bytes of process %u may still land in memory that it was "
			"writing to; the contents of that are uncertain", process);
	gone(network, process);
	cei_carrier_rails_lost(network->carrier, process);
}

static void departed(void *arg, uint32_t process)
{
	struct cei_network *network = arg;

	gone(network, process);
	cei_carrier_rails_departed(network->carrier, process);
}

static const struct cei_rail_events events = {
	.find = find,
	.losing = losing,
	.lost = lost,
	.departed = departed,
	.heard = heard,
};

/* --- opening --------------------------------------------------------------------------------- */

static int open_carrier(struct cei_network *network, const struct cei_network_opening *opening)
{
	if (!cei_carrier_rails_open(opening->exchange->n_processes,
				    network->site->progress_by_caller, &network->carrier))
		return 0;
	return cei_raise(network->site->report, CEOV_ERR_NO_MEMORY, 0,
			 "ceov_open: no memory to talk to %u processes",
			 opening->exchange->n_processes);
}

static int open_rail(struct cei_network *network, const struct cei_network_opening *opening,
		     const char *device, const char *reason)
{
	struct cei_rail_config config = {
		.report = network->site->report,
		.transport = network->transport,
		.device = device,
		.kinds = network->kinds,
		.process = opening->exchange->process,
		.n_processes = opening->exchange->n_processes,
		.instance = { network->site->instance[0], network->site->instance[1] },
		.timeout_ns = opening->public.peer_timeout_ns,
		.progress_by_caller = network->site->progress_by_caller,
		.events = &events,
		.events_arg = network,
		.copier = network->copier,
		.copier_arg = network->copier_arg,
	};
	const char *why = "";
	int r = open_carrier(network, opening);

	if (r)
		return r;
	snprintf(network->rail_why, sizeof(network->rail_why), "%s", reason);
	r = cei_rail_open(&config, &network->rail, &why);
	if (!r)
		cei_carrier_rails_attach(network->carrier, network->rail);
	if (r == CEOV_NONE)
		snprintf(network->unreachable, sizeof(network->unreachable), "%s: %s",
			 network->transport->name, why);
	return r;
}

/* --- chosen by the topology ----------------------------------------------------------------- */

/* Writes the GPUs of this process's members. Returns how many members are on one. */
static uint32_t list_gpus(const struct cei_site *site, uint32_t ret_gpus[CEI_MEMBERS_MAX])
{
	uint32_t i, n = 0;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU)
			ret_gpus[n++] = site->members[i].place.index;
	return n;
}

/* Notes which NICs are not used, and why. */
static int keep_left(struct cei_network *network, const struct cei_nic_request *request,
		     const struct cei_nic_choice *choice)
{
	const struct cei_machine *machine = network->machine;
	struct cei_network_left *left;
	uint32_t i;

	_Static_assert(sizeof(left->name) >= CEI_MACHINE_NAME_BYTES, "names fit");
	network->left = calloc(machine->n_nics + 1u, sizeof(*network->left));
	if (!network->left)
		return cei_raise(network->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for a list of %u NICs", machine->n_nics);
	for (i = 0; i < machine->n_nics; i++) {
		left = &network->left[network->n_left];
		if (!cei_nic_explain_left(machine, request, choice, i, left->why))
			continue;
		snprintf(left->name, sizeof(left->name), "%s", machine->nics[i].name);
		network->n_left++;
		cei_log(network->site->report, CEI_LOG_INFO, "network: no rail is on %s: %s",
			left->name, left->why);
	}
	return 0;
}

/* Whether there is something to choose by: several interfaces, and where the GPUs are. */
static int has_choice(const struct cei_network *network, const struct cei_nic_request *request)
{
	return network->machine && request->n_gpus && network->transport->devices &&
		(!request->named || strchr(request->named, ','));
}

/* Chooses among the interfaces that the transport has. Errors are raised. */
static int choose(struct cei_network *network, const char *named, struct cei_nic_choice *choice)
{
	struct cei_transport_devices devices = { .n = 0 };
	uint32_t gpus[CEI_MEMBERS_MAX];
	struct cei_nic_request request = {
		.gpus = gpus,
		.n_gpus = list_gpus(network->site, gpus),
		.devices = devices.names,
		.named = named,
	};
	int r;

	if (!has_choice(network, &request)) {
		cei_nic_choose(network->machine, &request, choice);
		return 0;
	}
	r = network->transport->devices(network->site->report, network->kinds, &devices);
	if (r < 0)
		return r;
	request.n_devices = r ? 0 : devices.n;
	cei_nic_choose(network->machine, &request, choice);
	return keep_left(network, &request, choice);
}

int cei_network_open_rail(struct cei_network *network, const struct cei_network_opening *opening)
{
	const char *nics = opening->public.nics;
	struct cei_nic_choice choice;
	int r;

	network->timeout_ns = opening->public.peer_timeout_ns ? opening->public.peer_timeout_ns :
		CEI_RAIL_TIMEOUT_NS;
	if (!nics)
		nics = secure_getenv("CEOVERLAP_NICS");
	r = choose(network, nics && *nics ? nics : NULL, &choice);
	if (r)
		return r;
	if (choice.device[0])
		cei_log(network->site->report, CEI_LOG_INFO, "network: the rail is on %s: %s",
			choice.device, choice.why);
	else
		cei_log(network->site->report, CEI_LOG_INFO, "network: the rail is on any network "
			"interface that %s chooses: %s", network->transport->name, choice.why);
	return open_rail(network, opening, choice.device[0] ? choice.device : NULL, choice.why);
}

int cei_network_check_rail(const struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), process, n_address = 1;
	struct ceov_failure failure = cei_failure(CEOV_ERR_UCX, 0);

	if (cei_book_n_nodes(network->book) == 1)
		return 0;
	if (!network->rail)
		return cei_raise_failure(network->site->report, &failure, "ceov_open: the group "
					 "has several nodes, and this machine cannot reach others "
					 "by %s", network->unreachable);
	for (process = 0; process < n && n_address; process++)
		cei_book_address(network->book, process, &n_address);
	if (n_address)
		return 0;
	failure.rank = cei_book_ranks_of(network->book, process - 1, &n)[0];
	return cei_raise_failure(network->site->report, &failure, "ceov_open: the group has "
				 "several nodes, and rank %u's machine cannot reach others: its "
				 "message says why", failure.rank);
}

int cei_network_begin(struct cei_network *network, struct cei_peers *peers)
{
	if (!network->rail)
		return 0;
	cei_carrier_rails_begin(network->carrier, peers);
	return cei_rail_begin(network->rail, cei_book_instance(network->book));
}

/* --- what others ask ----------------------------------------------------------------------- */

struct cei_rail *cei_network_rail(const struct cei_network *network)
{
	return network->rail;
}

const struct cei_carrier *cei_network_carrier(const struct cei_network *network)
{
	return network->rail ? cei_carrier_rails_base(network->carrier) : NULL;
}

const char *cei_network_rail_why(const struct cei_network *network)
{
	return network->rail_why;
}

const struct cei_network_left *cei_network_left_out(const struct cei_network *network, uint32_t i)
{
	return i < network->n_left ? &network->left[i] : NULL;
}
