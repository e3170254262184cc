/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what is under way between two processes: numbers, the window, held marks, silence. */

#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "net/far_stream.h"
#include "testing.h"

#define N_ROUNDS 200u
#define N_SENT   1000u

static struct cei_far_out out;
static struct cei_far_in in;

START_TEST(test_the_window_bounds_pieces_and_marks_apart)
{
	uint32_t i;

	cei_far_out_begin(&out, 3, 0, 0);
	for (i = 0; i < 3; i++) {
		ck_assert(cei_far_out_has_room(&out, 1));
		cei_far_out_add(&out, 10, 0);
	}
	ck_assert(!cei_far_out_has_room(&out, 1));
	for (i = 0; i < CEI_FAR_MARKS_UNDER_WAY; i++) {
		ck_assert(cei_far_out_has_room(&out, 0));
		cei_far_out_add(&out, 0, 0);
	}
	ck_assert(!cei_far_out_has_room(&out, 0));
	ck_assert_int_eq(cei_far_out_ack(&out, 1, 0), 0);
	ck_assert(cei_far_out_has_room(&out, 1));
	ck_assert(!cei_far_out_has_room(&out, 0));
	ck_assert_int_eq(cei_far_out_ack(&out, 4, 0), 0);
	ck_assert(cei_far_out_has_room(&out, 0));
}
END_TEST

START_TEST(test_a_piece_is_done_when_it_landed_and_its_source_is_free)
{
	cei_far_out_begin(&out, 0, 0, 0);
	cei_far_out_add(&out, 10, 0);           /* 1: free first */
	cei_far_out_add(&out, 10, 0);           /* 2: landed first */
	cei_far_out_add(&out, 10, 0);           /* 3: neither */
	ck_assert_uint_eq(cei_far_out_bytes(&out), 30);
	cei_far_out_sent(&out, 1);
	ck_assert_uint_eq(out.ended, 0);
	ck_assert_int_eq(cei_far_out_ack(&out, 2, 0), 0);
	ck_assert_uint_eq(out.ended, 1);
	ck_assert_uint_eq(cei_far_out_bytes(&out), 20);
	cei_far_out_sent(&out, 2);
	ck_assert_uint_eq(out.ended, 2);
	ck_assert_uint_eq(cei_far_out_bytes(&out), 10);
	out.is_lost = 1;
	ck_assert(!cei_far_out_has_room(&out, 1));
}
END_TEST

