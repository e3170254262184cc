/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Which rails a process opens: those on the network interfaces that somebody named, else those that
 * the machine's topology assigns to the GPUs of its members, else one that uses any interface. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "net/network_private.h"
#include "topology/rails.h"

_Static_assert(CEI_RAILS_MAX == CEI_NETWORK_RAILS_MAX, "every rail that is chosen can be opened");
_Static_assert(CEI_RAIL_DEVICE_BYTES == CEI_TRANSPORT_DEVICE_BYTES, "names fit");

static int open_rail(struct cei_network *network, const struct cei_network_opening *opening,
		     const char *device, const char *reason)
{
	struct cei_network_rail *rail = &network->rails[network->n_rails];
	struct cei_rail_config config = {
		.report = network->site->report,
		.transport = network->transport,
		.device = device,
		.kinds = network->kinds,
		.index = network->n_rails,
		.process = opening->exchange->process,
		.n_processes = opening->exchange->n_processes,
		.instance = { network->site->instance[0], network->site->instance[1] },
		.timeout_ns = opening->public.peer_timeout_ns,
		.progress_by_caller = network->site->progress_by_caller,
		.events = &cei_network_rail_events,
		.events_arg = rail,
		.copier = network->copier,
		.copier_arg = network->copier_arg,
	};
	const char *why = "";
	int r;

	rail->network = network;
	rail->index = network->n_rails;
	snprintf(rail->why, sizeof(rail->why), "%s", reason);
	r = cei_rail_open(&config, &rail->rail, &why);
	if (r == CEOV_NONE)
		snprintf(network->unreachable, sizeof(network->unreachable), "%s: %s",
			 network->transport->name, why);
	if (!r)
		network->n_rails++;
	return r;
}

/* --- named by the caller ------------------------------------------------------------------ */

/* Opens one rail for each name of the list, which commas separate. */
static int open_named(struct cei_network *network, const struct cei_network_opening *opening,
		      const char *nics)
{
	char names[CEI_NETWORK_NICS_BYTES];
	char *name, *rest = names;
	int r = 0;

	if (strlen(nics) >= sizeof(names))
		return cei_raise(network->site->report, CEOV_ERR_INVALID, 0,
				 "ceov_open: the list of network interfaces has %zu bytes, at "
				 "most %zu", strlen(nics), sizeof(names) - 1);
	strcpy(names, nics);
	while (!r && (name = strsep(&rest, ","))) {
		if (network->n_rails == CEI_NETWORK_RAILS_MAX)
			return cei_raise(network->site->report, CEOV_ERR_INVALID, 0,
					 "ceov_open: more than %u network interfaces in '%s'",
					 CEI_NETWORK_RAILS_MAX, nics);
		r = open_rail(network, opening, name, "it was named");
	}
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

/* Notes which NICs get no rail, and why. */
static int keep_left(struct cei_network *network, const struct cei_rails_request *request,
		     const struct cei_rails_choice *choice)
{
	const struct cei_machine *machine = network->machine;
	struct cei_network_left *left;
	char why[CEI_RAIL_WHY_BYTES_MAX];
	uint32_t i;

	_Static_assert(sizeof(left->why) == sizeof(why), "reasons fit");
	_Static_assert(sizeof(left->name) >= CEI_MACHINE_NAME_BYTES, "names fit");
	network->left = calloc(machine->n_nics + 1u, sizeof(*network->left));
	if (!network->left)
		return cei_raise(network->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for a list of %u NICs", machine->n_nics);
	for (i = 0; i < machine->n_nics; i++) {
		if (!cei_rails_explain_left(machine, request, choice, i, why))
			continue;
		left = &network->left[network->n_left++];
		snprintf(left->name, sizeof(left->name), "%s", machine->nics[i].name);
		memcpy(left->why, why, sizeof(left->why));
		cei_log(network->site->report, CEI_LOG_INFO, "network: no rail is on %s: %s",
			left->name, left->why);
	}
	return 0;
}

/* Chooses among the interfaces that the transport has. choice->n stays 0 if there is nothing to
 * choose from, and choice->why says the reason. Errors are raised. */
static int choose(struct cei_network *network, struct cei_rails_choice *choice)
{
	struct cei_transport_devices devices = { .n = 0 };
	uint32_t gpus[CEI_MEMBERS_MAX];
	struct cei_rails_request request = {
		.gpus = gpus,
		.n_gpus = list_gpus(network->site, gpus),
		.devices = devices.names,
	};
	int r;

	memset(choice, 0, sizeof(*choice));
	snprintf(choice->why, sizeof(choice->why), "no rank is on a GPU, or the machine's "
		 "topology is not known");
	if (!network->machine || !request.n_gpus || !network->transport->devices)
		return 0;
	r = network->transport->devices(network->site->report, network->kinds, &devices);
	if (r < 0)
		return r;
	request.n_devices = r ? 0 : devices.n;
	cei_rails_choose(network->machine, &request, choice);
	return keep_left(network, &request, choice);
}

/* Notes which rail each member's small transfers take: that of the NIC of its GPU. */
static void keep_own(struct cei_network *network, const struct cei_rails_choice *choice)
{
	const struct cei_site *site = network->site;
	uint32_t i, rail;

	for (i = 0; i < site->n_members; i++) {
		if (site->members[i].place.kind != CEOV_PLACE_GPU ||
		    site->members[i].place.index >= CEI_MACHINE_GPUS_MAX)
			continue;
		rail = choice->own[site->members[i].place.index];
		if (rail < choice->n)
			network->own_rail[i] = rail;
	}
}

static int open_chosen(struct cei_network *network, const struct cei_network_opening *opening,
		       const struct cei_rails_choice *choice)
{
	char why[CEI_RAIL_WHY_BYTES_MAX];
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < choice->n; i++) {
		cei_rails_explain(network->machine, &choice->rails[i], why);
		cei_log(network->site->report, CEI_LOG_INFO, "network: rail %u is on %s: %s", i,
			choice->rails[i].device, why);
		r = open_rail(network, opening, choice->rails[i].device, why);
	}
	keep_own(network, choice);
	return r;
}

int cei_network_open_rails(struct cei_network *network, const struct cei_network_opening *opening)
{
	const char *nics = opening->public.nics;
	struct cei_rails_choice choice;
	uint32_t i;
	int r;

	network->timeout_ns = opening->public.peer_timeout_ns ? opening->public.peer_timeout_ns :
		CEI_RAIL_TIMEOUT_NS;
	for (i = 0; i < CEI_MEMBERS_MAX; i++)
		network->own_rail[i] = CEOV_NOBODY;
	if (!nics)
		nics = secure_getenv("CEOVERLAP_NICS");
	if (nics && *nics)
		return open_named(network, opening, nics);
	r = choose(network, &choice);
	if (r)
		return r;
	if (choice.n)
		return open_chosen(network, opening, &choice);
	cei_log(network->site->report, CEI_LOG_INFO, "network: one rail on any network interface "
		"that %s chooses: %s", network->transport->name, choice.why);
	return open_rail(network, opening, NULL, choice.why);
}

int cei_network_check_rails(const struct cei_network *network)
{
	uint32_t n = cei_book_n_processes(network->book), process;
	struct ceov_failure failure = cei_failure(CEOV_ERR_UCX, 0);

	if (cei_book_n_nodes(network->book) == 1)
		return 0;
	if (!network->n_rails)
		return cei_raise_failure(network->site->report, &failure, "ceov_open: the group "
					 "has several nodes, and this machine cannot reach others "
					 "by %s", network->unreachable);
	for (process = 0; process < n && cei_book_n_rails(network->book, process); process++)
		continue;
	if (process == n)
		return 0;
	failure.rank = cei_book_ranks_of(network->book, process, &n)[0];
	return cei_raise_failure(network->site->report, &failure, "ceov_open: the group has "
				 "several nodes, and rank %u's machine cannot reach others: its "
				 "message says why", failure.rank);
}

/* --- which rail a rank uses ----------------------------------------------------------------- */

/* The number of the rail that the rank's small transfers take. */
static uint32_t own_rail(const struct cei_network *network, uint32_t rank)
{
	const struct cei_site *site = network->site;
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].rank == rank && network->own_rail[i] != CEOV_NOBODY)
			return network->own_rail[i];
	return cei_site_local_index(site, rank);
}

