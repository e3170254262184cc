/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what happens when one of several rails between two nodes is lost, over a simulated
 * network. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/rail_config.h"
#include "unit/nodes_rig.h"

/* A rail's thread that gets no processor for a timeout makes its rail look silent, and sanitizers
 * make every thread slower. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MS (3 * TESTING_MS)
#else
#define MS TESTING_MS
#endif

#define MIB        UINT64_C(1048576)
#define BYTES      (16 * MIB)
#define TIMEOUT_NS (300 * MS)                   /* until a silent rail counts as lost */

/* How long a node takes to close a lost rail where a test slows that down. A rail waits for
 * CEI_RAIL_CLOSE_NS, whatever sanitizers do to threads, and the other node for two timeouts, here
 * of at least 400 ms; who takes longer is given up as a process, and bytes may then land late. */
#define CLOSING_NS (250 * TESTING_MS)

static struct nodes nodes;

/* What one node sends to the other. */
struct way {
	uint32_t     from;
	uint32_t     to;
	uint64_t     n_bytes;
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_signal *arrived;
	ceov_signal *arrived_there;
	ceov_plan   *plan;
};

static struct way there, back;

/* --- the rig ---------------------------------------------------------------------------- */

/* Both nodes have shared and found what they need, and a plan is committed. */
static void make_way(struct way *way, uint32_t from, uint64_t n_bytes, const char *names[3])
{
	struct ceov_transfer transfer;

	way->n_bytes = n_bytes;

	way->from = from;
	way->to = !from;
	way->source = nodes_buffer(&nodes, from, names[0], n_bytes);
	way->target = nodes_buffer(&nodes, way->to, names[1], n_bytes);
	way->arrived = nodes_signal(&nodes, way->to, names[2], 1);
	way->arrived_there = nodes_find_signal(&nodes, from, way->to, names[2]);
	transfer = testing_transfer(way->source,
				    nodes_find_buffer(&nodes, from, way->to, names[1]), n_bytes);
	transfer.then = testing_mark(way->arrived_there, 0, 1);
	way->plan = testing_plan(nodes_context(&nodes, from), from);
	testing_add(way->plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(way->plan), 0);
	testing_fill(ceov_buffer_base(way->source, from), n_bytes, testing_seed() + from);
}

/* Two nodes with as many rails; the first one sends to the second. */
static void prepare_for(uint32_t n_rails, uint64_t timeout_ns)
{
	const char *names[3] = { "source", "target", "arrived" };

	nodes_open_railed_strict(&nodes, 2, n_rails, timeout_ns);
	make_way(&there, 0, BYTES, names);
}

static void prepare(uint32_t n_rails)
{
	prepare_for(n_rails, TIMEOUT_NS);
}

/* The second one sends, too. */
static void prepare_back(uint64_t n_bytes)
{
	const char *names[3] = { "s", "t", "a" };

	make_way(&back, 1, n_bytes, names);
}

/* The number of a node's rail in the simulated network. */
static uint32_t end_of(uint32_t node, uint32_t rail)
{
	return node * nodes.n_rails + rail;
}

static struct loop_link *link_of(uint32_t from, uint32_t rail)
{
	return &nodes.net.links[end_of(from, rail)][end_of(!from, rail)];
}

/* Whether so much has come from the node on the rail. */
static int has_arrived(uint32_t from, uint32_t rail, uint64_t n)
{
	int has;

	pthread_mutex_lock(&nodes.net.lock);
	has = link_of(from, rail)->n_arrivals >= n;
	pthread_mutex_unlock(&nodes.net.lock);
	return has;
}

static void cut(uint32_t rail)
{
	pthread_mutex_lock(&nodes.net.lock);
	loop_net_cut(&nodes.net, end_of(0, rail), end_of(1, rail), 1);
	pthread_mutex_unlock(&nodes.net.lock);
}