START_TEST(test_acks_that_lie_or_repeat_are_told_apart)
{
	cei_far_out_begin(&out, 0, 0, 0);
	ck_assert_int_eq(cei_far_out_ack(&out, 0, 0), CEOV_NONE);
	ck_assert_int_eq(cei_far_out_ack(&out, 1, 0), CEOV_ERR_INVALID);
	cei_far_out_add(&out, 0, 0);
	ck_assert_int_eq(cei_far_out_ack(&out, 2, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_far_out_ack(&out, UINT64_MAX, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_far_out_ack(&out, 1, 0), 0);
	ck_assert_int_eq(cei_far_out_ack(&out, 1, 0), CEOV_NONE);
	ck_assert_uint_eq(out.n_marks, 0);
}
END_TEST

/* A table with a place for each number under way: a source that is read for long holds places. */
START_TEST(test_numbers_never_run_into_each_other)
{
	uint32_t i;

	cei_far_out_begin(&out, CEI_FAR_WINDOW_MAX, 0, 0);
	cei_far_out_add(&out, 10, 0);
	for (i = 2; i <= CEI_FAR_SPAN; i++) {
		ck_assert(cei_far_out_has_room(&out, 0));
		cei_far_out_add(&out, 0, 0);
		ck_assert_int_eq(cei_far_out_ack(&out, i, 0), 0);
	}
	ck_assert(!cei_far_out_has_room(&out, 0));
	cei_far_out_sent(&out, 1);
	ck_assert(cei_far_out_has_room(&out, 0));
}
END_TEST

static struct cei_far_mark mark(uint64_t sequence, uint64_t after)
{
	struct cei_far_mark made = { .sequence = sequence, .after = after, .value = sequence };

	return made;
}

START_TEST(test_a_mark_is_held_until_everything_before_it_is_done)
{
	struct cei_far_mark three = mark(3, 2), four = mark(4, 1), got;

	in = (struct cei_far_in){ 0 };
	ck_assert_int_eq(cei_far_in_mark(&in, &three), 0);
	ck_assert_int_eq(cei_far_in_mark(&in, &four), 0);
	ck_assert_int_eq(cei_far_in_piece(&in, 2, 10), 0);
	cei_far_in_landed(&in, 2);
	ck_assert(!cei_far_in_raise(&in, &got));
	ck_assert_int_eq(cei_far_in_piece(&in, 1, 10), 0);
	ck_assert(!cei_far_in_raise(&in, &got));
	cei_far_in_landed(&in, 1);
	ck_assert_uint_eq(in.done, 2);
	ck_assert(cei_far_in_raise(&in, &got));
	ck_assert_uint_eq(got.sequence, 3);
	ck_assert(cei_far_in_raise(&in, &got));
	ck_assert_uint_eq(got.sequence, 4);
	ck_assert(!cei_far_in_raise(&in, &got));
	ck_assert_uint_eq(in.done, 4);
	ck_assert_uint_eq(in.n_landed_bytes, 20);
}
END_TEST

/* Its lane has nothing under way, so pieces of other lanes do not hold it up. */
START_TEST(test_a_mark_does_not_wait_for_pieces_of_other_lanes)
{
	struct cei_far_mark two = mark(2, 0), got;

	in = (struct cei_far_in){ 0 };
	ck_assert_int_eq(cei_far_in_piece(&in, 1, 10), 0);
	ck_assert_int_eq(cei_far_in_mark(&in, &two), 0);
	ck_assert(cei_far_in_raise(&in, &got));
	ck_assert_uint_eq(in.done, 0);
	cei_far_in_landed(&in, 1);
	ck_assert_uint_eq(in.done, 2);
}
END_TEST

START_TEST(test_what_came_before_or_cannot_come_is_not_taken)
{
	struct cei_far_mark two = mark(2, 1), far = mark(CEI_FAR_SPAN + 2, 0), got;

	in = (struct cei_far_in){ 0 };
	ck_assert_int_eq(cei_far_in_piece(&in, 1, 10), 0);
	ck_assert_int_eq(cei_far_in_piece(&in, 1, 10), CEOV_NONE);
	cei_far_in_landed(&in, 1);
	ck_assert_int_eq(cei_far_in_piece(&in, 1, 10), CEOV_NONE);
	ck_assert_int_eq(cei_far_in_mark(&in, &two), 0);
	ck_assert_int_eq(cei_far_in_mark(&in, &two), CEOV_NONE);
	ck_assert_int_eq(cei_far_in_mark(&in, &far), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_far_in_piece(&in, UINT64_MAX, 10), CEOV_ERR_INVALID);
	ck_assert_uint_eq(in.n_duplicates, 3);
	ck_assert(cei_far_in_raise(&in, &got));
	ck_assert_int_eq(cei_far_in_mark(&in, &far), 0);
}
END_TEST

/* Both ends, and a network that reorders: everything is done at the end, and no mark early. */
static void exchange(uint64_t *state)
{
	uint32_t n_flying = 0, at;
	uint64_t flying[CEI_FAR_SPAN];          /* numbers in the network; their top bit: has been
						 * offered */
	const uint64_t offered = UINT64_C(1) << 63;
	struct cei_far_mark one;

	cei_far_out_begin(&out, 1 + (uint32_t)testing_below(state, CEI_FAR_WINDOW_MAX), 0, 0);
	in = (struct cei_far_in){ 0 };
	while (out.acked < N_SENT) {
		int is_piece = (int)testing_below(state, 2);

		if (out.next <= N_SENT && cei_far_out_has_room(&out, is_piece)) {
			flying[n_flying++] = out.next;
			cei_far_out_add(&out, (uint64_t)is_piece * 10, 0);
		}
		at = (uint32_t)testing_below(state, CEI_FAR_SPAN);
		if (at < n_flying && out.items[flying[at] % CEI_FAR_SPAN].n_bytes &&
		    !(flying[at] & offered)) {
			ck_assert_int_eq(cei_far_in_piece(&in, flying[at], 10), 0);
			flying[at] |= offered;
		} else if (at < n_flying) {
			uint64_t number = flying[at] & ~offered;

			one = mark(number, testing_below(state, number));
			if (flying[at] & offered) {
				cei_far_out_sent(&out, number % CEI_FAR_SPAN);
				cei_far_in_landed(&in, number % CEI_FAR_SPAN);
			} else {
				ck_assert_int_eq(cei_far_in_mark(&in, &one), 0);
			}
			flying[at] = flying[--n_flying];
		}
		while (cei_far_in_raise(&in, &one))
			ck_assert_uint_le(one.after, in.done);
		if (testing_below(state, 4) == 0)
			ck_assert_int_ge(cei_far_out_ack(&out, in.done, 0), 0);
	}
	ck_assert_uint_eq(out.ended, N_SENT);
	ck_assert_uint_eq(in.n_coming + in.n_held + out.n_pieces + out.n_marks, 0);
}

START_TEST(test_everything_is_done_in_any_order_of_arrival)
{
	uint64_t state = testing_seed();
	uint32_t round;

	for (round = 0; round < N_ROUNDS; round++)
		exchange(&state);
}
END_TEST

START_TEST(test_silence_counts_only_while_something_is_awaited)
{
	struct cei_far_pulse pulse;
	uint64_t now;

	cei_far_pulse_begin(&pulse, 1000, 0);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 0, 100000), CEI_FAR_IDLE);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, 100001), CEI_FAR_MOVING);
	ck_assert(cei_far_pulse_must_ask(&pulse, 100001));
	cei_far_pulse_asked(&pulse, 100001);
	ck_assert(!cei_far_pulse_must_ask(&pulse, 100200));
	ck_assert(cei_far_pulse_must_ask(&pulse, 100201));
	for (now = 100101; now < 101001; now += 100)
		ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, now), CEI_FAR_MOVING);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, 101001), CEI_FAR_GONE);
}
END_TEST

