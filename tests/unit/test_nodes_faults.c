/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What contexts tell of nodes that are lost, and do not believe of others, over a simulated
 * network. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/far.h"
#include "ce_engine/objects/signal.h"
#include "ipc/group/group_private.h"
#include "ipc/peers/peers_private.h"
#include "unit/nodes_rig.h"

static struct nodes nodes;

#define BYTES      (UINT64_C(1) << 20)
/* With a sanitizer, and other suites beside it, threads may not run for most of a second. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MS (2 * TESTING_MS)
#else
#define MS TESTING_MS
#endif

#define TIMEOUT_NS (500 * MS)      /* until a silent node counts as lost */

/* Nothing arrives any more from one node at the other, nor back. */
static void cut(uint32_t one, uint32_t other)
{
	pthread_mutex_lock(&nodes.net.lock);
	loop_net_cut(&nodes.net, one, other, 1);
	pthread_mutex_unlock(&nodes.net.lock);
}

static struct cei_peers *peers_of(uint32_t rank)
{
	return nodes_context(&nodes, rank)->peers;
}

/* As if a node had said so to another one. Each node has one process. */
static void say(uint32_t to, uint32_t from, const struct cei_group_message *message)
{
	cei_peers_received(peers_of(to), from, message, NULL);
}

/* The bytes of a launch are under way when their node falls silent: nobody knows whether they have
 * landed, and the failure names the rank that they were sent to. */
START_TEST(test_a_launch_to_a_lost_node_names_its_rank)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer;
	ceov_ticket ticket;
	ceov_plan *plan;

	nodes_open_strict(&nodes, 2, TIMEOUT_NS);
	(void)nodes_buffer(&nodes, 1, "target", BYTES);
	transfer = testing_transfer(nodes_buffer(&nodes, 0, "source", BYTES),
				    nodes_find_buffer(&nodes, 0, 1, "target"), BYTES);
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	cut(0, 1);
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE),
			 CEOV_ERR_UNCERTAIN);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 0)).rank, 1);
	testing_log_has(&nodes.node[0].log, "transfer 0", "uncertain", "to blame: rank 1");
	nodes_close(&nodes);
}
END_TEST

/* --- a deadline that passes with bytes under way ------------------------------------------- */

/* The bytes of each piece from node 0 to node 1 take so long; messages do not. */
static void slow_down(uint64_t ns)
{
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.links[0][1].bytes_ns = ns;
	pthread_mutex_unlock(&nodes.net.lock);
}

static ceov_plan *plan_that_sends(uint64_t n_bytes)
{
	struct ceov_transfer transfer;
	ceov_plan *plan;

	(void)nodes_buffer(&nodes, 1, "target", n_bytes);
	transfer = testing_transfer(nodes_buffer(&nodes, 0, "source", n_bytes),
				    nodes_find_buffer(&nodes, 0, 1, "target"), n_bytes);
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* Asserts that the passing of the deadline is blamed on rank 1, with this reason. */
static void expire(ceov_plan *plan, uint64_t deadline_ns, const char *reason)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch),
				      .deadline_ns = deadline_ns };
	ceov_context *context = nodes_context(&nodes, 0);
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(testing_failure(context).rank, 1);
	testing_log_has(&nodes.node[0].log, "to blame: rank 1", "does not come back from its lane",
			reason);
}

/* Four of its 16 pieces are under way together, so all of them take 3,200 MS: what is left when
 * time is up comes back long before the engine gives it up. */
START_TEST(test_a_launch_without_time_says_that_its_peer_is_slow)
{
	nodes_open_strict(&nodes, 2, 6000 * MS);
	slow_down(800 * MS);
	expire(plan_that_sends(64 * BYTES), 2600 * MS,
	       "rank 1 is slow: bytes were landing");
	nodes_close(&nodes);
}
END_TEST

/* It would be lost after twice its timeout, long after the deadline. Its bytes come back before the
 * engine gives them up. */
START_TEST(test_a_launch_without_time_says_that_its_peer_is_stuck)
{
	nodes_open_strict(&nodes, 2, 3000 * MS);
	slow_down(4200 * MS);
	expire(plan_that_sends(BYTES), 2400 * MS,
	       "rank 1 is stuck: it answers, but no bytes have landed for");
	nodes_close(&nodes);
}
END_TEST