static ceov_ticket launch(const struct way *way)
{
	struct ceov_launch launched = { .struct_bytes = sizeof(launched) };
	ceov_ticket ticket;

	ck_assert_int_eq(ceov_launch(way->plan, &launched, &ticket), 0);
	return ticket;
}

static int end(const struct way *way, ceov_ticket ticket)
{
	return ceov_wait(nodes_context(&nodes, way->from), ticket, TESTING_PATIENCE);
}

static int is_loss(int r)
{
	return r == CEOV_ERR_PEER_LOST || r == CEOV_ERR_UNCERTAIN;
}

static void renew_one(ceov_signal *signal)
{
	int r;

	while ((r = ceov_signal_renew(signal)) == CEOV_PENDING)
		usleep(1000);
	ck_assert_int_eq(r, 0);
}

static void renew(const struct way *way)
{
	renew_one(way->arrived_there);
	renew_one(way->arrived);
}

/* After a launch has failed: its signal's owner has heard of the abort, too. */
static void renew_failed(const struct way *way)
{
	ck_assert(is_loss(ceov_signal_wait(way->arrived, 0, 1, TESTING_PATIENCE)));
	renew(way);
}

static void clear(const struct way *way)
{
	memset(ceov_buffer_base(way->target, way->to), 0, way->n_bytes);
}

static void check_arrived(const struct way *way)
{
	uint64_t value;

	ck_assert_int_eq(ceov_signal_value(way->arrived, 0, &value), 0);
	ck_assert_uint_eq(value, 1);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(way->target, way->to), way->n_bytes,
					testing_seed() + way->from), way->n_bytes);
}

/* A launch ends well, and its bytes are there with its mark. */
static void check_works(const struct way *way)
{
	clear(way);
	ck_assert_int_eq(end(way, launch(way)), 0);
	check_arrived(way);
}

static uint32_t count_lines(uint32_t node, const char *text)
{
	struct testing_log *log = &nodes.node[node].log;
	uint32_t i, n = 0;

	pthread_mutex_lock(&log->lock);
	for (i = 0; i < log->n_lines && i < TESTING_LINES; i++)
		n += strstr(log->lines[i], text) != NULL;
	pthread_mutex_unlock(&log->lock);
	return n;
}

/* --- the tests --------------------------------------------------------------------------- */

/* The first rail or another one, falling silent (_i even) or breaking: what is under way fails and
 * says why; the rail's loss is logged once by each node, nobody counts as lost, and the same plans
 * go on over the rails that are left. */
START_TEST(test_the_loss_of_one_rail_is_survived)
{
	uint32_t rail = (uint32_t)_i / 2;
	char line[80];
	ceov_ticket ticket;

	prepare(3);
	prepare_back(BYTES);
	check_works(&there);
	renew(&there);
	pthread_mutex_lock(&nodes.net.lock);
	link_of(0, rail)->bytes_ns = 20 * MS;
	if (_i % 2)                     /* its second piece */
		link_of(0, rail)->fail_at = link_of(0, rail)->n_arrivals + 2;
	pthread_mutex_unlock(&nodes.net.lock);
	ticket = launch(&there);
	if (_i % 2 == 0)
		cut(rail);
	ck_assert(is_loss(end(&there, ticket)));
	ck_assert_uint_eq(testing_failure(nodes_context(&nodes, 0)).rank, 1);
	snprintf(line, sizeof(line), "rail %u was lost", rail);
	testing_log_has(&nodes.node[0].log, "transfer 0", line, "to blame: rank 1");
	testing_explained(there.plan, "it is lost to rank 1, and not used any more");
	renew_failed(&there);
	check_works(&there);
	check_works(&back);
	snprintf(line, sizeof(line), "rail %u to process 1, which holds rank 1, is lost", rail);
	ck_assert_uint_eq(count_lines(0, line), 1);
	snprintf(line, sizeof(line), "rail %u to process 0, which holds rank 0, is lost", rail);
	ck_assert_uint_eq(count_lines(1, line), 1);
	ck_assert_uint_eq(count_lines(0, "2 rails are left"), 1);
	ck_assert_uint_eq(count_lines(0, "was lost; what waits") +
			  count_lines(1, "was lost; what waits"), 0);
	nodes_close(&nodes);
}
END_TEST

