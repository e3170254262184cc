/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Barriers, losses and farewells in the state machine of a group. */

#include <string.h>

#include "base/clock.h"
#include "group_rig.h"
#include "testing.h"

static struct rig rig;
static struct cei_group_call calls[RIG_MAX];

static void make_one_node(void)
{
	rig_make(&rig, 3, 1, 1);
}

/* Processes 0 and 1 on one node, 2 and 3 on the other. */
static void make_two_nodes(void)
{
	rig_make(&rig, 4, 2, 1);
}

static void make_unsure(void)
{
	rig_make(&rig, 4, 2, 0);
}

static void finish(void)
{
	rig_free(&rig);
}

static void all_but(uint32_t who)
{
	uint32_t i;

	for (i = 0; i < rig.n; i++)
		if (i != who)
			rig_barrier(&rig, i, &calls[i], 5 * TESTING_SECOND);
}

static void assert_ends(uint32_t who, int result)
{
	ck_assert_int_eq(calls[who].is_ended, 1);
	ck_assert_int_eq(calls[who].result, result);
}

/* --- barriers ------------------------------------------------------------------------- */

START_TEST(test_a_barrier_passes_when_all_have_called)
{
	uint32_t i, round;

	for (round = 0; round < 3; round++) {
		all_but(round);
		for (i = 0; i < rig.n; i++)
			ck_assert_int_eq(i != round && calls[i].is_ended, 0);
		rig_barrier(&rig, round, &calls[round], TESTING_SECOND);
		for (i = 0; i < rig.n; i++)
			assert_ends(i, 0);
	}
}
END_TEST

START_TEST(test_a_deadline_names_who_is_missing_and_the_barrier_goes_on)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		rig_barrier(&rig, i, &calls[i], 50 * TESTING_MS);
	rig_wait(&rig, 50 * TESTING_MS);
	for (i = 0; i < 2; i++) {
		assert_ends(i, CEOV_ERR_TIMEOUT);
		ck_assert_uint_eq(calls[i].blame, 2);
	}
	rig_barrier(&rig, 2, &calls[2], TESTING_SECOND);
	assert_ends(2, 0);
	rig_barrier(&rig, 0, &calls[0], TESTING_SECOND);
	assert_ends(0, 0);              /* it passed meanwhile */
	rig_barrier(&rig, 0, &calls[0], TESTING_SECOND);
	ck_assert_int_eq(calls[0].is_ended, 0);
	rig_wait(&rig, TESTING_SECOND);
}
END_TEST

/* Its call was heard, and nobody hears anything else through it. */
START_TEST(test_a_leader_of_the_only_node_is_not_missed_where_it_has_called)
{
	struct cei_group_call leave = { .deadline_ns = TESTING_SECOND };
	uint32_t i;

	rig_barrier(&rig, 0, &calls[0], 50 * TESTING_MS);
	rig_wait(&rig, 50 * TESTING_MS);
	assert_ends(0, CEOV_ERR_TIMEOUT);
	cei_group_leave(rig.groups[0], &leave);
	rig_run(&rig);
	ck_assert_int_eq(rig.gone[1][0], CEI_GROUP_DEPARTED);
	all_but(0);
	for (i = 1; i < 3; i++)
		assert_ends(i, 0);
	rig_barrier(&rig, 1, &calls[1], TESTING_SECOND);
	assert_ends(1, CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(calls[1].blame, 0);
}
END_TEST

START_TEST(test_a_rank_of_another_node_that_is_late_is_named_after_a_second)
{
	uint32_t i;

	all_but(3);
	rig_wait(&rig, 5 * TESTING_SECOND);
	for (i = 0; i < 3; i++) {
		assert_ends(i, CEOV_ERR_TIMEOUT);
		ck_assert_uint_eq(calls[i].blame, 3);
	}
}
END_TEST

/* Also where the carrier has no room for either at first. */
START_TEST(test_a_drop_is_counted_before_a_barrier_that_follows_it)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	rig.is_full[1][0] = 1;
	rig_barrier(&rig, 1, &calls[1], TESTING_SECOND);
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_barrier(&rig, 0, &calls[0], TESTING_SECOND);
	rig_barrier(&rig, 2, &calls[2], TESTING_SECOND);
	ck_assert_int_eq(calls[0].is_ended, 0);
	rig.is_full[1][0] = 0;
	cei_group_ready(rig.groups[1], 0);
	rig_run(&rig);
	assert_ends(0, 0);
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 0);
}
END_TEST

