/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests rails over a simulated network that fails: at every message, by silence, and while it
 * closes. The rig asserts all the time that no mark comes before its bytes, and that no byte
 * lands after a process was told that another one is lost. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "net/far_peer.h"
#include "unit/rail_rig.h"

#define N_BLOCKS 12u

/* The longest that anything may take to end: the timeout, a look at the time later, and the time
 * that a connection gets to close. */
#define WITHIN_NS (RAILS_TIMEOUT_NS + RAILS_TIMEOUT_NS / 10)

static void set_delays(uint64_t delay_ns, uint64_t jitter_ns)
{
	uint32_t i, k;

	for (i = 0; i < RAILS_MAX; i++)
		for (k = 0; k < RAILS_MAX; k++) {
			rails.net.links[i][k].delay_ns = delay_ns;
			rails.net.links[i][k].jitter_ns = jitter_ns;
		}
}

static int both_know(void)
{
	return rails.processes[0].n_lost[1] == 1 && rails.processes[1].n_lost[0] == 1;
}

static int are_both_up(void)
{
	return rails_status(0, 1).connection == CEI_FAR_UP &&
		rails_status(1, 0).connection == CEI_FAR_UP;
}

/* Forgets what has come; from now on bytes may land again. */
static void clear(uint32_t at)
{
	struct rails_process *own = &rails.processes[at];
	uint32_t b;

	memset(own->target, 0x5a, RAILS_BYTES);
	free(own->kept);
	own->kept = NULL;
	for (b = 0; b < RAILS_BLOCKS; b++)
		atomic_store(&own->words[b], 0);
	memset(own->is_seen, 0, sizeof(own->is_seen));
}

static int is_closed(void)
{
	return cei_rail_is_quiet(rails.processes[0].rail) &&
		cei_rail_is_quiet(rails.processes[1].rail);
}

static int all_here(void)
{
	return rails_done(0, 1) == 1;
}

/* Both sides close. What is left in the network of the connection must not hurt, and it is not
 * opened again. */
static void stay_lost(void)
{
	struct cei_far_lane *lane = NULL;

	ck_assert(rails_until(is_closed, CEI_RAIL_CLOSE_NS));
	rails_pass(TESTING_SECOND);
	ck_assert(is_closed());
	ck_assert(cei_far_lane_is_idle(rails.processes[0].lanes[1]));
	ck_assert_int_eq(cei_rail_lane_open(rails.processes[0].rail, 1, &lane),
			 CEOV_ERR_PEER_LOST);
}

/* Sends, and lets the connection fail at arrival k of a direction. Returns whether it came to
 * that. */
static int fail_once(uint32_t from, uint64_t k, uint64_t seed)
{
	int has_failed;

	rails_open(2, seed);
	set_delays(1000, 20000);
	rails.net.links[from][!from].fail_at = k;
	rails.net.links[0][1].sends_early = k % 2 == 0;
	rails_send(0, 1, 0, N_BLOCKS);
	ck_assert(rails_until(rails_has_ended, WITHIN_NS));
	rails_pass(TESTING_MS);
	has_failed = rails.net.links[from][!from].n_arrivals >= k;
	if (has_failed && rails_error(0, 1)) {
		ck_assert(rails_error(0, 1) == CEOV_ERR_UNCERTAIN ||
			  rails_error(0, 1) == CEOV_ERR_PEER_LOST);
		if (rails.processes[1].n_losing[0])
			ck_assert(rails_until(both_know, WITHIN_NS));
		else            /* it had not begun to connect */
			rails_pass(TESTING_MS);
		stay_lost();
	}
	rails_close();
	return has_failed;
}

START_TEST(test_a_connection_that_fails_at_any_message_ends_well)
{
	uint64_t state = testing_seed(), k;
	uint32_t from, n_spared;

	/* How many messages there are differs from run to run, since one may answer several. */
	for (from = 0; from < 2; from++) {
		for (k = 1, n_spared = 0; n_spared < 5; ) {
			if (fail_once(from, k, testing_random(&state)))
				k++;
			else
				n_spared++;
		}
		ck_assert_uint_gt(k, 5);
	}
}
END_TEST

