/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The mover to other nodes with test doubles around it: one in front of it (proxy.h), and one
 * between it and the network (transport_proxy.h), both of which delay and reorder; over the
 * simulated network, and over UCX on shared memory where there is UCX. Doubles that end too early
 * must be found out.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/ucx.h"
#include "proxy.h"
#include "testing.h"
#include "transport_proxy.h"
#include "unit/nodes_rig.h"
#include "unit/rail_pair.h"

#define LATE_NS   UINT64_C(50000)
#define N_ROUNDS  30u
#define ROW_BYTES UINT64_C(3001)
#define N_ROWS    100u
#define PITCH     UINT64_C(4096)
#define BYTES     (N_ROWS * PITCH)

static struct nodes nodes;
static struct proxy mover;

static const char *const ucx_kinds = "posix,sysv,cma,self";

/* Whether a transport can be opened, by a child: UCX does not survive a fork. */
static int has_ucx(void)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit(rail_pair_is_absent(&cei_transport_ucx, ucx_kinds) != 0);
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		!WEXITSTATUS(status);
}

/* --- the mover -------------------------------------------------------------------------- */

struct way {
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_signal *arrived;
	ceov_plan   *plan;
};

/* Rows of the source go to rows of the target, and a mark behind them. */
static void connect(struct way *way)
{
	struct ceov_transfer transfer;

	way->source = nodes_buffer(&nodes, 0, "source", BYTES);
	way->target = nodes_buffer(&nodes, 1, "target", BYTES);
	way->arrived = nodes_signal(&nodes, 1, "arrived", 1);
	transfer = testing_transfer(way->source, nodes_find_buffer(&nodes, 0, 1, "target"),
				    ROW_BYTES);
	transfer.n_rows = N_ROWS;
	transfer.source.pitch_bytes = PITCH;
	transfer.target.pitch_bytes = PITCH;
	transfer.then = testing_mark(nodes_find_signal(&nodes, 0, 1, "arrived"), 0, 1);
	way->plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(way->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(way->plan), 0);
}

static void check_rows(const struct way *way, uint64_t seed)
{
	const uint8_t *row = ceov_buffer_base(way->target, 1);
	uint32_t i;

	for (i = 0; i < N_ROWS; i++, row += PITCH) {
		ck_assert_uint_eq(testing_check(row, ROW_BYTES, seed + i), ROW_BYTES);
		ck_assert_uint_eq(row[ROW_BYTES], 0);
	}
}

/* When a ticket has ended, the bytes are there, and the source may be written to. */
static void run_round(const struct way *way, uint64_t round)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = round };
	uint8_t *source = ceov_buffer_base(way->source, 0);
	uint64_t seed = testing_seed() + round * 1000;
	ceov_ticket ticket;
	uint32_t i;

	for (i = 0; i < N_ROWS; i++)
		testing_fill(source + i * PITCH, ROW_BYTES, seed + i);
	ck_assert_int_eq(ceov_launch(way->plan, &launch, &ticket), 0);
	if (round % 2)                  /* the mark says so, too */
		nodes_await(way->arrived, 0, round + 1);
	else
		ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE), 0);
	check_rows(way, seed);
	ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE), 0);
	memset(source, 0xee, BYTES);
}

static int says(struct node *node, const char *text)
{
	uint32_t i;

	for (i = 0; i < node->log.n_lines; i++)
		if (strstr(node->log.lines[i], text))
			return 1;
	return 0;
}

static void move_over(const struct cei_transport_ops *transport, uint64_t late_ns, int is_early)
{
	static const uint32_t node_of[] = { 0, 1 };
	const struct cei_place_ops *movers[] = { cei_backend_named("host"), &mover.ops, NULL };
	const struct nodes_map map = {
		.n_nodes = 2, .n_ranks = 2, .node_of = node_of, .movers = movers,
		.transport = transport_proxy(transport, late_ns, 0),
	};
	struct way way;
	uint64_t round;

	proxy_init(&mover, cei_backend_named("net"));
	mover.late_ns = late_ns;
	mover.is_reversed = 1;
	mover.is_early = is_early;
	nodes_open_map(&nodes, &map);
	ck_assert(says(&nodes.node[0], "a test double is in front of the mover net"));
	ck_assert(says(&nodes.node[0], "a test double is in front of the transport"));
	connect(&way);
	for (round = 0; round < N_ROUNDS; round++)
		run_round(&way, round);
	ck_assert_uint_gt(mover.n_pieces, 0);
	nodes_close(&nodes);
}

START_TEST(test_moves_over_the_simulated_network)
{
	move_over(&loop_transport, LATE_NS, 0);
}
END_TEST

START_TEST(test_moves_over_shared_memory)
{
	ck_assert_int_eq(setenv("CEOVERLAP_TRANSPORTS", ucx_kinds, 1), 0);
	move_over(&cei_transport_ucx, LATE_NS, 0);
}
END_TEST

START_TEST(test_moves_that_end_too_early)
{
	move_over(&loop_transport, 0, 1);
}
END_TEST

/* --- suites ----------------------------------------------------------------------------- */

static int run_moves(int with_ucx)
{
	Suite *suite = suite_create("movers to other nodes behind test doubles");
	TCase *cases = tcase_create("moves");

	tcase_set_timeout(cases, 120);
	tcase_add_test(cases, test_moves_over_the_simulated_network);
	if (with_ucx)
		tcase_add_test(cases, test_moves_over_shared_memory);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}

static int run_rails(const struct cei_transport_ops *under, int is_early)
{
	return rail_pair_run(transport_proxy(under, is_early ? 0 : LATE_NS, is_early),
			     under->devices ? ucx_kinds : NULL);
}

static int run_early_moves(void)
{
	Suite *suite = suite_create("moves that end too early");
	TCase *cases = tcase_create("early");

	tcase_add_test(cases, test_moves_that_end_too_early);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}

static int run_early_rails(void)
{
	return run_rails(&loop_transport, 1);
}

int main(void)
{
	int with_ucx = has_ucx(), r;

	if (!testing_fails(run_early_moves) || !testing_fails(run_early_rails)) {
		printf("the cases pass where ends come before the bytes\n");
		return EXIT_FAILURE;
	}
	r = run_moves(with_ucx) | run_rails(&loop_transport, 0);
	if (with_ucx)
		r |= run_rails(&cei_transport_ucx, 0);
	return r;
}
