/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests engines with several movers: the host's, and a test double that was added to the table as
 * docs/internals/adding-a-backend.md describes. The engine chooses the mover of a transfer by the
 * memory that movers reach. A mover may have its own addresses, so that memory that is not mapped
 * can be a target. The caller turns the engine. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/open.h"
#include "conformance/proxy.h"
#include "loopback.h"

#define BYTES UINT64_C(50000)
#define LARGE (UINT64_C(256) << 20)
#define TURNS 200u

static struct proxy proxy;
static const struct cei_place_ops *movers[3];
static struct testing_log test_log;

static const struct cei_place_ops *host(void)
{
	return cei_backend_named("host");
}

static ceov_context *open_on(const struct cei_place_ops *first,
			     const struct cei_place_ops *second, uint32_t n_ranks)
{
	struct ceov_member members[4];
	struct ceov_config config;
	ceov_context *context;

	movers[0] = first;
	movers[1] = second;
	testing_log_init(&test_log);
	config = testing_config(members, n_ranks, &test_log);
	config.progress_by_caller = 1;
	ck_assert_int_eq(cei_context_open(&config, movers, NULL, &context), 0);
	return context;
}

static void turn(ceov_context *context)
{
	uint32_t n = TURNS;

	while (n--)
		ck_assert_int_ge(ceov_turn(context), 0);
}

/* Makes the buffer look as if it were mapped for no member, as memory of another node would be. */
static void hide(ceov_buffer *buffer)
{
	memset(buffer->region->address, 0, sizeof(buffer->region->address));
}

/* Adds a transfer to the target, behind which counter 0 of `arrived` rises to 1. */
static void add_to(ceov_plan *plan, ceov_buffer *source, ceov_buffer *target, ceov_signal *arrived)
{
	struct ceov_transfer transfer = testing_transfer(source, target, BYTES);

	transfer.then = testing_mark(arrived, 0, 1);
	testing_add(plan, &transfer);
}

static void check_arrived(const ceov_buffer *target, ceov_signal *arrived, uint64_t seed)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(arrived, 0, &value), 0);
	ck_assert_uint_eq(value, 1);
	ck_assert_uint_eq(testing_check(target->region->host, BYTES, seed), BYTES);
}

static void run(ceov_context *context, ceov_plan *plan)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	turn(context);
	ck_assert_int_eq(ceov_wait(context, ticket, 0), 0);
}

/* A plan with one transfer from rank 0 to rank 1. */
struct pair {
	ceov_context *context;
	ceov_buffer  *source;
	ceov_buffer  *target;
	ceov_signal  *arrived;
	ceov_plan    *plan;
};

static void make_pair(struct pair *pair, const struct cei_place_ops *first,
		      const struct cei_place_ops *second, int is_hidden)
{
	pair->context = open_on(first, second, 2);
	pair->source = testing_buffer(pair->context, 0, BYTES);
	pair->target = testing_buffer(pair->context, 1, BYTES);
	pair->arrived = testing_signal(pair->context, 1, 1);
	testing_fill(ceov_buffer_base(pair->source, 0), BYTES, 5);
	if (is_hidden)
		hide(pair->target);
	pair->plan = testing_plan(pair->context, 0);
	add_to(pair->plan, pair->source, pair->target, pair->arrived);
}

START_TEST(test_the_first_mover_that_can_moves)
{
	struct pair pair;

	proxy_init(&proxy, host());
	make_pair(&pair, &proxy.ops, host(), 0);
	testing_log_has(&test_log, "proxy", "test double", "host");
	ck_assert_uint_eq(pair.context->works.engines[0].movers.n_own, 2);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
	testing_explained(pair.plan, "backend proxy");
	run(pair.context, pair.plan);
	check_arrived(pair.target, pair.arrived, 5);
	ck_assert_uint_eq(proxy.n_pieces, 1);
	ceov_close(pair.context);
	proxy_init(&proxy, host());
	make_pair(&pair, host(), &proxy.ops, 0);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
	testing_explained(pair.plan, "backend host");
	run(pair.context, pair.plan);
	check_arrived(pair.target, pair.arrived, 5);
	ck_assert_uint_eq(proxy.n_pieces, 0);
	ceov_close(pair.context);
}
END_TEST