/* The cable is cut before arrival k from process 0: nothing comes and nothing fails. */
static int cut_once(uint64_t k, uint64_t seed)
{
	uint64_t begun_ns;
	int is_cut;

	rails_open(2, seed);
	set_delays(1000, 20000);
	rails_send(0, 1, 0, N_BLOCKS);
	while (rails.net.links[0][1].n_arrivals + 1 < k && !rails_has_ended())
		rails_step();
	loop_net_cut(&rails.net, 0, 1, 1);
	begun_ns = rails.net.now_ns;
	is_cut = !rails_has_ended();
	ck_assert(rails_until(rails_has_ended, WITHIN_NS));
	if (rails_error(0, 1))
		ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	/* the receiver awaits something only while a piece comes or a mark is held */
	ck_assert(rails.processes[1].lost_ns[0] <= begun_ns + WITHIN_NS);
	loop_net_cut(&rails.net, 0, 1, 0);
	rails_close();
	return is_cut;
}

START_TEST(test_a_cut_cable_at_any_message_ends_within_the_timeout)
{
	uint64_t state = testing_seed(), k;

	for (k = 1; cut_once(k, testing_random(&state)); k++)
		;
	ck_assert_uint_gt(k, 10);
}
END_TEST

static int knows_0(void)
{
	return rails.processes[0].n_lost[1] == 1;
}

static int knows_1(void)
{
	return rails.processes[1].n_lost[0] == 1;
}

START_TEST(test_a_stopped_receiver_is_noticed)
{
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails_send(0, 1, 0, N_BLOCKS);
	ck_assert(rails_until(are_both_up, TESTING_SECOND));
	rails.processes[1].is_stopped = 1;
	ck_assert(rails_until(knows_0, WITHIN_NS));
	ck_assert_int_eq(rails_error(0, 1), CEOV_ERR_UNCERTAIN);
	rails.processes[1].is_stopped = 0;
	ck_assert(rails_until(knows_1, WITHIN_NS));
	stay_lost();
	rails_close();
}
END_TEST

static int is_coming(void)
{
	return !memcmp(rails.processes[1].target, rails.processes[0].source, 64);
}

/* The receiver gives up in the middle of a piece and uses its memory for something else; then the
 * sender goes on. */
START_TEST(test_a_stopped_sender_writes_nothing_later)
{
	rails.config.window = 8;
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = TESTING_MS;
	rails_send(0, 1, 0, N_BLOCKS);
	ck_assert(rails_until(is_coming, TESTING_SECOND));
	rails.processes[0].is_stopped = 1;
	loop_net_cut(&rails.net, 0, 1, 1);
	ck_assert(rails_until(knows_1, WITHIN_NS));
	rails.processes[0].is_stopped = 0;
	loop_net_cut(&rails.net, 0, 1, 0);
	rails_pass(2 * WITHIN_NS);
	ck_assert(knows_0());
	stay_lost();
	rails_close();
}
END_TEST

/* Bytes land while the connection closes; nothing is told before that has ended. */
START_TEST(test_lost_is_told_when_receives_have_ended)
{
	rails.config.window = 8;
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = 2 * TESTING_SECOND;
	rails.net.closings[1].delay_ns = 300 * TESTING_MS;
	rails_send(0, 1, 0, N_BLOCKS);
	ck_assert(rails_until(is_coming, TESTING_SECOND));
	clear(1);
	rails_give_up(1, 0);
	ck_assert_uint_eq(rails.processes[1].n_losing[0], 1);
	rails_pass(290 * TESTING_MS);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 0);
	ck_assert_int_eq(cei_rail_region_close(rails.processes[1].rail, RAILS_BYTES_REGION),
			 CEOV_PENDING);
	ck_assert(is_coming());         /* late bytes, in time */
	rails_pass(20 * TESTING_MS);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 1);
	ck_assert_uint_eq(rails.processes[1].n_uncertain, 0);
	rails_pass(TESTING_SECOND);
	rails_close();
}
END_TEST