/* Two messages of a lossy carrier: the barrier waits until the drop was heard. */
START_TEST(test_a_barrier_does_not_overtake_a_drop)
{
	struct rig_find find;
	uint32_t i;

	rig_export(&rig, 0, "a");
	rig_find(&rig, 1, &find, 0, "a");
	rig.is_held[1][0] = 1;
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_barrier(&rig, 1, &calls[1], TESTING_SECOND);
	for (i = 0; i < rig.n_flights; i++)
		ck_assert_uint_ne(rig.flights[i].message.type, CEI_GROUP_BARRIER);
	rig.is_held[1][0] = 0;
	rig_run(&rig);
	rig_barrier(&rig, 0, &calls[0], TESTING_SECOND);
	rig_barrier(&rig, 2, &calls[2], TESTING_SECOND);
	rig_barrier(&rig, 3, &calls[3], TESTING_SECOND);
	assert_ends(0, 0);
}
END_TEST

START_TEST(test_a_full_carrier_delays_only_who_waits_for_it)
{
	struct rig_find find;

	rig_export(&rig, 1, "a");
	rig.is_full[0][2] = 1;
	rig_barrier(&rig, 0, &calls[0], TESTING_SECOND);
	rig_find(&rig, 0, &find, 1, "a");
	ck_assert_int_eq(find.call.result, 0);
	rig.is_full[0][2] = 0;
	cei_group_ready(rig.groups[0], 2);
	rig_run(&rig);
	rig_barrier(&rig, 1, &calls[1], TESTING_SECOND);
	rig_barrier(&rig, 2, &calls[2], TESTING_SECOND);
	assert_ends(0, 0);
}
END_TEST

/* --- losses ------------------------------------------------------------------------------ */

START_TEST(test_a_death_ends_barriers_on_all_nodes_and_is_blamed)
{
	uint32_t i;

	all_but(3);
	rig_kill(&rig, 3);
	for (i = 0; i < 3; i++) {
		assert_ends(i, CEOV_ERR_PEER_LOST);
		ck_assert_uint_eq(calls[i].blame, 3);
		ck_assert_int_eq(rig.gone[i][3], CEI_GROUP_LOST);
	}
}
END_TEST

/* The dead one led its node: another one speaks for it. */
START_TEST(test_the_death_of_a_leader_is_told_to_other_nodes)
{
	uint32_t i;

	rig_kill(&rig, 2);
	for (i = 0; i < rig.n; i++)
		ck_assert_int_eq(rig.gone[i][2], i == 2 ? CEI_GROUP_UP : CEI_GROUP_LOST);
	rig_kill(&rig, 0);
	ck_assert_int_eq(rig.gone[3][0], CEI_GROUP_LOST);
	ck_assert_int_eq(rig.gone[1][0], CEI_GROUP_LOST);
}
END_TEST

/* Each has told the other node's leader, which cannot hear it any more. */
START_TEST(test_the_deaths_of_two_leaders_at_once_are_told)
{
	uint32_t i;

	for (i = 0; i < rig.n; i++)
		rig.is_held[i][0] = rig.is_held[0][i] = 1;
	rig_kill(&rig, 2);
	rig_kill(&rig, 0);
	rig_wait(&rig, 3 * TESTING_SECOND);
	for (i = 1; i < rig.n; i += 2) {
		ck_assert_int_eq(rig.gone[i][0], CEI_GROUP_LOST);
		ck_assert_int_eq(rig.gone[i][2], CEI_GROUP_LOST);
		ck_assert_uint_eq(cei_group_n_owed(rig.groups[i]), 0);
	}
}
END_TEST

