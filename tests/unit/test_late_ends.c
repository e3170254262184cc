/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A launch is over when its mover has told so, and not when its bytes are seen: until then
 * the mover may still read them. With a mover in front of the host's that tells ends late.
 * The caller turns the engine, so that nothing depends on time. */

#include <string.h>

#include "ce_engine/context.h"
#include "ce_engine/engine.h"
#include "conformance/proxy.h"
#include "way.h"

#define TURNS  200u
#define NEVER  (UINT64_MAX / 2)

static void turn(struct way *way, uint32_t n)
{
	while (n--)
		ck_assert_int_ge(ceov_turn(way->context), 0);
}

static uint64_t arrived(const struct way *way, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(way->arrived, index, &value), 0);
	return value;
}

static void open_behind(struct way *way, struct proxy *proxy, uint32_t n_transfers)
{
	way_open_with(way, n_transfers, 0, 1);
	proxy_init(proxy, way->context->engines[0].backend.ops);
	way->context->engines[0].backend.ops = &proxy->ops;
}

START_TEST(test_a_launch_ends_with_its_mover)
{
	struct proxy proxy;
	ceov_ticket ticket;
	struct way way;

	open_behind(&way, &proxy, 1);
	proxy.late_ns = NEVER;
	ticket = way_launch(&way, 0, 0);
	way_ready(&way, 1);
	turn(&way, TURNS);
	ck_assert_uint_eq(arrived(&way, 0), 1);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_plan_idle(way.plan), CEOV_PENDING);
	proxy.late_ns = 0;
	turn(&way, TURNS);
	ck_assert_int_eq(ceov_wait(way.context, ticket, 0), 0);
	ck_assert_int_eq(ceov_plan_idle(way.plan), 0);
	way_close(&way);
}
END_TEST

/* Transfers of one submit have no order; their bytes are right all the same. */
START_TEST(test_bytes_are_right_in_any_order)
{
	enum { TRANSFERS = 6, ROUNDS = 20 };
	struct proxy proxy;
	ceov_ticket ticket;
	struct way way;
	uint64_t k;
	uint32_t i;

	open_behind(&way, &proxy, TRANSFERS);
	proxy.is_reversed = 1;
	for (k = 0; k < ROUNDS; k++) {
		proxy.late_ns = k % 2 ? 10000 : 0;
		testing_fill(ceov_buffer_base(way.source, 0), WAY_BYTES, k);
		way_free(&way, k);
		way_ready(&way, k + 1);
		ticket = way_launch(&way, k, 0);
		while (ceov_wait(way.context, ticket, 0) == CEOV_PENDING)
			turn(&way, 1);
		ck_assert_int_eq(ceov_wait(way.context, ticket, 0), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(way.target, 1), WAY_BYTES, k),
				  WAY_BYTES);
		for (i = 0; i < TRANSFERS; i++)
			ck_assert_uint_eq(arrived(&way, i), k + 1);
	}
	way_close(&way);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("late ends");
	TCase *cases = tcase_create("proxy");

	tcase_set_timeout(cases, 60);
	tcase_add_test(cases, test_a_launch_ends_with_its_mover);
	tcase_add_test(cases, test_bytes_are_right_in_any_order);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
