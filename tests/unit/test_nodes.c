/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Plans, signals and barriers between nodes, over a simulated network. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "ipc/group/group_private.h"
#include "ipc/peers/peers_private.h"
#include "unit/nodes_rig.h"

static struct nodes nodes;

#define BYTES (UINT64_C(24) << 20)

static int wait_for(uint32_t rank, ceov_ticket ticket)
{
	return ceov_wait(nodes_context(&nodes, rank), ticket, TESTING_PATIENCE);
}

static ceov_ticket launch(ceov_plan *plan, uint64_t base)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched) };
	ceov_ticket ticket;

	launched.base = base;
	ck_assert_int_eq(ceov_launch(plan, &launched, &ticket), 0);
	return ticket;
}

/* --- transfers ----------------------------------------------------------------------- */

/* Rank 0 sends to rank 1 of another node: from, to, and the marks that both wait for. */
struct way {
	ceov_buffer *source;
	ceov_buffer *target;            /* rank 1's own, ... */
	ceov_buffer *target_there;      /* ... and as rank 0 has found it */
	ceov_signal *ready;
	ceov_signal *arrived;
	ceov_signal *arrived_there;
	ceov_signal *free;
	ceov_signal *free_there;
	ceov_plan   *plan;
};

static void connect(struct way *way, uint64_t n_bytes)
{
	struct ceov_transfer transfer;

	way->source = nodes_buffer(&nodes, 0, "source", n_bytes);
	way->target = nodes_buffer(&nodes, 1, "target", n_bytes);
	way->ready = nodes_signal(&nodes, 0, "ready", 1);
	way->arrived = nodes_signal(&nodes, 1, "arrived", 3);
	way->free = nodes_signal(&nodes, 1, "free", 2);
	way->target_there = nodes_find_buffer(&nodes, 0, 1, "target");
	way->arrived_there = nodes_find_signal(&nodes, 0, 1, "arrived");
	way->free_there = nodes_find_signal(&nodes, 0, 1, "free");
	way->plan = testing_plan(nodes_context(&nodes, 0), 0);
	transfer = testing_transfer(way->source, way->target_there, n_bytes);
	transfer.source_ready = testing_mark(way->ready, 0, 1);
	transfer.target_free = testing_mark(way->free_there, 1, 1);
	transfer.then = testing_mark(way->arrived_there, 2, 1);
	testing_add(way->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(way->plan), 0);
}

static void prepare(struct way *way, uint64_t n_bytes)
{
	nodes_open(&nodes, 2, 1);
	connect(way, n_bytes);
}

START_TEST(test_bytes_and_their_mark_arrive)
{
	uint64_t value;
	ceov_ticket ticket;
	struct way way;

	prepare(&way, BYTES);
	testing_fill(ceov_buffer_base(way.source, 0), BYTES, testing_seed());
	ck_assert_int_eq(ceov_signal_raise(way.free, 1, 1), 0);
	ticket = launch(way.plan, 0);
	ck_assert_int_eq(ceov_signal_value(way.arrived, 2, &value), 0);
	ck_assert_uint_eq(value, 0);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), 0);
	nodes_await(way.arrived, 2, 1);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(way.target, 1), BYTES, testing_seed()),
			  BYTES);
	ck_assert_int_eq(wait_for(0, ticket), 0);
	ck_assert_ptr_null(ceov_buffer_base(way.target_there, 0));
	nodes_close(&nodes);
}
END_TEST