/* What is said again is no more than the first time: an answer to that would count for all. */
START_TEST(test_news_that_come_while_others_are_not_answered_are_told)
{
	rig.is_held[1][0] = 1;
	cei_group_down(rig.groups[0], 3, "the test says so", 0);
	rig_run(&rig);
	rig.is_full[0][1] = 1;
	cei_group_down(rig.groups[0], 2, "the test says so", 0);
	rig_wait(&rig, 200 * TESTING_MS);
	ck_assert_int_eq(rig.gone[1][3], CEI_GROUP_LOST);
	ck_assert_int_eq(rig.gone[1][2], CEI_GROUP_UP);
	rig.is_held[1][0] = 0;
	rig_run(&rig);
	rig.is_full[0][1] = 0;
	cei_group_ready(rig.groups[0], 1);
	rig_wait(&rig, 200 * TESTING_MS);
	ck_assert_int_eq(rig.gone[1][2], CEI_GROUP_LOST);
}
END_TEST

START_TEST(test_a_loss_is_told_upwards_when_nothing_lands_any_more)
{
	struct rig_find find;

	rig_export(&rig, 1, "a");
	rig.stays_loud = 1;
	rig_kill(&rig, 1);
	ck_assert_uint_eq(rig.gave_up[0][1], 1);
	ck_assert_int_eq(rig.gone[0][1], CEI_GROUP_UP);
	rig_find(&rig, 0, &find, 1, "a");
	ck_assert_int_eq(find.call.result, CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(find.call.has_departed, 0);
	cei_group_quiet(rig.groups[0], 1);
	rig_run(&rig);
	ck_assert_int_eq(rig.gone[0][1], CEI_GROUP_LOST);
}
END_TEST

START_TEST(test_a_far_process_that_is_awaited_and_silent_is_lost)
{
	struct rig_find find;

	rig.is_held[2][0] = 1;
	rig_find(&rig, 0, &find, 2, "a");
	rig_wait(&rig, 900 * TESTING_MS);
	ck_assert_int_eq(find.call.is_ended, 0);
	rig_wait(&rig, 200 * TESTING_MS);
	ck_assert_int_eq(find.call.result, CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(find.call.blame, 2);
	ck_assert_int_eq(cei_group_is_expelled(rig.groups[2]), 1);
}
END_TEST

START_TEST(test_who_is_not_awaited_may_be_silent_and_who_is_near_too)
{
	struct rig_find find;

	rig.is_held[1][0] = 1;
	rig_find(&rig, 0, &find, 1, "a");
	rig_wait(&rig, 60 * TESTING_SECOND);
	ck_assert_int_eq(find.call.result, CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_UP);
}
END_TEST

/* An await makes it be asked, whether or not anything else is said. */
START_TEST(test_a_process_that_is_awaited_is_asked_whether_it_is_there)
{
	cei_group_await(rig.groups[0], 2, 1);
	rig_wait(&rig, 5 * TESTING_SECOND);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_UP);
	ck_assert_uint_gt(rig.n_sent[2], 10);
	rig.is_held[2][0] = 1;
	rig_wait(&rig, 2 * TESTING_SECOND);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_LOST);
}
END_TEST

/* What is sent on a sure carrier counts as heard, but not as a sign of life. */
START_TEST(test_raises_to_a_silent_process_do_not_hide_its_silence)
{
	struct rig_find find;
	uint32_t i;

	rig_export(&rig, 2, "a");
	rig_find(&rig, 0, &find, 2, "a");
	cei_group_await(rig.groups[0], 2, 1);
	rig.is_held[2][0] = 1;
	for (i = 0; i < 20; i++) {
		(void)cei_group_raise(rig.groups[0], 2, find.call.use, 0, i + 1);
		rig_wait(&rig, 100 * TESTING_MS);
	}
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_LOST);
}
END_TEST

/* It does not take what it is to be asked. */
START_TEST(test_an_awaited_process_whose_carrier_has_no_room_is_lost)
{
	rig.is_full[0][2] = 1;
	cei_group_await(rig.groups[0], 2, 1);
	rig_wait(&rig, 900 * TESTING_MS);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_UP);
	rig_wait(&rig, 600 * TESTING_MS);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_LOST);
}
END_TEST

