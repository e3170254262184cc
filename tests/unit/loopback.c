/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements the loopback, which suites of launches use. */

#include "loopback.h"

#include "backend/place.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/open.h"

static void build(struct loopback *loop, uint64_t row_bytes)
{
	uint64_t part = row_bytes ? row_bytes : LOOPBACK_BYTES / loop->n_transfers;
	struct ceov_transfer transfer;
	uint32_t i;

	loop->source = testing_buffer(loop->context, 0, LOOPBACK_BYTES);
	loop->target = testing_buffer(loop->context, 1, LOOPBACK_BYTES);
	loop->ready = testing_signal(loop->context, 0, loop->n_transfers);
	loop->arrived = testing_signal(loop->context, 1, loop->n_transfers);
	loop->free = testing_signal(loop->context, 1, loop->n_transfers);
	loop->plan = testing_plan(loop->context, 0);
	for (i = 0; i < loop->n_transfers; i++) {
		transfer = testing_transfer(loop->source, loop->target, part);
		transfer.source.offset_bytes = transfer.target.offset_bytes = i * part;
		transfer.source_ready = testing_mark(loop->ready, i, 1);
		transfer.target_free = testing_mark(loop->free, i, 0);
		transfer.then = testing_mark(loop->arrived, i, 1);
		testing_add(loop->plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(loop->plan), 0);
}

static void open_context(struct loopback *loop, const struct cei_place_ops *const *movers,
			 int by_caller)
{
	struct ceov_member members[2];
	struct ceov_config config;

	testing_log_init(&loop->log);
	config = testing_config(members, 2, &loop->log);
	config.progress_by_caller = by_caller;
	ck_assert_int_eq(cei_context_open(&config, movers, NULL, &loop->context), 0);
}

static void open_with(struct loopback *loop, uint32_t n_transfers, uint64_t row_bytes,
		      int by_caller)
{
	open_context(loop, cei_backends, by_caller);
	loop->n_transfers = n_transfers;
	build(loop, row_bytes);
}

void loopback_open_on(struct loopback *loop, const struct cei_place_ops *const *movers,
		      uint32_t n_transfers)
{
	open_context(loop, movers, 1);
	loop->n_transfers = n_transfers;
	build(loop, 0);
}

void loopback_open(struct loopback *loop, uint32_t n_transfers, uint64_t row_bytes)
{
	open_with(loop, n_transfers, row_bytes, 0);
}

void loopback_open_turned(struct loopback *loop, uint32_t n_transfers, uint64_t row_bytes)
{
	open_with(loop, n_transfers, row_bytes, 1);
}

void loopback_open_beside(struct loopback *loop, const struct loopback *other)
{
	loop->context = other->context;
	loop->n_transfers = other->n_transfers;
	build(loop, 0);
}

void loopback_close(struct loopback *loop)
{
	ceov_close(loop->context);
}

int loopback_try(struct loopback *loop, uint64_t base, enum loopback_gate gate,
		 ceov_ticket *ret_ticket)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket dropped;

	launch.producer_stream = gate == GATED ? loop->context : NULL;
	return ceov_launch(loop->plan, &launch, ret_ticket ? ret_ticket : &dropped);
}

ceov_ticket loopback_launch(struct loopback *loop, uint64_t base, enum loopback_gate gate)
{
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(loopback_try(loop, base, gate, &ticket), 0);
	return ticket;
}

int loopback_wait(struct loopback *loop, ceov_ticket ticket)
{
	return ceov_wait(loop->context, ticket, TESTING_PATIENCE);
}

void loopback_ready(struct loopback *loop, uint64_t value)
{
	uint32_t i;

	for (i = 0; i < loop->n_transfers; i++)
		ck_assert_int_eq(ceov_signal_raise(loop->ready, i, value), 0);
}

void loopback_free(struct loopback *loop, uint64_t value)
{
	uint32_t i;

	for (i = 0; i < loop->n_transfers; i++)
		ck_assert_int_eq(ceov_signal_raise(loop->free, i, value), 0);
}
