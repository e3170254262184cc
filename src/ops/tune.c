/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_op_tune(). */

#include "ce_engine/context.h"
#include "ops/op.h"

int ceov_op_tune(ceov_op *op, void *stream)
{
	int r = cei_object_check(op, CEI_OBJECT_OP, "ceov_op_tune");

	(void)stream;
	if (r)
		return r;
	if (op->workspace->is_host)
		return cei_raise(&op->workspace->object.context->report, CEOV_ERR_INVALID, 0,
				 "ceov_op_tune: rank %u is on the host, where nothing is tuned",
				 op->workspace->rank);
	return cei_raise(&op->workspace->object.context->report, CEOV_ERR_STATE, 0,
			 "ceov_op_tune: this build cannot tune rank %u; set ceov_op_tuning",
			 op->workspace->rank);
}