/* What is known of the other node, and of what was found there. */
START_TEST(test_queries)
{
	struct ceov_context_info group = CEOV_CONTEXT_INFO_INIT;
	struct ceov_buffer_info buffer = CEOV_BUFFER_INFO_INIT;
	struct ceov_signal_info signal = CEOV_SIGNAL_INFO_INIT;
	struct way way;

	prepare(&way, 4096);
	ck_assert_int_eq(ceov_context_query(nodes_context(&nodes, 1), &group), 0);
	ck_assert_uint_eq(group.n_ranks, 2);
	ck_assert_uint_eq(group.n_members, 1);
	ck_assert_uint_eq(group.n_processes, 2);
	ck_assert_uint_eq(group.n_nodes, 2);
	ck_assert_uint_eq(group.node, 1);
	ck_assert_uint_eq(group.bootstrap, CEOV_BOOTSTRAP_CALLBACK);
	ck_assert_int_eq(ceov_buffer_query(way.target_there, &buffer), 0);
	ck_assert_uint_eq(buffer.size_bytes, 4096);
	ck_assert_uint_eq(buffer.rank, 1);
	ck_assert_uint_eq(buffer.place.index, CEOV_NOBODY);
	ck_assert_int_eq(buffer.is_found, 1);
	ck_assert_str_eq(buffer.name, "target");
	ck_assert_int_eq(ceov_signal_query(way.arrived_there, &signal), 0);
	ck_assert_uint_eq(signal.n_counters, 3);
	ck_assert_uint_eq(signal.rank, 1);
	ck_assert_int_eq(signal.is_found, 1);
	ck_assert_str_eq(signal.name, "arrived");
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_a_target_that_is_not_free_is_waited_for)
{
	uint64_t base, value;
	ceov_ticket ticket;
	struct way way;

	prepare(&way, 4096);
	for (base = 0; base < 50; base++) {
		testing_fill(ceov_buffer_base(way.source, 0), 4096, base);
		ck_assert_int_eq(ceov_signal_raise(way.ready, 0, base + 1), 0);
		ticket = launch(way.plan, base);
		if (base % 10 == 3)
			ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket,
						   20 * TESTING_MS), CEOV_PENDING);
		ck_assert_int_eq(ceov_signal_value(way.arrived, 2, &value), 0);
		ck_assert_uint_eq(value, base);
		ck_assert_int_eq(ceov_signal_raise(way.free, 1, base + 1), 0);
		ck_assert_int_eq(wait_for(0, ticket), 0);
		nodes_await(way.arrived, 2, base + 1);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(way.target, 1), 4096, base),
				  4096);
	}
	nodes_close(&nodes);
}
END_TEST

/* Rank 0's process has no threads of the library. */
START_TEST(test_a_node_that_its_caller_turns)
{
	uint64_t base, value = 0;
	ceov_ticket ticket;
	struct way way;

	nodes_open_turned(&nodes, 2);
	connect(&way, BYTES);
	for (base = 0; base < 3; base++) {
		testing_fill(ceov_buffer_base(way.source, 0), BYTES, base);
		ck_assert_int_eq(ceov_signal_raise(way.ready, 0, base + 1), 0);
		ticket = launch(way.plan, base);
		ck_assert_int_eq(ceov_signal_raise(way.free, 1, base + 1), 0);
		while (ceov_wait(nodes_context(&nodes, 0), ticket, 0) == CEOV_PENDING)
			ck_assert_int_ge(ceov_turn(nodes_context(&nodes, 0)), 0);
		ck_assert_int_eq(wait_for(0, ticket), 0);
		ck_assert_int_eq(ceov_signal_value(way.arrived, 2, &value), 0);
		ck_assert_uint_eq(value, base + 1);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(way.target, 1), BYTES, base),
				  BYTES);
	}
	nodes_close(&nodes);
}
END_TEST

/* Rows with gaps, to both other nodes at once, and a mark at home behind the bytes. */
START_TEST(test_rows_to_two_nodes)
{
	static const uint64_t rows = 300, row = 1000, pitch = 1536;
	ceov_buffer *source, *targets[3], *there;
	struct ceov_transfer transfer;
	ceov_signal *sent;
	ceov_plan *plan;
	uint8_t *from, *to;
	uint64_t i;
	uint32_t rank;

	nodes_open(&nodes, 3, 2);
	source = nodes_buffer(&nodes, 1, "source", rows * pitch);
	sent = nodes_signal(&nodes, 1, "sent", 3);
	plan = testing_plan(nodes_context(&nodes, 1), 1);
	for (rank = 3; rank <= 4; rank++) {
		targets[rank - 3] = nodes_buffer(&nodes, rank, "target", rows * row);
		there = nodes_find_buffer(&nodes, 1, rank, "target");
		transfer = testing_transfer(source, there, row);
		transfer.n_rows = rows;
		transfer.source.pitch_bytes = pitch;
		transfer.target.pitch_bytes = row;
		transfer.then = testing_mark(sent, rank - 3, 1);
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	from = ceov_buffer_base(source, 1);
	testing_fill(from, rows * pitch, testing_seed());
	ck_assert_int_eq(wait_for(1, launch(plan, 0)), 0);
	nodes_await(sent, 0, 1);
	nodes_await(sent, 1, 1);
	for (rank = 3; rank <= 4; rank++) {
		to = ceov_buffer_base(targets[rank - 3], rank);
		for (i = 0; i < rows; i++)
			ck_assert_mem_eq(to + i * row, from + i * pitch, row);
	}
	nodes_close(&nodes);
}
END_TEST

/* A transfer without bytes raises another node's counter. */
START_TEST(test_marks_without_bytes)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	ceov_signal *there, *own;
	ceov_plan *plan;

	nodes_open(&nodes, 2, 1);
	own = nodes_signal(&nodes, 1, "own", 1);
	there = nodes_find_signal(&nodes, 0, 1, "own");
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	transfer.then = testing_mark(there, 0, 5);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(wait_for(0, launch(plan, 100)), 0);
	nodes_await(own, 0, 105);
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_explain_names_mover_and_rail)
{
	char expected[64];
	struct way way;

	prepare(&way, 4096);
	snprintf(expected, sizeof(expected), "expected %.1f us by the network library",
		 (double)(LOOP_EXPECTED_NS + 4096) / 1e3);
	testing_explained(way.plan, "backend net, route over the network; trigger");
	testing_explained(way.plan, expected);
	testing_explained(way.plan, "rail to other nodes: loop");
	testing_explained(way.plan, "why this one: it was named");
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_a_group_of_one_node_explains_no_rail)
{
	struct way way;

	nodes_open(&nodes, 1, 2);
	connect(&way, 4096);
	testing_explained(way.plan, "trigger");
	testing_not_explained(way.plan, "other nodes");
	nodes_close(&nodes);
}
END_TEST

