/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The cost of copies, fitted to measured times. */

#include "topology/cost_fit.h"

#include <ceoverlap/ceoverlap.h>
#include <math.h>

#define NS_PER_S 1e9

/* Weighted sums over all samples. A sample's weight is 1 / ns^2; `one` is the sum of the weights,
 * and the other fields are sums of weight * x, weight * x * x, and so on. */
struct sums {
	double one, x, xx, y, xy;
};

static int add_samples(const struct cei_cost_sample *samples, uint32_t n, struct sums *sums)
{
	double weight, x;
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (!isfinite(samples[i].ns) || samples[i].ns <= 0)
			return -1;
		x = (double)samples[i].bytes;
		weight = 1 / (samples[i].ns * samples[i].ns);
		sums->one += weight;
		sums->x += weight * x;
		sums->xx += weight * x * x;
		sums->y += weight * samples[i].ns;
		sums->xy += weight * x * samples[i].ns;
	}
	return 0;
}

int cei_cost_fit(const struct cei_cost_sample *samples, uint32_t n_samples,
		 uint64_t *ret_bytes_per_s, uint64_t *ret_t0_ns)
{
	struct sums sums = { 0, 0, 0, 0, 0 };
	double determinant, ns_per_byte, t0;

	if (add_samples(samples, n_samples, &sums))
		return CEOV_ERR_INVALID;
	determinant = sums.one * sums.xx - sums.x * sums.x;
	/* with one size only, the determinant is nothing but rounding errors */
	if (!(determinant > 1e-9 * sums.one * sums.xx))
		return CEOV_ERR_INVALID;
	ns_per_byte = (sums.one * sums.xy - sums.x * sums.y) / determinant;
	t0 = (sums.y - ns_per_byte * sums.x) / sums.one;
	if (t0 < 0) {                   /* fit a line through the origin instead */
		t0 = 0;
		ns_per_byte = sums.xy / sums.xx;
	}
	if (!(ns_per_byte > 0) || !(NS_PER_S / ns_per_byte >= 1) ||
	    NS_PER_S / ns_per_byte > 1e15)
		return CEOV_ERR_INVALID;
	*ret_bytes_per_s = (uint64_t)(NS_PER_S / ns_per_byte + 0.5);
	*ret_t0_ns = (uint64_t)(t0 + 0.5);
	return 0;
}