/* It will be lost after its timeout, which passes later than the launch's deadline. */
START_TEST(test_a_launch_without_time_says_that_its_peer_is_silent)
{
	ceov_plan *plan;

	nodes_open_strict(&nodes, 2, 5000 * MS);
	plan = plan_that_sends(BYTES);
	cut(0, 1);
	expire(plan, 3200 * MS, "rank 1 is gone or stopped: nothing was heard of it for");
	nodes_close(&nodes);
}
END_TEST

static int says(uint32_t node, const char *text)
{
	struct testing_log *log = &nodes.node[node].log;
	int is_said = 0;
	uint32_t i;

	pthread_mutex_lock(&log->lock);
	for (i = 0; i < log->n_lines; i++)
		is_said |= strstr(log->lines[i], text) != NULL;
	pthread_mutex_unlock(&log->lock);
	return is_said;
}

/* The launch has all the time that it wants: the stuck process is lost before, and so told. */
START_TEST(test_a_stuck_node_is_lost_without_a_deadline_of_a_launch)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_signal *third;
	ceov_ticket ticket;
	ceov_plan *plan;
	uint64_t end_ns;
	int r;

	nodes_open_strict(&nodes, 3, TIMEOUT_NS);
	third = nodes_signal(&nodes, 2, "third", 1);
	(void)nodes_find_signal(&nodes, 0, 2, "third");
	plan = plan_that_sends(BYTES);
	(void)nodes_find_buffer(&nodes, 2, 1, "target");        /* it knows both */
	slow_down(2 * TESTING_PATIENCE);
	end_ns = cei_deadline(TESTING_PATIENCE);
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	r = ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE);
	ck_assert_msg(r == CEOV_ERR_UNCERTAIN || r == CEOV_ERR_PEER_LOST, "%d", r);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 0)).rank, 1);
	/* both look at the same time, and who is later sees that the other one closes */
	while (!says(0, "process 1, which holds rank 1 on node 1, is lost: it answers, "
		     "but of 1048576 bytes under way to and from it none has moved") &&
	       !says(1, "process 0, which holds rank 0 on node 0, is lost: it answers, "
		     "but of 1048576 bytes under way to and from it none has moved")) {
		ck_assert_uint_lt(cei_now_ns(), end_ns);
		usleep(1000);
	}
	ck_assert_int_eq(ceov_signal_wait(third, 0, 1, TESTING_PATIENCE), CEOV_ERR_PEER_LOST);
	ck_assert(!says(2, "is lost: it answers"));     /* it was told, and has seen nothing */
	nodes_close(&nodes);
}
END_TEST

/* Nothing is owed to the network: only the application waits, for a counter of its own that the
 * other node would raise. */
START_TEST(test_a_silent_node_is_lost_to_who_waits_for_its_mark)
{
	ceov_signal *own;

	nodes_open_strict(&nodes, 2, TIMEOUT_NS);
	own = nodes_signal(&nodes, 0, "own", 1);
	(void)nodes_find_signal(&nodes, 1, 0, "own");
	cut(0, 1);
	ck_assert_int_eq(ceov_signal_wait(own, 0, 1, 4 * TIMEOUT_NS), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 0)).rank, 1);
	nodes_close(&nodes);
}
END_TEST

/* Likewise a launch that waits for such a counter. */
START_TEST(test_a_silent_node_is_lost_to_a_launch_that_waits_for_its_mark)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer;
	ceov_ticket ticket;
	ceov_signal *own;
	ceov_plan *plan;

	nodes_open_strict(&nodes, 2, TIMEOUT_NS);
	own = nodes_signal(&nodes, 0, "own", 1);
	(void)nodes_find_signal(&nodes, 1, 0, "own");
	transfer = testing_transfer(nodes_buffer(&nodes, 0, "source", BYTES),
				    nodes_buffer(&nodes, 0, "target", BYTES), BYTES);
	transfer.source_ready = testing_mark(own, 0, 1);
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	cut(0, 1);
	ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, 4 * TIMEOUT_NS),
			 CEOV_ERR_PEER_LOST);
	nodes_close(&nodes);
}
END_TEST

/* Processes that use nothing of each other, or do not wait, may be silent. */
START_TEST(test_who_waits_for_nobody_loses_nobody)
{
	ceov_signal *own;
	ceov_buffer *none = NULL;

	nodes_open_strict(&nodes, 2, TIMEOUT_NS);
	own = nodes_signal(&nodes, 0, "own", 1);
	ck_assert_int_eq(ceov_buffer_find(nodes_context(&nodes, 1), 0, "none", &none), CEOV_NONE);
	cut(0, 1);
	ck_assert_int_eq(ceov_signal_wait(own, 0, 1, 2 * TIMEOUT_NS), CEOV_PENDING);
	nodes_close(&nodes);
}
END_TEST

