/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The GPUs that the daemon serves. */

#include "daemon/server/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/cuda_driver.h"

#define GPUS_MAX 64u                    /* bits of a set */

int cei_gpus_read(const char *text, uint64_t *ret_set)
{
	uint64_t set = 0;
	unsigned long gpu;
	char *end;

	if (!strcmp(text, "all"))
		set = CEI_GPUS_ALL;
	else if (strcmp(text, "none"))
		for (;; text = end + 1) {
			gpu = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : GPUS_MAX;
			if (gpu >= GPUS_MAX || (*end && *end != ','))
				return 0;
			set |= UINT64_C(1) << gpu;
			if (!*end)
				break;
		}
	*ret_set = set;
	return 1;
}

static int add(struct cei_site *site, uint32_t gpu)
{
	struct ceov_member *member = &site->members[site->n_members];

	if (site->n_members == CEI_MEMBERS_MAX)
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "no engine is left for GPU %u: a daemon has at most %u, some of "
				 "them for host memory (host_engines)", gpu, CEI_MEMBERS_MAX);
	member->rank = site->n_members++;
	member->place.kind = CEOV_PLACE_GPU;
	member->place.index = gpu;
	site->n_ranks = site->n_members;
	return 0;
}

int cei_gpus_add(struct cei_site *site, uint64_t set)
{
	const char *why = "";
	uint32_t gpu, n_gpus;
	int r = set ? cei_cuda_open(site->report, &site->cuda, &why) : 0;

	if (r < 0)
		return r;
	if (r && set != CEI_GPUS_ALL)
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "GPUs are to be served, but there is none: %s", why);
	n_gpus = cei_cuda_n_gpus(site->cuda);
	for (r = 0, gpu = 0; !r && gpu < GPUS_MAX; gpu++) {
		if (!(set >> gpu & 1))
			continue;
		if (gpu < n_gpus)
			r = add(site, gpu);
		else if (set != CEI_GPUS_ALL)
			r = cei_raise(site->report, CEOV_ERR_INVALID, 0,
				      "GPU %u is to be served, but this process sees %u", gpu,
				      n_gpus);
	}
	return r;
}

uint32_t cei_gpus_member(const struct cei_site *site, const uint8_t *uuid)
{
	uint32_t i, gpu = cei_cuda_gpu_of(site->cuda, uuid);

	for (i = 0; gpu != CEOV_NOBODY && i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU &&
		    site->members[i].place.index == gpu)
			return i;
	return CEOV_NOBODY;
}
