/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests transfers between two nodes, from and to GPU memory, which goes through pinned slots, or
 * is accessed by UCX itself. Both nodes are contexts of this process, over a simulated network and
 * over UCX on TCP. With one GPU both are on it.
 *
 *   CEOVERLAP_TEST_GPU_DIRECT=1    UCX has support for CUDA: test direct access, too
 */

#include "gpu_rig.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_table.h"
#include "ce_engine/objects/context.h"
#include "net/ucx.h"
#include "unit/nodes_rig.h"

#define MIB UINT64_C(1048576)

static struct nodes nodes;
static struct gpu gpu;

struct shape {
	int source_is_gpu;
	int target_is_gpu;
	int is_ucx;
};

static const struct shape shapes[] = {
	{ 1, 1, 0 }, { 1, 0, 0 }, { 0, 1, 0 }, { 1, 1, 1 }, { 1, 0, 1 }, { 0, 1, 1 },
};

static uint32_t n_gpus;

static struct ceov_place place_of(uint32_t node, int is_gpu)
{
	struct ceov_place place = { CEOV_PLACE_HOST, 0 };

	if (is_gpu)
		place = (struct ceov_place){ CEOV_PLACE_GPU, node % n_gpus };
	return place;
}

static void open_nodes(const struct shape *shape)
{
	const struct ceov_place places[] = { place_of(0, shape->source_is_gpu),
					     place_of(1, shape->target_is_gpu) };

	nodes_open_at(&nodes, 2, places, shape->is_ucx ? &cei_transport_ucx : NULL);
	gpu_open(&gpu, 0);
}

static void close_nodes(void)
{
	gpu_close(&gpu);
	nodes_close(&nodes);
}

/* Rank 0 sends to rank 1. Marks are in host memory, which both see. */
struct route {
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_buffer *target_there;
	ceov_signal *ready;
	ceov_signal *arrived;
	ceov_signal *arrived_there;
};

static ceov_signal *host_signal(uint32_t rank, const char *name)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	ceov_signal *signal = NULL;

	ck_assert_int_eq(ceov_signal_create(nodes_context(&nodes, rank), rank, host, 1, 0,
					    &signal), 0);
	ck_assert_int_eq(ceov_signal_share(signal, name), 0);
	return signal;
}

static void connect(struct route *route, uint64_t n_bytes)
{
	route->source = nodes_buffer(&nodes, 0, "source", n_bytes);
	route->target = nodes_buffer(&nodes, 1, "target", n_bytes);
	route->ready = host_signal(0, "ready");
	route->arrived = host_signal(1, "arrived");
	route->target_there = nodes_find_buffer(&nodes, 0, 1, "target");
	route->arrived_there = nodes_find_signal(&nodes, 0, 1, "arrived");
}

static ceov_plan *plan_of(const struct route *route, const struct ceov_transfer *described)
{
	ceov_plan *plan = testing_plan(nodes_context(&nodes, 0), 0);
	struct ceov_transfer transfer = *described;

	transfer.source_ready = testing_mark(route->ready, 0, 1);
	transfer.then = testing_mark(route->arrived_there, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void launch(ceov_plan *plan, uint64_t base, ceov_ticket *ret_ticket)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched), .base = base };

	ck_assert_int_eq(ceov_launch(plan, &launched, ret_ticket), 0);
}

static void fill(ceov_buffer *buffer, uint32_t rank, uint64_t n_bytes, uint64_t seed)
{
	void *copy = malloc(n_bytes);

	testing_fill(copy, n_bytes, seed);
	gpu_move(&gpu, ceov_buffer_base(buffer, rank), copy, n_bytes);
	free(copy);
}

static uint8_t *read_all(ceov_buffer *buffer, uint32_t rank, uint64_t n_bytes)
{
	uint8_t *copy = malloc(n_bytes);

	gpu_move(&gpu, copy, ceov_buffer_base(buffer, rank), n_bytes);
	return copy;
}

/* Sizes below and above those of a slot and of a window; new data each time. */
static void send_sizes(const struct route *connected)
{
	const uint64_t sizes[] = { 1, 4096, 3 * MIB + 5, 40 * MIB + 12345 };
	const struct route route = *connected;
	ceov_ticket ticket;
	uint64_t base, seed;
	ceov_plan *plan;
	uint8_t *copy;
	uint32_t i;

	for (i = 0, base = 0; i < 4; i++) {
		struct ceov_transfer transfer = testing_transfer(route.source,
								 route.target_there, sizes[i]);

		plan = plan_of(&route, &transfer);
		for (seed = 0; seed < 5; seed++, base++) {
			fill(route.source, 0, sizes[i], testing_seed() + base);
			launch(plan, base, &ticket);
			ck_assert_int_eq(ceov_signal_raise(route.ready, 0, base + 1), 0);
			nodes_await(route.arrived, 0, base + 1);
			copy = read_all(route.target, 1, sizes[i]);
			ck_assert_uint_eq(testing_check(copy, sizes[i], testing_seed() + base),
					  sizes[i]);
			free(copy);
			ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket,
						   TESTING_PATIENCE), 0);
		}
		ceov_plan_release(plan);
	}
}

/* _i: a shape */
START_TEST(test_bytes_arrive)
{
	struct route route;

	open_nodes(&shapes[_i]);
	connect(&route, 64 * MIB);
	send_sizes(&route);
	close_nodes();
}
END_TEST