START_TEST(test_an_engine_goes_without_a_mover_that_is_not_there)
{
	struct pair pair;

	proxy_init(&proxy, host());
	proxy.is_absent = 1;
	make_pair(&pair, &proxy.ops, host(), 0);
	ck_assert_uint_eq(pair.context->works.engines[0].movers.n_own, 1);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
	testing_explained(pair.plan, "backend host");
	run(pair.context, pair.plan);
	check_arrived(pair.target, pair.arrived, 5);
	ceov_close(pair.context);
}
END_TEST

/* Lanes accept handles and offsets in place of pointers, as do lanes that wait. */
START_TEST(test_addresses_are_the_movers_own)
{
	struct ceov_transfer transfer;
	struct pair pair;
	ceov_signal *ready;
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_ticket ticket;

	proxy_init(&proxy, host());
	proxy_use_handles(&proxy);
	make_pair(&pair, &proxy.ops, NULL, 0);
	ready = testing_signal(pair.context, 0, 1);
	ceov_plan_release(pair.plan);
	pair.plan = testing_plan(pair.context, 0);
	transfer = testing_transfer(pair.source, pair.target, BYTES / 2);
	transfer.source.offset_bytes = transfer.target.offset_bytes = BYTES / 2;
	transfer.source_ready = testing_mark(ready, 0, 1);
	transfer.then = testing_mark(pair.arrived, 0, 1);
	testing_add(pair.plan, &transfer);
	transfer.source.offset_bytes = transfer.target.offset_bytes = 0;
	transfer.then = testing_mark(NULL, 0, 0);
	testing_add(pair.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
	ck_assert_uint_eq(proxy.n_open, 3);     /* for two buffers and a signal */
	launch.producer_stream = &pair;
	ck_assert_int_eq(ceov_launch(pair.plan, &launch, &ticket), 0);
	turn(pair.context);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(ready, 0, 1), 0);
	turn(pair.context);
	ck_assert_int_eq(ceov_wait(pair.context, ticket, 0), 0);
	check_arrived(pair.target, pair.arrived, 5);
	ceov_plan_release(pair.plan);
	ck_assert_uint_eq(proxy.n_open, 0);
	ceov_close(pair.context);
}
END_TEST

START_TEST(test_memory_that_is_not_mapped_can_be_a_target)
{
	struct pair pair;

	proxy_init(&proxy, host());
	make_pair(&pair, host(), &proxy.ops, 1);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), CEOV_ERR_NO_ROUTE);
	testing_log_has(&test_log, "target is not reachable from there", NULL, NULL);
	ceov_close(pair.context);
	proxy_init(&proxy, host());
	proxy_use_handles(&proxy);
	make_pair(&pair, host(), &proxy.ops, 1);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
	testing_explained(pair.plan, "backend proxy");
	testing_explained(pair.plan, "the rank's first mover does not move all transfers");
	run(pair.context, pair.plan);
	check_arrived(pair.target, pair.arrived, 5);
	ck_assert_uint_eq(proxy.n_pieces, 1);
	ck_assert_uint_gt(proxy.n_open, 0);
	ceov_close(pair.context);
	ck_assert_uint_eq(proxy.n_open, 0);
}
END_TEST

