/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A program for test_run.sh to start several times: a group that the environment describes. Each
 * rank raises a mark of the next one, awaits its own, and prints its rank and its node. */

#include <stdio.h>
#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

#define PATIENCE_NS UINT64_C(20000000000)
#define N_RANKS     4u

static int pass_on(ceov_context *context, uint32_t rank)
{
	struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t next = (rank + 1) % N_RANKS, node;
	ceov_signal *own, *found;
	int r;

	if ((r = ceov_signal_create(context, rank, host, 1, 0, &own)) ||
	    (r = ceov_signal_share(own, "own")) ||
	    (r = ceov_barrier(context, PATIENCE_NS)) ||
	    (r = ceov_signal_find(context, next, "own", &found)) ||
	    (r = ceov_signal_raise(found, 0, 5)) ||
	    (r = ceov_signal_wait(own, 0, 5, PATIENCE_NS)) ||
	    (r = ceov_rank_node(context, rank, &node)) ||
	    (r = ceov_barrier(context, PATIENCE_NS)))
		return r;
	printf("rank %u is on node %u\n", rank, node);
	return 0;
}

int main(void)
{
	const char *number = getenv("CEOVERLAP_PROCESS");
	ceov_context *context = NULL;
	int r = number ? ceov_open(NULL, &context) : CEOV_ERR_INVALID;

	if (!r)
		r = pass_on(context, (uint32_t)atoi(number));
	ceov_close(context);
	if (r)
		fprintf(stderr, "run_party: %s\n", ceov_strerror(r));
	return r != 0;
}
