/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the backend cases on the proxy in front of the host's mover. They pass with late completions
 * and reordering, and fail if the proxy reports completion before the move. */

#include <stdio.h>
#include <stdlib.h>

#include "backend_conformance.h"
#include "proxy.h"
#include "testing.h"

#define LATE_NS UINT64_C(20000)

static struct proxy proxy;

/* The delivery cases, which have to find what is wrong here. */
static int run_where_ends_are_early(void)
{
	if (setenv("CK_RUN_CASE", "delivery", 1))
		return EXIT_SUCCESS;
	proxy_init(&proxy, cei_backend_named("host"));
	proxy.is_early = 1;
	return conformance_run(&proxy.ops);
}

int main(void)
{
	if (!testing_fails(run_where_ends_are_early)) {
		printf("the cases pass on a mover that ends before it has moved\n");
		return EXIT_FAILURE;
	}
	proxy_init(&proxy, cei_backend_named("host"));
	proxy_use_handles(&proxy);
	proxy.late_ns = LATE_NS;
	proxy.is_reversed = 1;
	return conformance_run(&proxy.ops);
}
