/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SUM_MODEL_H
#define CEI_SUM_MODEL_H

/*
 * How long a sum takes by copy engines, and by SMs alone (direct modes). Both need SMs to add, so
 * the faster one is chosen without a word. The more ranks there are the more copies each makes, and
 * each waits for the one before it.
 */

#include "ops/tuning/selector.h"

/* Returns how long a run by copy engines takes. The rates are those of GPUs. */
double cei_sum_engines_ns(const struct cei_choose_args *args);

/* Returns the direct mode that is expected to be faster than copy engines by 2 % or more;
 * CEOV_MODE_CHOOSE: none is, or the caller's tuning or the ranks' places leave no choice. The same
 * at all ranks. */
enum ceov_op_mode cei_sum_direct_mode(const struct cei_choose_args *args);

#endif /* CEI_SUM_MODEL_H */
