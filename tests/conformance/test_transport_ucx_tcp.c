/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the transport cases on UCX over TCP. */

#include "net/ucx.h"
#include "transport_conformance.h"

int main(void)
{
	return transport_run(&cei_transport_ucx, "tcp", 1);
}
