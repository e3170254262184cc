/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Groups of several nodes in real processes, over UCX: each process says by CEOVERLAP_NODE which
 * node it is on. Two processes stand for each node. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "base/clock.h"
#include "system/bootstrap_fixture.h"
#include "testing.h"

#define RANKS    4u
#define BYTES    (UINT64_C(3) << 20)
#define LAUNCHES 20u
#define ROUNDS   10u

/* Until a silent process counts as lost. */
static uint64_t peer_timeout_ns = 2 * TESTING_SECOND;

/* A process of a group that meets at the test's store; two ranks share a node. */
static ceov_context *open_rank(uint32_t rank, uint32_t n_ranks, struct testing_log *log)
{
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_member member = { rank, testing_host };
	struct ceov_config config = CEOV_CONFIG_INIT;
	ceov_context *context = NULL;
	char node[16], group[sizeof(directory) + 16];

	snprintf(node, sizeof(node), "node %u", rank / 2);
	snprintf(group, sizeof(group), "%s/group%u", directory, rank / 2);
	network.bootstrap = CEOV_BOOTSTRAP_STORE;
	network.where = store;
	network.process = rank;
	network.n_processes = n_ranks;
	network.job = "test_nodes_processes";
	network.node = node;
	network.nics = "lo";
	network.peer_timeout_ns = peer_timeout_ns;
	testing_log_init(log);
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = n_ranks;
	config.group = group;
	config.deadline_ns = 30 * TESTING_SECOND;
	config.network = &network;
	config.log = testing_log_line;
	config.log_arg = log;
	if (ceov_open(&config, &context)) {
		fprintf(stderr, "rank %u: %s\n", rank, log->n_lines ? log->lines[0] : "");
		_exit(97);
	}
	return context;
}

struct ring {                           /* each rank sends to the next one */
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_signal *arrived;
	ceov_signal *free;
	ceov_plan   *plan;
};

static void make_ring(ceov_context *context, uint32_t rank, uint32_t n, struct ring *ring)
{
	uint32_t next = (rank + 1) % n;
	ceov_signal *arrived, *is_free;
	struct ceov_transfer transfer;
	ceov_buffer *target;

	ring->source = testing_buffer(context, rank, BYTES);
	ring->target = testing_buffer(context, rank, BYTES);
	ring->arrived = testing_signal(context, rank, 1);
	ring->free = testing_signal(context, rank, 1);
	need(!ceov_buffer_share(ring->target, "target"));
	need(!ceov_signal_share(ring->arrived, "arrived"));
	need(!ceov_signal_share(ring->free, "free"));
	need(!ceov_barrier(context, TESTING_PATIENCE));
	need(!ceov_buffer_find(context, next, "target", &target));
	need(!ceov_signal_find(context, next, "arrived", &arrived));
	need(!ceov_signal_find(context, next, "free", &is_free));
	ring->plan = testing_plan(context, rank);
	transfer = testing_transfer(ring->source, target, BYTES);
	transfer.target_free = testing_mark(is_free, 0, 0);
	transfer.then = testing_mark(arrived, 0, 1);
	testing_add(ring->plan, &transfer);
	need(!ceov_plan_commit(ring->plan));
}

/* Sends the launch's pattern on, and checks that of the rank before. */
static void pass_on(ceov_context *context, uint32_t rank, uint32_t n, struct ring *ring,
		    uint64_t base)
{
	uint64_t before = (rank + n - 1) % n;
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	ceov_ticket ticket;

	testing_fill(ceov_buffer_base(ring->source, rank), BYTES, base * n + rank);
	need(!ceov_launch(ring->plan, &launch, &ticket));
	need(!ceov_signal_wait(ring->arrived, 0, base + 1, TESTING_PATIENCE));
	need(testing_check(ceov_buffer_base(ring->target, rank), BYTES, base * n + before) ==
	     BYTES);
	need(!ceov_signal_raise(ring->free, 0, base + 1));
	need(!ceov_wait(context, ticket, TESTING_PATIENCE));
}

static void run_ring(uint32_t rank)
{
	struct testing_log log;
	ceov_context *context = open_rank(rank, RANKS, &log);
	struct ring ring;
	uint64_t base;

	make_ring(context, rank, RANKS, &ring);
	for (base = 0; base < LAUNCHES; base++)
		pass_on(context, rank, RANKS, &ring, base);
	need(!ceov_barrier(context, TESTING_PATIENCE));
	ceov_close(context);
}