/* Who is given up hears of it, and nothing of it is accepted meanwhile. */
START_TEST(test_who_is_given_up_is_told_so)
{
	struct cei_far_message note = { .type = CEI_FAR_NOTE };

	note.note.bytes = (const uint8_t *)"x";
	note.note.n_bytes = 1;
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails_send(0, 1, 0, 1);
	ck_assert(rails_until(all_here, TESTING_SECOND));
	rails.net.links[0][1].is_mute_on_close = rails.net.links[1][0].is_mute_on_close = 1;
	ck_assert_int_eq(cei_rail_refuse(rails.processes[0].rail, 1, "it was silent"), 0);
	rails_step();
	ck_assert_int_eq(cei_rail_say(rails.processes[1].rail, 0, &note), 0);
	ck_assert(rails_until(both_know, RAILS_TIMEOUT_NS / 5));
	ck_assert_uint_eq(rails.processes[1].n_refusals, 1);
	ck_assert_uint_eq(rails.processes[0].n_refusals, 0);
	ck_assert_str_eq(rails.processes[1].why, "it refuses: it was silent");
	ck_assert_uint_eq(rails.processes[0].n_heard, 0);
	ck_assert_int_eq(cei_rail_refuse(rails.processes[0].rail, 1, "again"), 0);
	rails_pass(RAILS_TIMEOUT_NS);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	rails_close();
}
END_TEST

/* A connection that is given up before it was used is not begun any more, by neither side. */
START_TEST(test_what_was_given_up_unused_stays_so)
{
	struct cei_far_lane *lane = NULL;

	rails_open(2, testing_seed());
	rails_give_up(0, 1);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_IS_LOST);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_int_eq(cei_rail_lane_open(rails.processes[0].rail, 1, &lane),
			 CEOV_ERR_PEER_LOST);
	rails_send(1, 0, 0, 1);
	rails_pass(2 * WITHIN_NS);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_IS_LOST);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 1);
	ck_assert_uint_eq(rails_arrived(0), 0);
	rails_close();
}
END_TEST

START_TEST(test_a_connection_that_does_not_close_is_uncertain)
{
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = 20 * TESTING_SECOND;
	rails.net.closings[0].delay_ns = 3 * TESTING_SECOND;
	rails.net.closings[1].delay_ns = 3 * TESTING_SECOND;
	rails.expects_late = 1;           /* uncertain means that bytes may still land */
	rails_send(0, 1, 0, N_BLOCKS);
	ck_assert(rails_until(is_coming, TESTING_SECOND));
	rails_give_up(1, 0);
	rails_pass(CEI_RAIL_CLOSE_NS + RAILS_TIMEOUT_NS / 10);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 1);
	ck_assert_uint_eq(rails.processes[1].n_uncertain, 1);
	ck_assert_int_eq(cei_rail_region_close(rails.processes[1].rail, RAILS_BYTES_REGION),
			 CEOV_PENDING);
	ck_assert(!cei_far_lane_is_idle(rails.processes[0].lanes[1]));
	ck_assert_int_eq(rails_error(0, 1), CEOV_ERR_UNCERTAIN);
	rails_pass(3 * TESTING_SECOND);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 1);
	ck_assert(cei_far_lane_is_idle(rails.processes[0].lanes[1]));
	rails_close();
}
END_TEST

/* Shows that the rig sees bytes that land after `lost`: here the network breaks its contract. */
START_TEST(test_late_bytes_would_be_seen)
{
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = TESTING_SECOND;
	rails.net.closings[1].is_late = 1;
	rails.expects_late = 1;
	rails_send(0, 1, 0, N_BLOCKS);
	ck_assert(rails_until(is_coming, TESTING_SECOND));
	rails_give_up(1, 0);
	rails_pass(TESTING_SECOND);
	ck_assert(rails.saw_late);
	rails_close();
}
END_TEST

