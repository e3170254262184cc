/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* A launch ends when its mover reports completion, not when its bytes have become visible: until
 * then the mover may still read the source. The test double in front of the host's mover reports
 * completion late. The caller turns the engine. */

#include <string.h>

#include "conformance/proxy.h"
#include "loopback.h"

#define TURNS  200u
#define NEVER  (UINT64_MAX / 2)

static void turn(struct loopback *loop, uint32_t n)
{
	while (n--)
		ck_assert_int_ge(ceov_turn(loop->context), 0);
}

static uint64_t arrived(const struct loopback *loop, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(loop->arrived, index, &value), 0);
	return value;
}

static void open_behind(struct loopback *loop, struct proxy *proxy, uint32_t n_transfers)
{
	static const struct cei_place_ops *movers[2];

	proxy_init(proxy, cei_backend_named("host"));
	movers[0] = &proxy->ops;
	loopback_open_on(loop, movers, n_transfers);
}

START_TEST(test_a_launch_ends_with_its_mover)
{
	struct proxy proxy;
	ceov_ticket ticket;
	struct loopback loop;

	open_behind(&loop, &proxy, 1);
	proxy.late_ns = NEVER;
	ticket = loopback_launch(&loop, 0, POLLED);
	loopback_ready(&loop, 1);
	turn(&loop, TURNS);
	ck_assert_uint_eq(arrived(&loop, 0), 1);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_PENDING);
	ck_assert_int_eq(ceov_plan_idle(loop.plan), CEOV_PENDING);
	proxy.late_ns = 0;
	turn(&loop, TURNS);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), 0);
	ck_assert_int_eq(ceov_plan_idle(loop.plan), 0);
	loopback_close(&loop);
}
END_TEST

/* Transfers of one submit may be executed in any order; their bytes are right all the same. */
START_TEST(test_bytes_are_right_in_any_order)
{
	enum { TRANSFERS = 6, ROUNDS = 20 };
	struct proxy proxy;
	ceov_ticket ticket;
	struct loopback loop;
	uint64_t k;
	uint32_t i;

	open_behind(&loop, &proxy, TRANSFERS);
	proxy.is_reversed = 1;
	for (k = 0; k < ROUNDS; k++) {
		proxy.late_ns = k % 2 ? 10000 : 0;
		testing_fill(ceov_buffer_base(loop.source, 0), LOOPBACK_BYTES, k);
		loopback_free(&loop, k);
		loopback_ready(&loop, k + 1);
		ticket = loopback_launch(&loop, k, POLLED);
		while (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING)
			turn(&loop, 1);
		ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), 0);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(loop.target, 1),
						LOOPBACK_BYTES, k), LOOPBACK_BYTES);
		for (i = 0; i < TRANSFERS; i++)
			ck_assert_uint_eq(arrived(&loop, i), k + 1);
	}
	loopback_close(&loop);
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
