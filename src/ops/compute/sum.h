/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SUM_H
#define CEI_SUM_H

/* Adds up numbers of several ranks on the host. */

#include <stdint.h>

#include <ceoverlap/channel.h>

/* Whether numbers of that type can be reduced in that way. */
int cei_sum_takes(enum ceov_dtype dtype, enum ceov_reduction reduction);

struct cei_sum {
	enum ceov_dtype     dtype;
	enum ceov_reduction reduction;
	float               scale;      /* by which floats of at most 32 bits are multiplied at the
					 * end; 1 for other types */
	uint32_t            n_ranks;    /* 1 or more */
	const void *const  *sources;    /* [rank]; any alignment */
};

/* target[i] = sources[0][i] + sources[1][i] + ..., in this order, for n numbers: in fp32 for 16-bit
 * and 32-bit floats, in fp64, or in 64-bit integers. The target, of any alignment, may be one of
 * the sources. */
void cei_sum_up(const struct cei_sum *sum, void *target, uint64_t n);

#endif /* CEI_SUM_H */
