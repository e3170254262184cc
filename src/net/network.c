/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes the network: meets the processes of all nodes. */

#include "net/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "base/sized.h"
#include "net/book_open.h"
#include "net/network_private.h"
#include "net/ucx.h"

/* How long a close waits for processes that do not answer its farewell. */
#define CLOSE_NS UINT64_C(3000000000)

const struct cei_roster *cei_network_roster(const struct cei_network *network)
{
	return cei_book_roster(network->book);
}

uint64_t cei_network_timeout_ns(const struct cei_network *network)
{
	return network->timeout_ns;
}

void cei_network_group_path(const struct cei_network *network,
			    char ret_path[CEI_NETWORK_PATH_BYTES])
{
	uint32_t rank = network->site->members[0].rank;

	snprintf(ret_path, CEI_NETWORK_PATH_BYTES, "/tmp/ceoverlap-%u-%016llx-%016llx",
		 (unsigned)geteuid(), (unsigned long long)cei_book_instance(network->book),
		 (unsigned long long)network->nodes[rank]);
}

uint32_t cei_network_means(const struct cei_network *network)
{
	return network->means;
}

/* --- meeting ---------------------------------------------------------------------------- */

int cei_network_is_wanted(const struct ceov_network *public)
{
	const char *means = secure_getenv("CEOVERLAP_BOOTSTRAP");

	if (public && cei_sized_fault(public, sizeof(*public), sizeof(*public)))
		return 1;               /* take_public() refuses it */
	if (public && (public->bootstrap || public->all_gather))
		return public->bootstrap != CEOV_BOOTSTRAP_ALONE;
	if (means && *means)
		return strcmp(means, "alone") != 0;
	return public != NULL;
}

static int take_public(struct cei_report *report, const struct ceov_network *from,
		       struct ceov_network *ret_public)
{
	int r = from ? cei_sized_check(report, from, sizeof(*from), sizeof(*from),
				       "ceov_open: config.network") : 0;

	if (r)
		return r;
	cei_sized_take(ret_public, from, sizeof(*ret_public));
	if (ret_public->secret_bytes)
		cei_log(report, CEI_LOG_WARN, "ceov_open: ceov_network.secret has no effect any "
			"more: the job's name tells groups apart, and networks must be trusted");
	return 0;
}

/* --- the book ------------------------------------------------------------------------ */

/* Opens the rail, when the number of this process is known, and tells its address. */
static int complete(void *arg, const struct cei_exchange *exchange, struct cei_record *record)
{
	struct cei_network_opening *opening = arg;
	struct cei_network *network = opening->network;
	const char *version;
	int r;

	opening->exchange = exchange;
	network->means = exchange->config.means;
	r = cei_network_open_rail(network, opening);
	if (r == CEOV_NONE)
		return 0;
	if (!r)
		r = cei_network_choose_in_place(network);
	if (!r)
		r = cei_network_choose_direct(network);
	if (r)
		return r;
	/* "UCX 1.13.1, ...": the record has the version alone */
	version = cei_rail_describe(network->rail);
	version += strcspn(version, " ");
	version += *version == ' ';
	snprintf(record->transport, sizeof(record->transport), "%.*s",
		 (int)strcspn(version, ","), version);
	return cei_rail_address(network->rail, record->address, &record->n_address);
}

static int open_book(struct cei_network *network, struct cei_network_opening *opening,
		     uint64_t deadline_ns)
{
	const struct ceov_network *public = &opening->public;
	struct cei_site *site = network->site;
	uint32_t ranks[CEI_MEMBERS_MAX], i, n_own;
	struct cei_book_config config = {
		.means = public->bootstrap,
		.process = public->process,
		.n_processes = public->n_processes,
		.all_gather = public->all_gather,
		.all_gather_arg = public->all_gather_arg,
		.where = public->where,
		.job = public->job,
		.deadline_ns = deadline_ns,
		.node = public->node,
		.instance = site->instance[0],
		.n_group_ranks = site->n_ranks,
		.n_ranks = site->n_members,
		.ranks = ranks,
		.complete = complete,
		.complete_arg = opening,
	};
	int r;

	for (i = 0; i < site->n_members; i++)
		ranks[i] = site->members[i].rank;
	r = cei_book_open(&config, site->report, &network->book);
	if (r || site->n_ranks)
		return r;
	site->n_ranks = cei_book_n_ranks(network->book);
	site->members[0].rank = cei_book_ranks_of(network->book,
						  cei_book_own_process(network->book),
						  &n_own)[0];
	return 0;
}

