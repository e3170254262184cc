/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What does not go between nodes is refused, and the refusal says that the reason is another node.
 * Ranks 0 and 1 are on one node, 2 and 3 on the other one; the network is simulated. Host ranks
 * have no streams, so rank 0's backend claims to have some, of which nothing may be asked. */

#include <string.h>

#include <ceoverlap/ops.h>

#include "backend/host.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "unit/nodes_rig.h"

#define BYTES 4096u

static struct nodes nodes;
static struct cei_place_ops ops;
static int stream;                      /* its address stands for a stream */

static int no_stream(struct cei_backend *backend, void *asked,
		     const struct cei_stream_work *work)
{
	(void)backend;
	(void)asked;
	ck_assert_msg(!work->n_awaits && !work->n_pieces && !work->n_posts,
		      "work for a stream, which should have been refused");
	return 0;
}

static void open_with_streams(void)
{
	nodes_open(&nodes, 2, 2);
	ops = cei_backend_host;
	ops.caps |= CEI_CAP_STREAMS;
	ops.stream_queue = no_stream;
	nodes_context(&nodes, 0)->works.engines[0].backend->ops = &ops;
}

static void close_all(void)
{
	nodes_context(&nodes, 0)->works.engines[0].backend->ops = &cei_backend_host;
	nodes_close(&nodes);
}

/* Of rank 0, whose node's log must have both texts after the call that failed. */
static void said(const char *text, const char *and_text)
{
	testing_log_has(&nodes.node[0].log, text, and_text, NULL);
	testing_log_clear(&nodes.node[0].log);
}

/* A plan of rank 0, not committed, and the transfer to the rank that is to be added to it. */
static ceov_plan *plan_to(uint32_t rank, struct ceov_transfer *ret_transfer)
{
	ceov_buffer *source = nodes_buffer(&nodes, 0, "source", BYTES);

	(void)nodes_buffer(&nodes, rank, "target", BYTES);
	*ret_transfer = testing_transfer(source, nodes_find_buffer(&nodes, 0, rank, "target"),
					 BYTES);
	return testing_plan(nodes_context(&nodes, 0), 0);
}

static ceov_plan *committed_to(uint32_t rank)
{
	struct ceov_transfer transfer;
	ceov_plan *plan = plan_to(rank, &transfer);

	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* A signal of rank 2, as rank 0 has found it. */
static ceov_signal *far_signal(void)
{
	(void)nodes_signal(&nodes, 2, "far", 4);
	return nodes_find_signal(&nodes, 0, 2, "far");
}

/* --- pulls ------------------------------------------------------------------------------- */

START_TEST(test_a_pull_is_refused_at_commit)
{
	ceov_context *context;
	ceov_buffer *source;
	ceov_plan *plan;
	struct ceov_transfer transfer;

	nodes_open(&nodes, 2, 2);
	context = nodes_context(&nodes, 0);
	(void)nodes_buffer(&nodes, 3, "source", BYTES);
	source = nodes_find_buffer(&nodes, 0, 3, "source");
	transfer = testing_transfer(source, nodes_buffer(&nodes, 0, "target", BYTES), BYTES);
	plan = testing_plan(context, 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_NO_ROUTE);
	said("transfer 0 reads memory of rank 3, which is on another node",
	     "let rank 3 commit a plan that sends it");
	ceov_plan_release(plan);
	nodes_close(&nodes);
}
END_TEST

/* Within a node a pull is still as good as a push. */
START_TEST(test_a_pull_within_the_node_is_not)
{
	ceov_ticket ticket;
	ceov_buffer *source, *target;
	ceov_plan *plan;
	struct ceov_transfer transfer;

	nodes_open(&nodes, 2, 2);
	source = nodes_buffer(&nodes, 1, "source", BYTES);
	target = nodes_buffer(&nodes, 0, "target", BYTES);
	transfer = testing_transfer(source, target, BYTES);
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	testing_fill(ceov_buffer_base(source, 1), BYTES, testing_seed());
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE), 0);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(target, 0), BYTES, testing_seed()),
			  BYTES);
	nodes_close(&nodes);
}
END_TEST

/* --- streams ------------------------------------------------------------------------------- */

START_TEST(test_a_plan_to_another_node_is_not_queued)
{
	ceov_plan *plan;

	open_with_streams();
	plan = committed_to(3);
	ck_assert_int_eq(ceov_plan_queue(plan, &stream, 0), CEOV_ERR_NO_ROUTE);
	said("ceov_plan_queue: transfer 0 goes to rank 3, which is on another node",
	     "launch the plan");
	close_all();
}
END_TEST

