/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* net/ucx.h in a build without UCX's headers: the transport cannot be opened. */

#include "net/ucx.h"

static int open_nothing(struct cei_transport *transport, const char **ret_why)
{
	(void)transport;
	*ret_why = "built without UCX";
	return CEOV_NONE;
}

/* The other calls are made only after an open that succeeded. */
const struct cei_transport_ops cei_transport_ucx = {
	.name = "ucx",
	.open = open_nothing,
};
