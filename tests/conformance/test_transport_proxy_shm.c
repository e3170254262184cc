/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the transport cases on UCX over shared memory behind a test double, which tells UCX's events
 * late and in another order, as the contract of transports allows. Cases of processes that are
 * stopped or killed are not among them: behind delays UCX over shared memory sometimes does not end
 * sends to such a process (docs/nodes.md). They run without the double, and behind it over TCP. */

#include "net/ucx.h"
#include "transport_conformance.h"
#include "transport_proxy.h"

#define LATE_NS UINT64_C(50000)

/* The leak sanitizer asks this. It crashes now and then while it walks the memory of UCX's own
 * thread; other errors are still found. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

int main(void)
{
	return transport_run(transport_proxy(&cei_transport_ucx, LATE_NS, 0), "posix,cma", 0);
}
