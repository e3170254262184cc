/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs the transport cases with a test double in front of the simulated network, which tells its
 * events late and in another order, as the contract of transports allows. The cases have to find
 * out a double that tells that bytes have landed before they have.
 */

#include <stdio.h>
#include <stdlib.h>

#include "testing.h"
#include "transport_conformance.h"
#include "transport_proxy.h"
#include "unit/loop_transport.h"

#define LATE_NS UINT64_C(50000)

static struct loop_net net;             /* each case has a process, and so a net of its own */
static uint32_t n_opened;

/* Opens the next transport of the net. */
static int open_next(struct cei_transport *transport, const char **ret_why)
{
	if (!n_opened)
		loop_net_init(&net, 1, 1);
	transport->config.device = loop_device(&net, n_opened++);
	return loop_transport.open(transport, ret_why);
}

static int run(uint64_t late_ns, int is_early)
{
	struct cei_transport_ops ops = loop_transport;

	ops.open = open_next;
	return transport_run(transport_proxy(&ops, late_ns, is_early), NULL, 0);
}

static int run_too_early(void)
{
	return run(0, 1);
}

int main(void)
{
	if (!testing_fails(run_too_early)) {
		printf("the cases pass where bytes are told as landed too early\n");
		return EXIT_FAILURE;
	}
	return run(LATE_NS, 0);
}
