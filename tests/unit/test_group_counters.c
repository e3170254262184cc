/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Counters and aborts of signals in the state machine of a group: process 0 has a signal, which
 * process 1 on another node has found. */

#include <stdatomic.h>
#include <string.h>

#include "group_rig.h"
#include "testing.h"

#define WORDS 2u

static struct rig rig;
static _Atomic uint64_t counters[WORDS], image[WORDS];
static uint32_t id;
static struct rig_find find;

static void make(int is_sure)
{
	struct cei_group_export export = { .rank = 0, .name = "s", .words = counters,
					   .n_words = WORDS };

	rig_make(&rig, 2, 2, is_sure);
	memset(counters, 0, sizeof(counters));
	memset(image, 0, sizeof(image));
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), 0);
	rig_find(&rig, 1, &find, 0, "s");
	ck_assert_int_eq(find.call.result, 0);
	ck_assert_int_eq(cei_group_watch(rig.groups[1], 0, find.call.use, image, WORDS), 0);
}

static void make_sure(void)
{
	make(1);
}

static void make_unsure(void)
{
	make(0);
}

static void finish(void)
{
	cei_group_forget(rig.groups[1], 0, find.call.use);
	rig_free(&rig);
}

static int raise(uint32_t index, uint64_t value)
{
	int r = cei_group_raise(rig.groups[1], 0, find.call.use, index, value);

	rig_run(&rig);
	return r;
}

static void ask(uint64_t value)
{
	cei_group_ask(rig.groups[1], 0, find.call.use, 0, value);
	rig_run(&rig);
}

static void look(void)
{
	(void)cei_group_look(rig.groups[0]);
	rig_run(&rig);
}

static void renew(struct cei_group_call *call)
{
	memset(call, 0, sizeof(*call));
	call->deadline_ns = rig.now_ns + TESTING_SECOND;
	cei_group_renew(rig.groups[0], call, id);
	rig_run(&rig);
}

/* --- raising --------------------------------------------------------------------------- */

START_TEST(test_a_counter_is_raised_at_its_owner)
{
	ck_assert_int_eq(raise(1, 5), 0);
	ck_assert_uint_eq(counters[1], 5);
	ck_assert_int_eq(raise(1, 3), 0);
	ck_assert_uint_eq(counters[1], 5);
	ck_assert_int_eq(raise(7, 1), 0);
	ck_assert_int_eq(cei_group_life(rig.groups[1], 0), CEI_GROUP_UP);
}
END_TEST

/* However often it is raised, and whatever the carrier takes. */
START_TEST(test_raises_that_wait_do_not_grow)
{
	uint32_t i;

	rig.is_full[1][0] = 1;
	for (i = 1; i <= 1000; i++)
		ck_assert_int_eq(raise(0, i), 0);
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[1]), 1);
	rig.is_full[1][0] = 0;
	cei_group_ready(rig.groups[1], 0);
	rig_run(&rig);
	ck_assert_uint_eq(counters[0], 1000);
}
END_TEST

START_TEST(test_a_raise_is_not_lost_by_the_drop_behind_it)
{
	rig.is_full[1][0] = 1;
	ck_assert_int_eq(raise(0, 9), 0);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), CEOV_PENDING);
	cei_group_forget(rig.groups[1], 0, find.call.use);
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_run(&rig);
	rig.is_full[1][0] = 0;
	cei_group_ready(rig.groups[1], 0);
	rig_run(&rig);
	ck_assert_uint_eq(counters[0], 9);
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 0);
}
END_TEST

START_TEST(test_who_is_lost_is_not_raised)
{
	cei_group_down(rig.groups[1], 0, "the test says so", 0);
	ck_assert_int_eq(raise(0, 1), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_group_raise(rig.groups[1], 0, 4711, 0, 1), CEOV_ERR_INVALID);
}
END_TEST

/* --- asking ------------------------------------------------------------------------------- */

START_TEST(test_changes_are_told_until_the_value_is_reached)
{
	ask(5);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 1);
	counters[0] = 3;
	look();
	ck_assert_uint_eq(image[0], 3);
	counters[0] = 6;
	look();
	ck_assert_uint_eq(image[0], 6);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
	counters[0] = 7;
	look();
	ck_assert_uint_eq(image[0], 6);
}
END_TEST