/* Node 2 has nothing to do with node 0, and is told by node 1 that it is lost: also in a group
 * whose size is no power of two. */
START_TEST(test_a_loss_is_told_to_who_did_not_notice)
{
	ceov_signal *first, *third;

	nodes_open_strict(&nodes, 3, TIMEOUT_NS);
	first = nodes_signal(&nodes, 1, "first", 1);
	third = nodes_signal(&nodes, 2, "third", 1);
	(void)nodes_find_signal(&nodes, 0, 1, "first");
	(void)nodes_find_signal(&nodes, 1, 2, "third");
	cut(0, 1);
	cut(0, 2);
	ck_assert_int_eq(ceov_signal_wait(first, 0, 1, 4 * TIMEOUT_NS), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(ceov_signal_wait(third, 0, 1, 4 * TIMEOUT_NS), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 2)).rank, 0);
	pthread_mutex_lock(&peers_of(2)->lock);
	ck_assert_int_eq(cei_group_life(peers_of(2)->machine, 0), CEI_GROUP_LOST);
	pthread_mutex_unlock(&peers_of(2)->lock);
	nodes_close(&nodes);
}
END_TEST

/* --- barriers ------------------------------------------------------------------------------ */

#define BARRIER_NODES 4u

/* At the nodes 0 to 2, one after the other. */
static void barriers_fail(void)
{
	ceov_context *context;
	uint32_t i;

	for (i = 0; i + 1 < BARRIER_NODES; i++) {
		context = nodes_context(&nodes, i);
		ck_assert_int_eq(ceov_barrier(context, TESTING_PATIENCE), CEOV_ERR_PEER_LOST);
		ck_assert_uint_eq(testing_failure(context).rank, BARRIER_NODES - 1);
	}
}

static void *meet(void *context)
{
	ck_assert_int_eq(ceov_barrier(context, TESTING_PATIENCE), 0);
	return NULL;
}

static void meet_all(void)
{
	pthread_t threads[NODES_MAX];
	uint32_t i;

	for (i = 0; i < nodes.n; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, meet,
						nodes_context(&nodes, i)), 0);
	for (i = 0; i < nodes.n; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

START_TEST(test_a_barrier_without_a_node_that_has_closed_fails_at_all)
{
	nodes_open(&nodes, BARRIER_NODES, 1);
	meet_all();
	meet_all();
	nodes_close_one(&nodes, BARRIER_NODES - 1);
	barriers_fail();
	nodes_close(&nodes);
}
END_TEST

/* None has met the one that closes; it is no partner of node 1. */
START_TEST(test_a_first_barrier_without_a_node_that_has_closed_fails_at_all)
{
	ceov_buffer *none;
	uint32_t i;

	nodes_open(&nodes, BARRIER_NODES, 1);
	for (i = 0; i + 1 < BARRIER_NODES; i++)         /* connects them */
		ck_assert_int_eq(ceov_buffer_find(nodes_context(&nodes, i), BARRIER_NODES - 1,
						  "none", &none), CEOV_NONE);
	nodes_close_one(&nodes, BARRIER_NODES - 1);
	barriers_fail();
	nodes_close(&nodes);
}
END_TEST

/* Only node 0 waits for the silent one; the others wait for each other. */
START_TEST(test_a_barrier_without_a_lost_node_fails_at_all)
{
	uint32_t i;

	nodes_open_strict(&nodes, BARRIER_NODES, TIMEOUT_NS);
	meet_all();
	for (i = 0; i + 1 < BARRIER_NODES; i++)
		cut(i, BARRIER_NODES - 1);
	barriers_fail();
	nodes_close(&nodes);
}
END_TEST

/* Waits until the node, which is in no barrier, has heard that its partner of the round is in the
 * next one. */
static void await_barrier(uint32_t node, uint32_t round)
{
	const struct cei_group_barrier *barrier = &peers_of(node)->machine->barrier;
	uint64_t end_ns = cei_deadline(TESTING_PATIENCE);
	int has_seen = 0;

	while (!has_seen && cei_now_ns() < end_ns) {
		usleep(1000);
		pthread_mutex_lock(&peers_of(node)->lock);
		has_seen = barrier->seen[round] > barrier->n_calls;
		pthread_mutex_unlock(&peers_of(node)->lock);
	}
	ck_assert(has_seen);
}

static void *meet_in_vain(void *context)
{
	ck_assert_int_eq(ceov_barrier(context, TESTING_PATIENCE), CEOV_ERR_PEER_LOST);
	return NULL;
}

/* Nodes 1 to last call a barrier; once node 0 has heard of one of them, in that round, it acts. */
static void meet_without(uint32_t last, uint32_t round, void (*act)(void))
{
	pthread_t threads[NODES_MAX];
	uint32_t i;

	for (i = 1; i <= last; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, meet_in_vain,
						nodes_context(&nodes, i)), 0);
	await_barrier(0, round);
	act();
	for (i = 1; i <= last; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

static void close_node_0(void)
{
	nodes_close_one(&nodes, 0);
}

/* Of seven nodes those that wait for node 0 have no connection to it, and those that have one wait
 * for others: only node 0 itself can say that it has left. */
START_TEST(test_a_node_that_leaves_before_its_first_barrier_says_so)
{
	nodes_open(&nodes, 7, 1);
	meet_without(6, 0, close_node_0);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 1)).rank, 0);
	nodes_close(&nodes);
}
END_TEST

