/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs two rails with their threads over UCX on shared memory. */

#include "net/ucx.h"
#include "unit/rail_pair.h"

int main(void)
{
	return rail_pair_run(&cei_transport_ucx, "posix,sysv,cma,self");
}
