/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KINDS_H
#define CEI_KINDS_H

/* All kinds of operators, one in each line. */

#include "ops/kind.h"

extern const struct cei_op_kind cei_ag_gemm;
extern const struct cei_op_kind cei_gemm_rs;
extern const struct cei_op_kind cei_gemm_ar;
extern const struct cei_op_kind cei_gemm_a2a;
extern const struct cei_op_kind cei_gemm_marks;
extern const struct cei_op_kind cei_a2a_gemm;
extern const struct cei_op_kind cei_reduce_scatter;
extern const struct cei_op_kind cei_all_reduce;
extern const struct cei_op_kind cei_all_gather;
extern const struct cei_op_kind cei_all_to_all;
extern const struct cei_op_kind cei_moe_dispatch;
extern const struct cei_op_kind cei_moe_combine;
extern const struct cei_op_kind cei_embedding_a2a;
extern const struct cei_op_kind cei_embedding_backward;

#endif /* CEI_KINDS_H */
