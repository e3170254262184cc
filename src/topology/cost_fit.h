/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_COST_FIT_H
#define CEI_COST_FIT_H

/* Fits the cost of copies, T = t0 + bytes / rate, to measured times. */

#include <stdint.h>

struct cei_cost_sample {
	uint64_t bytes;
	double   ns;
};

/* Fits by least squares of the relative errors; t0 is never negative. CEOV_ERR_INVALID
 * (not raised): fewer than two sizes, a time that is not finite or not above 0, or times
 * that do not grow with bytes. */
int cei_cost_fit(const struct cei_cost_sample *samples, uint32_t n_samples,
		 uint64_t *ret_bytes_per_s, uint64_t *ret_t0_ns);

#endif /* CEI_COST_FIT_H */