START_TEST(test_answers_without_progress_are_told_from_silence)
{
	struct cei_far_pulse pulse;
	uint64_t now;

	cei_far_pulse_begin(&pulse, 1000, 0);
	(void)cei_far_pulse_look(&pulse, 1, 0);
	for (now = 100; now < 1000; now += 100) {
		cei_far_pulse_heard(&pulse, now);
		ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, now), CEI_FAR_MOVING);
	}
	cei_far_pulse_heard(&pulse, now);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, now), CEI_FAR_STUCK);
	cei_far_pulse_heard(&pulse, now);
	cei_far_pulse_progress(&pulse, 1);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, now + 100), CEI_FAR_MOVING);
	cei_far_pulse_progress(&pulse, 1);
	cei_far_pulse_progress(&pulse, 0);      /* an older beat */
	for (now += 200; now < 2100; now += 100)
		(void)cei_far_pulse_look(&pulse, 1, now);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, 2200), CEI_FAR_GONE);
}
END_TEST

/* Looks every 100 as long as the time is below the end; hears something each time. Returns what the
 * last look says. */
static enum cei_far_health hear(struct cei_far_pulse *pulse, enum cei_far_awaited awaited,
				uint64_t *now, uint64_t end)
{
	enum cei_far_health health = CEI_FAR_IDLE;

	for (; *now < end; *now += 100) {
		cei_far_pulse_heard(pulse, *now);
		health = cei_far_pulse_look(pulse, awaited, *now);
	}
	return health;
}

/* Two timeouts, of which every part counts in which bytes were under way, and none before. */
START_TEST(test_bytes_that_do_not_move_for_two_timeouts_are_stalled)
{
	struct cei_far_pulse pulse;
	uint64_t now = 0;

	cei_far_pulse_begin(&pulse, 1000, 0);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_ANSWERS, &now, 5000), CEI_FAR_STUCK);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 7000), CEI_FAR_STUCK);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_ANSWERS, &now, 7100), CEI_FAR_STUCK);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 9000), CEI_FAR_STUCK);
	cei_far_pulse_progress(&pulse, 1);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 9900), CEI_FAR_MOVING);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 10900), CEI_FAR_STUCK);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 11000), CEI_FAR_STALLED);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_NOTHING, &now, 11100), CEI_FAR_IDLE);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 13000), CEI_FAR_STUCK);
	ck_assert_int_eq(hear(&pulse, CEI_FAR_AWAITS_BYTES, &now, 13200), CEI_FAR_STALLED);
}
END_TEST

/* A process that was stopped itself has not listened: it asks before it gives others up. */
START_TEST(test_time_in_which_nobody_looked_does_not_count)
{
	struct cei_far_pulse pulse;

	cei_far_pulse_begin(&pulse, 1000, 0);
	(void)cei_far_pulse_look(&pulse, 1, 0);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, 1000000), CEI_FAR_MOVING);
	ck_assert(cei_far_pulse_must_ask(&pulse, 1000000));
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, 1000400), CEI_FAR_MOVING);
	ck_assert_int_eq(cei_far_pulse_look(&pulse, 1, 1000500), CEI_FAR_GONE);
}
END_TEST