/* One side gives up while messages are in the network, and the other side, which has not noticed,
 * goes on until it hears nothing any more. */
START_TEST(test_what_comes_to_a_closed_connection_is_dropped)
{
	uint64_t state = testing_seed(), n_old = 0;
	uint32_t round;

	for (round = 0; round < 50; round++) {
		rails_open(2, testing_random(&state));
		set_delays(1000, 200000);
		rails.net.links[0][1].sends_early = 1;
		rails.net.links[0][1].is_mute_on_close = 1;
		rails_send(0, 1, 0, N_BLOCKS);
		rails_pass(10000 + testing_below(&state, 800000));
		rails_give_up(0, 1);
		rails_pass(2 * WITHIN_NS);
		ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_IS_LOST);
		ck_assert_uint_ne(rails_status(1, 0).connection, CEI_FAR_OPENING);
		n_old += rails_status(0, 1).counts.n_old;
		rails_close();
	}
	ck_assert_uint_gt(n_old, 0);
}
END_TEST

/* The greeting is lost on its way, and said again. */
START_TEST(test_a_greeting_that_is_lost_is_repeated)
{
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	loop_net_cut(&rails.net, 0, 1, 1);
	rails_send(0, 1, 0, rails.wanted = 1);
	rails_pass(RAILS_TIMEOUT_NS / 2);
	loop_net_cut(&rails.net, 0, 1, 0);
	ck_assert(rails_until(rails_all_arrived, RAILS_TIMEOUT_NS));
	rails_close();
}
END_TEST

static int has_heard_bye(void)
{
	return rails.net.links[1][0].n_arrivals > 1;
}

/* Process 1 closes in order, and its farewell crosses bytes that it has not heard of; then the
 * connection fails. Process 0 has lost it, since nobody knows where the bytes are. */
START_TEST(test_a_farewell_does_not_excuse_bytes_that_are_under_way)
{
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails_send(0, 1, 0, rails.wanted = 1);
	ck_assert(rails_until(rails_all_arrived, RAILS_TIMEOUT_NS));
	rails.net.links[0][1].delay_ns = RAILS_TIMEOUT_NS / 2;
	rails_send(0, 1, 1, 1);
	rails_pass(10);
	rails.net.links[0][1].fail_at = rails.net.links[0][1].n_arrivals + 1;
	rails.net.links[1][0].n_arrivals = 1;
	cei_rail_leave(rails.processes[1].rail);
	ck_assert(rails_until(has_heard_bye, RAILS_TIMEOUT_NS / 4));
	rails_pass(RAILS_TIMEOUT_NS / 2);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_uint_eq(rails.processes[0].n_departed[1], 0);
	rails_close();
}
END_TEST

/* A process that answers while bytes are under way of which none moves is stuck, and lost after two
 * timeouts: no transport has to say an error. */
START_TEST(test_stuck_is_told_from_gone_and_becomes_lost)
{
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = 10 * TESTING_SECOND;
	rails_send(0, 1, 0, 1);
	rails_pass(TESTING_SECOND / 2);
	ck_assert_uint_eq(rails_status(0, 1).health, CEI_FAR_MOVING);
	rails_pass(TESTING_SECOND);
	ck_assert_uint_eq(rails_status(0, 1).health, CEI_FAR_STUCK);
	ck_assert_uint_eq(rails_status(1, 0).health, CEI_FAR_STUCK);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_UP);
	rails_pass(TESTING_SECOND);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 1);
	ck_assert_int_eq(rails_error(0, 1), CEOV_ERR_UNCERTAIN);
	ck_assert_ptr_nonnull(strstr(rails.processes[0].why, "of 4096 bytes under way"));
	ck_assert_ptr_nonnull(strstr(rails.processes[0].why, "none has moved for 2.0 s"));
	rails_close();
}
END_TEST