START_TEST(test_a_value_that_is_there_is_told_at_once)
{
	counters[0] = 8;
	ask(5);
	ck_assert_uint_eq(image[0], 8);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
}
END_TEST

/* An abort has a message of its own. */
START_TEST(test_poison_is_not_told)
{
	ask(5);
	counters[0] = CEOV_VALUE_LIMIT;
	look();
	ck_assert_uint_eq(image[0], 0);
}
END_TEST

START_TEST(test_an_owner_that_is_asked_and_silent_is_lost)
{
	ask(5);
	rig.is_held[0][1] = 1;
	rig_wait(&rig, 3 * TESTING_SECOND);
	ck_assert_int_eq(rig.gone[1][0], CEI_GROUP_LOST);
}
END_TEST

START_TEST(test_listeners_of_a_lost_process_end)
{
	ask(5);
	cei_group_down(rig.groups[0], 1, "the test says so", 0);
	rig_run(&rig);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
}
END_TEST

static void drop(uint64_t use)
{
	cei_group_forget(rig.groups[1], 0, use);
	cei_group_drop(rig.groups[1], 0, use);
	rig_run(&rig);
}

START_TEST(test_listeners_end_with_the_last_use_of_their_process)
{
	struct rig_find other;

	rig_find(&rig, 1, &other, 0, "s");
	ask(5);
	drop(other.call.use);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 1);
	drop(find.call.use);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
}
END_TEST

START_TEST(test_no_question_behind_the_last_drop_has_a_listener)
{
	rig.is_full[1][0] = 1;
	ask(5);
	drop(find.call.use);
	rig.is_full[1][0] = 0;
	cei_group_ready(rig.groups[1], 0);
	rig_run(&rig);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[1]), 0);
}
END_TEST

/* It came again behind the drop, and was answered late. */
START_TEST(test_what_was_asked_before_the_last_drop_is_asked_anew)
{
	struct cei_group_message question, answer = { .type = CEI_GROUP_ACK };

	rig.is_held[0][1] = 1;
	ask(5);
	question = rig.last[1][0].message;
	ck_assert_uint_eq(question.type, CEI_GROUP_ASK);
	answer.number = question.number;
	drop(find.call.use);
	rig_tell(&rig, 1, 0, &question);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
	rig.n_flights = 0;
	rig.is_held[0][1] = 0;
	rig_find(&rig, 1, &find, 0, "s");
	ck_assert_int_eq(find.call.result, 0);
	ck_assert_int_eq(cei_group_watch(rig.groups[1], 0, find.call.use, image, WORDS), 0);
	cei_group_ask(rig.groups[1], 0, find.call.use, 0, 5);
	rig_tell(&rig, 0, 1, &answer);
	counters[0] = 5;
	look();
	ck_assert_uint_eq(image[0], 5);
}
END_TEST

/* --- generations ---------------------------------------------------------------------------- */

START_TEST(test_a_raise_of_an_older_generation_is_ignored)
{
	struct cei_group_message late;
	struct cei_group_call call;

	raise(0, 5);
	late = rig.last[1][0].message;
	ck_assert_uint_eq(late.type, CEI_GROUP_RAISE);
	renew(&call);
	ck_assert_int_eq(call.is_ended && !call.result, 1);
	counters[0] = 0;
	rig_tell(&rig, 1, 0, &late);
	ck_assert_uint_eq(counters[0], 0);
	raise(0, 2);
	ck_assert_uint_eq(counters[0], 2);
}
END_TEST

START_TEST(test_a_renewal_ends_what_was_asked_for)
{
	struct cei_group_call call;

	ask(5);
	renew(&call);
	ck_assert_int_eq(cei_group_has_listeners(rig.groups[0]), 0);
	counters[0] = 4;
	ask(4);
	ck_assert_uint_eq(image[0], 4);
}
END_TEST

/* --- aborts ------------------------------------------------------------------------------ */

static void abort_at(uint32_t who)
{
	struct cei_group_abort abort = { .error = CEOV_ERR_TIMEOUT, .blame = 1, .n = 2,
					 .signals = { { 0, id, 0 }, { 0, 4711, 0 } } };

	ck_assert_int_eq(cei_group_abort(rig.groups[who], &abort), 0);
	rig_run(&rig);
}