/* All rails but the first or the last one are lost, one after the other. */
START_TEST(test_one_rail_is_enough)
{
	uint32_t rail, stays = _i ? 2 : 0;

	prepare(3);
	for (rail = 0; rail < 3; rail++) {
		if (rail == stays)
			continue;
		cut(rail);
		ck_assert(is_loss(end(&there, launch(&there))));
		renew_failed(&there);
		check_works(&there);
		renew(&there);
	}
	nodes_close(&nodes);
}
END_TEST

/* Lanes on the lost rail on which nothing is under way disturb nobody, neither a launch that is
 * under way over another rail nor a later one. */
START_TEST(test_what_goes_over_other_rails_is_not_disturbed)
{
	ceov_ticket ticket;

	prepare(2);
	prepare_back(MIB);
	pthread_mutex_lock(&nodes.net.lock);
	link_of(1, 0)->bytes_ns = 17 * TIMEOUT_NS / 10;   /* at 2 it would be lost */
	pthread_mutex_unlock(&nodes.net.lock);
	ticket = launch(&back);
	cut(1);
	ck_assert(is_loss(end(&there, launch(&there))));
	ck_assert_int_eq(end(&back, ticket), 0);
	check_arrived(&back);
	pthread_mutex_lock(&nodes.net.lock);
	link_of(1, 0)->bytes_ns = 0;
	pthread_mutex_unlock(&nodes.net.lock);
	renew(&back);
	check_works(&back);
	nodes_close(&nodes);
}
END_TEST

/* The other side takes its time to close the lost rail, so the lanes on it have not broken yet: a
 * launch that begins meanwhile leaves them out, though the lost rail is its rank's own. */
START_TEST(test_lanes_that_will_break_are_left_out)
{
	ceov_signal *own, *theirs;

	prepare_for(2, 400 * MS);
	prepare_back(MIB);
	check_works(&back);
	renew(&back);
	own = nodes_signal(&nodes, 0, "own", 1);
	theirs = nodes_find_signal(&nodes, 1, 0, "own");
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.closings[end_of(0, 0)].delay_ns = CLOSING_NS;
	pthread_mutex_unlock(&nodes.net.lock);
	cut(0);
	ck_assert_int_eq(ceov_signal_raise(own, 0, 1), 0);
	ck_assert_int_eq(ceov_signal_wait(theirs, 0, 1, TESTING_PATIENCE), 0);
	check_works(&back);             /* node 1 has noticed: it has heard over another rail */
	nodes_close(&nodes);
}
END_TEST

/* Plans that are committed after the loss, with the lane that was there and with a new one. */
START_TEST(test_later_plans_use_what_is_left)
{
	const char *names[3] = { "later", "target of later", "arrived later" };
	struct way later;

	prepare(2);
	cut(1);
	ck_assert(is_loss(end(&there, launch(&there))));
	renew_failed(&there);           /* what was under way on the other rail has ended */
	make_way(&later, 0, BYTES, names);
	check_works(&later);
	prepare_back(BYTES);
	check_works(&back);
	nodes_close(&nodes);
}
END_TEST

/* Only the sender notices. The receiver's memory may still be written to until it has closed its
 * side too, which takes it its time: the launch does not end before. The second half of the bytes
 * goes over the rail that is lost; what goes over the other one is no matter here. */
