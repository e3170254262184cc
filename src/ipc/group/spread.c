/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Who passes news on to whom. */

#include "ipc/group/spread.h"

uint32_t cei_spread(uint32_t own, uint32_t n, uint32_t ret_told[CEI_SPREAD_MAX])
{
	uint64_t step;
	uint32_t n_told = 0;

	/* Beyond half of the circle the other direction is as near. */
	for (step = 1; 2 * step <= n; step *= 2) {
		ret_told[n_told++] = (uint32_t)((own + step) % n);
		if (2 * step < n)
			ret_told[n_told++] = (uint32_t)((own + n - step) % n);
	}
	return n_told;
}