/* Helpers would move a leg of any other path, and cannot know the addresses. */
START_TEST(test_no_helper_gets_addresses_of_another_mover)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .routes = CEOV_ROUTES_ALL };
	const char *srcdir = getenv("srcdir");
	char path[600];
	struct pair pair;
	int is_hidden;

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/h200x8-nvswitch.xml",
		 srcdir ? srcdir : ".");
	ck_assert_int_eq(setenv("CEOVERLAP_MACHINE", path, 1), 0);
	for (is_hidden = 0; is_hidden < 2; is_hidden++) {
		proxy_init(&proxy, host());
		proxy_use_handles(&proxy);
		pair.context = open_on(host(), &proxy.ops, 2);
		pair.source = testing_buffer(pair.context, 0, LARGE);
		pair.target = testing_buffer(pair.context, 1, LARGE);
		if (is_hidden)          /* hidden from rank 0 only: another rank still has an
					 * address */
			pair.target->region->address[0] = 0;
		pair.arrived = testing_signal(pair.context, 1, 1);
		ck_assert_int_eq(ceov_plan_create(pair.context, 0, &options, &pair.plan), 0);
		add_to(pair.plan, pair.source, pair.target, pair.arrived);
		pair.plan->program.transfers[0].row_bytes = LARGE;
		ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
		ck_assert_uint_eq(pair.plan->program.transfers[0].mover, is_hidden);
		ck_assert_int_eq(pair.plan->steps[0].is_routed, !is_hidden);
		ceov_close(pair.context);
	}
}
END_TEST

/* One plan uses two movers. If a mover asks for it, it has a separate lane for each other rank. */
START_TEST(test_each_transfer_has_its_mover_and_lane)
{
	enum { RANKS = 4 };
	ceov_context *context;
	ceov_buffer *source, *targets[RANKS];
	ceov_signal *arrived[RANKS];
	const struct cei_engine *engine;
	const struct cei_lane *lanes[RANKS];
	ceov_plan *plan;
	uint32_t i;

	proxy_init(&proxy, host());
	proxy_use_handles(&proxy);
	proxy.ops.caps |= CEI_CAP_PEER_LANES;
	context = open_on(host(), &proxy.ops, RANKS);
	engine = context->engines[0];
	source = testing_buffer(context, 0, BYTES);
	testing_fill(ceov_buffer_base(source, 0), BYTES, 9);
	plan = testing_plan(context, 0);
	for (i = 1; i < RANKS; i++) {
		targets[i] = testing_buffer(context, i, BYTES);
		arrived[i] = testing_signal(context, i, 1);
		if (i > 1)
			hide(targets[i]);
		add_to(plan, source, targets[i], arrived[i]);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	for (i = 1; i < RANKS; i++) {
		ck_assert_uint_eq(plan->program.transfers[i - 1].mover, i > 1);
		lanes[i] = &engine->lanes.states[plan->steps[i - 1].lane]->lane;
		ck_assert_ptr_eq(lanes[i]->backend, &engine->movers.mover[i > 1].backend);
		ck_assert_uint_eq(lanes[i]->peer, i > 1 ? i : CEOV_NOBODY);
	}
	ck_assert_ptr_ne(lanes[2], lanes[3]);
	run(context, plan);
	for (i = 1; i < RANKS; i++)
		check_arrived(targets[i], arrived[i], 9);
	ck_assert_uint_eq(proxy.n_pieces, RANKS - 2);
	ceov_close(context);
}
END_TEST

/* The engine trusts a mover: if the mover reports an end too early, tickets are wrong. */
START_TEST(test_an_early_end_is_believed)
{
	struct pair pair;
	uint64_t value = 7;

	proxy_init(&proxy, host());
	proxy.is_early = 1;
	make_pair(&pair, &proxy.ops, NULL, 0);
	ck_assert_int_eq(ceov_plan_commit(pair.plan), 0);
	run(pair.context, pair.plan);
	ck_assert_int_eq(ceov_signal_value(pair.arrived, 0, &value), 0);
	ck_assert_uint_eq(value, 0);
	ck_assert_uint_lt(testing_check(ceov_buffer_base(pair.target, 1), BYTES, 5), BYTES);
	ceov_close(pair.context);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("movers");
	TCase *cases = tcase_create("proxy");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, test_the_first_mover_that_can_moves);
	tcase_add_test(cases, test_an_engine_goes_without_a_mover_that_is_not_there);
	tcase_add_test(cases, test_addresses_are_the_movers_own);
	tcase_add_test(cases, test_memory_that_is_not_mapped_can_be_a_target);
	tcase_add_test(cases, test_no_helper_gets_addresses_of_another_mover);
	tcase_add_test(cases, test_each_transfer_has_its_mover_and_lane);
	tcase_add_test(cases, test_an_early_end_is_believed);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
