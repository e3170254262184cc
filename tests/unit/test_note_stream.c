/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Notes are handled once and in order, whatever a lost rail does with those that it carried. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "net/note_stream.h"
#include "testing.h"

#define NOTES  3000u
#define FLIGHT 4096u                    /* messages that a network holds at most */

struct message {
	uint64_t number;                /* 0: an acknowledgement only */
	uint64_t heard;
	uint32_t rail;
};

struct side {
	struct cei_note_out out;
	struct cei_note_in  in;
	uint32_t            rail;       /* that its notes go over */
	uint64_t            n_handled;
	struct message      coming[FLIGHT];     /* to it, in any order */
	uint32_t            n_coming;
};

static struct side sides[2];
static uint64_t random_state;

static uint32_t below(uint32_t n)
{
	return (uint32_t)testing_below(&random_state, n);
}

static void begin(int is_kept)
{
	uint32_t i;

	random_state = testing_seed();
	memset(sides, 0, sizeof(sides));
	for (i = 0; i < 2; i++)
		cei_note_out_init(&sides[i].out, is_kept);
}

static void finish(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++) {
		cei_note_out_fini(&sides[i].out);
		cei_note_in_fini(&sides[i].in);
	}
}

/* --- a network that delivers in any order ----------------------------------------------------- */

static void post(uint32_t from, uint64_t number)
{
	struct side *to = &sides[!from];

	ck_assert_uint_lt(to->n_coming, FLIGHT);
	to->coming[to->n_coming++] = (struct message){ number, sides[from].in.done,
						       sides[from].rail };
	cei_note_in_told(&sides[from].in);
}

static void say(uint32_t from)
{
	struct cei_note_out *out = &sides[from].out;
	struct cei_note_item *item = cei_note_out_next(out);
	uint64_t number;

	if (item) {
		ck_assert_uint_eq(item->n_bytes, sizeof(number));
		memcpy(&number, item->bytes, sizeof(number));
		ck_assert_uint_eq(number, item->number);
		cei_note_out_said(out);
		ck_assert_uint_le(out->n_said - out->acked, CEI_NOTE_WINDOW);
		post(from, number);
	} else if (cei_note_in_must_tell(&sides[from].in)) {
		post(from, 0);
	}
}

/* Each note contains its number. */
static void handle(struct side *side, uint64_t number)
{
	ck_assert_uint_eq(number, ++side->n_handled);
	cei_note_in_handled(&side->in);
}

static void hear(uint32_t to, const struct message *message)
{
	struct side *side = &sides[to];
	struct cei_note_item *item;
	uint64_t number;
	int r;

	ck_assert_int_eq(cei_note_out_acked(&side->out, message->heard), 0);
	if (!message->number)
		return;
	r = cei_note_in_take(&side->in, message->number, &message->number, sizeof(uint64_t));
	ck_assert_int_ge(r, 0);
	if (!r)
		handle(side, message->number);
	while ((item = cei_note_in_next(&side->in))) {
		memcpy(&number, item->bytes, sizeof(number));
		free(item);
		handle(side, number);
	}
}

/* Delivers any of the messages that are on their way. */
static void deliver(uint32_t to)
{
	struct side *side = &sides[to];
	struct message message;
	uint32_t i;

	if (!side->n_coming)
		return;
	i = below(side->n_coming);
	message = side->coming[i];
	side->coming[i] = side->coming[--side->n_coming];
	hear(to, &message);
}

/* The rail is lost, with some of what it carries; the rest comes late, or twice. One side notices
 * before the other. */
static void lose(uint32_t rail, uint32_t who)
{
	struct side *side = &sides[who];
	uint32_t i;

	for (i = sides[!who].n_coming; i-- > 0;)
		if (sides[!who].coming[i].rail == rail && below(2))
			sides[!who].coming[i] = sides[!who].coming[--sides[!who].n_coming];
	side->rail = rail + 1;
	cei_note_out_repeat(&side->out);
	side->in.owes_ack = 1;
}

/* --- the tests --------------------------------------------------------------------------- */

/* One side says many notes, the other few (_i 0), none (1) or as many (2), over three rails of
 * which two are lost, one after the other. */