/* That it was to be asked long ago is no sign that this process stood still. */
START_TEST(test_a_new_await_does_not_excuse_a_silent_process)
{
	rig_wait(&rig, 60 * TESTING_SECOND);
	rig.is_held[2][0] = 1;
	cei_group_await(rig.groups[0], 2, 1);
	rig_wait(&rig, 900 * TESTING_MS);
	cei_group_await(rig.groups[0], 3, 1);
	rig_wait(&rig, 400 * TESTING_MS);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_LOST);
}
END_TEST

/* Process 2 also begins to use it later. Process 1 is of the own node. */
START_TEST(test_users_are_awaited_while_this_process_waits_for_them)
{
	struct rig_find finds[3];

	rig_export(&rig, 0, "a");
	rig_find(&rig, 1, &finds[0], 0, "a");
	rig_find(&rig, 3, &finds[1], 0, "a");
	rig.is_held[1][0] = rig.is_held[3][0] = 1;
	rig_wait(&rig, 5 * TESTING_SECOND);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 3), CEI_GROUP_UP);
	cei_group_await_users(rig.groups[0], 1);
	rig_wait(&rig, 2 * TESTING_SECOND);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 3), CEI_GROUP_LOST);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);

	rig_find(&rig, 2, &finds[2], 0, "a");
	rig_wait(&rig, 2 * TESTING_SECOND);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_UP);
	rig.is_held[2][0] = 1;
	rig_wait(&rig, 900 * TESTING_MS);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_UP);
	rig_wait(&rig, 220 * TESTING_MS);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_LOST);
}
END_TEST

/* Only who may have to await users is to be called, and says nothing before it does. */
START_TEST(test_whether_users_are_awaited_is_asked_while_there_are_some)
{
	uint64_t tenth_ns = TESTING_SECOND / 10;
	struct rig_find near, far;
	uint32_t n_sent;

	rig_export(&rig, 0, "a");
	rig_find(&rig, 1, &near, 0, "a");
	rig_wait(&rig, TESTING_SECOND);
	ck_assert_uint_eq(cei_group_due(rig.groups[0]), CEI_FOREVER);
	rig_find(&rig, 3, &far, 0, "a");
	rig_wait(&rig, TESTING_SECOND);
	n_sent = rig.n_sent[0];
	rig_wait(&rig, TESTING_SECOND);
	ck_assert_uint_le(cei_group_due(rig.groups[0]), rig.now_ns + tenth_ns);
	ck_assert_uint_eq(rig.n_sent[0], n_sent);
	cei_group_await_users(rig.groups[0], 1);
	rig_wait(&rig, TESTING_SECOND);
	ck_assert_uint_gt(rig.n_sent[0], n_sent);
	cei_group_await_users(rig.groups[0], 0);
	n_sent = rig.n_sent[0];
	cei_group_drop(rig.groups[3], 0, far.call.use);
	rig_wait(&rig, TESTING_SECOND);
	ck_assert_uint_le(rig.n_sent[0], n_sent + 1);   /* the answer to the drop */
	ck_assert_uint_eq(cei_group_due(rig.groups[0]), CEI_FOREVER);
}
END_TEST

START_TEST(test_a_process_that_stood_still_accuses_nobody)
{
	struct rig_find find;

	rig.is_held[2][0] = 1;
	rig_find(&rig, 0, &find, 2, "a");
	rig.now_ns += 3 * TESTING_SECOND;
	cei_group_time(rig.groups[0], rig.now_ns);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 2), CEI_GROUP_UP);
	rig.is_held[2][0] = 0;
	rig_run(&rig);
	ck_assert_int_eq(find.call.result, CEOV_NONE);
}
END_TEST

/* The link ends without a farewell, and the other process lives: it has given up this one. */
START_TEST(test_who_is_refused_has_been_given_up_and_accuses_nobody)
{
	uint32_t i;

	rig_barrier(&rig, 0, &calls[0], 5 * TESTING_SECOND);
	cei_group_down(rig.groups[0], 1, "refused", 1);
	rig_run(&rig);
	assert_ends(0, CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_group_is_expelled(rig.groups[0]), 1);
	for (i = 1; i < rig.n; i++) {
		ck_assert_int_eq(rig.gone[0][i], CEI_GROUP_LOST);
		ck_assert_int_eq(cei_group_life(rig.groups[1], i), CEI_GROUP_UP);
	}
}
END_TEST

