/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Meets the other processes of the node: checks what this process says of itself, then meets them
 * by a store. Makes the roster of a group that is on one node.
 */

#include "net/node_meet.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>

#include "net/exchange_numbers.h"

static int check_site(const struct cei_site *site, const char *path)
{
	struct cei_party own;
	uint32_t i, n_local;

	if (!site->n_ranks || site->n_ranks > CEI_RANKS_MAX ||
	    !site->n_members || site->n_members > CEI_MEMBERS_MAX)
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "a group has 1 to %u ranks, a process holds 1 to %u of "
				 "them; not %u and %u", CEI_RANKS_MAX, CEI_MEMBERS_MAX,
				 site->n_ranks, site->n_members);
	for (i = 0; i < site->n_members; i++)
		if (site->members[i].rank >= site->n_ranks)
			return cei_raise(site->report, CEOV_ERR_INVALID, 0,
					 "rank %u is out of range: the group has %u "
					 "ranks", site->members[i].rank, site->n_ranks);
	n_local = cei_site_n_local(site);
	if (n_local > CEI_LOCAL_MAX)
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "the node has %u ranks of the group, which are more than "
				 "%u", n_local, CEI_LOCAL_MAX);
	if (path && strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return cei_raise(site->report, CEOV_ERR_INVALID, ENAMETOOLONG,
				 "the group's path has %zu bytes and is too long for a "
				 "socket, which takes %zu; choose a shorter one: %s",
				 strlen(path),
				 sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1, path);
	cei_party_of_site(site, &own);
	if (cei_party_has_twice(&own))
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "a rank is given twice to this process");
	if (site->n_members < n_local && (!path || !path[0]))
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "this process holds %u of the node's %u ranks and has no path to "
				 "meet the others at", site->n_members, n_local);
	return 0;
}

int cei_node_meet(const struct cei_site *site, const char *path, uint64_t deadline_ns,
		  struct cei_links *ret_links)
{
	struct cei_exchange exchange = {
		.ops = &cei_exchange_store, .config.report = site->report, .site = site,
		.process = site->members[0].rank, .n_processes = site->n_ranks,
	};
	struct cei_party own;
	int r;

	ret_links->n_links = 0;
	r = check_site(site, path);
	if (r || site->n_members == cei_site_n_local(site))
		return r;
	cei_party_of_site(site, &own);
	exchange.first = cei_site_first_local(site);
	if (cei_party_has(&own, exchange.first))
		exchange.process = exchange.first;
	r = cei_exchange_where(&exchange, path);
	if (!r)
		r = exchange.ops->open(&exchange, deadline_ns);
	if (r)
		return r;
	r = cei_exchange_links(&exchange, deadline_ns, ret_links);
	exchange.ops->close(&exchange);
	return r;
}

/* --- the roster of one node --------------------------------------------------- */

static uint32_t lowest(const struct cei_party *party)
{
	uint32_t rank = party->ranks[0], i;

	for (i = 1; i < party->n_ranks; i++)
		if (party->ranks[i] < rank)
			rank = party->ranks[i];
	return rank;
}

/* The process is numbered behind those that have a lower first rank. */
static uint32_t number(const struct cei_links *links, const struct cei_party *own,
		       uint32_t first)
{
	uint32_t n = lowest(own) < first, i;

	for (i = 0; i < links->n_links; i++)
		n += lowest(&links->links[i].party) < first;
	return n;
}

static void enter(struct cei_node_roster *roster, const struct cei_party *party,
		  uint32_t process)
{
	uint32_t i;

	roster->first_rank[process] = lowest(party);
	roster->in_node[process] = process;
	for (i = 0; i < party->n_ranks; i++)
		roster->process_of[party->ranks[i]] = process;
}

void cei_node_roster_make(const struct cei_site *site, const struct cei_links *links,
			  struct cei_node_roster *ret_roster)
{
	struct cei_party own;
	uint32_t i;

	cei_party_of_site(site, &own);
	memset(ret_roster, 0, sizeof(*ret_roster));
	ret_roster->node_at[1] = links->n_links + 1;
	ret_roster->roster = (struct cei_roster){
		.n_ranks = site->n_ranks,
		.n_processes = links->n_links + 1,
		.n_nodes = 1,
		.own = number(links, &own, lowest(&own)),
		.process_of = ret_roster->process_of,
		.node_of = ret_roster->node_of,
		.first_rank = ret_roster->first_rank,
		.in_node = ret_roster->in_node,
		.node_at = ret_roster->node_at,
	};
	enter(ret_roster, &own, ret_roster->roster.own);
	for (i = 0; i < links->n_links; i++)
		enter(ret_roster, &links->links[i].party,
		      number(links, &own, lowest(&links->links[i].party)));
}
