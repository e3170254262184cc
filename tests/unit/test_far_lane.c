/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what a lane to another node takes, over a simulated network that is slow. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/nodes_rig.h"

#define MIB UINT64_C(1048576)

static struct nodes nodes;

static struct {
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_buffer *target_there;
	ceov_signal *arrived;
	ceov_signal *arrived_there;
} route;

/* Rank 0 sends to rank 1, which takes 2 ms for each piece. */
static void prepare(uint64_t n_bytes)
{
	nodes_open(&nodes, 2, 1);
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.links[0][1].bytes_ns = 2 * TESTING_MS;
	pthread_mutex_unlock(&nodes.net.lock);
	route.source = nodes_buffer(&nodes, 0, "source", n_bytes);
	route.target = nodes_buffer(&nodes, 1, "target", n_bytes);
	route.arrived = nodes_signal(&nodes, 1, "arrived", 64);
	route.target_there = nodes_find_buffer(&nodes, 0, 1, "target");
	route.arrived_there = nodes_find_signal(&nodes, 0, 1, "arrived");
}

static ceov_ticket launch(ceov_plan *plan, uint64_t base)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched), .base = base };
	ceov_ticket ticket;
	int r;

	while ((r = ceov_launch(plan, &launched, &ticket)) == CEOV_FULL)
		usleep(1000);
	ck_assert_int_eq(r, 0);
	return ticket;
}

static ceov_plan *plan_for(struct ceov_transfer *transfers, uint32_t n)
{
	ceov_plan *plan = testing_plan(nodes_context(&nodes, 0), 0);
	uint32_t i;

	for (i = 0; i < n; i++) {
		transfers[i].then = testing_mark(route.arrived_there, i, 1);
		testing_add(plan, &transfers[i]);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* Rows with gaps, and small transfers between large ones: each counter stands for its bytes. */
START_TEST(test_large_and_small_transfers_mix)
{
	enum { N = 24 };
	struct ceov_transfer transfers[N];
	uint64_t at = 0, size, total = 24 * 3 * MIB;
	ceov_ticket ticket;
	ceov_plan *plan;
	uint8_t *from, *to;
	uint32_t i;

	prepare(total);
	for (i = 0; i < N; i++) {
		size = i % 3 ? 3 * MIB : 1000;
		transfers[i] = testing_transfer(route.source, route.target_there, size);
		transfers[i].source.offset_bytes = transfers[i].target.offset_bytes = at;
		if (i % 3 == 2) {       /* 600 rows of 4 KiB, 1 KiB between two of them */
			transfers[i].row_bytes = 4096;
			transfers[i].n_rows = 600;
			transfers[i].source.pitch_bytes = 5120;
			transfers[i].target.pitch_bytes = 5120;
		}
		at += size;
	}
	plan = plan_for(transfers, N);
	testing_fill(ceov_buffer_base(route.source, 0), total, testing_seed());
	ticket = launch(plan, 0);
	from = ceov_buffer_base(route.source, 0);
	to = ceov_buffer_base(route.target, 1);
	for (i = 0; i < N; i++) {
		uint64_t row, n_rows = i % 3 == 2 ? 600 : 1;

		nodes_await(route.arrived, i, 1);
		for (row = 0; row < n_rows; row++)
			ck_assert_mem_eq(to + transfers[i].target.offset_bytes + row * 5120,
					 from + transfers[i].source.offset_bytes + row * 5120,
					 transfers[i].row_bytes);
	}
	ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE), 0);
	nodes_close(&nodes);
}
END_TEST

/* Many launches under way at once: all end, and the counter goes up step by step. */
START_TEST(test_many_launches_are_under_way)
{
	struct ceov_transfer transfer;
	ceov_ticket tickets[100];
	uint64_t value, last = 0;
	ceov_plan *plan;
	uint32_t i;

	prepare(3 * MIB);
	transfer = testing_transfer(route.source, route.target_there, 3 * MIB);
	plan = plan_for(&transfer, 1);
	for (i = 0; i < 100; i++)
		tickets[i] = launch(plan, i);
	while (last < 100) {
		ck_assert_int_eq(ceov_signal_value(route.arrived, 0, &value), 0);
		ck_assert_uint_ge(value, last);
		last = value;
	}
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), tickets[i],
					   TESTING_PATIENCE), 0);
	nodes_close(&nodes);
}
END_TEST

#define N_SMALL 400u

/* An engine puts 64 chunks on a lane, each with a mark. Nothing of it finds no room. */
START_TEST(test_as_many_marks_as_a_lane_may_have)
{
	struct ceov_transfer transfer;
	ceov_signal *many, *there, *own;
	ceov_plan *plan;
	uint32_t i, base;
	int is_large;

	prepare(16 * MIB);
	many = nodes_signal(&nodes, 1, "many", N_SMALL);
	own = nodes_signal(&nodes, 0, "own", N_SMALL);
	there = nodes_find_signal(&nodes, 0, 1, "many");
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	for (i = 0; i < N_SMALL; i++) {
		is_large = i % 100 == 0;
		transfer = testing_transfer(route.source, route.target_there,
					    is_large ? 2 * MIB + 64 : 64);
		transfer.source.offset_bytes = is_large ? i / 100 * 3 * MIB
			: 12 * MIB + 4096 * i;
		transfer.target.offset_bytes = transfer.source.offset_bytes;
		transfer.then = testing_mark(i % 2 ? own : there, i, 1);
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	for (base = 0; base < 4; base++)
		ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), launch(plan, base),
					   TESTING_PATIENCE), 0);
	for (i = 0; i < N_SMALL; i++)
		nodes_await(i % 2 ? own : many, i, 4);
	nodes_close(&nodes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("far_lane");
	TCase *tcase = tcase_create("lane");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_large_and_small_transfers_mix);
	tcase_add_test(tcase, test_many_launches_are_under_way);
	tcase_add_test(tcase, test_as_many_marks_as_a_lane_may_have);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