/* Each piece takes nearly two timeouts, and all of them many. */
START_TEST(test_slow_bytes_are_not_lost)
{
	rails.config.window = 1;
	rails_open(2, testing_seed());
	set_delays(1000, 0);
	rails.net.links[0][1].bytes_ns = 18 * RAILS_TIMEOUT_NS / 10;
	rails_send(0, 1, 0, rails.wanted = 5);
	ck_assert(rails_until(rails_all_arrived, 10 * RAILS_TIMEOUT_NS));
	rails_pass(RAILS_TIMEOUT_NS);
	ck_assert_uint_eq(rails_status(0, 1).health, CEI_FAR_IDLE);
	rails_close();
}
END_TEST

/* Nothing is owed, so nothing is said: a cut cable is not noticed, and does no harm. */
START_TEST(test_idle_connections_say_nothing)
{
	uint64_t n_before;

	rails_open(2, testing_seed());
	rails_send(0, 1, 0, 1);
	ck_assert(rails_until(all_here, TESTING_SECOND));
	rails_pass(TESTING_SECOND);
	n_before = rails.net.links[0][1].n_arrivals + rails.net.links[1][0].n_arrivals;
	rails_pass(100 * TESTING_SECOND);
	ck_assert_uint_eq(rails.net.links[0][1].n_arrivals + rails.net.links[1][0].n_arrivals,
			  n_before);
	loop_net_cut(&rails.net, 0, 1, 1);
	rails_pass(WITHIN_NS);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 0);
	rails_send(0, 1, 1, 1);         /* now an acknowledgement is awaited */
	rails_pass(WITHIN_NS);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_uint_eq(rails.processes[1].n_lost[0], 0);
	rails_close();
}
END_TEST

/* Pieces shrink where they take long, and grow again. */
START_TEST(test_pieces_fit_the_speed_of_the_network)
{
	struct cei_far_copy copy = { .region = RAILS_BYTES_REGION, .row_bytes = RAILS_BYTES,
				     .n_rows = 1 };
	uint32_t round;

	rails_open(2, testing_seed());
	rails.net.links[0][1].bytes_ns = RAILS_TIMEOUT_NS / 3;
	copy.source = (uint64_t)(uintptr_t)rails.processes[0].source;
	for (round = 1; round <= 40; round++) {
		ck_assert_int_eq(cei_far_lane_copy(rails_lane(0, 1), &copy, 1), 0);
		ck_assert_int_eq(cei_far_lane_submit(rails_lane(0, 1)), 0);
		while (rails_done(0, 1) < round)
			rails_step();
		if (round == 20) {
			ck_assert_uint_eq(rails_status(0, 1).piece_bytes, CEI_FAR_PIECE_MIN);
			rails.net.links[0][1].bytes_ns = 0;
		}
	}
	ck_assert_uint_gt(rails_status(0, 1).piece_bytes, CEI_FAR_PIECE_MIN);
	rails_close();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rail_faults");
	TCase *all = tcase_create("rail_faults");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_connection_that_fails_at_any_message_ends_well);
	tcase_add_test(all, test_a_cut_cable_at_any_message_ends_within_the_timeout);
	tcase_add_test(all, test_a_stopped_receiver_is_noticed);
	tcase_add_test(all, test_a_stopped_sender_writes_nothing_later);
	tcase_add_test(all, test_lost_is_told_when_receives_have_ended);
	tcase_add_test(all, test_who_is_given_up_is_told_so);
	tcase_add_test(all, test_what_was_given_up_unused_stays_so);
	tcase_add_test(all, test_a_connection_that_does_not_close_is_uncertain);
	tcase_add_test(all, test_late_bytes_would_be_seen);
	tcase_add_test(all, test_what_comes_to_a_closed_connection_is_dropped);
	tcase_add_test(all, test_stuck_is_told_from_gone_and_becomes_lost);
	tcase_add_test(all, test_slow_bytes_are_not_lost);
	tcase_add_test(all, test_a_greeting_that_is_lost_is_repeated);
	tcase_add_test(all, test_a_farewell_does_not_excuse_bytes_that_are_under_way);
	tcase_add_test(all, test_idle_connections_say_nothing);
	tcase_add_test(all, test_pieces_fit_the_speed_of_the_network);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