uint32_t cei_network_n_rails_to(const struct cei_network *network, uint32_t process)
{
	uint32_t theirs = cei_book_n_rails(network->book, process);

	return network->n_rails < theirs ? network->n_rails : theirs;
}

uint32_t cei_network_rails(struct cei_network *network, uint32_t rank, uint32_t process,
			   struct cei_rail **ret_rails)
{
	uint32_t n = cei_network_n_rails_to(network, process), i, number, n_left = 0;
	uint32_t first = own_rail(network, rank) % n;

	pthread_mutex_lock(&network->lock);
	for (i = 0; i < n; i++) {
		number = (first + i) % n;
		if (!cei_network_has_lost(network, process, number))
			ret_rails[n_left++] = network->rails[number].rail;
	}
	pthread_mutex_unlock(&network->lock);
	return n_left;
}

struct cei_rail *cei_network_rail_numbered(struct cei_network *network, uint32_t number)
{
	return number < network->n_rails ? network->rails[number].rail : NULL;
}

uint32_t cei_network_n_rails(const struct cei_network *network)
{
	return network->n_rails;
}

uint32_t cei_network_own_rail(const struct cei_network *network, uint32_t rank)
{
	return own_rail(network, rank) % network->n_rails;
}

const char *cei_network_rail_why(const struct cei_network *network, uint32_t number)
{
	return network->rails[number].why;
}

int cei_network_has_lost_rail(struct cei_network *network, uint32_t rank, uint32_t number)
{
	int r;

	pthread_mutex_lock(&network->lock);
	r = cei_network_has_lost(network, cei_network_process(network, rank), number);
	pthread_mutex_unlock(&network->lock);
	return r;
}

const struct cei_network_left *cei_network_left_out(const struct cei_network *network, uint32_t i)
{
	return i < network->n_left ? &network->left[i] : NULL;
}