START_TEST(test_a_ring_over_two_nodes)
{
	uint32_t rank;

	for (rank = 0; rank < RANKS; rank++)
		start(run_ring, rank);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

/* --- the book -------------------------------------------------------------------------------- */

/* --- an all-gather in two levels --------------------------------------------------------- */

#define SHARD_BYTES (UINT64_C(300) << 10)
#define PIECES      3u

struct gather {                         /* arrays: by rank; of the other node's rank to which this
					 * one does not send it finds the free signal alone */
	ceov_buffer *source;
	ceov_buffer *targets[RANKS];
	ceov_signal *arrived[RANKS];
	ceov_signal *free[RANKS];
	ceov_plan   *plan;
};

static void find_peers(ceov_context *context, uint32_t rank, struct gather *gather)
{
	uint32_t i;

	for (i = 0; i < RANKS; i++) {
		if (i == rank)
			continue;
		need(!ceov_signal_find(context, i, "free", &gather->free[i]));
		if (i / 2 != rank / 2 && i % 2 != rank % 2)
			continue;
		need(!ceov_buffer_find(context, i, "target", &gather->targets[i]));
		need(!ceov_signal_find(context, i, "arrived", &gather->arrived[i]));
	}
}

static void make_gather(ceov_context *context, uint32_t rank, struct gather *gather)
{
	struct ceov_all_gather args = { .struct_bytes = sizeof(args) };

	gather->source = testing_buffer(context, rank, SHARD_BYTES);
	gather->targets[rank] = testing_buffer(context, rank, RANKS * SHARD_BYTES);
	gather->arrived[rank] = testing_signal(context, rank, RANKS * PIECES);
	gather->free[rank] = testing_signal(context, rank, RANKS * PIECES);
	need(!ceov_buffer_share(gather->targets[rank], "target"));
	need(!ceov_signal_share(gather->arrived[rank], "arrived"));
	need(!ceov_signal_share(gather->free[rank], "free"));
	need(!ceov_barrier(context, TESTING_PATIENCE));
	find_peers(context, rank, gather);
	args.shard_bytes = SHARD_BYTES;
	args.n_pieces = PIECES;
	args.source = gather->source;
	args.targets = gather->targets;
	args.arrived = gather->arrived;
	args.free = gather->free;
	gather->plan = testing_plan(context, rank);
	need(!ceov_plan_add_all_gather(gather->plan, &args));
	need(!ceov_plan_commit(gather->plan));
}

static void run_gather(ceov_context *context, uint32_t rank, struct gather *gather,
		       uint64_t base)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = base };
	uint8_t *target = ceov_buffer_base(gather->targets[rank], rank);
	ceov_ticket ticket;
	uint32_t i;

	testing_fill(ceov_buffer_base(gather->source, rank), SHARD_BYTES, base * RANKS + rank);
	need(!ceov_launch(gather->plan, &launch, &ticket));
	for (i = 0; i < RANKS * PIECES; i++)
		need(!ceov_signal_wait(gather->arrived[rank], i, base + 1, TESTING_PATIENCE));
	for (i = 0; i < RANKS; i++)
		need(testing_check(target + i * SHARD_BYTES, SHARD_BYTES, base * RANKS + i) ==
		     SHARD_BYTES);
	for (i = 0; i < RANKS * PIECES; i++)    /* this rank may still pass some of them on */
		need(!ceov_signal_raise(gather->free[rank], i, base + 1));
	need(!ceov_wait(context, ticket, TESTING_PATIENCE));
}

static void run_gathers(uint32_t rank)
{
	struct gather gather = { 0 };
	struct testing_log log;
	ceov_context *context = open_rank(rank, RANKS, &log);
	uint64_t base;

	make_gather(context, rank, &gather);
	for (base = 0; base < LAUNCHES; base++)
		run_gather(context, rank, &gather, base);
	need(!ceov_barrier(context, TESTING_PATIENCE));
	ceov_close(context);
}

START_TEST(test_an_all_gather_over_two_nodes)
{
	uint32_t rank;

	for (rank = 0; rank < RANKS; rank++)
		start(run_gathers, rank);
	assert_all_end_well();
	ck_assert(is_directory_empty());
}
END_TEST

/* --- ends ---------------------------------------------------------------------------------- */