/* --- signals ---------------------------------------------------------------------------- */

START_TEST(test_threads_raise_and_await_across_nodes)
{
	ceov_signal *own, *there;
	uint64_t i, value;

	nodes_open(&nodes, 2, 1);
	own = nodes_signal(&nodes, 1, "own", 2);
	there = nodes_find_signal(&nodes, 0, 1, "own");
	for (i = 1; i <= 100; i++) {
		ck_assert_int_eq(ceov_signal_raise(there, 0, i), 0);
		nodes_await(own, 0, i);
		ck_assert_int_eq(ceov_signal_raise(own, 1, i), 0);
		nodes_await(there, 1, i);
	}
	ck_assert_int_eq(ceov_signal_value(there, 1, &value), 0);
	ck_assert_uint_eq(value, 100);
	ck_assert_int_eq(ceov_signal_raise(there, 0, 50), CEOV_ERR_INVALID);
	testing_log_has(&nodes.node[0].log, "cannot fall to 50", NULL, NULL);
	nodes_close(&nodes);
}
END_TEST

/* A plan of rank 0 that waits for a mark of the signal. */
static ceov_plan *plan_that_waits(ceov_signal *signal)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	ceov_plan *plan = testing_plan(nodes_context(&nodes, 0), 0);

	transfer.target_free = testing_mark(signal, 1, 9);
	transfer.then = testing_mark(signal, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

START_TEST(test_an_abort_reaches_all_nodes)
{
	ceov_signal *own, *first, *second;
	ceov_ticket ticket;

	nodes_open(&nodes, 3, 1);
	own = nodes_signal(&nodes, 1, "own", 2);
	first = nodes_find_signal(&nodes, 0, 1, "own");
	second = nodes_find_signal(&nodes, 2, 1, "own");
	ticket = launch(plan_that_waits(first), 0);
	ck_assert_int_eq(ceov_abort(nodes_context(&nodes, 0), ticket), 0);
	ck_assert_int_eq(wait_for(0, ticket), CEOV_ERR_ABORTED);
	while (ceov_signal_wait(own, 0, 1, TESTING_MS) == CEOV_PENDING)
		;
	ck_assert_int_eq(ceov_signal_wait(own, 0, 1, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(second, 1, 1, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_renew(own), 0);
	ck_assert_int_eq(ceov_signal_raise(second, 0, 3), 0);
	nodes_await(own, 0, 3);
	nodes_await(first, 0, 3);
	nodes_close(&nodes);
}
END_TEST

/* Node 2 hears of the abort, and says so to node 1, late: after the signal was renewed. */
START_TEST(test_a_late_abort_does_not_reach_a_renewed_signal)
{
	ceov_signal *own, *first, *second;
	ceov_ticket ticket;

	nodes_open(&nodes, 3, 1);
	own = nodes_signal(&nodes, 1, "own", 2);
	first = nodes_find_signal(&nodes, 0, 1, "own");
	second = nodes_find_signal(&nodes, 2, 1, "own");
	ticket = launch(plan_that_waits(first), 0);
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.links[2][1].delay_ns = 100 * TESTING_MS;
	pthread_mutex_unlock(&nodes.net.lock);
	ck_assert_int_eq(ceov_abort(nodes_context(&nodes, 0), ticket), 0);
	ck_assert_int_eq(ceov_signal_wait(second, 0, 1, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	usleep(10000);                  /* node 2 says so right behind the abort word */
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.links[2][1].delay_ns = 0;
	pthread_mutex_unlock(&nodes.net.lock);
	ck_assert_int_eq(ceov_signal_renew(own), 0);
	ck_assert_int_eq(ceov_signal_wait(own, 0, 1, 200 * TESTING_MS), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_wait(second, 0, 1, 0), CEOV_PENDING);
	nodes_close(&nodes);
}
END_TEST

/* --- finding, meeting, leaving ------------------------------------------------------------ */

/* An abort that comes while the signal is renewed. The test has the lock under which aborts of
 * other processes are carried out, and does meanwhile what a renewal does first and last. */
START_TEST(test_an_abort_during_a_renewal_does_not_reach_the_new_signal)
{
	ceov_context *context;
	ceov_signal *own;
	ceov_ticket ticket;

	nodes_open(&nodes, 2, 1);
	own = nodes_signal(&nodes, 1, "own", 2);
	ticket = launch(plan_that_waits(nodes_find_signal(&nodes, 0, 1, "own")), 0);
	context = nodes_context(&nodes, 1);
	pthread_mutex_lock(&context->lock);
	ck_assert_int_eq(ceov_abort(nodes_context(&nodes, 0), ticket), 0);
	usleep(200000);                 /* the rail's thread waits for the lock */
	pthread_mutex_lock(&context->peers->lock);
	cei_group_entry(context->peers->machine, own->export_id)->generation++;
	pthread_mutex_unlock(&context->peers->lock);
	ck_assert_int_eq(cei_signal_clear(own), 0);
	pthread_mutex_unlock(&context->lock);
	ck_assert_int_eq(ceov_signal_wait(own, 0, 1, 300 * TESTING_MS), CEOV_PENDING);
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_what_is_not_there_is_not_found)
{
	ceov_buffer *buffer = NULL;
	ceov_signal *signal = NULL;
	uint32_t node;

	nodes_open(&nodes, 2, 2);
	ck_assert_int_eq(ceov_buffer_find(nodes_context(&nodes, 0), 2, "none", &buffer),
			 CEOV_NONE);
	(void)nodes_buffer(&nodes, 3, "bytes", 64);
	ck_assert_int_eq(ceov_signal_find(nodes_context(&nodes, 0), 3, "bytes", &signal),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_rank_node(nodes_context(&nodes, 0), 3, &node), 0);
	ck_assert_uint_eq(node, 1);
	ck_assert_int_eq(ceov_rank_node(nodes_context(&nodes, 3), 1, &node), 0);
	ck_assert_uint_eq(node, 0);
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_a_context_tells_its_ranks)
{
	const uint32_t node_of[] = { 0, 1, 1, 0, 1 };
	struct ceov_member members[4] = { { 0 } };
	uint32_t n = 0;

	nodes_open_mixed(&nodes, 2, 5, node_of);
	ck_assert_int_eq(ceov_n_ranks(nodes_context(&nodes, 1), &n), 0);
	ck_assert_uint_eq(n, 5);
	members[2].rank = 77;
	ck_assert_int_eq(ceov_members(nodes_context(&nodes, 1), members, 2, &n), 0);
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(members[0].rank, 1);
	ck_assert_uint_eq(members[1].rank, 2);
	ck_assert_int_eq(members[0].place.kind, CEOV_PLACE_HOST);
	ck_assert_uint_eq(members[2].rank, 77);         /* behind the room that there was */
	ck_assert_int_eq(ceov_members(nodes_context(&nodes, 0), NULL, 0, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(ceov_members(nodes_context(&nodes, 0), NULL, 1, &n), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_n_ranks(nodes_context(&nodes, 0), NULL), CEOV_ERR_INVALID);
	nodes_close(&nodes);
}
END_TEST

/* Node 0 has all records, and asks node 1, which has not got them yet. */
START_TEST(test_a_find_before_the_other_node_has_opened)
{
	nodes_open_late(&nodes);
	ck_assert_int_eq(nodes.found, CEOV_NONE);
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_a_release_waits_for_finders_of_other_nodes)
{
	ceov_buffer *own, *there, *again, *other;
	int r;

	nodes_open(&nodes, 2, 1);
	own = nodes_buffer(&nodes, 1, "own", 4096);
	(void)nodes_buffer(&nodes, 1, "other", 4096);
	there = nodes_find_buffer(&nodes, 0, 1, "own");
	again = nodes_find_buffer(&nodes, 0, 1, "own");
	ck_assert_int_eq(ceov_buffer_release(again), 0);
	other = nodes_find_buffer(&nodes, 0, 1, "other");       /* behind what was said before */
	ck_assert_int_eq(ceov_buffer_release(own), CEOV_PENDING);
	ck_assert_int_eq(ceov_buffer_release(other), 0);
	ck_assert_int_eq(ceov_buffer_release(there), 0);
	do
		r = ceov_buffer_release(own);
	while (r == CEOV_PENDING);
	ck_assert_int_eq(r, 0);
	nodes_close(&nodes);
}
END_TEST

static void *meet(void *arg)
{
	struct node *node = arg;
	uint32_t i;

	for (i = 0; i < 20 && !node->result; i++)
		node->result = ceov_barrier(node->context, TESTING_PATIENCE);
	return NULL;
}

START_TEST(test_barriers_of_nodes)
{
	pthread_t threads[NODES_MAX];
	uint32_t i;

	nodes_open(&nodes, 4, 1);
	ck_assert_int_eq(ceov_barrier(nodes.node[2].context, 10 * TESTING_MS),
			 CEOV_ERR_TIMEOUT);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, meet, &nodes.node[i]), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(nodes.node[i].result, 0);
	}
	nodes_close(&nodes);
}
END_TEST

/* A find of rank 0 at rank 1, which is not there any more, says this. */
static void fail_to_find(const char *text)
{
	ceov_signal *found = NULL;

	ck_assert_int_eq(ceov_signal_find(nodes_context(&nodes, 0), 1, "a name", &found),
			 CEOV_ERR_PEER_LOST);
	ck_assert_ptr_null(found);
	testing_log_has(&nodes.node[0].log, text, NULL, NULL);
}

/* Node 1 falls silent while rank 0 waits for it. */
START_TEST(test_a_silent_node_is_lost)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	struct way way;
	int r;

	prepare(&way, BYTES);
	ck_assert_int_eq(ceov_signal_raise(way.ready, 0, 1), 0);
	ticket = launch(way.plan, 0);
	pthread_mutex_lock(&nodes.net.lock);
	loop_net_cut(&nodes.net, 0, 1, 1);
	pthread_mutex_unlock(&nodes.net.lock);
	r = wait_for(0, ticket);
	ck_assert_int_eq(r, CEOV_ERR_PEER_LOST);
	failure = testing_failure(nodes_context(&nodes, 0));
	ck_assert_uint_eq(failure.rank, 1);
	ck_assert_int_eq(ceov_signal_wait(way.arrived_there, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_PEER_LOST);
	fail_to_find("rank 1 is lost: the log says why");
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_a_node_that_closes_is_no_loss)
{
	ceov_signal *own;

	nodes_open(&nodes, 2, 1);
	own = nodes_signal(&nodes, 0, "own", 1);
	(void)nodes_find_signal(&nodes, 1, 0, "own");
	nodes_close_one(&nodes, 1);
	ck_assert_int_eq(ceov_signal_wait(own, 0, 1, 50 * TESTING_MS), CEOV_PENDING);
	fail_to_find("rank 1 has closed its context");
	nodes_close(&nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nodes");
	TCase *all = tcase_create("nodes");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_bytes_and_their_mark_arrive);
	tcase_add_test(all, test_queries);
	tcase_add_test(all, test_a_target_that_is_not_free_is_waited_for);
	tcase_add_test(all, test_a_node_that_its_caller_turns);
	tcase_add_test(all, test_rows_to_two_nodes);
	tcase_add_test(all, test_marks_without_bytes);
	tcase_add_test(all, test_explain_names_mover_and_rail);
	tcase_add_test(all, test_a_group_of_one_node_explains_no_rail);
	tcase_add_test(all, test_threads_raise_and_await_across_nodes);
	tcase_add_test(all, test_an_abort_reaches_all_nodes);
	tcase_add_test(all, test_a_late_abort_does_not_reach_a_renewed_signal);
	tcase_add_test(all, test_an_abort_during_a_renewal_does_not_reach_the_new_signal);
	tcase_add_test(all, test_what_is_not_there_is_not_found);
	tcase_add_test(all, test_a_context_tells_its_ranks);
	tcase_add_test(all, test_a_find_before_the_other_node_has_opened);
	tcase_add_test(all, test_a_release_waits_for_finders_of_other_nodes);
	tcase_add_test(all, test_barriers_of_nodes);
	tcase_add_test(all, test_a_silent_node_is_lost);
	tcase_add_test(all, test_a_node_that_closes_is_no_loss);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