START_TEST(test_an_abort_is_told_to_finders_and_to_the_owner)
{
	struct cei_group_signal signals[CEI_GROUP_SIGNALS_MAX];
	uint32_t who;

	for (who = 0; who < 2; who++) {
		abort_at(who);
		ck_assert_uint_eq(rig.n_aborted[1 - who], 1);
		ck_assert_uint_eq(rig.aborted[1 - who].n, 1);
		ck_assert_int_eq(rig.aborted[1 - who].error, CEOV_ERR_TIMEOUT);
		ck_assert_uint_eq(cei_group_still_aborted(rig.groups[1 - who],
							  &rig.aborted[1 - who], signals), 1);
		ck_assert_uint_eq(signals[0].id, id);
	}
}
END_TEST

START_TEST(test_an_abort_of_an_older_generation_does_not_count)
{
	struct cei_group_signal signals[CEI_GROUP_SIGNALS_MAX];
	struct cei_group_call call;

	abort_at(1);
	renew(&call);
	ck_assert_uint_eq(cei_group_still_aborted(rig.groups[0], &rig.aborted[0], signals), 0);
}
END_TEST

/* They come faster than the layer above takes them. */
START_TEST(test_who_tells_too_many_aborts_is_given_up)
{
	struct cei_group_message abort = { .type = CEI_GROUP_ABORT, .abort = {
		.error = CEOV_ERR_PEER_LOST, .n = 1, .signals = { { 0, id, 1 } } } };

	for (abort.number = 1; abort.number <= 65; abort.number++) {
		ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);
		ck_assert_int_eq(cei_group_reserve(rig.groups[0]), 0);
		cei_group_received(rig.groups[0], 1, &abort, NULL);
	}
	ck_assert_int_ne(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);
	rig_run(&rig);
	ck_assert_uint_eq(rig.n_aborted[0], 64);
}
END_TEST

START_TEST(test_who_does_not_read_aborts_is_given_up)
{
	uint32_t i;

	rig.is_full[0][1] = 1;
	for (i = 0; i < 100; i++)
		abort_at(0);
	ck_assert_int_eq(rig.gone[0][1], CEI_GROUP_LOST);
	ck_assert_uint_le(cei_group_n_owed(rig.groups[0]), 1);
}
END_TEST

static void add_counters(TCase *all)
{
	tcase_add_test(all, test_a_counter_is_raised_at_its_owner);
	tcase_add_test(all, test_raises_that_wait_do_not_grow);
	tcase_add_test(all, test_a_raise_is_not_lost_by_the_drop_behind_it);
	tcase_add_test(all, test_who_is_lost_is_not_raised);
	tcase_add_test(all, test_changes_are_told_until_the_value_is_reached);
	tcase_add_test(all, test_a_value_that_is_there_is_told_at_once);
	tcase_add_test(all, test_poison_is_not_told);
	tcase_add_test(all, test_an_owner_that_is_asked_and_silent_is_lost);
	tcase_add_test(all, test_listeners_of_a_lost_process_end);
	tcase_add_test(all, test_listeners_end_with_the_last_use_of_their_process);
	tcase_add_test(all, test_no_question_behind_the_last_drop_has_a_listener);
}

static void add_generations(TCase *all)
{
	tcase_add_test(all, test_a_raise_of_an_older_generation_is_ignored);
	tcase_add_test(all, test_a_renewal_ends_what_was_asked_for);
	tcase_add_test(all, test_an_abort_is_told_to_finders_and_to_the_owner);
	tcase_add_test(all, test_an_abort_of_an_older_generation_does_not_count);
	tcase_add_test(all, test_who_does_not_read_aborts_is_given_up);
}

static Suite *suite(void)
{
	Suite *made = suite_create("group_counters");
	TCase *sure = tcase_create("sure"), *unsure = tcase_create("unsure");

	tcase_add_checked_fixture(sure, make_sure, finish);
	tcase_add_checked_fixture(unsure, make_unsure, finish);
	add_counters(sure);
	add_generations(sure);
	add_counters(unsure);
	add_generations(unsure);
	tcase_add_test(sure, test_who_tells_too_many_aborts_is_given_up);
	tcase_add_test(unsure, test_what_was_asked_before_the_last_drop_is_asked_anew);
	suite_add_tcase(made, sure);
	suite_add_tcase(made, unsure);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