/* Rank 3 is killed while the others wait for it; each is told so, by its name. */
static void lose_rank_3(uint32_t rank)
{
	struct ceov_failure failure;
	struct testing_log log;
	ceov_context *context = open_rank(rank, RANKS, &log);
	struct ring ring;
	int r;

	make_ring(context, rank, RANKS, &ring);
	step_done(0);
	if (rank == 3)
		pause();
	r = ceov_signal_wait(ring.arrived, 0, 1, TESTING_PATIENCE);
	need(r == CEOV_ERR_PEER_LOST);
	need(!ceov_last_failure(context, &failure));
	need(failure.rank == 3);
	ceov_close(context);
}

START_TEST(test_a_killed_rank_is_lost_at_all_nodes)
{
	pid_t last = 0;
	uint32_t rank;

	for (rank = 0; rank < RANKS; rank++)
		last = start(lose_rank_3, rank);
	ck_assert(step_reached(0, RANKS));
	(void)kill_party(last);
	assert_all_end_well();
}
END_TEST

/* --- a barrier without a rank ---------------------------------------------------------------- */

enum { READY, STRUCK, LATE, DONE };     /* steps */

static const struct fault {
	uint32_t rank;
	int      closes;                /* else it is killed, */
	int      has_child;             /* while a child that it has forked lives */
	int      is_late;               /* the others call the barrier when it has gone; else they
					 * wait in it already */
} faults[] = {
	{ 3, 0, 0, 0 }, { 3, 1, 0, 0 }, { 2, 0, 0, 0 }, { 2, 1, 0, 0 }, { 2, 0, 1, 0 },
	{ 3, 0, 0, 1 }, { 3, 1, 0, 1 }, { 2, 0, 0, 1 }, { 2, 1, 0, 1 }, { 2, 0, 1, 1 },
};
static const struct fault *fault;

static void be_struck(ceov_context *context)
{
	if (fault->has_child && !fork()) {
		(void)step_reached(DONE, RANKS - 1);
		_exit(0);
	}
	step_done(READY);
	need(step_reached(STRUCK, 1));
	if (!fault->closes)
		pause();
	ceov_close(context);
}

/* All ranks hear at once that their second barrier cannot complete, and whose fault it is. */
static void meet_without_one(uint32_t rank)
{
	struct ceov_failure failure;
	struct testing_log log;
	ceov_context *context;
	uint64_t called_ns;
	int r;

	setenv("CEOVERLAP_TRANSPORTS", "tcp", 1);
	context = open_rank(rank, RANKS, &log);
	need(!ceov_barrier(context, TESTING_PATIENCE));
	if (rank == fault->rank) {
		be_struck(context);
		return;
	}
	step_done(READY);
	if (fault->is_late)
		need(step_reached(LATE, 1));
	called_ns = cei_now_ns();
	r = ceov_barrier(context, TESTING_PATIENCE);
	need(!ceov_last_failure(context, &failure));
	printf("rank %u: %s after %.3f s\n", rank, failure.text,
	       (double)(cei_now_ns() - called_ns) / 1e9);
	fflush(stdout);
	need(r == CEOV_ERR_PEER_LOST);
	need(cei_now_ns() - called_ns < 5 * TESTING_SECOND);
	need(failure.rank == fault->rank);
	need(ceov_barrier(context, TESTING_PATIENCE) == CEOV_ERR_PEER_LOST);
	step_done(DONE);
	ceov_close(context);
}

/* _i: a fault. Silence alone would take longer than the barrier's time. Over TCP a child that lives
 * hides the end of its parent. */
START_TEST(test_a_barrier_without_a_rank_ends_on_all_nodes)
{
	pid_t pids[RANKS];
	uint32_t rank;

	fault = &faults[_i];
	peer_timeout_ns = 2 * TESTING_PATIENCE;
	for (rank = 0; rank < RANKS; rank++)
		pids[rank] = start(meet_without_one, rank);
	ck_assert(step_reached(READY, RANKS));
	pause_ms(200);
	step_done(STRUCK);
	if (!fault->closes)
		(void)kill_party(pids[fault->rank]);
	pause_ms(300);
	step_done(LATE);
	assert_all_end_well();
}
END_TEST

/* A rank closes when it has passed the last barrier, which others may not have passed yet. */
static void close_behind_a_barrier(uint32_t rank)
{
	struct testing_log log;
	ceov_context *context;
	uint32_t round;

	for (round = 0; round < ROUNDS; round++) {
		context = open_rank(rank, RANKS, &log);
		need(!ceov_barrier(context, TESTING_PATIENCE));
		pause_ms((rank * 7 + round * 3) % 16);
		need(!ceov_barrier(context, TESTING_PATIENCE));
		if (rank == round % RANKS)
			pause_ms(50);
		ceov_close(context);
	}
}

