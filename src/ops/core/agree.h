/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_AGREE_H
#define CEI_AGREE_H

/* Compares the operators of all ranks before their first runs; agreed.h says how. */

#include <ceoverlap/ops.h>

/* Tells peers of a new op, whose shape and choice are set. Ops of is_local kinds, and those of
 * groups of one rank, are not compared. */
void cei_agree_tell(ceov_op *op);

/* Tells them that it will not have a first run any more. */
void cei_agree_untell(ceov_op *op);

/* After the choice of an op has changed: its next run counts as its first one, if it was told of.
 * It has no run under way. */
void cei_agree_renew(ceov_op *op);

/* Returns whether the op's next run has to be compared. */
int  cei_agree_is_due(const ceov_op *op);

/* Compares the op with those of all peers, before its first run; waits for them within the
 * workspace's deadline. CEOV_ERR_INVALID: they differ, and runs of other ops go on. Any other error
 * has ended the workspace's runs. The caller holds no lock. */
int  cei_agree_check(ceov_op *op);

#endif /* CEI_AGREE_H */