/* Looks every 50 from the time on until the end; hears something each time, and progress. */
static void live(struct cei_far_pulse *pulse, uint64_t from, uint64_t to, uint64_t *progress)
{
	for (; from < to; from += 50) {
		cei_far_pulse_heard(pulse, from);
		if (progress)
			cei_far_pulse_progress(pulse, ++*progress);
		(void)cei_far_pulse_look(pulse, 1, from);
	}
}

/* Who has waited in vain is told before the timeout how the other side does. */
START_TEST(test_slow_stuck_and_gone_are_told_apart_before_the_timeout)
{
	struct cei_far_pulse pulse = { .timeout_ns = 0 };
	uint64_t progress = 0, since;

	cei_far_pulse_begin(&pulse, 1000, 0);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 5000, &since), CEI_FAR_IDLE);
	live(&pulse, 5000, 5300, NULL);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 5300, &since), CEI_FAR_IDLE);
	live(&pulse, 5300, 5400, &progress);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 5400, &since), CEI_FAR_MOVING);
	ck_assert_uint_eq(since, 50);
	live(&pulse, 5400, 5800, NULL);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 5800, &since), CEI_FAR_STUCK);
	ck_assert_uint_eq(since, 450);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 6150, &since), CEI_FAR_GONE);
	ck_assert_uint_eq(since, 400);
	live(&pulse, 6150, 6200, &progress);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 6200, &since), CEI_FAR_MOVING);
	(void)cei_far_pulse_look(&pulse, 0, 6250);
	ck_assert_int_eq(cei_far_vitals_judge(&pulse.vitals, 9000, &since), CEI_FAR_IDLE);
}
END_TEST

/* Sends and acknowledges a piece within that time. */
static void send_piece(uint64_t n_bytes, uint64_t *now_ns, uint64_t took_ns)
{
	cei_far_out_add(&out, n_bytes, *now_ns);
	*now_ns += took_ns;
	ck_assert_int_eq(cei_far_out_ack(&out, out.next - 1, *now_ns), 0);
	cei_far_out_sent(&out, (uint32_t)(out.next - 1));
}

START_TEST(test_the_rate_is_that_of_busy_times)
{
	const uint64_t mib = UINT64_C(1) << 20, ms = 1000000;
	uint64_t now_ns = 5, i;

	cei_far_out_begin(&out, 0, 0, 0);
	send_piece(mib, &now_ns, ms);
	ck_assert(cei_far_out_rate(&out) == 0);         /* too few */
	now_ns += 3600 * 1000 * ms;                     /* nothing was under way */
	for (i = 0; i < 3; i++)
		send_piece(mib, &now_ns, ms);
	ck_assert(cei_far_out_rate(&out) == (double)mib * 1000);
	for (i = 0; i < 10000; i++)                     /* 40 s, a quarter as fast */
		send_piece(mib, &now_ns, 4 * ms);
	ck_assert(cei_far_out_rate(&out) > (double)mib * 250 * 0.99);
	ck_assert(cei_far_out_rate(&out) < (double)mib * 250 * 1.01);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("far_stream");
	TCase *all = tcase_create("far_stream");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_the_window_bounds_pieces_and_marks_apart);
	tcase_add_test(all, test_a_piece_is_done_when_it_landed_and_its_source_is_free);
	tcase_add_test(all, test_acks_that_lie_or_repeat_are_told_apart);
	tcase_add_test(all, test_numbers_never_run_into_each_other);
	tcase_add_test(all, test_a_mark_is_held_until_everything_before_it_is_done);
	tcase_add_test(all, test_a_mark_does_not_wait_for_pieces_of_other_lanes);
	tcase_add_test(all, test_what_came_before_or_cannot_come_is_not_taken);
	tcase_add_test(all, test_everything_is_done_in_any_order_of_arrival);
	tcase_add_test(all, test_silence_counts_only_while_something_is_awaited);
	tcase_add_test(all, test_answers_without_progress_are_told_from_silence);
	tcase_add_test(all, test_bytes_that_do_not_move_for_two_timeouts_are_stalled);
	tcase_add_test(all, test_time_in_which_nobody_looked_does_not_count);
	tcase_add_test(all,
		       test_slow_stuck_and_gone_are_told_apart_before_the_timeout);
	tcase_add_test(all, test_the_rate_is_that_of_busy_times);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
