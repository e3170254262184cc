/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the transport cases on UCX over TCP. */

#include "net/ucx.h"
#include "transport_conformance.h"

/* The leak sanitizer asks this. It crashes now and then while it walks the memory of UCX's own
 * thread; other errors are still found. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int main(void)
{
	return transport_run(&cei_transport_ucx, "tcp", 1);
}