/* By rank, for the site. */
static int list_nodes(struct cei_network *network)
{
	const struct cei_roster *roster = cei_network_roster(network);
	struct cei_book_node node;
	uint32_t rank;

	network->nodes = calloc(roster->n_ranks, sizeof(*network->nodes));
	if (!network->nodes)
		return cei_raise(network->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for %u ranks", roster->n_ranks);
	for (rank = 0; rank < roster->n_ranks; rank++) {
		cei_book_node(network->book, roster->node_of[roster->process_of[rank]], &node);
		network->nodes[rank] = node.number;
	}
	return 0;
}

/* --- open and close ------------------------------------------------------------------ */

static int init_locks(struct cei_network *network)
{
	int error = cei_condition_init(&network->changed);

	if (!error)
		error = pthread_mutex_init(&network->lock, NULL);
	network->has_lock = !error;
	return error;
}

/* Names this node for traces: as the caller or the environment does, or as the machine is
 * called. */
static void name_node(struct cei_network *network, const char *name)
{
	if (!name)
		name = secure_getenv("CEOVERLAP_NODE");
	if (name && *name)
		snprintf(network->node_name, sizeof(network->node_name), "%s", name);
	else if (gethostname(network->node_name, sizeof(network->node_name) - 1))
		network->node_name[0] = '\0';
}

static int build(struct cei_network *network, const struct cei_network_config *config)
{
	struct cei_network_opening opening = { .network = network };
	int r = take_public(network->site->report, config->public, &opening.public);

	if (!r)
		name_node(network, opening.public.node);
	if (!r)
		r = open_book(network, &opening, config->deadline_ns);
	if (!r)
		r = cei_network_check_rail(network);
	return r ? r : list_nodes(network);
}

static void fill(struct cei_network *network, struct cei_site *site,
		 const struct cei_network_config *config)
{
	network->site = site;
	network->copier = config->copier;
	network->copier_arg = config->copier_arg;
	network->machine = config->machine;
	network->transport = config->transport ? config->transport : &cei_transport_ucx;
	network->kinds = secure_getenv("CEOVERLAP_TRANSPORTS");
}

int cei_network_open(struct cei_site *site, const struct cei_network_config *config,
		     struct cei_network **ret_network)
{
	struct cei_network *network;
	int error, r;

	if (!cei_network_is_wanted(config->public))
		return CEOV_NONE;
	network = calloc(1, sizeof(*network));
	if (!network)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for a network");
	fill(network, site, config);
	error = init_locks(network);
	r = error ? cei_raise(site->report, CEOV_ERR_SYSTEM, error,
			      "ceov_open: no lock for a network: %s", strerror(error)) :
		build(network, config);
	site->nodes = network->nodes;
	if (!r) {
		*ret_network = network;
		return 0;
	}
	site->nodes = NULL;
	cei_network_close(network);
	return r;
}

void cei_network_leave(struct cei_network *network)
{
	if (!network || network->has_left)
		return;
	network->has_left = 1;
	if (network->has_lock)
		cei_network_clock_leave(network);
	(void)cei_rail_close(network->rail, cei_deadline(CLOSE_NS));
}

void cei_network_close(struct cei_network *network)
{
	if (!network)
		return;
	cei_network_leave(network);
	if (network->has_lock) {
		pthread_cond_destroy(&network->changed);
		pthread_mutex_destroy(&network->lock);
	}
	cei_carrier_rails_close(network->carrier);
	cei_book_free(network->book);
	free(network->nodes);
	free(network->left);
	free(network->clock.askers);
	free(network);
}
