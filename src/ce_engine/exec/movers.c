/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens and closes an engine's movers. */

#include "ce_engine/exec/movers.h"

#include "backend/lane.h"

int cei_movers_open(struct cei_movers *movers, struct cei_site *site, uint32_t member)
{
	const struct ceov_member *own = &site->members[member];
	uint32_t i;
	int r = 0;

	pthread_mutex_init(&movers->lock, NULL);
	movers->is_begun = 1;
	for (i = 0; !r && site->movers[i] && movers->n < CEI_MOVERS_OWN_MAX; i++) {
		if (!cei_backend_serves(site->movers[i], own->place.kind))
			continue;
		r = cei_backend_open(&movers->mover[movers->n].backend, site->movers[i], site,
				     member, own->place);
		movers->n += !r;
		r = r == CEOV_NONE ? 0 : r;
	}
	movers->n_own = movers->n;
	if (r || movers->n)
		return r;
	return cei_raise(site->report, CEOV_ERR_INVALID, 0,
			 "rank %u: its place is a GPU, but this build has no CUDA", own->rank);
}

void cei_movers_close(struct cei_movers *movers)
{
	if (!movers->is_begun)
		return;
	while (movers->n)
		cei_backend_close(&movers->mover[--movers->n].backend);
	pthread_mutex_destroy(&movers->lock);
	movers->is_begun = 0;
}

int cei_movers_helper(struct cei_movers *movers, uint32_t place, struct ceov_place where,
		      uint32_t n_max, struct cei_backend **ret_backend)
{
	const struct cei_backend *own = &movers->mover[0].backend;
	struct cei_mover *helper;
	uint32_t i;
	int r;

	for (i = movers->n_own; i < movers->n; i++) {
		*ret_backend = &movers->mover[i].backend;
		if (movers->mover[i].place == place)
			return 0;
	}
	if (movers->n - movers->n_own >= n_max)
		return CEOV_ERR_NO_ROUTE;
	helper = &movers->mover[movers->n];
	r = cei_backend_open(&helper->backend, own->ops, own->site, own->member, where);
	if (r)
		return r;
	helper->place = place;
	movers->n++;
	*ret_backend = &helper->backend;
	return 0;
}
