/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PLAN_OVERLAP_H
#define CEI_PLAN_OVERLAP_H

/* What the two files of the overlap check share. */

#include <stdint.h>

#include "ce_engine/area.h"
#include "ce_engine/plan_sweep.h"

struct cei_touch {                      /* a transfer reads or writes an area */
	struct cei_area area;
	uint32_t        position;
	uint32_t        is_written;
};

/* plan_bands.c: asks for all pairs that matter (plan_sweep.h) among touches of one pitch, or
 * of one row. 0 or CEOV_ERR_NO_MEMORY, not raised. */
int cei_bands_check(struct cei_sweep *sweep, const struct cei_touch *touches, uint32_t n,
		    uint64_t pitch);

#endif /* CEI_PLAN_OVERLAP_H */