START_TEST(test_nothing_lands_after_the_launch_has_failed)
{
	uint8_t *target, *kept = malloc(BYTES / 2);
	ceov_ticket ticket;
	uint64_t n_arrivals;

	prepare_for(2, 1000 * MS);
	check_works(&there);
	renew(&there);
	clear(&there);
	n_arrivals = link_of(0, 1)->n_arrivals;
	pthread_mutex_lock(&nodes.net.lock);
	link_of(0, 1)->bytes_ns = TESTING_PATIENCE;
	link_of(0, 1)->sends_early = 1; /* the network holds them when the sender has closed */
	link_of(0, 1)->is_mute_on_close = 1;
	nodes.net.closings[end_of(1, 1)].delay_ns = CLOSING_NS;
	pthread_mutex_unlock(&nodes.net.lock);
	ticket = launch(&there);
	while (!has_arrived(0, 1, n_arrivals + 2))
		usleep(1000);
	pthread_mutex_lock(&nodes.net.lock);
	link_of(1, 1)->is_dropped = 1;
	pthread_mutex_unlock(&nodes.net.lock);
	ck_assert(is_loss(end(&there, ticket)));
	ck_assert_msg(!count_lines(0, "is lost on rail") && !count_lines(1, "is lost on rail"),
		      "a process was given up, too: this machine is too slow for this test");
	target = (uint8_t *)ceov_buffer_base(there.target, 1) + BYTES / 2;
	memcpy(kept, target, BYTES / 2);
	usleep((useconds_t)(2 * CLOSING_NS / 1000));
	ck_assert_mem_eq(kept, target, BYTES / 2);
	free(kept);
	nodes_close(&nodes);
}
END_TEST

