/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the transport cases on the simulated network, on which the tests of faults rest. */

#include "transport_conformance.h"

#include "unit/loop_transport.h"

static struct loop_net net;             /* each case has a process, and so a net of its own */
static uint32_t n_opened;

/* All that goes is delayed and put out of order, which the contract allows. */
static void set_up(void)
{
	uint32_t from, to;

	loop_net_init(&net, 1, 1);
	for (from = 0; from < LOOP_NODES_MAX; from++)
		for (to = 0; to < LOOP_NODES_MAX; to++) {
			net.links[from][to].delay_ns = 5000;
			net.links[from][to].jitter_ns = 50000;
		}
}

/* Opens the next transport of the net. */
static int open_next(struct cei_transport *transport, const char **ret_why)
{
	if (!n_opened)
		set_up();
	transport->config.device = loop_device(&net, n_opened++);
	return loop_transport.open(transport, ret_why);
}

int main(void)
{
	struct cei_transport_ops ops = loop_transport;

	ops.open = open_next;
	return transport_run(&ops, NULL, 0);
}