/* Node 3 says that no barrier completes, because of the rank. */
static void limit(uint32_t rank)
{
	const struct cei_group_message message = {
		.type = CEI_GROUP_LIMIT, .number = 1000, .said = { 0, rank }
	};

	say(0, 3, &message);
}

static void miss_rank_3(void)
{
	limit(3);
}

/* Node 0 hears that rank 3 is missing, while other nodes wait for node 0, which is in no barrier
 * itself. */
START_TEST(test_a_rank_that_is_missed_is_told_to_nodes_that_wait)
{
	nodes_open(&nodes, 4, 1);
	meet_without(2, 1, miss_rank_3);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 1)).rank, 3);
	nodes_close(&nodes);
}
END_TEST

/* Waits until the node knows that of the other one. */
static void await_life(uint32_t node, uint32_t of, enum cei_group_life expected)
{
	enum cei_group_life life = CEI_GROUP_UP;
	uint64_t end_ns = cei_deadline(TESTING_PATIENCE);

	while (life != expected && cei_now_ns() < end_ns) {
		usleep(1000);
		pthread_mutex_lock(&peers_of(node)->lock);
		life = cei_group_life(peers_of(node)->machine, of);
		pthread_mutex_unlock(&peers_of(node)->lock);
	}
	ck_assert_int_eq(life, expected);
}

/* What a process says of its barriers never falls: one that says so is not believed any more. */
START_TEST(test_a_smaller_number_of_a_barrier_is_a_lie)
{
	struct cei_group_message heard = { .type = CEI_GROUP_BARRIER, .number = 1000 };

	nodes_open(&nodes, 2, 1);
	meet_all();
	heard.barrier = (struct cei_group_barrier_step){
		.step = 1, .call = peers_of(0)->machine->barrier.n_calls
	};
	say(0, 1, &heard);
	await_life(0, 1, CEI_GROUP_LOST);
	ck_assert_int_eq(ceov_barrier(nodes_context(&nodes, 0), TESTING_PATIENCE),
			 CEOV_ERR_PEER_LOST);
	testing_log_has(&nodes.node[0].log, "process 1, which holds rank 1 on node 1, is lost",
			"it has sent a message that makes no sense", NULL);
	nodes_close(&nodes);
}
END_TEST

/* Node 3 waits in a barrier; node 0 hears that rank 2 has closed, and passes it on. */
START_TEST(test_a_rank_that_has_closed_is_passed_on)
{
	const struct cei_group_message message = {
		.type = CEI_GROUP_LIMIT, .number = 1000, .said = { 0, 2 }
	};
	pthread_t thread;

	nodes_open(&nodes, 4, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, meet_in_vain, nodes_context(&nodes, 3)), 0);
	await_barrier(0, 0);
	say(0, 1, &message);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 3)).rank, 2);
	nodes_close(&nodes);
}
END_TEST

