/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A ring of processes, on host memory: each adds its rank to the number that comes from the one
 * before it, and passes it on, so that rank 0 gets the sum of all. For any number of processes:
 *
 *   CEOVERLAP_PLACE=host ceoverlap-run -n 4 ./ring
 */

#include <inttypes.h>
#include <stdio.h>

#include <ceoverlap/ceoverlap.h>

#define LIMIT_NS UINT64_C(10000000000)

/* What a rank has of the ring. */
struct place {
	uint32_t     rank, n_ranks;
	ceov_buffer *inbox, *outbox;
	ceov_signal *arrived, *ready;
	ceov_plan   *plan;              /* outbox, when it is ready, to the next rank's inbox */
};

/* Creates this rank's memory and counters, and shows its neighbour those that it is to reach. */
static int make(ceov_context *context, struct place *own)
{
	struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	int r;

	if ((r = ceov_buffer_create(context, own->rank, sizeof(uint64_t), &own->inbox)) ||
	    (r = ceov_buffer_create(context, own->rank, sizeof(uint64_t), &own->outbox)) ||
	    (r = ceov_signal_create(context, own->rank, host, 1, 0, &own->arrived)) ||
	    (r = ceov_signal_create(context, own->rank, host, 1, 0, &own->ready)) ||
	    (r = ceov_buffer_share(own->inbox, "inbox")))
		return r;
	return ceov_signal_share(own->arrived, "arrived");
}

/* Finds the next rank's; all ranks have shared theirs. */
static int connect(ceov_context *context, struct place *own)
{
	struct ceov_transfer pass = CEOV_TRANSFER_INIT;
	uint32_t next = (own->rank + 1) % own->n_ranks;
	int r;

	if ((r = ceov_buffer_find(context, next, "inbox", &pass.target.buffer)) ||
	    (r = ceov_signal_find(context, next, "arrived", &pass.then.signal)) ||
	    (r = ceov_plan_create(context, own->rank, NULL, &own->plan)))
		return r;
	pass.source.buffer = own->outbox;
	pass.source_ready.signal = own->ready;
	pass.source_ready.value = pass.then.value = 1;
	pass.row_bytes = sizeof(uint64_t);
	pass.n_rows = 1;
	if ((r = ceov_plan_expect(own->plan, &pass.source_ready)) ||
	    (r = ceov_plan_add(own->plan, &pass)))
		return r;
	return ceov_plan_commit(own->plan);
}

/* Rank 0 begins, and ends with the sum in its inbox. */
static int pass_on(ceov_context *context, const struct place *own)
{
	uint64_t *in = ceov_buffer_base(own->inbox, own->rank);
	uint64_t *out = ceov_buffer_base(own->outbox, own->rank);
	ceov_ticket ticket;
	int r = ceov_launch(own->plan, NULL, &ticket);

	if (!r && own->rank)
		r = ceov_signal_wait(own->arrived, 0, 1, LIMIT_NS);
	if (r)
		return r;
	*out = own->rank ? *in + own->rank : 0;
	if ((r = ceov_signal_raise(own->ready, 0, 1)) ||
	    (r = ceov_signal_wait(own->arrived, 0, 1, LIMIT_NS)) ||
	    (r = ceov_wait(context, ticket, LIMIT_NS)))
		return r;
	if (!own->rank)
		printf("a ring of %" PRIu32 " ranks has passed on %" PRIu64 "\n", own->n_ranks,
		       *in);
	return 0;
}

static int run(ceov_context *context)
{
	struct ceov_context_info info = CEOV_CONTEXT_INFO_INIT;
	struct ceov_member member;
	struct place own = { 0 };
	uint32_t n;
	int r = ceov_context_query(context, &info);

	if (!r)
		r = ceov_members(context, &member, 1, &n);
	if (r)
		return r;
	own.rank = member.rank;
	own.n_ranks = info.n_ranks;
	if ((r = make(context, &own)) || (r = ceov_barrier(context, LIMIT_NS)) ||
	    (r = connect(context, &own)) || (r = pass_on(context, &own)))
		return r;
	return ceov_barrier(context, LIMIT_NS);         /* nobody closes before all are done */
}

int main(void)
{
	ceov_context *context = NULL;
	int r = ceov_open(NULL, &context);

	if (!r)
		r = run(context);
	if (r)                          /* the library has said why on stderr */
		fprintf(stderr, "ring: %s\n", ceov_strerror(r));
	ceov_close(context);
	return r != 0;
}
