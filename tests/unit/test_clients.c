/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Clients of the engines of a process: plans of a context count as its client's. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ce_engine/engine/clients.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "testing.h"

#define BYTES  UINT64_C(1000000)
#define CHUNK  UINT64_C(100000)
#define TURNS  100000u                  /* far more than a launch needs */
#define URGENT CEOV_URGENCY_URGENT

struct fixture {
	ceov_context     *context;
	struct cei_works *works;
	ceov_plan        *plan;
	uint8_t          *source;
	uint8_t          *target;
};

/* The host machine has no ports here: a chunk's bytes count for the client as a whole. Engines of a
 * context have no clients, so the table is handed to its engine before anything is launched. */
static void set_up(struct fixture *f)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = CHUNK, .urgency = URGENT };
	struct ceov_transfer transfer;
	ceov_buffer *source, *target;

	f->context = testing_open_turned(1, NULL);
	f->works = &f->context->works;
	ck_assert_int_eq(cei_clients_share(f->works), 0);
	cei_queues_share(&f->works->engines[0].scheduler.queues, f->works->flows);
	source = testing_buffer(f->context, 0, BYTES);
	target = testing_buffer(f->context, 0, BYTES);
	ck_assert_int_eq(ceov_plan_create(f->context, 0, &options, &f->plan), 0);
	transfer = testing_transfer(source, target, BYTES);
	testing_add(f->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(f->plan), 0);
	f->source = ceov_buffer_base(source, 0);
	f->target = ceov_buffer_base(target, 0);
	testing_fill(f->source, BYTES, testing_seed());
}

static ceov_ticket launch(struct fixture *f)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = 0 };
	ceov_ticket ticket = { 0 };

	memset(f->target, 0, BYTES);
	ck_assert_int_eq(ceov_launch(f->plan, &launch, &ticket), 0);
	return ticket;
}

/* Makes turns until the launch has ended, or n turns; returns what ceov_wait() says then. */
static int turn(struct fixture *f, ceov_ticket ticket, uint32_t n)
{
	int r = CEOV_PENDING;

	for (; r == CEOV_PENDING && n; n--) {
		(void)ceov_turn(f->context);
		r = ceov_wait(f->context, ticket, 0);
	}
	return r;
}

START_TEST(test_plans_count_as_their_clients)
{
	const struct cei_flows_limits limits = { 3, 0 };
	struct cei_flows_tally tally;
	uint32_t i, slot = 0, other = 0;
	struct fixture f;

	set_up(&f);
	ck_assert_int_eq(cei_clients_open(f.works, &limits, &slot), 0);
	ck_assert_int_eq(cei_clients_open(f.works, &limits, &other), 0);
	f.context->slot = other;
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(turn(&f, launch(&f), TURNS), 0);
		ck_assert_uint_eq(testing_check(f.target, BYTES, testing_seed()), BYTES);
	}
	tally = cei_flows_read(f.works->flows, CEI_FLOWS_ALL_PORTS, other, URGENT);
	ck_assert_uint_eq(tally.bytes, 3 * BYTES);
	ck_assert_uint_eq(tally.n_chunks, 3 * (BYTES / CHUNK));
	ck_assert_uint_eq(cei_flows_read(f.works->flows, CEI_FLOWS_ALL_PORTS, slot, URGENT).bytes,
			  0);
	ceov_close(f.context);
}
END_TEST

START_TEST(test_a_limit_slows_a_client_down)
{
	struct cei_flows_limits limits = { 1, 1000 };
	ceov_ticket ticket;
	uint32_t slot = 0;
	struct fixture f;

	set_up(&f);
	ck_assert_int_eq(cei_clients_open(f.works, &limits, &slot), 0);
	f.context->slot = slot;
	ticket = launch(&f);
	/* the first chunk goes, the next one would after 100 s */
	ck_assert_int_eq(turn(&f, ticket, 1000), CEOV_PENDING);
	ck_assert_uint_eq(cei_flows_read(f.works->flows, CEI_FLOWS_ALL_PORTS, slot, URGENT)
			  .n_chunks, 1);
	limits.bytes_per_s = 0;
	ck_assert_int_eq(cei_flows_change(f.works->flows, slot, &limits), 0);
	ck_assert_int_eq(turn(&f, ticket, TURNS), 0);
	ck_assert_uint_eq(testing_check(f.target, BYTES, testing_seed()), BYTES);
	ceov_close(f.context);
}
END_TEST

START_TEST(test_there_are_only_so_many)
{
	struct cei_flows_limits limits = { 1, 0 };
	uint32_t i, slot = 0;
	struct fixture f;

	set_up(&f);
	for (i = 0; i < CEI_FLOWS_CLIENTS; i++)
		ck_assert_int_eq(cei_clients_open(f.works, &limits, &slot), 0);
	ck_assert_int_eq(cei_clients_open(f.works, &limits, &slot), CEOV_FULL);
	limits.weight = 0;
	ck_assert_int_eq(cei_clients_open(f.works, &limits, &slot), CEOV_ERR_INVALID);
	f.context->slot = CEI_FLOWS_SLOTS;      /* no such slot: counts as the process's own */
	ck_assert_int_eq(turn(&f, launch(&f), TURNS), 0);
	ck_assert_uint_eq(cei_flows_read(f.works->flows, CEI_FLOWS_ALL_PORTS, 0, URGENT).bytes,
			  BYTES);
	ceov_close(f.context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clients");
	TCase *tests = tcase_create("clients");

	tcase_add_test(tests, test_plans_count_as_their_clients);
	tcase_add_test(tests, test_a_limit_slows_a_client_down);
	tcase_add_test(tests, test_there_are_only_so_many);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
