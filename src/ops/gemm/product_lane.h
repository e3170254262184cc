/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_PRODUCT_LANE_H
#define CEI_PRODUCT_LANE_H

/*
 * The choice between copy engines and a lane of SMs (core/sm_lane.h) for a product's transfers.
 * Copy engines leave the product all SMs, but need some 5 us for each copy beside its bytes. A lane
 * of SMs takes some of these SMs, and goes on at once. So it is better where copies are short.
 */

#include "ops/tuning/candidates.h"
#include "ops/tuning/selector.h"

/* A lane and a product need a cluster of two SMs each. */
#define CEI_PRODUCT_LANE_SMS 4u

/* Functions that kinds set in their struct cei_op_kind. cei_product_lane_always() is for kinds all
 * of whose shapes can have such a lane. */
int  cei_product_lane_always(const struct cei_op_shape *shape);
const char *cei_product_lane_fault(const struct cei_op_shape *shape, enum ceov_op_mode mode);
void cei_product_lane_choose(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_product_lane_explain(const struct cei_choose_args *args, struct cei_choice *choice);

void cei_product_lane_fini(ceov_op *op);

/* Adds candidates with lanes of SMs, if the op can have one. */
void cei_product_lane_list(const struct cei_listing *listing);

#endif /* CEI_PRODUCT_LANE_H */
