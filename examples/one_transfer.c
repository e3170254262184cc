/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * One transfer between two ranks of this process, on host memory, so that it runs
 * anywhere: the producer raises a mark, the runtime moves the bytes and raises a mark
 * behind them, the consumer waits for that one.
 */

#include <stdio.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define BYTES     (UINT64_C(1) << 20)
#define SECOND_NS UINT64_C(1000000000)

static int run(ceov_context *context)
{
	struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer), .n_rows = 1 };
	ceov_buffer *source, *target;
	ceov_signal *ready, *arrived;
	ceov_plan *plan;
	ceov_ticket ticket;
	int r;

	if ((r = ceov_buffer_create(context, 0, BYTES, &source)) ||
	    (r = ceov_buffer_create(context, 1, BYTES, &target)) ||
	    (r = ceov_signal_create(context, 0, host, 1, 0, &ready)) ||
	    (r = ceov_signal_create(context, 1, host, 1, 0, &arrived)) ||
	    (r = ceov_plan_create(context, 0, NULL, &plan)))
		return r;
	transfer.source_ready = (struct ceov_mark){ ready, 0, 1 };
	transfer.source.buffer = source;
	transfer.target.buffer = target;
	transfer.row_bytes = BYTES;
	transfer.then = (struct ceov_mark){ arrived, 0, 1 };
	if ((r = ceov_plan_expect(plan, &transfer.source_ready)) ||
	    (r = ceov_plan_add(plan, &transfer)) || (r = ceov_plan_commit(plan)) ||
	    (r = ceov_launch(plan, NULL, &ticket)))
		return r;

	memset(ceov_buffer_base(source, 0), 42, BYTES);         /* the producer */
	if ((r = ceov_signal_raise(ready, 0, 1)) ||
	    (r = ceov_signal_wait(arrived, 0, 1, 10 * SECOND_NS)) ||
	    (r = ceov_wait(context, ticket, 10 * SECOND_NS)))
		return r;
	return memcmp(ceov_buffer_base(source, 0), ceov_buffer_base(target, 1), BYTES) ?
		CEOV_ERR_UNCERTAIN : 0;
}

int main(void)
{
	struct ceov_member members[2] = {
		{ 0, { CEOV_PLACE_HOST, 0 } },
		{ 1, { CEOV_PLACE_HOST, 0 } },
	};
	struct ceov_config config = CEOV_CONFIG_INIT;
	ceov_context *context = NULL;
	int r;

	config.members = members;
	config.n_members = config.n_ranks = 2;
	r = ceov_open(&config, &context);
	if (!r)
		r = run(context);
	printf("one transfer with ceoverlap %s: %s\n", ceov_version(), ceov_strerror(r));
	ceov_close(context);            /* releases what was not */
	return r != 0;
}
