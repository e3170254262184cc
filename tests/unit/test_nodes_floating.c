/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Transfers to another node from memory that each launch names, over a simulated network. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/nodes_rig.h"

#define BYTES (UINT64_C(10) << 20)
#define SMALL UINT64_C(5000)

static struct nodes nodes;

/* Rank 0 sends from floating memory, through its plan, to rank 1 of another node. */
struct route {
	ceov_buffer *floating;
	ceov_buffer *target;
	ceov_signal *arrived;
	ceov_plan   *plan;
};

static void make_plan(struct route *route, struct ceov_transfer *transfer)
{
	ceov_signal *arrived_there = nodes_find_signal(&nodes, 0, 1, "arrived");

	transfer->then = testing_mark(arrived_there, 0, 1);
	route->plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(route->plan, transfer);
	ck_assert_int_eq(ceov_plan_commit(route->plan), 0);
}

static void connect(struct route *route, uint64_t n_bytes)
{
	struct ceov_transfer transfer;

	ck_assert_int_eq(ceov_buffer_float(nodes_context(&nodes, 0), 0, n_bytes,
					   &route->floating), 0);
	route->target = nodes_buffer(&nodes, 1, "target", n_bytes);
	route->arrived = nodes_signal(&nodes, 1, "arrived", 1);
	transfer = testing_transfer(route->floating, nodes_find_buffer(&nodes, 0, 1, "target"),
				    n_bytes);
	make_plan(route, &transfer);
}

static ceov_ticket launch(const struct route *route, uint64_t base, const void *memory)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched), .base = base };
	ceov_ticket ticket;

	launched.floating = memory;
	ck_assert_int_eq(ceov_launch(route->plan, &launched, &ticket), 0);
	return ticket;
}

static int wait_for(ceov_ticket ticket)
{
	return ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE);
}

static void *map(uint64_t n_bytes)
{
	void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

/* Sends from new memory, which is unmapped when the launch has ended: a read behind that would end
 * the test. */
static void send_once(const struct route *route, uint64_t base, uint64_t n_bytes)
{
	void *memory = map(n_bytes);

	testing_fill(memory, n_bytes, testing_seed() + base);
	ck_assert_int_eq(wait_for(launch(route, base, memory)), 0);
	munmap(memory, n_bytes);
	nodes_await(route->arrived, 0, base + 1);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(route->target, 1), n_bytes,
					testing_seed() + base), n_bytes);
}

/* _i: sizes below and above those of a slot, and of all slots together. */
START_TEST(test_bytes_of_named_memory_arrive)
{
	const uint64_t sizes[] = { 16, SMALL, BYTES + 12345, 9 * BYTES };
	struct route route;
	uint64_t base;

	nodes_open(&nodes, 2, 1);
	connect(&route, sizes[_i]);
	testing_explained(route.plan, "memory that launches name pass through slots");
	for (base = 0; base < 4; base++)
		send_once(&route, base, sizes[_i]);
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_rows_of_named_memory)
{
	const uint64_t n_rows = 37, row = 5000, from_pitch = 8192, to_pitch = 6000;
	uint64_t n_bytes = n_rows * from_pitch, i;
	struct ceov_transfer transfer;
	uint8_t *memory, *arrived;
	struct route route;

	nodes_open(&nodes, 2, 1);
	connect(&route, n_bytes);
	ceov_plan_release(route.plan);
	transfer = testing_transfer(route.floating, nodes_find_buffer(&nodes, 0, 1, "target"), row);
	transfer.n_rows = n_rows;
	transfer.source.pitch_bytes = from_pitch;
	transfer.target.pitch_bytes = to_pitch;
	make_plan(&route, &transfer);
	memory = map(n_bytes);
	testing_fill(memory, n_bytes, testing_seed());
	ck_assert_int_eq(wait_for(launch(&route, 0, memory)), 0);
	arrived = ceov_buffer_base(route.target, 1);
	for (i = 0; i < n_rows; i++)
		ck_assert_mem_eq(arrived + i * to_pitch, memory + i * from_pitch, row);
	munmap(memory, n_bytes);
	nodes_close(&nodes);
}
END_TEST

/* One plan sends to a neighbour, by the node's own mover, and to another node. */
START_TEST(test_named_memory_to_both_kinds_of_ranks)
{
	const uint32_t node_of[] = { 0, 1, 0 };
	ceov_buffer *neighbour;
	struct ceov_transfer transfer;
	struct route route;
	uint8_t *memory;

	nodes_open_mixed(&nodes, 2, 3, node_of);
	connect(&route, SMALL);
	ceov_plan_release(route.plan);
	neighbour = nodes_buffer(&nodes, 2, "neighbour", SMALL);
	route.plan = testing_plan(nodes_context(&nodes, 0), 0);
	transfer = testing_transfer(route.floating, neighbour, SMALL);
	testing_add(route.plan, &transfer);
	transfer = testing_transfer(route.floating, nodes_find_buffer(&nodes, 0, 1, "target"),
				    SMALL);
	testing_add(route.plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(route.plan), 0);
	memory = map(SMALL);
	testing_fill(memory, SMALL, testing_seed());
	ck_assert_int_eq(wait_for(launch(&route, 0, memory)), 0);
	ck_assert_mem_eq(ceov_buffer_base(neighbour, 2), memory, SMALL);
	ck_assert_mem_eq(ceov_buffer_base(route.target, 1), memory, SMALL);
	munmap(memory, SMALL);
	nodes_close(&nodes);
}
END_TEST

/* Rank 0's process has no threads of the library, so the caller also makes the copies to slots. */
START_TEST(test_named_memory_of_a_node_that_its_caller_turns)
{
	struct route route;
	ceov_ticket ticket;
	uint8_t *memory;

	nodes_open_turned(&nodes, 2);
	connect(&route, BYTES);
	memory = map(BYTES);
	testing_fill(memory, BYTES, testing_seed());
	ticket = launch(&route, 0, memory);
	while (ceov_wait(nodes_context(&nodes, 0), ticket, 0) == CEOV_PENDING)
		ck_assert_int_ge(ceov_turn(nodes_context(&nodes, 0)), 0);
	ck_assert_int_eq(wait_for(ticket), 0);
	ck_assert_mem_eq(ceov_buffer_base(route.target, 1), memory, BYTES);
	munmap(memory, BYTES);
	nodes_close(&nodes);
}
END_TEST

/* After a launch that failed, its memory is not read any more. */
START_TEST(test_a_cut_network_leaves_named_memory_alone)
{
	struct route route;
	ceov_ticket ticket;
	uint8_t *memory;
	int r;

	nodes_open(&nodes, 2, 1);
	connect(&route, 9 * BYTES);
	memory = map(9 * BYTES);
	ticket = launch(&route, 0, memory);
	nodes_cut(&nodes, 0, 1);
	r = ceov_wait(nodes_context(&nodes, 0), ticket, 5 * NODES_TIMEOUT_NS);
	ck_assert_msg(r == CEOV_ERR_PEER_LOST || r == CEOV_ERR_UNCERTAIN, "%d", r);
	munmap(memory, 9 * BYTES);
	usleep(100000);
	nodes_close(&nodes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nodes_floating");
	TCase *tcase = tcase_create("nodes_floating");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_bytes_of_named_memory_arrive, 0, 4);
	tcase_add_test(tcase, test_rows_of_named_memory);
	tcase_add_test(tcase, test_named_memory_to_both_kinds_of_ranks);
	tcase_add_test(tcase, test_named_memory_of_a_node_that_its_caller_turns);
	tcase_add_test(tcase, test_a_cut_network_leaves_named_memory_alone);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