/* --- farewells ------------------------------------------------------------------------------ */

static void leave(uint32_t who, struct cei_group_call *call)
{
	memset(call, 0, sizeof(*call));
	call->deadline_ns = rig.now_ns + TESTING_SECOND;
	cei_group_leave(rig.groups[who], call);
	rig_run(&rig);
}

START_TEST(test_who_closes_in_order_is_not_lost)
{
	struct cei_group_call call;
	struct rig_find find;

	leave(1, &call);
	ck_assert_int_eq(call.is_ended && !call.result, 1);
	ck_assert_int_eq(rig.gone[0][1], CEI_GROUP_DEPARTED);
	rig_find(&rig, 0, &find, 1, "a");
	ck_assert_int_eq(find.call.result, CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(find.call.has_departed, 1);
	cei_group_down(rig.groups[1], 0, "it closes, too", 0);
	rig_run(&rig);
	ck_assert_int_ne(rig.gone[1][0], CEI_GROUP_LOST);
}
END_TEST

/* One that has not been answered, one that begins during the farewell, and one after it, to a
 * process that was not talked to before. */
START_TEST(test_finds_end_at_once_when_their_process_leaves)
{
	struct rig_find finds[3];
	struct cei_group_call call;
	uint32_t i;

	rig.is_held[0][1] = 1;
	rig_find(&rig, 0, &finds[0], 1, "a");
	leave(0, &call);
	rig_find(&rig, 0, &finds[1], 1, "a");
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(finds[i].call.is_ended && finds[i].call.result == CEOV_ERR_STATE,
				 1);
	rig.is_held[0][1] = 0;
	rig_wait(&rig, TESTING_SECOND);
	ck_assert_int_eq(call.is_ended, 1);
	rig_find(&rig, 0, &finds[2], 2, "a");
	ck_assert_int_eq(finds[2].call.result, CEOV_ERR_STATE);
	ck_assert_uint_eq(rig.n_flights, 0);
	ck_assert_int_eq(rig.gone[1][0], CEI_GROUP_DEPARTED);
}
END_TEST

START_TEST(test_a_barrier_fails_that_a_closed_process_has_not_called)
{
	struct cei_group_call call;
	uint32_t i;

	all_but(RIG_MAX);
	leave(3, &call);
	for (i = 0; i < 3; i++)
		rig_barrier(&rig, i, &calls[i], 5 * TESTING_SECOND);
	for (i = 0; i < 3; i++) {
		assert_ends(i, CEOV_ERR_PEER_LOST);
		ck_assert_uint_eq(calls[i].blame, 3);
	}
}
END_TEST

START_TEST(test_a_barrier_passes_that_a_closed_process_has_called)
{
	struct cei_group_call call;
	uint32_t i;

	rig_barrier(&rig, 3, &calls[3], 20 * TESTING_MS);
	rig_wait(&rig, 20 * TESTING_MS);
	leave(3, &call);
	for (i = 0; i < 3; i++)
		rig_barrier(&rig, i, &calls[i], 5 * TESTING_SECOND);
	for (i = 0; i < 3; i++)
		assert_ends(i, 0);
}
END_TEST

/* Others hear of a barrier through the leader. */
START_TEST(test_a_barrier_fails_whose_leader_closes_before_it_has_passed)
{
	struct cei_group_call call;
	uint32_t i;

	all_but(RIG_MAX);
	rig_barrier(&rig, 2, &calls[2], 20 * TESTING_MS);
	rig_wait(&rig, 20 * TESTING_MS);
	leave(2, &call);
	for (i = 0; i < 4; i++)
		if (i != 2)
			rig_barrier(&rig, i, &calls[i], 5 * TESTING_SECOND);
	for (i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		assert_ends(i, CEOV_ERR_PEER_LOST);
		ck_assert_uint_eq(calls[i].blame, 2);
	}
}
END_TEST

START_TEST(test_the_farewell_is_the_last_thing_that_is_said_to_anybody)
{
	struct cei_group_call call;

	rig.is_full[0][1] = 1;
	rig_barrier(&rig, 0, &calls[0], 20 * TESTING_MS);
	rig_wait(&rig, 20 * TESTING_MS);
	leave(0, &call);
	ck_assert_uint_ne(rig.last[0][2].message.type, CEI_GROUP_BYE);
	rig.is_full[0][1] = 0;
	cei_group_ready(rig.groups[0], 1);
	rig_run(&rig);
	ck_assert_uint_eq(rig.last[0][1].message.type, CEI_GROUP_BYE);
	ck_assert_uint_eq(rig.last[0][2].message.type, CEI_GROUP_BYE);
	ck_assert_int_eq(call.is_ended && !call.result, 1);
}
END_TEST

/* Others hear it after half of the time. */
START_TEST(test_who_does_not_read_keeps_nobody_else_from_hearing_a_farewell)
{
	struct cei_group_call call;

	rig.is_full[2][1] = 1;
	rig_barrier(&rig, 2, &calls[2], 20 * TESTING_MS);
	rig_wait(&rig, 20 * TESTING_MS);
	leave(2, &call);
	rig_wait(&rig, TESTING_SECOND);
	ck_assert_int_eq(call.result, CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(rig.gone[0][2], CEI_GROUP_DEPARTED);
	/* nor does one wait for what was not said in time */
	rig_barrier(&rig, 1, &calls[1], 5 * TESTING_SECOND);
	rig_barrier(&rig, 0, &calls[0], 5 * TESTING_SECOND);
	assert_ends(1, CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(calls[1].blame, 2);
	assert_ends(0, 0);
}
END_TEST

/* --- lies ------------------------------------------------------------------------------- */

START_TEST(test_who_lies_is_given_up)
{
	static const struct cei_group_message lies[] = {
		{ .type = CEI_GROUP_FIND, .number = 1, .find = { 2, "a" } },
		{ .type = CEI_GROUP_FIND, .number = 1, .find = { 99, "a" } },
		{ .type = CEI_GROUP_FIND, .number = 1, .find = { 0, "" } },
		{ .type = CEI_GROUP_FIND, .find = { 0, "a" } },
		{ .type = CEI_GROUP_REPLY, .reply = { .use = 7, .result = CEOV_NONE } },
		{ .type = CEI_GROUP_DROP, .number = 1, .use = { 7, 0 } },
		{ .type = CEI_GROUP_RENEW, .number = 1, .use = { 7, 2 } },
		{ .type = CEI_GROUP_BARRIER, .number = 1, .barrier = { 2, 0 } },
		{ .type = CEI_GROUP_BARRIER, .number = 1, .barrier = { 0, 0 } },
		{ .type = CEI_GROUP_BARRIER, .number = 1, .barrier = { 1, 1 } },
		{ .type = CEI_GROUP_BARRIER, .number = 1, .barrier = { 1, CEI_GROUP_STEP_ALL } },
		{ .type = CEI_GROUP_BARRIER, .number = 1, .barrier = { 1, 400 } },
		{ .type = CEI_GROUP_LATE, .number = 1, .said = { 1, 99 } },
		{ .type = CEI_GROUP_LATE, .number = 1, .said = { 2, 1 } },
		{ .type = CEI_GROUP_LIMIT, .number = 1, .said = { 0, 99 } },
		{ .type = CEI_GROUP_BYE, .number = 1, .said = { 0, 99 } },
		{ .type = CEI_GROUP_GONE, .number = 1, .gone = { 1, { 99 } } },
		{ .type = CEI_GROUP_ACK, .number = 7 },
		{ .type = 77, .number = 1 },
	};

	rig_tell(&rig, 1, 0, &lies[_i]);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_LOST);
	ck_assert_uint_eq(rig.gave_up[0][1], 1);
	ck_assert_int_eq(rig.gone[2][1], CEI_GROUP_LOST);
}
END_TEST

static void add_barriers(Suite *made, TCase *one, TCase *two, TCase *unsure)
{
	tcase_add_test(one, test_a_barrier_passes_when_all_have_called);
	tcase_add_test(two, test_a_barrier_passes_when_all_have_called);
	tcase_add_test(unsure, test_a_barrier_passes_when_all_have_called);
	tcase_add_test(one, test_a_deadline_names_who_is_missing_and_the_barrier_goes_on);
	tcase_add_test(one, test_a_leader_of_the_only_node_is_not_missed_where_it_has_called);
	tcase_add_test(two, test_a_rank_of_another_node_that_is_late_is_named_after_a_second);
	tcase_add_test(unsure, test_a_rank_of_another_node_that_is_late_is_named_after_a_second);
	tcase_add_test(one, test_a_drop_is_counted_before_a_barrier_that_follows_it);
	tcase_add_test(unsure, test_a_barrier_does_not_overtake_a_drop);
	tcase_add_test(one, test_a_full_carrier_delays_only_who_waits_for_it);
	suite_add_tcase(made, one);
	suite_add_tcase(made, two);
	suite_add_tcase(made, unsure);
}

static void add_life(TCase *one, TCase *two, TCase *unsure)
{
	tcase_add_test(two, test_a_death_ends_barriers_on_all_nodes_and_is_blamed);
	tcase_add_test(unsure, test_a_death_ends_barriers_on_all_nodes_and_is_blamed);
	tcase_add_test(two, test_the_death_of_a_leader_is_told_to_other_nodes);
	tcase_add_test(two, test_the_deaths_of_two_leaders_at_once_are_told);
	tcase_add_test(unsure, test_the_deaths_of_two_leaders_at_once_are_told);
	tcase_add_test(unsure, test_news_that_come_while_others_are_not_answered_are_told);
	tcase_add_test(one, test_a_loss_is_told_upwards_when_nothing_lands_any_more);
	tcase_add_test(two, test_a_far_process_that_is_awaited_and_silent_is_lost);
	tcase_add_test(unsure, test_a_far_process_that_is_awaited_and_silent_is_lost);
	tcase_add_test(two, test_who_is_not_awaited_may_be_silent_and_who_is_near_too);
	tcase_add_test(two, test_a_process_that_is_awaited_is_asked_whether_it_is_there);
	tcase_add_test(two, test_raises_to_a_silent_process_do_not_hide_its_silence);
	tcase_add_test(two, test_an_awaited_process_whose_carrier_has_no_room_is_lost);
	tcase_add_test(unsure, test_an_awaited_process_whose_carrier_has_no_room_is_lost);
	tcase_add_test(two, test_a_new_await_does_not_excuse_a_silent_process);
	tcase_add_test(two, test_users_are_awaited_while_this_process_waits_for_them);
	tcase_add_test(unsure, test_users_are_awaited_while_this_process_waits_for_them);
	tcase_add_test(two, test_whether_users_are_awaited_is_asked_while_there_are_some);
	tcase_add_test(unsure, test_whether_users_are_awaited_is_asked_while_there_are_some);
	tcase_add_test(two, test_a_process_that_stood_still_accuses_nobody);
	tcase_add_test(two, test_who_is_refused_has_been_given_up_and_accuses_nobody);
	tcase_add_test(one, test_who_closes_in_order_is_not_lost);
	tcase_add_test(one, test_finds_end_at_once_when_their_process_leaves);
	tcase_add_test(unsure, test_finds_end_at_once_when_their_process_leaves);
	tcase_add_test(two, test_a_barrier_fails_that_a_closed_process_has_not_called);
	tcase_add_test(unsure, test_a_barrier_fails_that_a_closed_process_has_not_called);
	tcase_add_test(two, test_a_barrier_passes_that_a_closed_process_has_called);
	tcase_add_test(two, test_a_barrier_fails_whose_leader_closes_before_it_has_passed);
	tcase_add_test(one, test_the_farewell_is_the_last_thing_that_is_said_to_anybody);
	tcase_add_test(one, test_who_does_not_read_keeps_nobody_else_from_hearing_a_farewell);
	tcase_add_loop_test(one, test_who_lies_is_given_up, 0, 19);
}

static Suite *suite(void)
{
	Suite *made = suite_create("group_life");
	TCase *one = tcase_create("one_node"), *two = tcase_create("two_nodes");
	TCase *unsure = tcase_create("unsure");

	tcase_add_checked_fixture(one, make_one_node, finish);
	tcase_add_checked_fixture(two, make_two_nodes, finish);
	tcase_add_checked_fixture(unsure, make_unsure, finish);
	add_barriers(made, one, two, unsure);
	add_life(one, two, unsure);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