START_TEST(test_each_note_is_handled_once_and_in_order)
{
	const uint32_t n_back = _i == 1 ? 0 : _i ? NOTES : NOTES / 50;
	const uint32_t wanted[2] = { NOTES, n_back };
	uint64_t number, turns = 0;
	uint32_t who;

	begin(1);
	while (sides[1].n_handled < NOTES || sides[0].n_handled < n_back) {
		ck_assert_uint_lt(turns++, 4000000);
		who = below(2);
		number = sides[who].out.last + 1;
		if (sides[who].out.last < wanted[who] && !below(_i ? 1 : 3))
			ck_assert_int_eq(cei_note_out_add(&sides[who].out, &number,
							  sizeof(number)), 0);
		say(below(2));
		if (below(2))
			deliver(below(2));
		if (sides[1].n_handled > (sides[who].rail + 1) * NOTES / 3 && sides[who].rail < 2)
			lose(sides[who].rail, who);
	}
	ck_assert_uint_eq(sides[0].rail, 2);
	while (sides[0].n_coming || sides[1].n_coming)
		deliver(below(2));              /* late ones */
	ck_assert_uint_eq(sides[1].n_handled, NOTES);
	ck_assert_uint_eq(sides[0].n_handled, n_back);
	finish();
}
END_TEST

/* Nothing is said beyond the window before something is acknowledged, by repetitions neither. */
START_TEST(test_the_window_bounds_what_is_under_way)
{
	struct cei_note_out *out = &sides[0].out;
	uint64_t i, n = 2 * CEI_NOTE_WINDOW;

	begin(1);
	for (i = 1; i <= n; i++) {
		ck_assert_uint_eq(cei_note_out_number(out), i);
		ck_assert_int_eq(cei_note_out_add(out, &i, sizeof(i)), 0);
	}
	for (i = 0; cei_note_out_next(out); i++)
		cei_note_out_said(out);
	ck_assert_uint_eq(i, CEI_NOTE_WINDOW);
	cei_note_out_repeat(out);
	ck_assert_int_eq(cei_note_out_acked(out, CEI_NOTE_WINDOW + 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_note_out_acked(out, 10), 0);       /* late, of the first time */
	ck_assert_uint_eq(cei_note_out_next(out)->number, 11);
	ck_assert_int_eq(cei_note_out_acked(out, 9), 0);        /* later still */
	for (i = 0; cei_note_out_next(out); i++)
		cei_note_out_said(out);
	ck_assert_uint_eq(i, CEI_NOTE_WINDOW);
	finish();
}
END_TEST

START_TEST(test_numbers_that_nobody_says_are_refused)
{
	struct cei_note_in *in = &sides[0].in;

	begin(1);
	ck_assert_int_eq(cei_note_in_take(in, 0, "x", 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_note_in_take(in, CEI_NOTE_WINDOW + 1, "x", 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_note_in_take(in, CEI_NOTE_WINDOW, "x", 1), CEOV_PENDING);
	ck_assert_int_eq(cei_note_in_take(in, CEI_NOTE_WINDOW, "y", 1), CEOV_NONE);
	ck_assert_int_eq(cei_note_in_take(in, 1, "x", 1), 0);
	ck_assert_int_eq(cei_note_in_take(in, 1, "y", 1), CEOV_NONE);   /* it is being handled */
	ck_assert_int_eq(cei_note_in_take(in, 2, "x", 1), CEOV_PENDING);
	ck_assert_ptr_null(cei_note_in_next(in));
	cei_note_in_handled(in);
	ck_assert_int_eq(cei_note_in_take(in, 1, "y", 1), CEOV_NONE);
	ck_assert(cei_note_in_must_tell(in));
	ck_assert_int_eq(cei_note_out_acked(&sides[0].out, 1), CEOV_ERR_INVALID);
	finish();
}
END_TEST

/* Who has one rail keeps nothing that was said, and numbers nothing. */
START_TEST(test_without_another_rail_nothing_is_kept)
{
	struct cei_note_out *out = &sides[0].out;
	uint64_t i;

	begin(0);
	for (i = 1; i <= 1000; i++) {
		ck_assert_uint_eq(cei_note_out_number(out), 0);
		ck_assert_int_eq(cei_note_out_add(out, &i, sizeof(i)), 0);
		ck_assert_ptr_nonnull(cei_note_out_next(out));
		cei_note_out_said(out);
		ck_assert(cei_list_is_empty(&out->notes));
	}
	ck_assert_int_eq(cei_note_out_acked(out, 1), CEOV_ERR_INVALID);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("note_stream");
	TCase *tcase = tcase_create("notes");

	tcase_add_loop_test(tcase, test_each_note_is_handled_once_and_in_order, 0, 3);
	tcase_add_test(tcase, test_the_window_bounds_what_is_under_way);
	tcase_add_test(tcase, test_numbers_that_nobody_says_are_refused);
	tcase_add_test(tcase, test_without_another_rail_nothing_is_kept);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
