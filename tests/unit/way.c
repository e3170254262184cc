/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The way of the launch suites. */

#include "way.h"

static void build(struct way *way, uint64_t row_bytes)
{
	uint64_t part = row_bytes ? row_bytes : WAY_BYTES / way->n_transfers;
	struct ceov_transfer transfer;
	uint32_t i;

	way->source = testing_buffer(way->context, 0, WAY_BYTES);
	way->target = testing_buffer(way->context, 1, WAY_BYTES);
	way->ready = testing_signal(way->context, 0, way->n_transfers);
	way->arrived = testing_signal(way->context, 1, way->n_transfers);
	way->free = testing_signal(way->context, 1, way->n_transfers);
	way->plan = testing_plan(way->context, 0);
	for (i = 0; i < way->n_transfers; i++) {
		transfer = testing_transfer(way->source, way->target, part);
		transfer.source.offset_bytes = transfer.target.offset_bytes = i * part;
		transfer.source_ready = testing_mark(way->ready, i, 1);
		transfer.target_free = testing_mark(way->free, i, 0);
		transfer.then = testing_mark(way->arrived, i, 1);
		testing_add(way->plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(way->plan), 0);
}

void way_open_with(struct way *way, uint32_t n_transfers, uint64_t row_bytes,
		   int by_caller)
{
	struct ceov_member members[2];
	struct ceov_config config;

	testing_log_init(&way->log);
	config = testing_config(members, 2, &way->log);
	config.progress_by_caller = by_caller;
	ck_assert_int_eq(ceov_open(&config, &way->context), 0);
	way->n_transfers = n_transfers;
	build(way, row_bytes);
}

void way_open(struct way *way, uint32_t n_transfers, uint64_t row_bytes)
{
	way_open_with(way, n_transfers, row_bytes, 0);
}

void way_open_beside(struct way *way, const struct way *other)
{
	way->context = other->context;
	way->n_transfers = other->n_transfers;
	build(way, 0);
}

void way_close(struct way *way)
{
	ceov_close(way->context);
}

int way_try(struct way *way, uint64_t base, int is_gated, ceov_ticket *ret_ticket)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket dropped;

	launch.producer_stream = is_gated ? way->context : NULL;
	return ceov_launch(way->plan, &launch, ret_ticket ? ret_ticket : &dropped);
}

ceov_ticket way_launch(struct way *way, uint64_t base, int is_gated)
{
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(way_try(way, base, is_gated, &ticket), 0);
	return ticket;
}

int way_wait(struct way *way, ceov_ticket ticket)
{
	return ceov_wait(way->context, ticket, TESTING_PATIENCE);
}

void way_ready(struct way *way, uint64_t value)
{
	uint32_t i;

	for (i = 0; i < way->n_transfers; i++)
		ck_assert_int_eq(ceov_signal_raise(way->ready, i, value), 0);
}

void way_free(struct way *way, uint64_t value)
{
	uint32_t i;

	for (i = 0; i < way->n_transfers; i++)
		ck_assert_int_eq(ceov_signal_raise(way->free, i, value), 0);
}
