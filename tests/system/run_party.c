/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A program for scripts to start several times: a group of four ranks that the environment
 * describes, one a process. Each rank sends bytes to the next one and raises a mark there, checks
 * what it has got itself, and prints its rank and its node. */

#include <stdio.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define PATIENCE_NS UINT64_C(20000000000)
#define N_RANKS     4u
#define BYTES       (UINT64_C(5) << 20)

struct party {
	ceov_context *context;
	uint32_t      rank;
	ceov_buffer  *source;
	ceov_buffer  *target;
	ceov_signal  *own;              /* counter 0: bytes have come, 1: the mark has */
	ceov_buffer  *target_there;     /* of the next rank */
	ceov_signal  *there;
};

static int meet(struct party *party)
{
	uint32_t rank = party->rank, next = (rank + 1) % N_RANKS;
	struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	int r;

	if ((r = ceov_buffer_create(party->context, rank, BYTES, &party->source)) ||
	    (r = ceov_buffer_create(party->context, rank, BYTES, &party->target)) ||
	    (r = ceov_signal_create(party->context, rank, host, 2, 0, &party->own)) ||
	    (r = ceov_buffer_share(party->target, "target")) ||
	    (r = ceov_signal_share(party->own, "own")) ||
	    (r = ceov_barrier(party->context, PATIENCE_NS)) ||
	    (r = ceov_buffer_find(party->context, next, "target", &party->target_there)))
		return r;
	return ceov_signal_find(party->context, next, "own", &party->there);
}

static int send_bytes(struct party *party)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer), .n_rows = 1 };
	ceov_ticket ticket;
	ceov_plan *plan;
	int r;

	memset(ceov_buffer_base(party->source, party->rank), (int)party->rank + 1, BYTES);
	transfer.source.buffer = party->source;
	transfer.target.buffer = party->target_there;
	transfer.row_bytes = BYTES;
	transfer.then = (struct ceov_mark){ party->there, 0, 1 };
	if ((r = ceov_plan_create(party->context, party->rank, NULL, &plan)) ||
	    (r = ceov_plan_add(plan, &transfer)) || (r = ceov_plan_commit(plan)) ||
	    (r = ceov_launch(plan, NULL, &ticket)) ||
	    (r = ceov_signal_raise(party->there, 1, 5)))
		return r;
	return ceov_wait(party->context, ticket, PATIENCE_NS);
}

static int get_bytes(struct party *party)
{
	const unsigned char *bytes = ceov_buffer_base(party->target, party->rank);
	uint32_t previous = (party->rank + N_RANKS - 1) % N_RANKS;
	uint64_t i;
	int r;

	if ((r = ceov_signal_wait(party->own, 0, 1, PATIENCE_NS)) ||
	    (r = ceov_signal_wait(party->own, 1, 5, PATIENCE_NS)))
		return r;
	for (i = 0; i < BYTES && bytes[i] == previous + 1; i++)
		continue;
	if (i == BYTES)
		return 0;
	fprintf(stderr, "run_party: rank %u: byte %llu is %u\n", party->rank,
		(unsigned long long)i, bytes[i]);
	return CEOV_ERR_UNCERTAIN;
}

static int run(struct party *party)
{
	uint32_t node;
	int r;

	if ((r = meet(party)) || (r = send_bytes(party)) || (r = get_bytes(party)) ||
	    (r = ceov_rank_node(party->context, party->rank, &node)) ||
	    (r = ceov_barrier(party->context, PATIENCE_NS)))
		return r;
	printf("rank %u is on node %u\n", party->rank, node);
	return 0;
}

/* Opens the group and learns which of its ranks this is. */
static int open_party(struct party *party)
{
	struct ceov_member own;
	uint32_t n_own, n_ranks = 0;
	int r;

	if ((r = ceov_open(NULL, &party->context)) ||
	    (r = ceov_n_ranks(party->context, &n_ranks)) ||
	    (r = ceov_members(party->context, &own, 1, &n_own)))
		return r;
	party->rank = own.rank;
	if (n_ranks == N_RANKS)
		return 0;
	fprintf(stderr, "run_party: the group has %u ranks, not %u\n", n_ranks, N_RANKS);
	return CEOV_ERR_INVALID;
}

int main(void)
{
	struct party party = { .context = NULL };
	int r = open_party(&party);

	if (!r)
		r = run(&party);
	ceov_close(party.context);
	if (r)
		fprintf(stderr, "run_party: %s\n", ceov_strerror(r));
	return r != 0;
}