/* The receiver's connection does not close: then its process is given up, as if it had one rail. */
START_TEST(test_a_rail_that_does_not_close_takes_the_process)
{
	prepare_for(2, 800 * MS);       /* longer than it waits for the connection */
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.closings[end_of(1, 1)].delay_ns = 2 * CEI_RAIL_CLOSE_NS;
	pthread_mutex_unlock(&nodes.net.lock);
	cut(1);
	ck_assert(is_loss(end(&there, launch(&there))));
	ck_assert_int_eq(ceov_signal_wait(there.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_PEER_LOST);
	nodes_close(&nodes);
}
END_TEST

/* Counters of the other node rise by notes, which go over the first rail. _i: after which of them
 * that is cut, in which direction, so that notes, answers or acknowledgements are lost. No bytes
 * are under way: nothing fails, and nothing is missing. */
START_TEST(test_notes_outlive_the_rail_that_carried_them)
{
	ceov_signal *own, *theirs, *other, *seen;
	uint64_t value, n = 300;

	prepare(2);
	own = nodes_signal(&nodes, 1, "own", 1);
	theirs = nodes_find_signal(&nodes, 0, 1, "own");
	other = nodes_signal(&nodes, 0, "other", 1);
	seen = nodes_find_signal(&nodes, 1, 0, "other");
	for (value = 1; value <= n; value++) {
		if (value == (uint64_t)_i * 60 + 1) {
			pthread_mutex_lock(&nodes.net.lock);
			link_of(_i % 2, 0)->is_dropped = 1;
			link_of(!(_i % 2), 0)->is_dropped = _i > 2;
			pthread_mutex_unlock(&nodes.net.lock);
		}
		ck_assert_int_eq(ceov_signal_raise(theirs, 0, value), 0);
	}
	ck_assert_int_eq(ceov_signal_wait(own, 0, n, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ceov_signal_raise(other, 0, 1), 0);
	ck_assert_int_eq(ceov_signal_wait(seen, 0, 1, TESTING_PATIENCE), 0);
	ck_assert_uint_eq(count_lines(0, "rail 0 to process 1, which holds rank 1, is lost"), 1);
	check_works(&there);
	nodes_close(&nodes);
}
END_TEST

/* Finds count: an export that is found and dropped over a rail that is lost meanwhile is released
 * once, and not while it is used. */
START_TEST(test_uses_are_counted_once)
{
	ceov_signal *own, *first;
	uint32_t i;

	prepare(2);
	own = nodes_signal(&nodes, 1, "own", 1);
	first = nodes_find_signal(&nodes, 0, 1, "own");
	for (i = 0; i < 20; i++) {
		ceov_signal *next = nodes_find_signal(&nodes, 0, 1, "own");

		if (i == 10)
			cut(0);
		ceov_signal_release(first);
		first = next;
	}
	ck_assert_int_eq(ceov_signal_raise(first, 0, 7), 0);
	ck_assert_int_eq(ceov_signal_wait(own, 0, 7, TESTING_PATIENCE), 0);
	nodes_close(&nodes);
}
END_TEST

/* The last rail of several takes the process. */
START_TEST(test_the_last_rail_takes_the_process)
{
	prepare(2);
	cut(_i);
	ck_assert(is_loss(end(&there, launch(&there))));
	renew_failed(&there);
	cut(!_i);
	ck_assert(is_loss(end(&there, launch(&there))));
	ck_assert_int_eq(ceov_signal_wait(there.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(count_lines(0, "rails are left"), 1);
	nodes_close(&nodes);
}
END_TEST

/* All rails fall silent: the process is lost, and no launch waits for what it will not say. */
START_TEST(test_a_silent_process_is_lost_on_all_rails)
{
	prepare(3);
	cut(0);
	cut(1);
	cut(2);
	ck_assert(is_loss(end(&there, launch(&there))));
	ck_assert_int_eq(ceov_signal_wait(there.arrived, 0, 1, TESTING_PATIENCE),
			 CEOV_ERR_PEER_LOST);
	nodes_close(&nodes);
}
END_TEST

/* The first rail is lost before anything has used the others: all of them are connected at once,
 * and not each when the one before is lost, since each has its own timeout. */
START_TEST(test_a_loss_connects_what_is_left)
{
	const uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	uint32_t rail;

	nodes_open_railed_strict(&nodes, 2, 4, TIMEOUT_NS);
	(void)nodes_signal(&nodes, 1, "signal", 1);
	cut(0);
	(void)nodes_find_signal(&nodes, 0, 1, "signal");
	for (rail = 1; rail < 4; rail++) {
		while (!has_arrived(0, rail, 1) && cei_now_ns() < deadline_ns)
			usleep(1000);
		ck_assert_msg(has_arrived(0, rail, 1), "rail %u has no connection", rail);
	}
	ck_assert_uint_eq(count_lines(0, "rails are left"), 1);
	nodes_close(&nodes);
}
END_TEST

/* A rail is cut, nobody has noticed, and both nodes close. Who has said farewell on one rail is not
 * waited for on the other one for the three seconds that a close takes at most. */
START_TEST(test_a_cut_rail_does_not_hold_a_close_up)
{
	uint64_t began_ns;

	prepare_for(2, 60000 * TESTING_MS);
	check_works(&there);
	cut(1);
	began_ns = cei_now_ns();
	nodes_close(&nodes);
	ck_assert_uint_lt(cei_now_ns() - began_ns, 2000 * TESTING_MS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rail_loss");
	TCase *tcase = tcase_create("loss");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_the_loss_of_one_rail_is_survived, 0, 4);
	tcase_add_loop_test(tcase, test_one_rail_is_enough, 0, 2);
	tcase_add_test(tcase, test_what_goes_over_other_rails_is_not_disturbed);
	tcase_add_test(tcase, test_lanes_that_will_break_are_left_out);
	tcase_add_test(tcase, test_later_plans_use_what_is_left);
	tcase_add_test(tcase, test_nothing_lands_after_the_launch_has_failed);
	tcase_add_test(tcase, test_a_rail_that_does_not_close_takes_the_process);
	tcase_add_loop_test(tcase, test_notes_outlive_the_rail_that_carried_them, 0, 5);
	tcase_add_test(tcase, test_uses_are_counted_once);
	tcase_add_loop_test(tcase, test_the_last_rail_takes_the_process, 0, 2);
	tcase_add_test(tcase, test_a_silent_process_is_lost_on_all_rails);
	tcase_add_test(tcase, test_a_loss_connects_what_is_left);
	tcase_add_test(tcase, test_a_cut_rail_does_not_hold_a_close_up);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