START_TEST(test_who_closes_behind_a_barrier_hinders_nobody)
{
	uint32_t rank;

	for (rank = 0; rank < RANKS; rank++)
		start(close_behind_a_barrier, rank);
	assert_all_end_well();
}
END_TEST

/* Everything is from the environment: each process has the rank of its number. */
static void open_at(const char *where, uint32_t number)
{
	char text[16], node[16];
	ceov_signal *own = NULL, *found = NULL;
	ceov_context *context = NULL;
	uint32_t at;

	snprintf(text, sizeof(text), "%u", number);
	snprintf(node, sizeof(node), "node %u", number / 2);
	setenv("CEOVERLAP_BOOTSTRAP", "store", 1);
	setenv("CEOVERLAP_STORE", where, 1);
	setenv("CEOVERLAP_JOB", "test_nodes_processes", 1);
	setenv("CEOVERLAP_PROCESS", text, 1);
	setenv("CEOVERLAP_PROCESSES", "3", 1);
	setenv("CEOVERLAP_NODE", node, 1);
	setenv("CEOVERLAP_NICS", "lo", 1);
	setenv("CEOVERLAP_PLACE", "host", 1);
	need(!ceov_open(NULL, &context));
	need(!ceov_signal_create(context, number, testing_host, 1, 0, &own));
	need(!ceov_signal_share(own, "own"));
	need(!ceov_barrier(context, TESTING_PATIENCE));
	need(!ceov_signal_find(context, (number + 1) % 3, "own", &found));
	need(!ceov_signal_raise(found, 0, 5));
	need(!ceov_signal_wait(own, 0, 5, TESTING_PATIENCE));
	need(!ceov_rank_node(context, 2, &at) && at == 1);
	need(ceov_rank_node(context, 3, &at) == CEOV_ERR_INVALID);
	need(!ceov_barrier(context, TESTING_PATIENCE));
	ceov_close(context);
}

static void open_from_environment(uint32_t number)
{
	open_at(store, number);
}

START_TEST(test_ranks_from_the_launcher)
{
	uint32_t number;

	for (number = 0; number < 3; number++)
		start(open_from_environment, number);
	assert_all_end_well();
}
END_TEST

/* Earlier versions kept groups apart by a secret. */
START_TEST(test_a_secret_is_warned_of_once)
{
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_member member = { 0, testing_host };
	struct testing_log log;
	struct ceov_config config;
	ceov_context *context = NULL;

	testing_log_init(&log);
	config = testing_config(&member, 1, &log);
	network.bootstrap = CEOV_BOOTSTRAP_STORE;
	network.where = store;
	network.n_processes = 1;
	network.secret = "guess";
	network.secret_bytes = 5;
	config.network = &network;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ck_assert_uint_eq(log.n_lines, 1);
	testing_log_has(&log, "ceov_network.secret has no effect any more", NULL, NULL);
	ceov_close(context);
}
END_TEST

static char stores[2][PORT_STORE_BYTES];

static void open_one_of_two(uint32_t number)
{
	uint32_t round;

	for (round = 0; round < ROUNDS; round++)
		open_at(stores[number / 3], number % 3);
}

/* Neither group has a name, and their nodes have the same ones: only where they meet differs. */
START_TEST(test_two_groups_at_once)
{
	int fds[2] = { port_reserve(stores[0]), port_reserve(stores[1]) };
	uint32_t number;

	ck_assert(fds[0] >= 0 && fds[1] >= 0);
	for (number = 0; number < 6; number++)
		start(open_one_of_two, number);
	assert_all_end_well();
	close(fds[0]);
	close(fds[1]);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_a_ring_over_two_nodes);
	tcase_add_test(tcase, test_an_all_gather_over_two_nodes);
	tcase_add_test(tcase, test_a_killed_rank_is_lost_at_all_nodes);
	tcase_add_loop_test(tcase, test_a_barrier_without_a_rank_ends_on_all_nodes, 0,
			    sizeof(faults) / sizeof(faults[0]));
	tcase_add_test(tcase, test_who_closes_behind_a_barrier_hinders_nobody);
	tcase_add_test(tcase, test_ranks_from_the_launcher);
	tcase_add_test(tcase, test_two_groups_at_once);
	tcase_add_test(tcase, test_a_secret_is_warned_of_once);
}

int main(void)
{
	if (!testing_has_ucx()) {
		printf("skipped: there is no UCX\n");
		return 77;
	}
	return run_suite("nodes in processes", add_tests);
}