START_TEST(test_a_mark_for_another_node_is_not_queued)
{
	struct ceov_transfer transfer = { .struct_bytes = sizeof(transfer) };
	ceov_plan *plan;

	open_with_streams();
	transfer.then = testing_mark(far_signal(), 1, 1);
	plan = testing_plan(nodes_context(&nodes, 0), 0);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_plan_queue(plan, &stream, 0), CEOV_ERR_NO_ROUTE);
	said("transfer 0 goes to rank 2, which is on another node", "launch the plan");
	close_all();
}
END_TEST

/* The copy stays within the node, but waits for a mark of another one. */
START_TEST(test_a_plan_that_waits_for_another_node_is_not_queued)
{
	struct ceov_transfer transfer;
	ceov_plan *plan;

	open_with_streams();
	plan = plan_to(1, &transfer);
	transfer.target_free = testing_mark(far_signal(), 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_plan_queue(plan, &stream, 0), CEOV_ERR_NO_ROUTE);
	said("target_free: a stream of rank 0 cannot wait",
	     "of signal 'far' of rank 2, which are on another node");
	close_all();
}
END_TEST

START_TEST(test_a_launch_to_another_node_follows_no_stream)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .after_stream = &stream };
	ceov_ticket ticket;
	ceov_plan *plan;

	open_with_streams();
	plan = committed_to(2);
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), CEOV_ERR_INVALID);
	said("transfer 0 of the plan goes to rank 2, which is on another node",
	     "name no after_stream");
	close_all();
}
END_TEST

START_TEST(test_streams_neither_raise_nor_await_far_marks)
{
	ceov_context *context;
	struct ceov_mark mark;

	open_with_streams();
	context = nodes_context(&nodes, 0);
	mark = testing_mark(far_signal(), 3, 1);
	ck_assert_int_eq(ceov_stream_raise(context, 0, &stream, &mark, 1, 0), CEOV_ERR_NO_ROUTE);
	said("ceov_stream_raise: signal 'far' of rank 2 is on another node",
	     "ceov_signal_raise()");
	ck_assert_int_eq(ceov_stream_wait(context, 0, &stream, &mark, 1, 0), CEOV_ERR_NO_ROUTE);
	said("ceov_stream_wait: signal 'far' of rank 2 is on another node",
	     "ceov_signal_wait()");
	close_all();
}
END_TEST

/* --- captured operators ---------------------------------------------------------------------- */

START_TEST(test_capturable_workspaces_are_refused)
{
	struct ceov_workspace_config config = {
		.struct_bytes = sizeof(config), .name = "graph", .scratch_bytes = 4096,
		.is_capturable = 1 };
	ceov_workspace *workspace = NULL;

	nodes_open(&nodes, 2, 2);
	ck_assert_int_eq(ceov_workspace_create(nodes_context(&nodes, 0), &config, &workspace),
			 CEOV_ERR_INVALID);
	said("is_capturable: a graph cannot hold transfers to other nodes", NULL);
	nodes_close(&nodes);
}
END_TEST

/* --- launches that name a producer ----------------------------------------------------------- */

/* A copy within the node that waits for a mark of another one: no lane waits for that, since it
 * could not see it. */
START_TEST(test_a_lane_does_not_wait_for_another_node)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch),
				      .producer_stream = &stream };
	struct ceov_transfer transfer;
	ceov_ticket ticket;
	ceov_context *context;
	ceov_plan *plan;

	nodes_open(&nodes, 2, 2);
	context = nodes_context(&nodes, 0);
	plan = plan_to(1, &transfer);
	transfer.source_ready = testing_mark(far_signal(), 2, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	testing_explained(plan, "always polled: source_ready marks are of another node");
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, 50 * TESTING_MS), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_raise(transfer.source_ready.signal, 2, 1), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	nodes_close(&nodes);
}
END_TEST

START_TEST(test_a_plan_to_another_node_says_why_it_is_polled)
{
	nodes_open(&nodes, 2, 2);
	testing_explained(committed_to(2), "always polled: a transfer goes to another node");
	nodes_close(&nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nodes_refuse");
	TCase *all = tcase_create("nodes_refuse");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_pull_is_refused_at_commit);
	tcase_add_test(all, test_a_pull_within_the_node_is_not);
	tcase_add_test(all, test_a_plan_to_another_node_is_not_queued);
	tcase_add_test(all, test_a_mark_for_another_node_is_not_queued);
	tcase_add_test(all, test_a_plan_that_waits_for_another_node_is_not_queued);
	tcase_add_test(all, test_a_launch_to_another_node_follows_no_stream);
	tcase_add_test(all, test_streams_neither_raise_nor_await_far_marks);
	tcase_add_test(all, test_capturable_workspaces_are_refused);
	tcase_add_test(all, test_a_lane_does_not_wait_for_another_node);
	tcase_add_test(all, test_a_plan_to_another_node_says_why_it_is_polled);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
