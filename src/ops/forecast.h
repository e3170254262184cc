/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FORECAST_H
#define CEI_FORECAST_H

/*
 * How long an overlapped product takes with a given cut and tile shape: its tiles are
 * played through, cluster by cluster, against the copies that they wait for or start.
 * Pure, and the same for whichever rank asks: it is rank 0 that is played, with peers
 * in step with it.
 */

#include "ops/chooser.h"

struct cei_forecast_question {
	const struct cei_op_shape *shape;       /* a product's */
	const struct cei_rates    *rates;       /* of a GPU with kernels of our own */
	struct cei_tile_shape      tile;        /* one of theirs */
	uint32_t                   n_pieces;
};

/* From the run's begin to its end. Less than 0: too many tiles to play, or no kernel has
 * such tiles. */
double cei_forecast_ns(const struct cei_forecast_question *question);

/* The product alone, with nothing to wait for. */
double cei_forecast_gemm_ns(const struct cei_forecast_question *question);

#endif /* CEI_FORECAST_H */
