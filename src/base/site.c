/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queries about this process. */

#include "base/site.h"

uint32_t cei_site_n_on_gpu(const struct cei_site *site, uint32_t gpu)
{
	uint32_t i, n = 0;

	for (i = 0; i < site->n_members; i++)
		n += site->members[i].place.kind == CEOV_PLACE_GPU &&
		     site->members[i].place.index == gpu;
	return n;
}