/* A process that closes in order is told as departed: nothing that was found there is aborted. */
START_TEST(test_who_closes_in_order_is_not_lost)
{
	struct ceov_failure failure;
	ceov_signal *there;

	nodes_open(&nodes, 2, 1);
	(void)nodes_signal(&nodes, 1, "own", 1);
	there = nodes_find_signal(&nodes, 0, 1, "own");
	nodes_close_one(&nodes, 1);
	await_life(0, 1, CEI_GROUP_DEPARTED);
	ck_assert_int_eq(ceov_last_failure(nodes_context(&nodes, 0), &failure), CEOV_NONE);
	ck_assert_int_eq(ceov_signal_release(there), 0);
	nodes_close(&nodes);
}
END_TEST

/* Node 2 tells node 0 that node 1's signal was renewed, which is not its own. */
START_TEST(test_only_the_owner_of_a_signal_renews_it)
{
	struct cei_group_message message = { .type = CEI_GROUP_RENEW, .number = 1 };
	ceov_signal *own, *there;
	uint64_t value;

	nodes_open(&nodes, 3, 1);
	own = nodes_signal(&nodes, 1, "own", 2);
	there = nodes_find_signal(&nodes, 0, 1, "own");
	(void)nodes_find_signal(&nodes, 2, 1, "own");   /* its number 1, which is answered */
	ck_assert_int_eq(ceov_signal_raise(own, 0, 3), 0);
	nodes_await(there, 0, 3);
	message.use = (struct cei_group_use_named){ there->far->use, 7 };
	say(0, 2, &message);
	usleep(200000);
	ck_assert_int_eq(ceov_signal_value(there, 0, &value), 0);
	ck_assert_uint_eq(value, 3);
	ck_assert_int_eq(ceov_signal_raise(own, 0, 4), 0);
	nodes_await(there, 0, 4);
	nodes_close(&nodes);
}
END_TEST

/* A value of before a renewal, or of one that was not heard yet. */
START_TEST(test_a_value_of_another_generation_is_ignored)
{
	struct cei_group_message told = { .type = CEI_GROUP_VALUE, .number = 1000 };
	ceov_signal *there;

	nodes_open(&nodes, 2, 1);
	told.counter = (struct cei_group_counter){
		.id = nodes_signal(&nodes, 1, "own", 1)->export_id, .generation = 7, .value = 5
	};
	there = nodes_find_signal(&nodes, 0, 1, "own");
	say(0, 1, &told);
	told.counter.generation = 1;
	told.counter.value = 3;
	say(0, 1, &told);
	ck_assert_int_eq(ceov_signal_wait(there, 0, 5, 0), CEOV_PENDING);
	nodes_await(there, 0, 3);
	nodes_close(&nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nodes that are lost");
	TCase *all = tcase_create("nodes that are lost");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_launch_to_a_lost_node_names_its_rank);
	tcase_add_test(all, test_a_launch_without_time_says_that_its_peer_is_slow);
	tcase_add_test(all, test_a_launch_without_time_says_that_its_peer_is_stuck);
	tcase_add_test(all, test_a_launch_without_time_says_that_its_peer_is_silent);
	tcase_add_test(all, test_a_stuck_node_is_lost_without_a_deadline_of_a_launch);
	tcase_add_test(all, test_a_silent_node_is_lost_to_who_waits_for_its_mark);
	tcase_add_test(all, test_a_silent_node_is_lost_to_a_launch_that_waits_for_its_mark);
	tcase_add_test(all, test_who_waits_for_nobody_loses_nobody);
	tcase_add_test(all, test_a_loss_is_told_to_who_did_not_notice);
	tcase_add_test(all, test_only_the_owner_of_a_signal_renews_it);
	tcase_add_test(all, test_a_value_of_another_generation_is_ignored);
	tcase_add_test(all, test_a_barrier_without_a_node_that_has_closed_fails_at_all);
	tcase_add_test(all, test_a_first_barrier_without_a_node_that_has_closed_fails_at_all);
	tcase_add_test(all, test_a_barrier_without_a_lost_node_fails_at_all);
	tcase_add_test(all, test_a_node_that_leaves_before_its_first_barrier_says_so);
	tcase_add_test(all, test_a_rank_that_is_missed_is_told_to_nodes_that_wait);
	tcase_add_test(all, test_who_closes_in_order_is_not_lost);
	tcase_add_test(all, test_a_rank_that_has_closed_is_passed_on);
	tcase_add_test(all, test_a_smaller_number_of_a_barrier_is_a_lie);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