/* Asserts that a plan of rank 0, which is on a GPU, says that its bytes take no slots. */
static void check_is_direct(const struct route *route)
{
	struct ceov_transfer transfer = testing_transfer(route->source, route->target_there, 4096);
	ceov_plan *plan = plan_of(route, &transfer);
	char text[4096];
	int fds[2];
	ssize_t n;

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(ceov_plan_explain(plan, fds[1]), 0);
	n = read(fds[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_msg(strstr(text, "bytes of GPUs that go to other nodes are read and written by "
			     "the network itself") != NULL, "%s", text);
	close(fds[0]);
	close(fds[1]);
	ceov_plan_release(plan);
}

/* _i: a shape */
START_TEST(test_bytes_arrive_directly)
{
	struct route route;

	ck_assert_int_eq(setenv("CEOVERLAP_GPU_DIRECT", "direct", 1), 0);
	open_nodes(&shapes[_i]);
	connect(&route, 64 * MIB);
	send_sizes(&route);
	if (shapes[_i].source_is_gpu)
		check_is_direct(&route);
	close_nodes();
}
END_TEST

/* On a GPU that does not order the writes of network interfaces the driver is asked to. Here all
 * GPUs are treated so. */
START_TEST(test_writes_are_flushed)
{
	struct route route;
	struct cei_cuda *cuda;
	uint32_t i;

	ck_assert_int_eq(setenv("CEOVERLAP_GPU_DIRECT", "direct", 1), 0);
	open_nodes(&shapes[3]);
	cuda = nodes_context(&nodes, 1)->site.cuda;
	for (i = 0; i < cuda->n_gpus; i++)
		cuda->gpus[i].writes_ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
	connect(&route, 64 * MIB);
	send_sizes(&route);
	close_nodes();
}
END_TEST

/* _i: a shape. Rows with gaps at both ends; what is between them stays. */
START_TEST(test_rows_arrive)
{
	const uint64_t n_rows = 37, row = 5000, from_pitch = 8192, to_pitch = 6000;
	struct ceov_transfer transfer;
	uint8_t *sent, *copy;
	struct route route;
	ceov_ticket ticket;
	uint64_t i, k;

	open_nodes(&shapes[_i]);
	connect(&route, MIB);
	fill(route.source, 0, MIB, testing_seed());
	fill(route.target, 1, MIB, testing_seed() + 1);
	transfer = testing_transfer(route.source, route.target_there, row);
	transfer.n_rows = n_rows;
	transfer.source.pitch_bytes = from_pitch;
	transfer.target.pitch_bytes = to_pitch;
	launch(plan_of(&route, &transfer), 0, &ticket);
	ck_assert_int_eq(ceov_signal_raise(route.ready, 0, 1), 0);
	nodes_await(route.arrived, 0, 1);
	copy = read_all(route.target, 1, MIB);
	sent = read_all(route.source, 0, MIB);
	for (i = 0; i < n_rows; i++)
		ck_assert_mem_eq(copy + i * to_pitch, sent + i * from_pitch, row);
	testing_fill(sent, MIB, testing_seed() + 1);
	for (i = 0; i < n_rows; i++)
		for (k = i * to_pitch + row; k < (i + 1) * to_pitch; k++)
			ck_assert_uint_eq(copy[k], sent[k]);
	free(copy);
	free(sent);
	close_nodes();
}
END_TEST

/* A network that is cut while slots are in use: the launch ends with an error, and nothing lands in
 * the target any more once that is told there. */
START_TEST(test_a_cut_network_ends_the_launch)
{
	struct ceov_transfer transfer;
	uint8_t *before, *behind;
	struct route route;
	ceov_ticket ticket;
	int r;

	open_nodes(&shapes[0]);
	connect(&route, 64 * MIB);
	transfer = testing_transfer(route.source, route.target_there, 64 * MIB);
	launch(plan_of(&route, &transfer), 0, &ticket);
	ck_assert_int_eq(ceov_signal_raise(route.ready, 0, 1), 0);
	loop_net_cut(&nodes.net, 0, 1, 1);
	r = ceov_wait(nodes_context(&nodes, 0), ticket, 5 * NODES_TIMEOUT_NS);
	ck_assert_msg(r == CEOV_ERR_PEER_LOST || r == CEOV_ERR_UNCERTAIN, "%d", r);
	ck_assert_int_lt(ceov_signal_wait(route.arrived, 0, 1, 5 * NODES_TIMEOUT_NS), 0);
	before = read_all(route.target, 1, 64 * MIB);
	usleep(300000);
	behind = read_all(route.target, 1, 64 * MIB);
	ck_assert_mem_eq(before, behind, 64 * MIB);
	free(before);
	free(behind);
	close_nodes();
}
END_TEST

static Suite *suite(uint32_t n)
{
	Suite *suite = suite_create("gpu_nodes");
	TCase *tcase = tcase_create("nodes");

	n_gpus = n;
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_bytes_arrive, 0, 6);
	tcase_add_loop_test(tcase, test_rows_arrive, 0, 6);
	tcase_add_test(tcase, test_a_cut_network_ends_the_launch);
	if (gpu_setting("CEOVERLAP_TEST_GPU_DIRECT", 0)) {
		tcase_add_loop_test(tcase, test_bytes_arrive_directly, 3, 6);
		tcase_add_test(tcase, test_writes_are_flushed);
	}
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	(void)setenv("CEOVERLAP_TRANSPORTS", "tcp", 0);
	return gpu_main(1, suite);
}
