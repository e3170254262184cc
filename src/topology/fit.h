/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FIT_H
#define CEI_FIT_H

/* The cost of copies through measured times: T = t0 + bytes / rate. */

#include <stdint.h>

struct cei_fit_point {
	uint64_t bytes;
	double   ns;
};

/* The line whose errors in per cent of the times are least in the square's sum; t0 is
 * never negative. CEOV_ERR_INVALID (not raised): fewer than two sizes, a time that is none,
 * or times that do not grow with bytes. */
int cei_fit(const struct cei_fit_point *points, uint32_t n_points,
	    uint64_t *ret_bytes_per_s, uint64_t *ret_t0_ns);

#endif /* CEI_FIT_H */
